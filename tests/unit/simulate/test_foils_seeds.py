"""Foils and `gate` on the same seeds and in the same weather: the foils hurt jobs, `gate` does not.

`bursty` and `hostile` are the shipped weathers. RACING is `bursty` made to race: few jobs at a time but often,
for each one a job that is cancelled again (so that spares are nominated all the time), nothing waits before it
nominates, and a forge that answers slowly. In it the checks can be told apart that in the shipped weathers
always catch together what either of them would catch alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from ephemerd.core import events as ev
from ephemerd.domain.pool import SECOND, Setup
from ephemerd.domain.verdict import Sign
from ephemerd.testing import weather as weathers
from ephemerd.testing.simulate.foils import POLICIES, forged
from ephemerd.testing.simulate.foils.without import NoLog, NoProbe, NoRevalidate, NoSettle, Without
from ephemerd.testing.simulate.run import Result, Simulation, default_setup, simulate
from ephemerd.testing.weather import Uniform, Weather

BURSTY, HOSTILE = weathers.load("bursty"), weathers.load("hostile")
RACING = replace(
    BURSTY,
    burst=(1, 3),
    gap=Uniform(2, 5),
    job=Uniform(10, 30),
    rest_delay=Uniform(1, 3),
    cancelled_queued=1.0,
    foreign_taken=0.0,
    operator_kill=0.0,
)
MISTAKEN = replace(RACING, delete_accepted_while_held=1.0)
"""RACING at a forge whose acceptance means nothing (in `hostile` it is wrong once in a hundred times)."""

EARLIER = ("intent", "sweep", "veto")


def hasty(weather: Weather, **pool: Any) -> Setup:
    """The usual pools, but a spare is surplus at once."""
    usual = default_setup(weather)
    return msgspec.structs.replace(
        usual, pools=tuple(msgspec.structs.replace(p, surplus_grace=0, **pool) for p in usual.pools)
    )


class Deaf(Without):
    """A daemon that hears nothing of the files it follows; probes still read them."""

    def told(self, event: ev.Event) -> ev.Event | None:
        if isinstance(event, ev.SignSeen) and event.sign is not Sign.LISTENING:
            return None
        return event


@pytest.fixture(autouse=True)
def combinations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Policies that no command line knows: handicaps, and two checks taken out together."""
    monkeypatch.setitem(POLICIES, "deaf", Deaf)
    monkeypatch.setitem(POLICIES, "deaf-no-settle", lambda: NoSettle(Deaf))
    monkeypatch.setitem(POLICIES, "no-log-no-probe", lambda: NoProbe(NoLog))
    monkeypatch.setitem(POLICIES, "no-settle-no-revalidate", lambda: NoRevalidate(NoSettle))


def runs(
    policy: str, weather: Weather, jobs: int, seeds: range, setup: Setup | None = None
) -> Iterator[Result]:
    for seed in seeds:
        yield simulate(weather, seed, jobs, policy=policy, setup=setup)


def killed(results: Iterator[Result]) -> int:
    return sum(result.outcome.killed for result in results)


def disturbed(results: Iterator[Result]) -> int:
    return sum(result.outcome.disturbed for result in results)


class TestEarlierDesigns:
    """`bursty`, seed 1, 1,000 jobs."""

    @pytest.mark.parametrize("policy", EARLIER)
    def test_it_kills(self, policy):
        result = simulate(BURSTY, 1, 1_000, policy=policy)
        assert result.outcome.killed > 0
        assert result.outcome.completed + result.outcome.killed + result.outcome.ordered <= 1_100

    def test_gate_does_not_and_was_entered(self):
        result = simulate(BURSTY, 1, 1_000)
        assert (result.outcome.killed, result.outcome.disturbed) == (0, 0)
        assert result.outcome.completed == 1_000
        assert result.outcome.gate_runs_holding_job > 0

    def test_each_design_kills_less_than_the_one_before(self):
        first, second, third = (killed(runs(policy, BURSTY, 1_000, range(2, 3))) for policy in EARLIER)
        assert first > second > 3 * third > 0

    @pytest.mark.parametrize("policy", EARLIER)
    def test_it_lives_through_the_worst_weather_with_its_books_in_order(self, policy):
        """Crashes, outages, lost answers: what fails is its judgement, not its bookkeeping."""
        result = simulate(HOSTILE, 1, 300, policy=policy, check_each=True)
        kinds = {finding.kind for finding in result.findings}
        assert kinds.isdisjoint({"state", "slots", "index", "endless"})
        assert result.crashes > 0

    @pytest.mark.parametrize("policy", EARLIER)
    def test_one_seed_is_one_history(self, policy):
        first, second = (simulate(BURSTY, 5, 200, policy=policy) for _ in range(2))
        assert first.command_hash == second.command_hash
        assert first.outcome == second.outcome


class TestWithoutTheLog:
    """`hostile`: a worker may take a minute to appear, and until a job is acquired the forge may accept."""

    SEEDS = range(1, 4)
    SLOW = replace(MISTAKEN, spawn=Uniform(0, 60))

    def test_jobs_are_disturbed(self):
        assert disturbed(runs("gate-no-log", HOSTILE, 600, self.SEEDS)) > 0

    def test_under_gate_none_is(self):
        assert disturbed(runs("gate", HOSTILE, 600, self.SEEDS)) == 0

    def test_jobs_are_killed_where_the_forge_is_wrong(self):
        assert killed(runs("gate-no-log", self.SLOW, 300, self.SEEDS, hasty(RACING))) > 0

    def test_under_gate_none_is_killed(self):
        assert killed(runs("gate", self.SLOW, 300, self.SEEDS, hasty(RACING))) == 0


class TestWithoutTheFence:
    """A runner is destroyed while the forge may still give it a job: it does, and the job waits a minute."""

    SEEDS = range(1, 6)

    def test_jobs_are_disturbed(self):
        assert disturbed(runs("gate-no-fence", RACING, 300, self.SEEDS, hasty(RACING))) > 0

    def test_under_gate_none_is(self):
        assert disturbed(runs("gate", RACING, 300, self.SEEDS, hasty(RACING))) == 0


class TestWithoutSettling:
    """A forge that is wrong, and nothing is heard of the followed files: the second look is all there is."""

    SEEDS = range(1, 4)
    WEATHER = MISTAKEN

    def test_jobs_are_killed(self):
        assert killed(runs("deaf-no-settle", self.WEATHER, 300, self.SEEDS, hasty(RACING))) > 0

    def test_with_it_none_is(self):
        assert killed(runs("deaf", self.WEATHER, 300, self.SEEDS, hasty(RACING))) == 0


class TestWithoutRevalidation:
    """A forge that is wrong, in pools without a probe: there is no second look, only what is heard."""

    SEEDS = range(1, 4)
    WEATHER = MISTAKEN
    SETUP = hasty(RACING, probes=False, orphan_grace=5 * SECOND)

    def test_jobs_are_killed(self):
        assert killed(runs("gate-no-revalidate", self.WEATHER, 300, self.SEEDS, self.SETUP)) > 0

    def test_under_gate_none_is(self):
        assert killed(runs("gate", self.WEATHER, 300, self.SEEDS, self.SETUP)) == 0


class TestSettlingAndRevalidation:
    """Either catches nearly all that the other catches: taken out together, far more is killed."""

    WEATHER = MISTAKEN

    @pytest.mark.parametrize(
        ("policy", "kills"),
        [("gate", False), ("gate-no-revalidate", False), ("no-settle-no-revalidate", True)],
    )
    def test_both_are_needed(self, policy, kills):
        assert (killed(runs(policy, self.WEATHER, 300, range(1, 3), hasty(RACING))) > 2) is kills


class TestWithoutTheProbe:
    """Where the files of the listener tell nothing, the worker is all there is to be seen."""

    WEATHER = replace(BURSTY, delete_accepted_while_held=1.0)

    def test_jobs_are_killed_where_the_files_tell_nothing(self):
        assert killed(runs("no-log-no-probe", self.WEATHER, 500, range(1, 3))) > 0

    def test_with_the_probe_none_is(self):
        assert killed(runs("gate-no-log", self.WEATHER, 500, range(1, 3))) == 0

    @pytest.mark.parametrize("weather", [BURSTY, HOSTILE], ids=lambda weather: weather.name)
    def test_why_it_is_not_missed_in_the_shipped_weathers(self, weather):
        """In them the files are always whole: whenever a probe sees a worker, they tell of its job as well."""
        reports = []

        def watch(event: ev.Event, *_: object) -> None:
            if isinstance(event, ev.Probed) and event.report is not None and event.report.workers:
                reports.append(event.report)

        Simulation(weather, 1, 400, watch=watch).run()
        assert reports
        for report in reports:
            assert report.announced_at is not None
            assert report.ended_at is None or report.ended_at < report.announced_at


class TestForged:
    def test_only_a_forged_leave_is_forged(self):
        commands: dict[bool, int] = {False: 0, True: 0}

        def count(_event: ev.Event, step: object, _now: int) -> None:
            for command in step.commands:  # type: ignore[attr-defined]
                commands[forged.is_forged(command)] += 1

        Simulation(BURSTY, 1, 50, policy="gate-no-fence", watch=count).run()
        assert commands[True] == 0
        Simulation(BURSTY, 1, 50, policy="sweep", watch=count).run()
        assert commands[True] > 50
