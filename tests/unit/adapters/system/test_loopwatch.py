"""The thread beside the loop: it says where the loop stands, and ends the process when that lasts."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading

from ephemerd.adapters.system.loopwatch import EXIT_CODE, LoopWatch

STUCK = """
import logging, sys, time
from ephemerd.adapters.system.loopwatch import LoopWatch

logging.basicConfig(level=logging.DEBUG, stream=sys.stderr, format="%(levelname)s %(message)s %(fields)s")

def waits_for_ever(password):
    {how}

watch = LoopWatch({limit}, tick=0.05, warn=0.2)
watch.start()
waits_for_ever("hunter2")
"""


def run(how: str, limit: str = "0.5") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", STUCK.format(how=how, limit=limit)],
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_a_loop_that_stands_still_ends_the_process_with_its_own_code():
    done = run("time.sleep(1000)")
    assert done.returncode == EXIT_CODE == 9
    assert "ERROR the main loop has not turned for" in done.stderr
    assert "CRITICAL the main loop has not turned for" in done.stderr
    assert "waits_for_ever" in done.stderr
    assert "hunter2" not in done.stderr


def test_it_ends_also_while_the_log_is_locked_by_the_loop():
    how = "logging.getLogger().handlers[0].acquire(); time.sleep(1000)"
    done = run(how)
    assert done.returncode == EXIT_CODE
    assert "runners live on" in done.stderr, "written past the log"


class Watched:
    """A watch whose process does not end; `looks` is released at each look at the clock."""

    def __init__(self, limit: float | None = 1_000_000.0) -> None:
        self.ended: list[int] = []
        self.over = threading.Event()
        self.looks = threading.Semaphore(0)
        self.clock = 0.0
        self.step = 5.0
        self.watch = LoopWatch(limit, tick=0.001, warn=20.0, end=self.end, monotonic=self.now)

    def end(self, code: int) -> None:
        self.ended.append(code)
        self.over.set()

    def now(self) -> float:
        self.clock += self.step
        self.looks.release()
        return self.clock

    def look(self, times: int) -> None:
        for _ in range(times):
            assert self.looks.acquire(timeout=60)


def test_a_loop_that_turns_is_left_alone():
    watched = Watched()
    watched.watch.start()
    for _ in range(20):
        watched.watch.beat()
        watched.look(1)
    watched.watch.stop()
    assert watched.ended == []


def test_time_in_which_the_thread_itself_did_not_run_does_not_count():
    watched = Watched(limit=1.0)
    watched.step = 1_000_000.0  # as after a suspend: two ticks count at most
    watched.watch.start()
    watched.look(10)
    assert watched.ended == []
    assert watched.watch.silent < 1.0
    watched.watch.stop()


class Heard(logging.Handler):
    """Releases an event when a line holds a text."""

    def __init__(self, *texts: str) -> None:
        super().__init__()
        self.said = {text: threading.Event() for text in texts}

    def emit(self, record: logging.LogRecord) -> None:
        for text, event in self.said.items():
            if text in record.getMessage():
                event.set()


def test_without_a_limit_it_is_only_said():
    heard = Heard("it stands at", "turns again")
    logger = logging.getLogger("ephemerd.adapters.system.loopwatch")
    logger.addHandler(heard)
    ended: list[int] = []
    watch = LoopWatch(None, tick=0.01, warn=0.03, end=ended.append)
    try:
        watch.start()
        assert heard.said["it stands at"].wait(60)
        watch.beat()
        assert heard.said["turns again"].wait(60)
    finally:
        watch.stop()
        logger.removeHandler(heard)
    assert ended == []


async def test_where_a_waiting_task_stands():
    begun = asyncio.Event()

    async def inner():
        begun.set()
        await asyncio.Event().wait()

    async def outer():
        await inner()

    task = asyncio.create_task(outer())
    await begun.wait()
    watch = LoopWatch(None)
    watch._task = task
    text = watch.where()
    assert "in test_where_a_waiting_task_stands" in text
    waiting = text.partition("waiting:")[2]
    assert waiting.index("outer") < waiting.index("inner") < waiting.index("Event.wait")
    task.cancel()
