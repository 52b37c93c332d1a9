"""The timeline: lanes told from rows and followed commit by commit, marks with their evidence, bounds."""

from __future__ import annotations

import msgspec
import pytest

from ephemerd.app.timeline import KINDS, STATES, Timeline, compact, decision_mark, fence_marks, spans_of
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import ForgeStatus
from ephemerd.domain.runner import Decision, Fence, Runner, RunnerState
from ephemerd.domain.verdict import Evidence, Sign, Verdict, Via
from ephemerd.ports.errors import Broken
from tests.unit.app.fakes import SCOPE, T0, idle_report, key, until
from tests.unit.app.test_daemon import House
from tests.unit.app.test_operator import listening


def row(state: RunnerState, since: int, **more: int | None) -> Runner:
    return Runner(RunnerId("r1"), "linux", "local", SCOPE, 1, state, T0 + since, T0, **more)  # type: ignore[arg-type]


def told(runner: Runner) -> list[tuple[str, int, int | None]]:
    return [
        (one.state, one.start - T0, None if one.end is None else one.end - T0) for one in spans_of(runner)
    ]


def test_a_running_runner_is_told_from_its_row():
    runner = row(RunnerState.RUNNING, 900, started=T0 + 100, listening=T0 + 300, soft=T0 + 800, hard=T0 + 900)
    assert told(runner) == [
        ("planned", 0, 100),
        ("starting", 100, 300),
        ("listening", 300, 800),
        ("assigned", 800, 900),
        ("running", 900, None),
    ]


def test_a_runner_that_is_gone_ends_where_its_row_says():
    runner = row(
        RunnerState.GONE, 2_000, started=T0 + 100, listening=T0 + 300, hard=T0 + 900, over=T0 + 1_900
    )
    assert told(runner)[-2:] == [("running", 900, 1_900), ("finishing", 1_900, 2_000)]


def test_a_runner_that_went_at_once_still_has_a_lane():
    assert told(row(RunnerState.GONE, 0)) == [("planned", 0, 0)]


def test_times_after_the_present_state_began_are_left_out():
    assert told(row(RunnerState.LISTENING, 300, started=T0 + 100, over=T0 + 500)) == [
        ("planned", 0, 100),
        ("starting", 100, 300),
        ("listening", 300, None),
    ]


def test_a_fence_is_marked_when_it_changes_and_not_again():
    asked, answered = Fence(sent=5), Fence(sent=5, accepted=9)
    assert [mark.at for mark in fence_marks(Fence(), answered)] == [5, 9]
    assert [mark.text.partition(":")[0] for mark in fence_marks(asked, answered)] == ["fence accepted"]
    assert list(fence_marks(answered, answered)) == []


def test_a_decision_bears_its_evidence():
    look = Evidence(Verdict.BUSY, Via.PROBE, T0, "a worker, pid 7")
    made = Decision(
        *(1, T0, RunnerId("r1"), "linux", 3, "surplus", "vetoed", "busy", "probe", "it works", 0, 0, (look,))
    )
    mark = decision_mark(made)
    assert (mark.kind, mark.at) == ("vetoed", T0)
    assert "nominated as surplus, busy by probe; it works" in mark.text
    assert mark.evidence == ("probe said busy: a worker, pid 7",)


@pytest.fixture
async def watched():
    house = House()
    timeline = Timeline(house.daemon)
    timeline.begin()
    async with house:
        yield house, timeline


async def test_a_job_is_followed_from_planned_to_gone(watched):
    house, timeline = watched
    name = await listening(house)
    house.pass_time(1_000)
    house.runtime.tell(name, Sign.ANNOUNCED)
    await house.runner(RunnerState.RUNNING)
    await house.report(ForgeStatus.IN_PROGRESS, runner_name=name)
    house.pass_time(30_000)
    await house.report(ForgeStatus.COMPLETED, runner_name=name, conclusion="success")
    house.runtime.exit(name, 0)
    await until(lambda: all(found.state is RunnerState.GONE for found in house.runners()))
    await until(lambda: house.daemon.settled)
    view = await timeline.view()
    (lane,) = [one for one in view.lanes if one.runner == name]
    assert {"listening", "running", "finishing"} <= {one.state for one in lane.spans}
    (running,) = [one for one in lane.spans if one.state == "running"]
    assert (running.start, running.end) == (T0 + 1_000, T0 + 31_000)
    assert lane.ended == T0 + 31_000
    assert [(one.job, one.start, one.end) for one in lane.held] == [(str(key()), T0 + 1_000, T0 + 31_000)]
    assert lane.intent == str(key())
    for before, after in zip(lane.spans, lane.spans[1:], strict=False):
        assert before.end == after.start


async def test_a_veto_is_marked_with_what_it_rests_on(watched):
    house, timeline = watched
    name = await listening(house)
    await house.report(ForgeStatus.COMPLETED, conclusion="cancelled")
    house.runtime.answers["probe"] = idle_report(workers=1, detail="worker 7")
    house.pass_time(31_000)
    await until(lambda: house.store.made)
    lane = next(one for one in (await timeline.view()).lanes if one.runner == name)
    assert [mark.kind for mark in lane.marks] == ["nominated", "vetoed"]
    assert any("worker 7" in text for text in lane.marks[1].evidence)


async def test_a_reaping_is_marked_step_by_step(watched):
    house, timeline = watched
    name = await listening(house)
    await house.report(ForgeStatus.COMPLETED, conclusion="cancelled")
    house.pass_time(31_000)
    await until(lambda: house.forge.named("deregister"))
    await until(lambda: house.runners()[0].fence.accepted is not None)
    house.pass_time(6_000)
    await until(lambda: house.runners()[0].state is RunnerState.GONE)
    (lane,) = (await timeline.view()).lanes
    assert lane.runner == name
    assert [mark.kind for mark in lane.marks] == ["nominated", "fence", "fence", "reaped"]
    assert [one.state for one in lane.spans][-1] == "retiring"
    assert [mark.at for mark in lane.marks] == sorted(mark.at for mark in lane.marks)


async def test_a_later_view_holds_what_changed_since(watched):
    house, timeline = watched
    first = await timeline.view()
    name = await listening(house)
    second = await timeline.view(first.revision, first.life)
    assert [lane.runner for lane in second.lanes] == [name]
    third = await timeline.view(second.revision, second.life)
    assert third.lanes == ()
    assert [lane.runner for lane in (await timeline.view(second.revision, "another")).lanes] == [name]


async def _refuse(**_: object) -> None:
    raise Broken("the disk is full")


async def test_a_new_life_tells_old_runners_from_rows_and_old_decisions_from_the_store(watched, monkeypatch):
    house, _ = watched
    name = await listening(house)
    await house.report(ForgeStatus.COMPLETED, conclusion="cancelled")
    house.runtime.answers["probe"] = idle_report(workers=1)
    house.pass_time(31_000)
    await until(lambda: house.store.made)
    await house.daemon.stop(bound=1)
    again = House(house.store)
    timeline = Timeline(again.daemon)
    timeline.begin()
    async with again:
        with monkeypatch.context() as broken:
            broken.setattr(again.store, "decisions", _refuse)
            with pytest.raises(Broken):
                await timeline.view()
        lane = next(one for one in (await timeline.view()).lanes if one.runner == name)
        assert [mark.kind for mark in lane.marks].count("vetoed") == 1
        assert lane.spans[0].start == T0
        assert len([m for one in (await timeline.view()).lanes for m in one.marks if m.kind == "vetoed"]) == 1


async def test_ended_lanes_go_first_and_living_ones_stay():
    house = House()
    timeline = Timeline(house.daemon, most=10)
    timeline.begin()
    async with house:
        await listening(house)
        (living,) = house.runners()
        for number in range(40):
            gone = Runner(
                *(RunnerId(f"old-{number}"), "linux", "local", SCOPE, 100 + number, RunnerState.GONE),
                *(T0 + number, T0),
            )
            timeline._follow(gone)
        lanes = (await timeline.view()).lanes
        assert len(lanes) <= 11
        assert living.id in {lane.runner for lane in lanes}
        assert lanes[0].runner == "old-39"


async def test_the_compact_form_is_told_anew_for_lanes_that_changed_alone(watched):
    house, timeline = watched
    await listening(house)
    view = await timeline.view()
    (lane,) = view.lanes
    compact(view)
    told = lane.told
    compact(await timeline.view())
    assert told is not None
    assert lane.told is told
    house.runtime.sink.exited(lane.runner, 1, 0)
    await until(lambda: lane.ended is not None)
    plain = msgspec.json.decode(msgspec.json.encode(compact(await timeline.view())))
    assert plain["lanes"][-1][5][-1][2] == lane.ended - plain["base"]


async def test_the_compact_form_holds_everything(watched):
    house, timeline = watched
    name = await listening(house)
    view = await timeline.view()
    plain = msgspec.json.decode(msgspec.json.encode(compact(view)))
    ((runner, pool, host, _, intent, spans, held, marks),) = plain["lanes"]
    assert (runner, pool, host, intent, held, marks) == (name, "linux", "local", str(key()), [], [])
    assert plain["states"][spans[-1][0]] == "listening"
    assert spans[-1][2] == -1
    assert plain["base"] + spans[0][1] == T0
    assert (tuple(plain["states"]), tuple(plain["kinds"])) == (STATES, KINDS)
