"""Each key of `weather.toml` is modelled: raised alone in a calm weather, it shows in what really happens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.step import Step
from ephemerd.domain.runner import FenceAnswer
from ephemerd.testing.simulate.foils import POLICIES
from ephemerd.testing.simulate.run import Result, Simulation
from ephemerd.testing.weather import Chance, Weather
from tests.unit.simulate.build import calm, just

Check = Callable[[Result], bool]


def seen(what: str, at_least: int = 1) -> Check:
    return lambda result: result.outcome.seen.get(what, 0) >= at_least


def nothing(what: str) -> Check:
    return lambda result: what not in result.outcome.seen


def sound(result: Result) -> bool:
    return result.problems == [] and result.outcome.completed == result.outcome.jobs


# What happens by chance: the key, the value that makes it happen, and how it shows.
CHANCES: dict[str, tuple[dict[str, Any], Check]] = {
    "webhook_lost": ({"webhook_lost": 0.5}, seen("webhook_lost", 20)),
    "webhook_duplicated": ({"webhook_duplicated": 0.5}, seen("webhook_duplicated", 20)),
    "webhook_late": ({"webhook_late": Chance(0.5, just(100))}, seen("webhook_late", 20)),
    "cancelled_queued": ({"cancelled_queued": 0.5, "slots": 2}, lambda r: r.outcome.cancelled >= 3),
    "foreign_taken": ({"foreign_taken": 0.5, "slots": 2}, lambda r: r.outcome.foreign >= 3),
    "operator_kill": ({"operator_kill": 0.5}, seen("operator_kill", 10)),
    "jit_answer_lost": ({"jit_answer_lost": 0.3}, seen("jit_answer_lost", 5)),
    "registration_404_on_assignment": (
        {"registration_404_on_assignment": 0.5},
        seen("registration_404_on_assignment", 10),
    ),
    "list_omits_runner": ({"list_omits_runner": 0.5}, seen("list_omits_runner")),
    "ghost": ({"ghost": 0.3}, seen("ghost", 5)),
    "hang_after_acknowledge": ({"hang_after_acknowledge": 0.2}, seen("hang_after_acknowledge", 2)),
    "exit_without_job": ({"exit_without_job": 0.3}, seen("exit_without_job", 5)),
    "wedged_worker": ({"wedged_worker": 0.1}, seen("wedged_worker")),
    "completed_while_worker_runs": (
        {"completed_while_worker_runs": 0.5},
        seen("completed_while_worker_runs", 10),
    ),
    "completed_cancelled_then_other_job": (
        {"completed_cancelled_then_other_job": 0.3},
        seen("completed_cancelled_then_other_job", 5),
    ),
    "approval": ({"approval": 0.5}, seen("approval", 10)),
    "rerun": ({"rerun": 0.5}, seen("rerun", 10)),
    "max_parallel": ({"max_parallel": 1.0, "burst": (4, 4)}, seen("max_parallel", 5)),
    "daemon_crash": ({"daemon_crash": 0.02}, lambda r: r.crashes >= 5 and r.replays > r.crashes),
    "clock_step": ({"clock_step": Chance(0.02, just(7200))}, seen("clock_step", 5)),
    "wake_late": ({"wake_late": Chance(0.5, just(0.5))}, seen("wake_late", 10)),
    "probe_fails": ({"probe_fails": 0.5, "operator_kill": 1.0}, seen("probe_fails", 3)),
    "busy_flag_lag": (
        {"busy_flag_lag": just(60), "probe_fails": 1.0, "operator_kill": 1.0},
        seen("busy_flag_lag"),
    ),
    "busy_flag_wrong": (
        {"busy_flag_wrong": 0.9, "probe_fails": 1.0, "operator_kill": 1.0},
        seen("busy_flag_wrong"),
    ),
    "sibling_skew": ({"sibling_skew": just(30), "burst": (3, 3)}, lambda r: r.outcome.waits[0] > 30_000),
    "outage_every": (
        {"outage_every": just(60), "outage_lasts": just(30), "outage_kind": {"503": 1.0}},
        seen("outage 503"),
    ),
    "webhook_late_in_outage": (
        {
            "outage_every": just(60),
            "outage_lasts": just(60),
            "outage_kind": {"timeout": 1.0},
            "webhook_late_in_outage": just(100),
        },
        seen("webhook_late_in_outage", 3),
    ),
}
"""`stop_ignored` and `delete_accepted_while_held` take a scheduler that ends what is not idle; see below."""

KINDS = ("503", "403-rate-limit", "429", "timeout")
ELSEWHERE = {
    "stop_ignored": "test_a_stop_that_is_ignored_takes_until_the_kill",
    "delete_accepted_while_held": "test_a_forge_that_is_wrong_lets_a_held_registration_go",
    "refuses_from": "test_the_forge_refuses_from_the_switch_on",
    "outage_lasts": "outage_every",
    "outage_kind": "test_each_kind_of_outage_is_answered_as_it_is",
    "burst": "test_load_and_delays_are_the_weathers",
    "gap": "test_load_and_delays_are_the_weathers",
    "job": "test_load_and_delays_are_the_weathers",
    "slots": "test_load_and_delays_are_the_weathers",
    "webhook_delay": "test_every_delay_lengthens_the_wait",
    "rest_delay": "test_every_delay_lengthens_the_wait",
    "assign": "test_every_delay_lengthens_the_wait",
    "acknowledge": "test_every_delay_lengthens_the_wait",
    "acquire": "test_every_delay_lengthens_the_wait",
    "spawn": "test_every_delay_lengthens_the_wait",
    "boot": "test_every_delay_lengthens_the_wait",
    "report": "test_report_and_wind_down_and_stop_hold_the_slot_for_longer",
    "wind_down": "test_report_and_wind_down_and_stop_hold_the_slot_for_longer",
    "stop": "test_report_and_wind_down_and_stop_hold_the_slot_for_longer",
}
HARMLESS = set(CHANCES) - {"hang_after_acknowledge", "wedged_worker"}


def test_every_key_of_a_weather_has_its_test():
    keys = {field.name for field in fields(Weather)} - {"name"}
    assert keys == set(CHANCES) | set(ELSEWHERE)
    for where in ELSEWHERE.values():
        assert where in globals() or where in CHANCES


@pytest.mark.parametrize("key", CHANCES)
def test_key_shows_and_the_promise_holds(key):
    changes, check = CHANCES[key]
    result = Simulation(calm(**changes), 3, 60).run()
    assert check(result), result.outcome.seen
    assert result.problems == []
    if key in HARMLESS:
        assert result.outcome.completed == result.outcome.jobs


@pytest.mark.parametrize("key", CHANCES)
def test_key_that_is_not_raised_does_not_show(key):
    assert not CHANCES[key][1](Simulation(calm(), 3, 60).run())


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_outage_is_answered_as_it_is(kind):
    weather = calm(outage_every=just(30), outage_lasts=just(60), outage_kind={kind: 1.0})
    faults: list[tuple[str, int | None]] = []

    def watch(event: ev.Event, _step: object, _now: int) -> None:
        fault = getattr(event, "fault", None)
        if fault is not None and "outage" in fault.detail:
            faults.append((fault.remedy.value, fault.after_ms))

    result = Simulation(weather, 3, 40, watch=watch).run()
    assert sound(result)
    limited = kind in ("403-rate-limit", "429")
    assert faults
    assert {remedy for remedy, _ in faults} == {"limited" if limited else "retry"}
    assert all((after is not None) == limited for _, after in faults)


def waits(**changes: Any) -> list[int]:
    return Simulation(calm(burst=(1, 1), gap=just(30), job=just(5), **changes), 3, 10).run().outcome.waits


@pytest.mark.parametrize(
    "key", ["webhook_delay", "rest_delay", "boot", "assign", "acknowledge", "acquire", "spawn"]
)
def test_every_delay_lengthens_the_wait(key):
    short, long_ = waits(**{key: just(0.1)}), waits(**{key: just(3.1)})
    for quick, slow in zip(short, long_, strict=True):
        assert 2_900 <= slow - quick <= 6_300


@pytest.mark.parametrize("key", ["report", "wind_down"])
def test_report_and_wind_down_and_stop_hold_the_slot_for_longer(key):
    def held(seconds: float) -> float:
        result = Simulation(calm(burst=(1, 1), job=just(5), **{key: just(seconds)}), 3, 10).run()
        return result.outcome.holding / result.outcome.used

    assert 9_000 <= held(11.0) - held(1.0) <= 11_000

    def destroyed(seconds: float) -> int:
        weather = calm(stop=just(seconds), burst=(2, 2), gap=just(700), cancelled_queued=1.0, slots=16)
        return Simulation(weather, 3, 10).run().outcome.holding

    assert destroyed(11.0) > destroyed(1.0)


def test_load_and_delays_are_the_weathers():
    weather = calm(burst=(4, 4), gap=just(100), job=just(50), slots=3)
    simulation = Simulation(weather, 3, 12)
    simulation.run()
    jobs = list(simulation.daemon.forge.jobs.values())
    assert [job.queued for job in jobs] == [3_000] * 4 + [103_000] * 4 + [203_000] * 4
    assert {job.duration for job in jobs} == {50_000}
    assert simulation.setup.hosts[0].slots == 3
    assert max(simulation.outcome.waits) > 50_000, "the fourth of a burst waits for a slot"


@pytest.mark.parametrize("refuses_from", ["assignment", "acquisition"])
def test_the_forge_refuses_from_the_switch_on(refuses_from):
    """Whoever deregisters between the assignment and the acquisition is refused, or takes the runner away."""
    simulation = Simulation(calm(acquire=just(20), refuses_from=refuses_from), 3, 3)
    forge = simulation.daemon.forge
    answers: list[tuple[bool, str]] = []
    offers: list[str] = []

    def offered(registration: Any, job: Any, offer: Any = forge.offer) -> None:
        offer(registration, job)
        offers.append(registration.name)
        if len(offers) == 1:
            simulation.time.after(5_000, ask, registration)

    def ask(registration: Any) -> None:
        answers.append((registration.acquired, forge.deregister(registration.id)))

    forge.offer = offered
    result = simulation.run()
    if refuses_from == "assignment":
        assert answers == [(False, FenceAnswer.REFUSED.value)]
        assert result.outcome.disturbed == 0
    else:
        assert answers == [(False, FenceAnswer.ACCEPTED.value)]
        assert result.outcome.disturbed == 1
        assert len(result.outcome.again) == 1
    assert result.outcome.completed == 3


def test_a_forge_that_is_wrong_lets_a_held_registration_go():
    """The gate asks only where it saw nothing, so the forge is asked here by hand, in mid-job."""
    simulation = Simulation(calm(delete_accepted_while_held=1.0, job=just(60)), 3, 2)
    forge = simulation.daemon.forge
    answers: list[str] = []
    simulation.daemon.runtime.acquired = lambda job, name: simulation.time.after(
        30_000, lambda: answers.append(forge.deregister(forge.by_name[name].id))
    )
    simulation.load.begin = lambda: simulation.time.after(2_000, simulation.load._burst)  # type: ignore[method-assign]
    result = simulation.run()
    assert answers == ["accepted"] * 2
    assert result.outcome.fences_accepted_while_held == 2
    assert (result.outcome.completed, result.outcome.killed, result.problems) == (2, 0, [])


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_stop_that_is_ignored_takes_until_the_kill(share):
    """`sweep` destroys spares that still listen: a stop that is ignored is followed by a kill half a minute later."""
    asked: dict[str, int] = {}
    took: list[int] = []

    def watch(event: ev.Event, step: Step, now: int) -> None:
        if isinstance(event, ev.EnvironmentDestroyed) and event.environment in asked:
            took.append(now - asked.pop(event.environment))
        for command in step.commands:
            if isinstance(command, cm.Destroy):
                env = simulation.daemon.runtime.environments.get(command.permit.runner)
                if env is not None and env.alive:
                    asked[command.permit.environment] = now

    weather = calm(stop_ignored=share, cancelled_queued=1.0, burst=(3, 3), slots=16)
    simulation = Simulation(weather, 3, 30, policy="sweep", watch=watch)
    simulation.run()
    assert len(took) >= 3
    assert all((wait > 30_000) == bool(share) for wait in took)
    assert simulation.outcome.seen.get("stop_ignored", 0) == (len(took) if share else 0)


def test_the_shell_clock_never_jumps_with_the_wall_clock():
    """All that a step of the wall clock gives is one event: with and without, the history has the same times."""
    times: dict[bool, list[int]] = {}
    for steps in (False, True):
        found = times[steps] = []
        weather = calm(clock_step=Chance(0.05 if steps else 0.0, just(-7200)))

        def watch(event: ev.Event, _step: object, now: int, found: list[int] = found) -> None:
            if not isinstance(event, ev.ClockStepped):
                found.append(now)

        assert sound(Simulation(weather, 3, 40, watch=watch).run())
    assert times[True] == sorted(times[True])
    assert max(times[True]) < 3 * max(times[False])


def test_the_policies_are_all_known_to_the_simulation():
    assert next(iter(POLICIES)) == "gate"
