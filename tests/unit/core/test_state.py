"""The state: what it is built from, and what it says of hosts, scopes and pools."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ephemerd.core.rows import ClassRow, HostRow, PoolRow, ScopeRow
from ephemerd.core.state import COUNTED_FROM_START, State, load
from ephemerd.domain.access import Access
from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.job import Job, JobStatus
from ephemerd.domain.pool import Host, Policy
from ephemerd.domain.runner import Runner, RunnerState
from tests.unit.core.world import APP, LABELS, LIB, ORG, key, pool

FOREIGN = JobKey("github", "other/thing", 1)


def of_pools(*rows: PoolRow, **kinds: dict[str, Any]) -> State:
    return load({"pool": {row.pool.name: row for row in rows}, **kinds})


def runner(name: str, order: int, where: str, state: RunnerState = RunnerState.LISTENING) -> Runner:
    return Runner(RunnerId(name), where, "here", APP, order, state, 1, 1)


def runners(*rows: Runner) -> dict[str, Runner]:
    return {row.id: row for row in rows}


def job(number: int, status: JobStatus = JobStatus.QUEUED, **changes: Any) -> Job:
    return replace(Job(key(number), LABELS, number, status, 1, 1, 1), **changes)


def jobs(*rows: Job) -> dict[str, Job]:
    return {str(row.key): row for row in rows}


# -- what it says --------------------------------------------------------------------------------------


def test_a_state_of_nothing_knows_nothing() -> None:
    state = load({})
    assert (state.store, state.epoch, state.booted) == ("", "", 0)
    assert state.policy == Policy()
    assert state.counters == dict.fromkeys(COUNTED_FROM_START, 0)
    assert (state.jobs, state.runners, state.group("any")) == ({}, {}, None)
    assert (state.host_of("small"), state.slots_held("here"), state.slots_free("here")) == ("", 0, 0)
    assert (state.is_observed(APP), state.uses(APP), state.live_of_scope(APP)) == (False, False, [])
    assert state.scope_for(key(1), "small") is None


def test_who_it_is_and_since_when_is_kept() -> None:
    state = load({"meta": {"store": "s1", "epoch": "e1", "booted": 77}})
    assert (state.store, state.epoch, state.booted) == ("s1", "e1", 77)


def test_slots_are_free_that_are_neither_held_nor_reserved() -> None:
    state = of_pools(
        PoolRow(pool()),
        host={"here": HostRow("here", 4), "there": HostRow("there", 9, configured=False)},
        runner=runners(runner("a", 1, "small")),
        job=jobs(job(1, asking="confirm", pool="small"), job(2, asking="confirm", pool="small")),
    )
    assert (state.slots_held("here"), state.slots_free("here")) == (1, 1)
    assert (state.slots_held("there"), state.slots_free("there")) == (0, 0)


def test_a_host_with_less_slots_than_are_held_has_less_than_none_free() -> None:
    state = of_pools(
        PoolRow(pool()),
        host={"here": HostRow("here", 1, configured=False)},
        runner=runners(runner("a", 1, "small"), runner("b", 2, "small")),
    )
    assert state.slots_free("here") == -2


def test_a_scope_of_which_nothing_is_known_is_a_blank_row() -> None:
    row = ScopeRow(APP, answered=5)
    state = load({"scope": {str(APP): row}})
    assert state.scope(APP) is row
    assert state.scope(LIB) == ScopeRow(LIB)


def test_the_runners_of_a_scope_are_those_that_live_in_its_pools_oldest_first() -> None:
    state = of_pools(
        PoolRow(pool("a")),
        PoolRow(pool("b")),
        PoolRow(pool("lib", scope=LIB)),
        runner=runners(
            runner("r2", 2, "a"),
            runner("r1", 1, "b"),
            runner("r3", 3, "a", RunnerState.GONE),
            runner("r4", 4, "lib"),
        ),
    )
    assert [row.id for row in state.live_of_scope(APP)] == ["r1", "r2"]


def test_deliveries_tell_of_a_scope_where_a_configured_pool_says_so() -> None:
    seen, unseen = pool("a"), pool("b", observed=False)
    assert of_pools(PoolRow(seen), PoolRow(unseen)).is_observed(APP)
    assert not of_pools(PoolRow(unseen)).is_observed(APP)
    assert not of_pools(PoolRow(replace(seen, scope=LIB)), PoolRow(unseen)).is_observed(APP)


def test_what_a_pool_said_that_is_configured_no_more_counts_only_where_no_other_is_left() -> None:
    once, unseen = PoolRow(pool("a"), configured=False), PoolRow(pool("b", observed=False))
    assert of_pools(once).is_observed(APP)
    assert not of_pools(once, unseen).is_observed(APP)


def test_a_scope_is_used_by_a_configured_pool_or_by_what_still_lives_of_an_earlier_one() -> None:
    now, once = PoolRow(pool("a")), PoolRow(pool("b"), configured=False)
    assert of_pools(now, once).uses(APP)
    assert not of_pools(now).uses(LIB)
    assert not of_pools(once).uses(APP)
    assert of_pools(once, runner=runners(runner("r1", 1, "b"))).uses(APP)
    assert not of_pools(once, runner=runners(runner("r1", 1, "b", RunnerState.GONE))).uses(APP)


def test_the_host_of_a_pool_is_what_the_pool_says() -> None:
    state = of_pools(PoolRow(pool(host="there")))
    assert (state.host_of("small"), state.host_of("big")) == ("there", "")
    assert state.pool("small").host == "there"


def test_a_job_is_asked_about_by_its_pools_scope_or_by_the_first_that_serves_it() -> None:
    state = of_pools(
        PoolRow(pool("a", scope=LIB)), PoolRow(pool("b", scope=ORG)), PoolRow(pool("c", scope=APP))
    )
    assert state.scope_for(key(1), "c") == APP
    assert state.scope_for(key(1)) == state.scope_for(key(1), "no such pool") == ORG
    assert state.scope_for(key(1, "acme/lib")) == LIB
    assert state.scope_for(FOREIGN) is None


# -- what it is built from -----------------------------------------------------------------------------


def test_the_setup_is_what_the_rows_say_is_configured() -> None:
    first, second = Access("forge-a", most=1), Access("forge-b")
    state = of_pools(
        PoolRow(pool("a")),
        PoolRow(pool("b"), configured=False),
        host={"here": HostRow("here", 4), "there": HostRow("there", 1, configured=False)},
        policy={"policy": Policy(stuck_after=1)},
        access={"forge-b": second, "forge-a": first},
    )
    assert state.setup.pools == (pool("a"),)
    assert state.setup.hosts == (Host("here", 4),)
    assert state.policy.stuck_after == 1
    assert state.setup.access == (first, second)
    assert set(state.pools) == {"a", "b"}


def test_what_was_counted_goes_on_beside_what_is_counted_from_the_start() -> None:
    state = load({"counter": {"fence_breaches_total": 2, "dispatches_total|pool=small": 3}})
    assert state.counters["fence_breaches_total"] == 2
    assert state.counters["dispatches_total|pool=small"] == 3
    assert state.counters["fence_refusals_total"] == 0


def test_a_class_that_is_held_back_is_found_as_such() -> None:
    state = load({"class": {"b": ClassRow(held=True), "a": ClassRow()}})
    assert state.index.held_back == {"b": None}
    assert set(state.classes) == {"a", "b"}


def test_runners_are_taken_in_by_their_number() -> None:
    state = of_pools(PoolRow(pool()), runner=runners(runner("r2", 2, "small"), runner("r1", 1, "small")))
    assert list(state.runners) == ["r1", "r2"]
    assert list(state.index.supply["small"]) == ["r1", "r2"]


def test_finished_jobs_are_taken_in_by_their_end_and_the_others_by_their_arrival() -> None:
    state = load(
        {
            "job": jobs(
                job(5),
                job(4, JobStatus.RUNNING),
                job(1, JobStatus.DONE, ended=30),
                job(3, JobStatus.GONE, ended=20),
                job(2, JobStatus.DONE, ended=20),
            )
        }
    )
    assert list(state.index.finished) == [key(2), key(3), key(1)]
    assert list(state.jobs) == [key(2), key(3), key(1), key(4), key(5)]
    assert state.index.by_status == {"done": 2, "gone": 1, "running": 1, "queued": 1}
    (group,) = state.index.groups.values()
    assert (list(group.queued), list(state.index.running)) == ([key(5)], [key(4)])


@pytest.mark.parametrize("asking", ["name", "confirm"])
def test_a_finished_job_with_a_question_out_is_taken_in_once(asking: str) -> None:
    row = job(1, JobStatus.DONE, ended=30, asking=asking, asked=30, pool="small")
    state = of_pools(PoolRow(pool()), job=jobs(row))
    assert state.jobs == {row.key: row}
    assert (state.index.by_status, list(state.index.finished)) == ({"done": 1}, [row.key])
    assert state.index.reserved == ({"here": 1} if asking == "confirm" else {})


def test_a_finished_job_without_a_time_is_the_oldest() -> None:
    state = load({"job": jobs(job(1, JobStatus.DONE, ended=1), job(3, JobStatus.DONE))})
    assert list(state.index.finished) == [key(3), key(1)]


def test_a_scope_is_found_by_what_it_is_called() -> None:
    assert load({"scope": {"github/org:x": ScopeRow(Scope("github", "org:x"), quiet=3)}}).scope(
        Scope("github", "org:x")
    ) == ScopeRow(Scope("github", "org:x"), quiet=3)


# -- runners that stand by -----------------------------------------------------------------------------


def test_the_pools_that_want_runners_to_stand_by_are_known_by_name() -> None:
    warm = [replace(pool(), name=name, min_idle=1) for name in ("b", "a", "c")]
    state = of_pools(*map(PoolRow, warm), PoolRow(pool()))
    assert list(state.spared) == ["a", "b", "c"]
    state.keep_pool(PoolRow(replace(warm[0], min_idle=0)))
    assert list(state.spared) == ["a", "c"]
    state.keep_pool(PoolRow(replace(warm[1], min_idle=3)))
    assert list(state.spared) == ["a", "c"]
    state.keep_pool(PoolRow(warm[0]))
    assert list(state.spared) == ["a", "b", "c"]
