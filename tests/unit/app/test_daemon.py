"""The daemon over in-memory ports: the whole way of a job, failing commits, deadlines, and the stop."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ephemerd.app.daemon import HEARTBEAT, Daemon, Ports
from ephemerd.app.inbox import Fate
from ephemerd.core.events import FoundEnvironment, JobReported
from ephemerd.core.validate import validate
from ephemerd.domain.ids import JobKey
from ephemerd.domain.job import ForgeStatus, Job, JobStatus, Told
from ephemerd.domain.runner import Runner, RunnerState
from ephemerd.domain.verdict import Sign
from ephemerd.ports.errors import Denied, NotStored, StoreHeld
from ephemerd.ports.store import DeliveryId
from tests.unit.app.fakes import (
    SCOPE,
    FakeClock,
    FakeForge,
    FakeMeter,
    FakeRuntime,
    FakeStore,
    key,
    report,
    setup,
    until,
)


class House:
    """A daemon with fakes for everything outside. Several lives can share one store."""

    def __init__(self, store: FakeStore | None = None) -> None:
        self.store = store or FakeStore()
        self.forge = FakeForge()
        self.runtime = FakeRuntime()
        self.clock = FakeClock()
        self.meter = FakeMeter()
        ports = Ports(self.store, {"github": self.forge}, {"linux": self.runtime}, self.clock, self.meter)
        self.daemon = Daemon(ports, setup())

    async def __aenter__(self) -> House:
        await self.daemon.open()
        self.running: asyncio.Task[None] = asyncio.create_task(self.daemon.run())
        await asyncio.wait_for(self.daemon.booted(), 5)
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self.running.done():
            await self.daemon.stop(bound=1)
        await self.running

    def report(self, status: ForgeStatus = ForgeStatus.QUEUED, number: int = 1, **more):
        event = JobReported(report(number, status, **more), Told.WEBHOOK)
        delivery = DeliveryId("github", f"{number}-{status.value}")
        reply = self.daemon.inbox.offer(event, delivery=delivery, body=b"{}")
        assert reply is not None
        return reply

    def runners(self) -> list[Runner]:
        return list(self.daemon.core.state.runners.values())

    async def runner(self, state: RunnerState) -> Runner:
        """Wait until there is a runner in that state."""
        found: Runner = await until(lambda: next((row for row in self.runners() if row.state is state), None))
        return found

    def pass_time(self, ms: int) -> None:
        self.clock.ms += ms
        self.daemon.inbox.nudge()


@pytest.fixture(params=[False, True], ids=["waits", "at once"])
async def house(request):
    """A daemon over a store whose commits wait for something, and over one whose commits are done at once."""
    store = FakeStore()
    store.at_once = request.param
    async with House(store) as made:
        yield made


async def test_a_queued_job_gets_a_runner_that_runs_it_and_leaves(house):
    assert (await house.report()).fate is Fate.STORED
    await house.runner(RunnerState.STARTING)
    (order,) = await until(lambda: house.runtime.orders)
    house.runtime.tell(order.runner, Sign.LISTENING)
    await house.runner(RunnerState.LISTENING)
    house.pass_time(1_000)
    house.runtime.tell(order.runner, Sign.ANNOUNCED)
    await house.runner(RunnerState.RUNNING)
    assert (await house.report(ForgeStatus.IN_PROGRESS, runner_name=order.runner)).fate is Fate.STORED
    house.pass_time(30_000)
    await house.report(ForgeStatus.COMPLETED, runner_name=order.runner, conclusion="success")
    house.runtime.exit(order.runner, 0)
    await until(lambda: all(row.state is RunnerState.GONE for row in house.runners()))
    assert house.daemon.core.state.jobs[key()].status is JobStatus.DONE
    assert house.daemon.core.state.slots_held("local") == 0
    assert validate(house.daemon.core.state) == []
    assert not house.forge.named("deregister")
    names = [name for name, _, _ in house.meter.seen]
    assert {"job_queue_wait_seconds", "job_duration_seconds", "runner_startup_seconds"} <= set(names)
    assert names.count("job_duration_seconds") == 1


async def test_commands_leave_only_after_the_commit(house):
    house.store.gate = asyncio.Event()
    reply = house.report()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not house.forge.named("register")
    assert not reply.done()
    house.store.gate.set()
    await until(lambda: house.forge.named("register"))


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def rested(house: House) -> None:
    """Wait until nothing is under way any more."""
    await until(lambda: house.daemon.settled)
    await turns(20)


async def test_deliveries_that_come_together_share_a_commit(house):
    """Each of them a turn of the loop after the one before, as they come from the sockets of one look."""
    await rested(house)
    before = len(house.store.commits)

    async def one(number: int) -> None:
        await turns(number)
        await house.report(number=number + 1)

    await asyncio.gather(*(one(number) for number in range(6)))
    found = [len(commit.deliveries) for commit in house.store.commits[before:] if commit.deliveries]
    assert found == [6]


async def test_a_delivery_whose_commit_fails_is_answered_though_nothing_else_comes(house):
    await rested(house)
    house.store.fail = 1
    assert (await asyncio.wait_for(house.report(), 5)).fate is Fate.NOT_STORED


async def test_during_a_commit_nothing_is_waited_for(house):
    """What comes is handled beside it at once: it goes into the next one in any case."""
    await rested(house)
    house.store.gate = asyncio.Event()
    first = house.report(number=1)
    await turns(20)
    second = house.report(number=2)
    await turns(3)
    handled = key(2) in house.daemon.core.state.jobs
    house.store.gate.set()
    assert handled
    assert [(await reply).fate for reply in (first, second)] == [Fate.STORED, Fate.STORED]


async def test_listings_hear_of_the_last_row_of_each_job(house, monkeypatch):
    heard: list[tuple[JobKey, JobStatus]] = []
    monkeypatch.setattr(house.daemon.executor, "notice", lambda row: heard.append((row.key, row.status)))
    await rested(house)
    replies = [
        house.report(number=1),
        house.report(number=2),
        house.report(ForgeStatus.COMPLETED, number=1, conclusion="success"),
    ]
    for reply in replies:
        await reply
    await rested(house)
    assert heard[:2] == [(key(1), JobStatus.DONE), (key(2), JobStatus.QUEUED)]


async def test_a_failed_commit_answers_not_stored_and_the_daemon_goes_on(house):
    house.store.fail = 1
    assert (await house.report()).fate is Fate.NOT_STORED
    assert not house.forge.named("register")
    assert house.daemon.core.state.jobs == {}
    commits = house.daemon.pulse.commits
    assert (await house.report()).fate is Fate.STORED
    await until(lambda: house.forge.named("register"))
    assert house.daemon.ready
    assert house.daemon.pulse.commits > commits


async def test_an_answer_of_a_port_survives_a_failed_commit(house):
    house.forge.hold["register"] = asyncio.Event()
    await house.report()
    await until(lambda: house.forge.named("register"))
    house.store.fail = 1
    house.forge.hold["register"].set()
    await until(lambda: house.runtime.orders)
    assert len(house.forge.named("register")) == 1
    assert house.store.kinds().count("Registered") == 1


async def test_readiness_ends_while_nothing_can_be_stored(house):
    assert house.daemon.ready
    house.store.fail = 10**6
    await house.report()
    assert not house.daemon.ready
    assert "no space left" in house.daemon.pulse.error
    house.store.fail = 0
    await until(lambda: house.daemon.ready)


async def test_a_deadline_wakes_the_core(house):
    await until(lambda: "JobsListed" in house.store.kinds())
    before = house.store.kinds().count("Woke")
    house.pass_time(10 * 60_000)
    await until(lambda: house.store.kinds().count("Woke") > before)
    assert house.daemon.pulse.heartbeat == house.clock.ms


async def test_nothing_happens_while_nothing_happens(house):
    await until(lambda: house.daemon.settled)
    commits = len(house.store.commits)
    for _ in range(50):
        await asyncio.sleep(0)
    house.daemon.inbox.nudge()
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(house.store.commits) == commits


async def test_a_step_of_the_wall_clock_is_told(house):
    house.clock.step = -3_600_000
    house.daemon.inbox.nudge()
    await until(lambda: "ClockStepped" in house.store.kinds())
    house.clock.step = 10
    house.daemon.inbox.nudge()
    for _ in range(20):
        await asyncio.sleep(0)
    assert house.store.kinds().count("ClockStepped") == 1


async def test_a_sleep_of_the_machine_is_told_before_what_came_due_by_it(house):
    await until(lambda: house.daemon.settled)
    told, listed = len(house.store.entries), len(house.forge.named("runners"))
    house.clock.sleep = 8 * 3_600_000
    house.pass_time(8 * 3_600_000)
    await until(lambda: len(house.forge.named("runners")) > listed)
    assert house.store.kinds()[told] == "MachineSlept"
    house.clock.sleep = 500
    house.pass_time(500)
    await until(lambda: house.daemon.settled)
    assert house.store.kinds().count("MachineSlept") == 1


async def test_the_scopes_are_listed_at_the_start(house):
    await until(lambda: str(SCOPE) in house.daemon.pulse.reconciled)
    assert house.daemon.pulse.reconciled[str(SCOPE)] == house.clock.ms
    assert house.runtime.named("list")
    assert house.forge.named("runners")


async def test_a_delivery_that_came_before_the_start_is_handled_after_it():
    house = House()
    await house.daemon.open()
    early = house.report()
    async with house:
        assert (await early).fate is Fate.STORED
        assert house.store.kinds()[:2] == ["Booted", "JobReported"]


async def test_a_stop_leaves_runners_running_and_the_next_life_adopts_them():
    store = FakeStore()
    async with House(store) as first:
        await first.report()
        (order,) = await until(lambda: first.runtime.orders)
        first.runtime.tell(order.runner, Sign.LISTENING)
        first.runtime.tell(order.runner, Sign.ANNOUNCED)
        await first.runner(RunnerState.RUNNING)
        await first.daemon.stop()
        assert first.store.closed
        assert first.runtime.closed
        assert first.forge.closed
        assert not first.runtime.named("destroy")
        assert not first.forge.named("deregister")
    second = House(store)
    second.runtime.listed = [FoundEnvironment(order.runner, f"env-{order.runner}", "linux", ended=False)]
    async with second:
        await until(lambda: second.runtime.named("watch"))
        assert [row.state for row in second.runners()] == [RunnerState.RUNNING]
        assert not second.forge.named("register")


async def test_a_stop_finishes_a_registration_and_its_start(house):
    house.forge.hold["register"] = asyncio.Event()
    await house.report()
    await until(lambda: house.forge.named("register"))
    stopping = asyncio.create_task(house.daemon.stop())
    await asyncio.sleep(0)
    assert house.daemon.inbox.offer(JobReported(report(2), Told.WEBHOOK)) is None
    assert not house.daemon.ready
    house.forge.hold["register"].set()
    await stopping
    assert len(house.runtime.orders) == 1
    assert house.store.kinds()[-1] == "EnvironmentStarted"


async def test_a_stop_does_not_wait_for_ever(house):
    house.forge.hold["register"] = asyncio.Event()
    await house.report()
    await until(lambda: house.forge.named("register"))
    await asyncio.wait_for(house.daemon.stop(bound=0.01), 5)
    assert house.store.closed


async def test_a_stop_does_not_wait_for_the_next_heartbeat():
    house = House()
    house.forge.hold["active_jobs"] = asyncio.Event()
    async with house:
        await until(lambda: house.forge.named("active_jobs") and house.daemon.executor.running == 1)
        stopping = asyncio.create_task(house.daemon.stop())
        for _ in range(20):
            await asyncio.sleep(0)
        house.forge.hold["active_jobs"].set()
        began = asyncio.get_running_loop().time()
        await asyncio.wait_for(stopping, HEARTBEAT + 5)
        assert asyncio.get_running_loop().time() - began < HEARTBEAT / 3


async def test_a_stop_ends_although_nothing_can_be_stored(house):
    house.store.fail = 10**6
    await house.report()
    await asyncio.wait_for(house.daemon.stop(bound=5), 10)


async def test_a_store_that_another_daemon_holds_is_an_error_of_the_start(monkeypatch):
    house = House()

    async def held() -> None:
        raise StoreHeld("another daemon has it open")

    monkeypatch.setattr(house.store, "open", held)
    with pytest.raises(StoreHeld):
        await house.daemon.open()


async def test_a_commit_that_fails_at_the_start_is_tried_again():
    house = House()
    house.store.fail = 1
    async with house:
        assert house.daemon.ready
        assert house.store.kinds()[0] == "Booted"


async def test_a_port_that_cannot_be_closed_hinders_no_other(house, monkeypatch, caplog):
    async def broken() -> None:
        raise NotStored("x")

    monkeypatch.setattr(house.forge, "close", broken)
    await house.daemon.stop()
    assert house.store.closed
    assert "a port could not be closed" in caplog.text


async def test_who_watches_is_told_of_each_committed_event_until_it_ends_that(house):
    seen = []
    end = house.daemon.watch(lambda handled: seen.append(type(handled.item.event).__name__))
    await house.report()
    await until(lambda: "JobReported" in seen)
    end()
    await house.report(number=2)
    assert seen.count("JobReported") == 1


async def test_notes_of_the_core_become_log_lines_with_their_fields(house, caplog):
    caplog.set_level(logging.INFO)
    house.forge.answers["register"] = Denied("the token is refused")
    await house.report()

    def refused():
        return [record for record in caplog.records if record.message == "the forge refuses our credential"]

    (line,) = await until(refused)
    assert (line.name, line.levelno) == ("ephemerd.core", logging.WARNING)
    assert line.fields == {"scope": str(SCOPE), "detail": "the token is refused"}


async def test_a_runner_that_cannot_be_made_backs_off(house):
    house.runtime.answers["start"] = RuntimeError("a bug in the runtime")
    await house.report()
    await house.runner(RunnerState.GONE)
    await until(lambda: house.forge.named("deregister"))
    assert house.daemon.core.state.slots_held("local") == 0
    assert len(house.runtime.orders) == 1


async def test_the_listings_hear_of_a_job_that_a_runner_is_done_with_once(house, monkeypatch):
    freed: list[Job] = []
    monkeypatch.setattr(house.daemon.executor, "freed", freed.append)
    await house.report(run_id=7)
    (order,) = await until(lambda: house.runtime.orders)
    house.runtime.tell(order.runner, Sign.LISTENING)
    await house.runner(RunnerState.LISTENING)
    house.runtime.tell(order.runner, Sign.ANNOUNCED)
    await house.runner(RunnerState.RUNNING)
    assert freed == []
    house.pass_time(1_000)
    house.runtime.exit(order.runner, 0)
    await until(lambda: freed)
    await until(lambda: all(row.state is RunnerState.GONE for row in house.runners()))
    house.pass_time(1_000)
    assert [(job.key, job.run_id) for job in freed] == [(key(1), 7)], (
        "by what it was made for, where no name is known"
    )


async def test_a_wake_on_which_the_core_raises_does_not_spin(house, monkeypatch):
    await until(lambda: house.daemon.settled)

    def raising(_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("ephemerd.core.machine._due", raising)
    monkeypatch.setattr("ephemerd.core.machine.Core.next_wake", lambda _: 0)
    house.daemon.inbox.nudge()
    await until(lambda: house.daemon.pulse.quarantined == 1)
    for _ in range(50):
        house.daemon.inbox.nudge()
        await asyncio.sleep(0)
    assert len(house.store.poison) == 1
    house.pass_time(1_000)
    await until(lambda: house.daemon.pulse.quarantined == 2)
    house.pass_time(1_500)
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(house.store.poison) == 2, "the pauses grow"
    house.pass_time(500)
    await until(lambda: house.daemon.pulse.quarantined == 3)
    monkeypatch.undo()
    before = house.store.kinds().count("Woke")
    house.pass_time(10 * 60_000)
    await until(lambda: house.store.kinds().count("Woke") > before)
    assert house.daemon.pulse.quarantined == 3


async def test_one_event_that_can_never_be_stored_does_not_hold_up_the_others(house, monkeypatch):
    commit = house.store.commit

    async def picky(batch, clock):
        if any("acme/app/13" in step.subjects[0] for step in batch.steps if step.subjects):
            raise ValueError("no such column")
        return await commit(batch, clock)

    monkeypatch.setattr(house.store, "commit", picky)
    for number in (12, 13, 14):
        house.daemon.inbox.tell(JobReported(report(number, ForgeStatus.WAITING), Told.LISTING))
    await until(lambda: house.store.poison)
    await until(lambda: house.daemon.pulse.error == "" and len(house.daemon.core.state.jobs) == 2)
    assert {job.id for job in house.daemon.core.state.jobs} == {12, 14}


async def test_closed_begins_nothing(house):
    await house.daemon.executor.close()
    await house.report()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not house.forge.named("register")
