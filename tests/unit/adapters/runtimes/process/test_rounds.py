"""One task that looks after all runners."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ephemerd.adapters.runtimes.process import rounds as module
from ephemerd.adapters.runtimes.process.environment import Environment
from ephemerd.adapters.runtimes.process.identity import Place, Reference
from ephemerd.adapters.runtimes.process.rounds import Rounds

LIMIT = 20.0


class Runner:
    """One runner on the round: what is asked of it arrives in two queues."""

    def __init__(self, folder: Path, name: str) -> None:
        place = Place(folder / name, folder / f"{name}.log")
        place.perf.mkdir(parents=True)
        self.environment = Environment(Reference(name, "p", "s", "b", None, None), place, None)
        self.reads: asyncio.Queue[int] = asyncio.Queue()
        self.asks: asyncio.Queue[int] = asyncio.Queue()
        self.failing = False

    async def read(self) -> None:
        if self.failing:
            self.failing = False
            raise OSError("not now")
        self.reads.put_nowait(len(self.environment.evidence.refresh(1)))

    async def ask(self) -> None:
        self.asks.put_nowait(1)

    def write(self, text: str = "2026-11-29 13:58:12Z: Listening for Jobs\n") -> None:
        with self.environment.place.log.open("a") as file:
            file.write(text)


@pytest.fixture
async def rounds(monkeypatch):
    monkeypatch.setattr(module, "EARLY", 0.01)
    monkeypatch.setattr(module, "LATE", 0.02)
    made = Rounds()
    yield made
    await made.close()


async def next_of(queue: asyncio.Queue[int]) -> int:
    return await asyncio.wait_for(queue.get(), LIMIT)


async def test_files_are_read_when_they_change_and_only_then(rounds, tmp_path):
    first, second = Runner(tmp_path, "r1"), Runner(tmp_path, "r2")
    for runner in (first, second):
        rounds.add(runner.environment, runner.read, runner.ask, all_signs=True)
    first.write()
    assert await next_of(first.reads) == 1
    second.write()
    assert await next_of(second.reads) == 1
    first.write("no sign\n")
    assert await next_of(first.reads) == 0
    assert second.reads.empty()
    assert first.reads.empty()


async def test_what_fails_is_read_again(rounds, tmp_path):
    runner = Runner(tmp_path, "r1")
    runner.failing = True
    runner.write()
    rounds.add(runner.environment, runner.read, runner.ask, all_signs=True)
    assert await next_of(runner.reads) == 1


async def test_processes_are_asked_for_soon_after_an_announcement(rounds, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TABLE_DUE", 0.01)
    runner = Runner(tmp_path, "r1")
    rounds.add(runner.environment, runner.read, runner.ask, all_signs=True)
    runner.write()
    await next_of(runner.reads)
    assert runner.asks.empty()
    runner.write("2026-11-29 13:58:12Z: Running job: x\n")
    await next_of(runner.reads)
    await next_of(runner.asks)
    await next_of(runner.asks)
    runner.environment.evidence.saw_worker(1)
    runner.write("end of that\n")
    await next_of(runner.reads)  # read again, asked no more


async def test_processes_are_asked_for_now_and_then_in_case_the_files_fail(rounds, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TABLE_RARE", 0.05)
    runner = Runner(tmp_path, "r1")
    rounds.add(runner.environment, runner.read, runner.ask, all_signs=True)
    await next_of(runner.asks)


async def test_who_only_wants_to_know_that_it_listens_is_left_alone_then(rounds, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TABLE_RARE", 0.0)
    quiet, other = Runner(tmp_path, "r1"), Runner(tmp_path, "r2")
    rounds.add(quiet.environment, quiet.read, quiet.ask, all_signs=False)
    quiet.write()
    assert await next_of(quiet.reads) == 1
    quiet.write("2026-11-29 13:58:12Z: Running job: x\n")
    rounds.add(other.environment, other.read, other.ask, all_signs=True)
    for _ in range(3):
        await next_of(other.asks)
    assert quiet.reads.empty()
    assert quiet.asks.empty()


async def test_who_was_removed_is_not_visited(rounds, tmp_path):
    gone, other = Runner(tmp_path, "r1"), Runner(tmp_path, "r2")
    for runner in (gone, other):
        rounds.add(runner.environment, runner.read, runner.ask, all_signs=True)
    rounds.remove(gone.environment)
    rounds.remove(gone.environment)
    gone.write()
    other.write()
    await next_of(other.reads)
    assert gone.reads.empty()


async def test_with_nobody_to_look_after_nothing_wakes(rounds, tmp_path, monkeypatch):
    runner = Runner(tmp_path, "r1")
    rounds.add(runner.environment, runner.read, runner.ask, all_signs=True)
    rounds.remove(runner.environment)
    loop = asyncio.get_running_loop()
    wakes = 0
    real = loop.call_at

    def counted(*arguments, **named):
        nonlocal wakes
        wakes += 1
        return real(*arguments, **named)

    for _ in range(5):
        await asyncio.sleep(0)
    monkeypatch.setattr(loop, "call_at", counted)
    for _ in range(100):
        await asyncio.sleep(0)
    assert wakes == 0


async def test_one_that_never_ran_closes():
    await Rounds().close()
