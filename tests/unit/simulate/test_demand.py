"""The incidents whose jobs the daemon is to serve: what each journal expects, its variants, the foils."""

from __future__ import annotations

import random
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from ephemerd.domain.runner import RunnerState
from ephemerd.testing.simulate.demand import Demand, DemandVariant, replay_demand
from ephemerd.testing.simulate.foils import POLICIES
from ephemerd.testing.simulate.forge import draw
from ephemerd.testing.simulate.incidents import Line, Report, moment, read

JOURNALS = Path(__file__).parents[2] / "data" / "incidents"
STUCK = JOURNALS / "197-stuck-slot-28h.jsonl"
STALE = JOURNALS / "210-windows-stale-dispatch.jsonl"
MAC = JOURNALS / "mac-one-slot-waste.jsonl"
DEMANDED = [STUCK, STALE, MAC]


def missed(report: Report) -> list[str]:
    return [text for text, held in report.expectations if not held] + report.problems


def held(replayed: Demand) -> dict[str, bool]:
    """Whether each check held, by its name."""
    checks = zip(replayed.note["expect"], replayed.report.expectations, strict=True)
    return {entry["check"]: found for entry, (_, found) in checks}


@cache
def run(path: Path, policy: str = "gate", **variant: object) -> Demand:
    """Replay a journal once for all tests that only look at what came of it: one seed is one history."""
    replayed = Demand(path, DemandVariant(**variant), policy=POLICIES[policy])  # type: ignore[arg-type]
    replayed.run()
    return replayed


def test_every_journal_that_is_demanded_is_here():
    found = sorted(path for path in JOURNALS.glob("*.jsonl") if read(path)[0]["replay"] == "demand")
    assert found == sorted(DEMANDED)


@pytest.mark.parametrize("path", DEMANDED, ids=lambda path: path.stem)
def test_as_recorded(path):
    report = replay_demand(path)
    assert missed(report) == []
    expected = read(path)[0]["expect"]
    assert [text for text, _ in report.expectations] == [entry["text"] for entry in expected]


@pytest.mark.parametrize("path", DEMANDED, ids=lambda path: path.stem)
def test_the_run_time_of_a_job_is_hidden_from_the_scheduler(path):
    """Other run times, the same first commands: nothing can be planned from what is not told."""
    lines = read(path)[1]
    for line in lines:
        if line["kind"] == "job_queued":
            line["work_s"] = 1.0
    first = run(path)
    other = Demand(path, None, lines)
    other.run()
    assert first.seen.registered[0][0] == other.seen.registered[0][0]
    assert "work_s" not in repr(first.daemon.core.state.jobs)


# one slot, an environment that ignores its stop


def test_a_stop_that_returns_after_all_is_counted_once():
    replayed = run(STUCK, stop_after_s=2_400)
    checks = held(replayed)
    assert checks.pop("listed_as") is False, "it is gone in the end, and listed no more"
    assert all(checks.values())
    assert replayed.report.problems == []
    assert replayed.daemon.runtime.environments == {}


def test_where_every_environment_is_wedged_few_are_tried():
    replayed = run(STUCK, every_wedged=True)
    assert len(replayed.made) == replayed.setup.policy.abandoned_limit == 2
    states = [row.state for row in replayed.daemon.core.state.runners.values()]
    assert states == [RunnerState.ABANDONED] * 2
    assert (replayed.report.killed, replayed.report.problems) == ([], [])


def test_one_that_is_wedged_with_a_worker_is_not_destroyed_while_it_may_work():
    replayed = run(STUCK, worker_wedged=True)
    wedged = replayed.made[0]
    assert wedged.worker_at is not None
    timeout = 7_200_000
    assert all(
        at >= wedged.worker_at + timeout for at, name in replayed.seen.destroyed if name == wedged.name
    )
    rules = [d.rule for d in replayed.report.decisions if d.runner == wedged.name and d.outcome == "reaped"]
    assert set(rules) <= {"overdue"}, "only the limit that a person set ends it"


# a two-slot node, dispatches that are days old


def test_deliveries_lost_let_the_forge_be_asked():
    replayed = run(STALE, tell_ends=False)
    assert missed(replayed.report) == []
    assert replayed.outcome.calls["job"] >= 1


def test_a_forge_that_answers_nothing_costs_one_runner_a_job_and_hour_at_most():
    replayed = run(STALE, tell_ends=False, job_reads_fail=True)
    checks = held(replayed)
    assert (checks["no_runner_for"], checks["wasted_at_most"]) == (False, False), "as the variant says"
    assert [checks[name] for name in ("all_jobs_run", "wait_at_most", "no_kill")] == [True] * 3
    ended = {720001 + number for number in range(9)}
    by_job: dict[int, list[int]] = {}
    for at, _, job in replayed.seen.registered:
        if job in ended:
            by_job.setdefault(job, []).append(at)
    assert by_job
    for times in by_job.values():
        assert all(later - earlier >= 3_600_000 for earlier, later in pairwise(times))
    assert replayed.report.problems == []


def test_a_restart_changes_nothing():
    replayed = run(STALE, restart_at="2026-10-05T00:00:00Z")
    assert (replayed.daemon.life, missed(replayed.report)) == (2, [])


def test_both_slots_are_taken_until_they_are_free():
    replayed = run(STALE)
    free = moment(replayed.policy["slots_free_from"])
    fillers = replayed.made[:2]
    assert [env.pool for env in fillers] == ["outside"] * 2
    assert all(env.left is not None and abs(env.left - free) < 2_000 for env in fillers)
    assert all(at >= free for at, _, _ in replayed.seen.registered[2:])


# one slot, five repositories


@pytest.mark.parametrize("variant", [{"tell_late_s": 3.0}, {"seed": 7}, {"seed": 8}], ids=str)
def test_the_one_slot_is_not_wasted_either(variant):
    assert missed(run(MAC, **variant).report) == []


def test_the_one_slot_is_used_as_an_oracle_would():
    """With perfect knowledge and the same delays: one runner a job, and none idles."""
    replayed = run(MAC)
    assert replayed.outcome.unused <= 0.01 * len(replayed.made)
    weather, rng = replayed.daemon.weather, random.Random(0)
    life = [
        weather.boot,
        weather.assign,
        weather.acknowledge,
        weather.acquire,
        weather.spawn,
        weather.wind_down,
    ]
    idle = sum(draw(step, rng) for step in life)
    working = sum(job.duration + draw(weather.report, rng) for job in replayed.jobs.values())
    best = working / (working + idle * len(replayed.jobs))
    assert replayed.utilisation() >= 0.95 * best
    assert replayed.utilisation() <= best + 0.001, "nobody is better than the oracle"


def test_the_design_of_its_time_wastes_the_slot():
    replayed = run(MAC, "intent")
    assert replayed.outcome.unused > 20
    assert held(replayed)["wasted_at_most"] is False
    assert replayed.longest_idle_hold() > 3_600


# the checks can fail


def test_unknown_checks_do_not_hold():
    assert Demand(STUCK).check({"check": "sunny", "text": "x"}) is False


@pytest.mark.parametrize(
    "entry",
    [
        {"check": "all_jobs_run", "jobs": 11},
        {"check": "wait_at_most", "max_s": 1},
        {"check": "wait_at_most", "p50_s": 1, "max_s": 100_000},
        {"check": "wait_at_most", "max_s": 1_000, "jobs": [1]},
        {"check": "wasted_at_most", "runners": 0},
        {"check": "listed_as", "environment": 1, "state": "gone"},
        {"check": "listed_as", "environment": 99, "state": "abandoned"},
        {"check": "slot_back_by", "environment": 2, "after_s": 1},
        {"check": "nothing_left"},
        {"check": "no_runner_for", "jobs": [710001], "from": "2026-09-08T00:00:00Z"},
    ],
    ids=lambda entry: f"{entry['check']} {list(entry.values())[1:]}",
)
def test_each_check_can_fail(entry):
    replayed = run(STUCK)
    assert replayed.check(entry) is False


def test_a_kill_is_seen(monkeypatch):
    from ephemerd.core import commands as cm
    from ephemerd.core import events as ev
    from ephemerd.core.step import Step
    from ephemerd.domain.verdict import Sign
    from ephemerd.testing.simulate.foils import forged
    from tests.unit.simulate.build import Around

    class Kills(Around):
        def orders(self, step: Step, event: ev.Event, now: int) -> list[cm.Command]:
            if isinstance(event, ev.SignSeen) and event.sign is Sign.WORKER:
                return [*step.commands, forged.destroy(self.state.runners[event.runner], now, "a whim")]
            return list(step.commands)

    lines: list[Line] = read(STUCK)[1]
    replayed = Demand(STUCK, None, [line for line in lines if line.get("job") in (710001, 710002)], Kills)
    report = replayed.run()
    assert [job for _, _, job in report.killed] == [710001, 710002]
    assert held(replayed)["no_kill"] is False
    assert [name for _, name in report.destroyed][-2:] == [name for _, name, _ in report.killed]


def test_idle_holds_are_measured_while_others_wait():
    replayed = run(MAC, "intent")
    longest = replayed.longest_idle_hold()
    waiting = max(wait for wait in replayed.waits() if wait is not None)
    assert 120 < longest <= waiting
