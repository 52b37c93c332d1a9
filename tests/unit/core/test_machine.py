"""The core as a value: when it wants to be woken, what a store must keep of it, and that order is nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from ephemerd.core import codec, machine
from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.agenda import Agenda
from ephemerd.core.machine import RULES, Core, Unsettled
from ephemerd.core.rows import HostRow, PoolRow, ScopeRow
from ephemerd.core.turn import Turn
from ephemerd.core.validate import slot_difference, validate, validate_runner
from ephemerd.domain.access import Access
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import ForgeStatus, Job, JobReport, JobStatus, Told
from ephemerd.domain.pool import Host, Policy, Setup
from ephemerd.domain.runner import Runner, RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.core.world import APP, GPU, HOUR, LABELS, LIB, MINUTE, SECOND, START, World, key, of, pool

S = RunnerState


# -- next_wake -----------------------------------------------------------------------------------------


def test_a_core_that_nothing_happened_to_sleeps() -> None:
    assert Core().next_wake() is None
    assert Core().handle(ev.Woke(), 5).commands == ()


def test_it_is_woken_for_the_earliest_moment_and_not_twice_for_one() -> None:
    world = World()
    assert world.core.next_wake() == START + MINUTE  # the sweep
    world.planned(1)
    world.wait(30 * SECOND)
    world.planned(2)
    assert world.core.next_wake() == START + MINUTE
    world.wait(3 * HOUR)
    assert world.core.next_wake() is not None


def test_a_wake_that_comes_too_early_or_twice_does_nothing() -> None:
    world = World()
    world.listening(1)
    for _ in range(2):
        step = world.feed(ev.Woke())
        assert (step.commands, step.changed) == ((), ())


def test_a_step_of_the_wall_clock_ages_nothing() -> None:
    world = World()
    (name,) = world.listening(1)
    before = world.core.checkpoint()
    assert world.feed(ev.ClockStepped(86_400_000)).commands == ()
    assert world.core.checkpoint() == before
    assert world.runner(name).state is S.LISTENING


def test_a_wake_that_comes_late_finds_everything_that_became_due() -> None:
    world = World()
    (name,) = world.planned(1)
    world.now += 10 * MINUTE
    step = world.feed(ev.Woke())
    assert of(step.commands, cm.LookUpName) == [cm.LookUpName(name, APP)]
    assert len(of(step.commands, cm.ListJobs)) == 1


def test_the_agenda_keeps_one_moment_a_subject() -> None:
    agenda = Agenda()
    agenda.set("runner", "a", 5)
    agenda.set("runner", "a", 9)
    agenda.set("runner", "b", 7)
    agenda.set("job", "a", 7)
    assert agenda.next() == 7
    assert agenda.due(6) == []
    assert agenda.due(7) == [("job", "a"), ("runner", "b")]
    agenda.set("runner", "a", None)
    assert agenda.next() is None
    agenda.set("runner", "a", 9)
    assert agenda.due(100) == [("runner", "a")]
    assert agenda.moments() == {}


# -- rows are the state --------------------------------------------------------------------------------


def script(world: World) -> list[Callable[[], object]]:
    """Return a long history, event by event: jobs, runners, signs, ends, faults, a cordon."""
    names: list[RunnerId] = []

    def way(runner: Callable[[], RunnerId]) -> list[Callable[[], object]]:
        return [
            lambda: world.registered(runner()),
            lambda: world.started(runner()),
            lambda: world.sign(runner(), Sign.LISTENING),
        ]

    def last() -> RunnerId:
        return world.last(cm.Register).runner

    def keep() -> None:
        names.append(last())

    return [
        lambda: world.queued(1, 2, labels=LABELS),
        keep,
        *way(last),
        lambda: world.queued(3, labels=GPU),
        *way(last),
        lambda: world.wait(31 * SECOND),
        lambda: world.sign(names[0], Sign.ACKNOWLEDGED),
        lambda: world.sign(names[0], Sign.ANNOUNCED, "build"),
        lambda: world.in_progress(1, names[0]),
        lambda: world.feed(ev.JobsListed(APP, 0, Fault(Remedy.RETRY, "timeout"))),
        lambda: world.wait(2 * MINUTE),
        lambda: world.feed(ev.ScopeAnswered(APP)),
        lambda: world.completed(1, names[0]),
        lambda: world.exited(names[0], 0, 1),
        lambda: world.wait(75 * SECOND),
        lambda: world.feed(ev.CordonOrdered("ann", ev.Target.ALL, "", "why")),
        lambda: world.wait(3 * MINUTE),
        lambda: world.feed(ev.UncordonOrdered("ann", ev.Target.ALL)),
        lambda: world.completed(2, how="cancelled"),
        lambda: world.queued(4, 5, 6),
        lambda: world.wait(12 * MINUTE),
    ]


def two_pools(**changes: Any) -> World:
    return World(pool(), pool("big", labels=GPU), pool("lib", scope=LIB), slots=3, **changes)


def test_the_stored_rows_give_an_equal_core_after_each_event() -> None:
    world = two_pools()
    for act in script(world):
        act()
        again = world.reborn()
        assert again.checkpoint() == world.core.checkpoint()
        assert validate(again.state) == []
        assert again.next_wake() == world.core.next_wake()
        assert {k: v for k, v in again.state.agenda.moments().items() if v > world.now} == {
            k: v for k, v in world.core.state.agenda.moments().items() if v > world.now
        }


def test_saving_and_loading_after_each_event_gives_the_same_commands() -> None:
    plain, loaded = two_pools(), two_pools()
    for act, twin in zip(script(plain), script(loaded), strict=True):
        act()
        twin()
        loaded.core = loaded.reborn()
    assert loaded.sent == plain.sent
    assert loaded.core.checkpoint() == plain.core.checkpoint()
    assert loaded.notes == plain.notes


def test_a_checkpoint_makes_the_round_trip_and_names_its_rules() -> None:
    world = two_pools()
    for act in script(world):
        act()
    kept = world.core.checkpoint()
    assert kept["rules"] == RULES
    rows = {
        kind: {name: codec.decode_row(kind, row) for name, row in found.items()}
        for kind, found in kept["rows"].items()
    }
    again = Core(rows, world.now)
    assert again.checkpoint() == kept
    assert again.state.setup == Setup(
        tuple(sorted(world.setup.pools, key=lambda one: one.name)), world.setup.hosts, world.setup.policy
    )


def test_every_change_of_a_row_is_told_and_nothing_else_is() -> None:
    world = two_pools()
    told: dict[str, dict[str, Any]] = {}
    for act in script(world):
        act()
    for step in world.steps:
        assert len({item[:2] for item in step.changed}) == len(step.changed)
        for kind, name, row in step.changed:
            if row is None:
                told.setdefault(kind, {}).pop(name, None)
            else:
                told.setdefault(kind, {})[name] = codec.encode_row(kind, row)
    kept = {kind: rows for kind, rows in world.core.checkpoint()["rows"].items() if rows}
    told["counter"] = {**kept["counter"], **told["counter"]}  # what is counted from the start is no change
    assert {kind: rows for kind, rows in told.items() if rows} == kept


def test_every_moment_follows_from_the_rows() -> None:
    asked = Job(key(1), LABELS, 1, JobStatus.QUEUED, 1, 1, 1, asked=START - 1, asking="waiting")
    plain = msgspec.structs.replace(asked, asked=None, asking="")
    jobs = (
        msgspec.structs.replace(plain, key=key(4), order=0, not_before=START),
        asked,
        msgspec.structs.replace(plain, key=key(2), order=2, ask_again=START + 5),
        msgspec.structs.replace(plain, key=key(3), order=3, not_before=START + 7),
    )
    runner = Runner(RunnerId("eph-s1-e1-1"), "small", "here", APP, 1, S.REGISTERING, START, START)
    rows: dict[str, dict[str, Any]] = {
        "job": {str(row.key): row for row in jobs},
        "runner": {runner.id: runner},
        "pool": {"small": PoolRow(pool(), not_before=START + 9)},
        "scope": {str(APP): ScopeRow(APP, jobs_due=START + 11)},
        "host": {"here": HostRow("here", 4, due=START + 13)},
        "meta": {"sweep": START + 15},
    }
    assert Core(rows, START).state.agenda.moments() == {
        ("job", str(key(1))): START - 1 + Policy().confirm_wait,
        ("job", str(key(2))): START + 5,
        ("job", str(key(3))): START + 7,
        ("runner", runner.id): START + Policy().registering_limit,
        ("pool", "small"): START + 9,
        ("scope", str(APP)): START + 11,
        ("host", "here"): START + 13,
        ("sweep", ""): START + 15,
    }


def test_what_demand_and_supply_are_matched_with_follows_from_the_rows() -> None:
    world = World(pool(), pool("big", labels=GPU, min_idle=1), slots=3)
    world.listening(1)
    world.queued(2, 3)
    world.queued(4, labels=GPU)
    kept, again = world.core.state.index, world.reborn().state.index
    assert (again.takers, again.turns, again.flow) == (kept.takers, kept.turns, kept.flow)
    assert again.leftover == kept.leftover
    assert [(group.pools, group.varieties, group.unmatched) for group in again.groups.values()] == [
        (group.pools, group.varieties, group.unmatched) for group in kept.groups.values()
    ]


def test_a_reload_serves_at_once_what_it_makes_possible() -> None:
    world = World()
    assert world.planned(1, labels=("arm",)) == []
    step = world.feed(
        ev.Reconfigured("ann", msgspec.structs.replace(world.setup, pools=(pool(labels=("arm",)),)))
    )
    assert [command.labels for command in of(step.commands, cm.Register)] == [("arm",)]


def test_a_reload_with_other_limits_holds_for_what_is_out_already() -> None:
    world = World(slots=1)
    world.doubted(1)
    assert world.job(1).asked == world.now
    policy = msgspec.structs.replace(world.setup.policy, confirm_wait=3 * SECOND)
    world.feed(ev.Reconfigured("ann", msgspec.structs.replace(world.setup, policy=policy)))
    assert world.core.state.agenda.moments()["job", str(key(1))] == world.now + 3 * SECOND


def test_a_runner_is_looked_at_when_its_next_limit_ends() -> None:
    world = World()
    (name,) = world.planned(1)
    moments, policy = world.core.state.agenda.moments, world.setup.policy
    assert moments()["runner", name] == START + policy.registering_limit
    world.now += SECOND
    world.registered(name)
    assert moments()["runner", name] == world.now + policy.provision_limit


def test_a_question_about_a_job_that_nobody_answers_is_out_no_more_after_a_while() -> None:
    world = World(slots=1)
    world.doubted(1)
    world.now += world.setup.policy.confirm_wait
    assert world.job(1).asking == "confirm"
    step = world.feed(ev.Woke())
    assert world.job(1).asking == ""
    assert len(of(step.commands, cm.Register)) == 1, "it is made all the same"


def test_who_may_use_the_runners_is_part_of_a_checkpoint() -> None:
    world = World()
    access = (Access("github", most=1),)
    world.boot(setup=msgspec.structs.replace(world.setup, access=access))
    kept = world.core.checkpoint()["rows"]["access"]
    assert {name: codec.decode_row("access", row) for name, row in kept.items()} == {"github": access[0]}


def test_a_turn_that_makes_a_spare_ends_with_nothing_left_to_match() -> None:
    world = World(pool(min_idle=1), lists=False)
    index = world.core.state.index
    (spare,) = world.core.state.runners.values()
    assert (index.leftover, spare.surplus_since) == ({"small": 1}, world.now)
    assert (index.dirty_groups, index.dirty_varieties) == ({}, {})


def test_a_host_is_listed_when_its_moment_has_come() -> None:
    rows = {"host": {"here": HostRow("here", 4, due=START + 5)}}
    core = Core(rows, START)
    assert core.next_wake() == START + 5
    assert core.handle(ev.Woke(), START + 5).commands == (cm.ListEnvironments("here"),)


def test_the_sweep_looks_at_whoever_is_live_and_forgets_old_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(policy=Policy(finished_kept=SECOND))
    world.completed(2)
    world.wait(7 * SECOND)
    (name,) = world.listening(1)
    world.wait(52 * SECOND)
    moments = world.core.state.agenda.moments()
    assert moments["runner", name] > moments["sweep", ""] == START + MINUTE
    assert key(2) in world.core.state.jobs
    looked: list[RunnerId] = []
    monkeypatch.setattr("ephemerd.core.examine.examine", lambda t, name: looked.append(name))
    world.now = START + MINUTE
    world.feed(ev.Woke())
    assert looked == [name]
    assert key(2) not in world.core.state.jobs


def test_an_answer_concerns_its_runner_even_where_nothing_follows() -> None:
    world = World()
    assert world.feed(ev.EnvironmentExited(RunnerId("nobody"), 0)).subjects == ("nobody",)


def test_what_a_scope_answers_is_kept_of_it() -> None:
    world = World()
    world.now += MINUTE
    world.feed(ev.ScopeAnswered(APP))
    assert world.core.state.scope(APP).answered == world.now
    world.feed(ev.ScopeAnswered(APP, world.now + HOUR))
    assert world.core.state.scope(APP).limited_until == world.now + HOUR


# -- order is nothing ----------------------------------------------------------------------------------


def test_the_same_events_give_the_same_steps() -> None:
    first, second = two_pools(), two_pools()
    for act, twin in zip(script(first), script(second), strict=True):
        act()
        twin()
    assert first.steps == second.steps


def test_the_order_of_the_stored_rows_and_of_the_setup_is_nothing() -> None:
    world, twin = two_pools(), two_pools()
    twin.setup = Setup(tuple(reversed(world.setup.pools)), world.setup.hosts, world.setup.policy)
    for number, (act, same) in enumerate(zip(script(world), script(twin), strict=True)):
        act()
        same()
        if number % 5 == 4:
            twin.stored = {
                kind: dict(reversed(list(rows.items()))) for kind, rows in reversed(twin.stored.items())
            }
            twin.core = twin.reborn()
    assert twin.sent == world.sent
    world.restart()
    twin.restart()
    assert twin.sent == world.sent
    assert twin.core.checkpoint() == world.core.checkpoint()


HASHED = """
import sys
sys.path[:0] = [sys.argv[1]]
from ephemerd.core import codec
from tests.unit.core import test_machine as here
world = here.two_pools()
for act in here.script(world):
    act()
print(codec.command_hash(world.sent))
"""


def test_another_process_with_another_hash_seed_gives_the_same_commands() -> None:
    root = str(Path(__file__).parents[3])
    hashes = {
        subprocess.run(
            [sys.executable, "-c", HASHED, root],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "22")
    }
    assert len(hashes) == 1


# -- what one event costs ------------------------------------------------------------------------------


def cost(waiting: int, finished: int) -> float:
    """Return the seconds that a few hundred events take beside so many waiting and finished jobs."""
    world = World(pool(max_concurrent=2), slots=2)
    world.strict = False
    core = world.core
    for number in range(1, finished + 1):
        core.handle(told(100_000 + number, ForgeStatus.COMPLETED), world.now)
    for number in range(1, waiting + 1):
        core.handle(told(number, ForgeStatus.QUEUED), world.now)
    began = time.perf_counter()
    for number in range(1, 201):
        core.handle(told(200_000 + number, ForgeStatus.QUEUED), world.now)
        core.handle(told(200_000 + number, ForgeStatus.IN_PROGRESS), world.now)
        core.handle(told(200_000 + number, ForgeStatus.COMPLETED), world.now)
    return time.perf_counter() - began


def told(number: int, status: ForgeStatus) -> ev.JobReported:
    return ev.JobReported(JobReport(key(number), status, LABELS), Told.WEBHOOK)


def test_one_event_costs_the_same_beside_ten_jobs_and_beside_twenty_thousand() -> None:
    few = min(cost(10, 10) for _ in range(3))
    many = min(cost(10_000, 10_000) for _ in range(1))
    assert many < 5 * few + 0.05


def test_naming_a_nameless_runner_does_not_scan_the_queue() -> None:
    """One question is out; a second runner of its kind looks no further than a few jobs."""
    world = World(pool(max_concurrent=3), slots=3, lists=False)
    world.strict = False
    names = world.listening(1, 2, 3)
    for number in range(10, 5_010):
        world.core.handle(told(number, ForgeStatus.QUEUED), world.now)
    for name in names:
        world.sign(name, Sign.WORKER)
    world.wait(MINUTE)
    began = time.perf_counter()
    for _ in range(50):
        world.core.handle(ev.SweepOrdered(), world.now)
    assert time.perf_counter() - began < 0.5


def test_nothing_is_planned_where_every_job_has_supply_and_no_pool_wants_spares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    planned: list[Turn] = []
    world.listening(1)
    monkeypatch.setattr("ephemerd.core.provisioning.provision", planned.append)
    world.feed(ev.SweepOrdered())
    assert planned == []
    world.queued(2, labels=("nobody", "serves", "it"))
    assert len(planned) == 1


def test_spares_are_seen_to_with_every_event_although_no_job_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(pool(min_idle=1))
    planned: list[Turn] = []
    monkeypatch.setattr("ephemerd.core.provisioning.provision", planned.append)
    world.feed(ev.SweepOrdered())
    assert len(planned) == 1


# -- what cannot be ------------------------------------------------------------------------------------


def test_a_turn_that_never_settles_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    (name,) = world.listening(1)

    def again(t: Turn, runner: RunnerId) -> None:
        t.touch((runner,))

    monkeypatch.setattr("ephemerd.core.examine.examine", again)
    with pytest.raises(Unsettled, match=name):
        world.core.handle(ev.SweepOrdered(), world.now)


def test_whoever_was_touched_is_looked_at_in_the_order_in_which_they_were_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(slots=12)
    names = world.listening(*range(1, 12))
    looked: list[RunnerId] = []
    nobody = RunnerId("eph-s1-e1-0")
    touched = (names[10], names[1], nobody)
    monkeypatch.setitem(machine.HANDLERS, ev.SweepOrdered, lambda t, _: t.touch(touched))
    monkeypatch.setattr("ephemerd.core.examine.examine", lambda t, name: looked.append(name))
    world.core.handle(ev.SweepOrdered(), world.now)
    assert looked == [nobody, names[1], names[10]]
    looked.clear()
    monkeypatch.setitem(machine.HANDLERS, ev.SweepOrdered, lambda t, _: t.touch((names[10], names[1])))
    world.core.handle(ev.SweepOrdered(), world.now)
    assert looked == [names[1], names[10]]


def test_a_pool_is_cordoned_by_itself_by_its_host_or_with_everything() -> None:
    by_pool = World(pool(), pool("big", labels=GPU))
    assert not by_pool.core.cordoned("small")
    by_pool.feed(ev.CordonOrdered("ann", ev.Target.POOL, "small"))
    assert (by_pool.core.cordoned("small"), by_pool.core.cordoned("big")) == (True, False)
    assert not by_pool.core.cordoned("no such pool")
    by_host = World(pool(), pool("big", host="there"), hosts=(Host("here", 1), Host("there", 1)))
    by_host.feed(ev.CordonOrdered("ann", ev.Target.HOST, "there"))
    assert (by_host.core.cordoned("small"), by_host.core.cordoned("big")) == (False, True)
    everything = World()
    everything.feed(ev.CordonOrdered("ann", ev.Target.ALL))
    assert everything.core.cordoned("small")
    assert everything.core.cordoned("no such pool")
    assert not everything.core.draining()


def test_a_pool_whose_host_is_not_known_is_not_cordoned_by_it() -> None:
    rows = {"pool": {"small": PoolRow(pool())}}
    assert Core(rows, START).cordoned("small") is False


def test_validate_finds_what_does_not_hold() -> None:
    world = World()
    (name,) = world.listening(1)
    state, row = world.core.state, world.runner(name)
    assert validate(state) == []
    assert slot_difference(state) == 0
    state.index.held["here"] = 2
    assert slot_difference(state) == 1
    assert any("more held than runners hold" in problem for problem in validate(state))
    state.index.held["here"] = 1
    state.index.supply["small"].clear()
    assert any(problem.startswith("index supply") for problem in validate(state))
    state.index.supply["small"][name] = None
    broken = row.__class__(**{**codec_fields(row), "hard": 5})
    assert validate_runner(broken) == [f"runner {name}: listening with a hard sign"]


def codec_fields(row: Runner) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in msgspec.structs.fields(row)}


def test_hosts_and_policies_come_from_the_latest_start() -> None:
    world = World()
    world.restart(setup=Setup((pool(),), (Host("here", 7),), Policy(stuck_after=1)))
    assert world.core.state.policy.stuck_after == 1
    assert world.reborn().state.policy.stuck_after == 1
    assert world.core.state.slots_free("here") == 7


@pytest.mark.parametrize("name", ["github/acme/app/99", "no key"])
def test_a_moment_of_a_job_that_is_no_more_is_nobodys(name):
    world = World()
    world.core.state.agenda.set("job", name, world.now)
    step = world.feed(ev.Woke())
    assert (step.commands, step.changed) == ((), ())
    assert ("job", name) not in world.core.state.agenda.moments()


def test_every_kind_of_event_is_taken_in_by_one_handler() -> None:
    kinds = set(get_args(ev.Event))
    assert set(machine.HANDLERS) | set(machine.ANSWERS) == kinds
    assert set(machine.HANDLERS) & set(machine.ANSWERS) == set()
    for kind in machine.ANSWERS:
        assert "runner" in {field.name for field in msgspec.structs.fields(kind)}
