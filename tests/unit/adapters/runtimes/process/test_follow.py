"""Following to the end, and ending, on a machine whose processes a test moves."""

from __future__ import annotations

import asyncio
import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from ephemerd.adapters.runtimes.process import ending
from ephemerd.adapters.runtimes.process.environment import Environment
from ephemerd.adapters.runtimes.process.follow import Follower
from ephemerd.adapters.runtimes.process.identity import Place, ProcessId
from ephemerd.adapters.runtimes.process.tree import Look
from ephemerd.domain.verdict import Listing
from tests.unit.adapters.runtimes.process.machine import LISTENER, PARENT, REFERENCE, FakeMachine

LIMIT = 20.0


class Case:
    """One environment on one machine; every look is counted and announced."""

    def __init__(self, tmp_path: Path) -> None:
        self.machine = FakeMachine().idle()
        self.machine.add(1, "init", parent=0)
        place = Place(tmp_path / "r", tmp_path / "r.log")
        place.state.mkdir(parents=True)
        self.environment = Environment(REFERENCE, place, None)
        self.exits: list[tuple[int | None, int]] = []
        self.looks: asyncio.Queue[Look] = asyncio.Queue()
        self.failures = 0

    async def ask(self) -> Look:
        if self.failures:
            self.failures -= 1
            raise OSError("no list now")
        look = self.environment.look(self.machine)
        self.looks.put_nowait(look)
        return look

    async def read(self) -> None:
        self.environment.evidence.refresh(1)

    def follow(self) -> asyncio.Task[None]:
        follower = Follower(
            self.environment,
            self.machine,
            ask=self.ask,
            read=self.read,
            exited=lambda code, left: self.exits.append((code, left)),
        )
        return asyncio.create_task(follower.run())

    def exit_file(self, code: int) -> None:
        (self.environment.place.state / "exit").write_text(json.dumps({"code": code}))

    def die(self, identity: ProcessId) -> None:
        self.machine.processes.pop(identity.pid, None)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


async def done(task: asyncio.Task[None]) -> None:
    await asyncio.wait_for(task, LIMIT)


async def test_an_exit_is_told_with_its_code_and_what_is_left(case):
    case.machine.add(300, "daemon", session=100)
    task = case.follow()
    case.exit_file(3)
    case.die(LISTENER)
    await done(task)
    assert case.exits == [(3, 1)]


async def test_a_reused_listener_pid_is_an_exit(case):
    case.machine.processes[LISTENER.pid] = replace(
        case.machine.processes[LISTENER.pid], start=9999, session=9, parent=1
    )
    case.exit_file(0)
    await done(case.follow())
    assert case.exits == [(0, 0)]


async def test_the_worker_is_waited_for(case):
    worker = case.machine.add(200, "Runner.Worker", parent=100, session=100)
    case.exit_file(137)
    case.die(LISTENER)
    task = case.follow()
    assert (await asyncio.wait_for(case.looks.get(), LIMIT)).workers == (worker.id,)
    assert case.exits == []
    case.die(worker.id)
    await done(task)
    assert case.exits == [(137, 0)]


async def test_a_worker_in_the_making_is_waited_for(case):
    fork = case.machine.add(200, "Runner.Listener", parent=100, session=100)
    case.exit_file(0)
    case.die(LISTENER)
    task = case.follow()
    assert (await asyncio.wait_for(case.looks.get(), LIMIT)).forks == (fork.id,)
    case.machine.processes[200] = replace(fork, comm="Runner.Worker")
    case.machine.programs[200] = replace(case.machine.programs[200], argv=("/r/bin/Runner.Worker",))
    while not (await asyncio.wait_for(case.looks.get(), LIMIT)).workers:
        assert case.exits == []
    case.die(fork.id)
    await done(task)
    assert case.exits == [(0, 0)]


async def test_something_that_keeps_the_listeners_name_is_left_over_in_the_end(case, monkeypatch):
    monkeypatch.setattr("ephemerd.adapters.runtimes.process.follow.FORK_TO_EXEC", 0.1)
    case.machine.add(200, "Runner.Listener", parent=100, session=100)
    case.exit_file(0)
    case.die(LISTENER)
    await done(case.follow())
    assert case.exits == [(0, 1)]


@pytest.mark.parametrize("doubt", ["partial", "failed", "raises"])
async def test_doubt_is_waited_out(case, monkeypatch, doubt):
    monkeypatch.setattr("ephemerd.adapters.runtimes.process.follow.AGAIN", 0.01)
    case.exit_file(0)
    case.die(LISTENER)
    case.machine.complete = doubt != "partial"
    case.machine.broken = doubt == "failed"
    case.failures = 2 if doubt == "raises" else 0
    task = case.follow()
    look = await asyncio.wait_for(case.looks.get(), LIMIT)
    if doubt != "raises":
        assert look.listing is {"partial": Listing.PARTIAL, "failed": Listing.FAILED}[doubt]
        assert case.exits == []
        case.machine.complete, case.machine.broken = True, False
    await done(task)
    assert case.exits == [(0, 0)]


async def test_without_a_parent_there_is_no_code_to_wait_for(case):
    case.die(LISTENER)
    case.die(PARENT)
    await done(case.follow())
    assert case.exits == [(None, 0)]


async def test_another_boot_is_an_exit(case):
    case.environment.reference = replace(REFERENCE, boot="earlier")
    await done(case.follow())
    assert case.exits == [(None, 0)]


async def test_one_that_never_ran_has_ended(case):
    case.environment.reference = replace(REFERENCE, listener=None, parent=None)
    case.machine.processes = {1: case.machine.processes[1]}
    await done(case.follow())
    assert case.exits == [(None, 0)]


# Ending


def killing(case: Case, monkeypatch: pytest.MonkeyPatch, immortal: tuple[int, ...] = ()) -> None:
    """Let signals do what they do."""
    send = case.machine.signal

    def signalled(target: ProcessId, number: int) -> bool:
        there = send(target, number)
        if there and number == signal.SIGKILL and target.pid not in immortal:
            del case.machine.processes[target.pid]
        return there

    monkeypatch.setattr(case.machine, "signal", signalled)


async def test_everything_is_killed_by_identity_and_the_parent_last(case, monkeypatch):
    killing(case, monkeypatch)
    case.machine.add(200, "Runner.Worker", parent=101, session=100)
    case.machine.add(201, "daemon", marker=REFERENCE.runner, start=5000)
    case.machine.add(300, "neighbour", start=5000, marker="eph-s-b-11")
    waiting = asyncio.create_task(ending.kill(case.environment, case.machine, case.ask, 5.0))
    while {200, 201, 101} & set(case.machine.processes):
        await asyncio.wait_for(case.looks.get(), LIMIT)
        await asyncio.sleep(0)
    case.die(PARENT)
    assert await asyncio.wait_for(waiting, LIMIT) == ()
    assert [target.pid for target, number in case.machine.signals] == [200, 201, 101]
    assert all(target == case.machine.processes.get(target.pid, target) for target, _ in case.machine.signals)
    assert 300 in case.machine.processes


async def test_a_parent_that_stays_is_killed_too(case, monkeypatch):
    monkeypatch.setattr(ending, "PARENT_LEAVES", 0.05)
    killing(case, monkeypatch)
    assert await ending.kill(case.environment, case.machine, case.ask, 5.0) == ()
    assert PARENT in [target for target, _ in case.machine.signals]


@pytest.mark.parametrize("immortal", [LISTENER.pid, PARENT.pid])
async def test_what_would_not_die_is_named(case, monkeypatch, immortal):
    monkeypatch.setattr(ending, "PARENT_LEAVES", 0.05)
    monkeypatch.setattr(ending, "ROUND", 0.01)
    killing(case, monkeypatch, (immortal,))
    left = await ending.kill(case.environment, case.machine, case.ask, 0.1)
    assert [identity.pid for identity in left] == [immortal]


async def test_a_list_that_fails_proves_nothing_dead(case, monkeypatch):
    monkeypatch.setattr(ending, "ROUND", 0.01)
    case.machine.broken = True
    assert await ending.kill(case.environment, case.machine, case.ask, 0.05) == (LISTENER,)


async def test_asking_reaches_the_listener_alone(case):
    assert ending.ask_to_stop(case.environment, case.machine) is True
    assert case.machine.signals == [(LISTENER, signal.SIGINT)]
    case.environment.reference = replace(REFERENCE, boot="earlier")
    assert ending.ask_to_stop(case.environment, case.machine) is False
    case.environment.reference = replace(REFERENCE, listener=None)
    assert ending.ask_to_stop(case.environment, case.machine) is False
    assert len(case.machine.signals) == 1
