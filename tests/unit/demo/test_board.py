"""The board: what is counted, and that it leaves the terminal as it was."""

from __future__ import annotations

import asyncio
import io
import re
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from ephemerd.testing.demo import board as boards
from ephemerd.testing.demo.board import Board, read, shown
from ephemerd.testing.demo.narrator import Narrator
from ephemerd.testing.demo.options import DemoError
from ephemerd.testing.demo.stage import Stage

JOBS = [
    {"id": 1, "status": "completed"},
    {"id": 2, "status": "in_progress"},
    {"id": 3, "status": "queued"},
    {"id": 9, "status": "completed"},
]
DECISIONS = [
    {"outcome": "reaped", "runner": "r-2", "verdict": "idle", "via": "probe"},
    {"outcome": "vetoed", "runner": "r-1", "verdict": "busy", "via": "probe"},
    {"outcome": "vetoed", "runner": "r-0", "verdict": "busy", "via": "fence"},
]


class Screen(io.StringIO):
    """A terminal's text; `until` waits for words on it."""

    def __init__(self) -> None:
        super().__init__()
        self._written = asyncio.Event()

    def write(self, text: str) -> int:
        self._written.set()
        return super().write(text)

    async def until(self, *words: str) -> None:
        async with asyncio.timeout(30):
            while not all(word in self.getvalue() for word in words):
                self._written.clear()
                await self._written.wait()


@pytest.fixture(autouse=True)
def able(monkeypatch):
    """On a dumb terminal there is no board."""
    monkeypatch.setenv("TERM", "xterm")


def narrator() -> tuple[Narrator, Screen]:
    made, target = Narrator(to_stderr=False), Screen()
    made.console = Console(file=target, force_terminal=True, width=80, highlight=False)
    return made, target


def stage(*, broken: bool = False) -> Stage:
    async def state() -> dict[str, Any]:
        if broken:
            raise DemoError("away", "wait")
        return {"jobs": JOBS}

    async def get(path: str, **_: Any) -> dict[str, Any]:
        return {"runners": {"running": 2, "gone": 7}} if path.endswith("status") else {"items": DECISIONS}

    return cast("Stage", SimpleNamespace(forge=SimpleNamespace(state=state), daemon=SimpleNamespace(get=get)))


async def test_jobs_of_others_are_not_counted():
    board = Board(10)
    await read(stage(), board, {1, 2, 3})
    assert (board.done, board.working, board.waiting, board.wanted) == (1, 1, 1, 10)
    rows = dict(board.rows())
    assert rows["jobs"].endswith("1/10  1 at work, 1 waiting")
    assert rows["runners"] == "2 running"
    assert rows["gate"] == "2 vetoed, 1 reaped  last veto: r-1 stays (busy, by probe)"


def test_an_escape_is_not_hidden():
    board = Board(1)
    board.judge([{"outcome": "escaped", "runner": "r", "verdict": "busy", "via": "sign"}])
    assert "1 ESCAPED" in dict(board.rows())["gate"]


def test_at_the_beginning_there_is_nothing():
    rows = dict(Board(0).rows())
    assert rows["runners"] == "none"
    assert rows["gate"] == "0 vetoed, 0 reaped"


def lines_of(written: str) -> list[str]:
    """What a terminal shows after this was written: as many cursor movements as rich makes."""
    rows, at = [""], 0
    for up, clear, feed, text in re.findall(
        r"\x1b\[(\d+)A|\x1b\[2(K)|(\n)|\x1b\[[0-9;?]*[a-zA-Z]|\r|([^\x1b\r\n]+)", written
    ):
        if up:
            at -= int(up)
        elif clear:
            rows[at] = ""
        elif feed:
            at += 1
            rows += [""] * (at + 1 - len(rows))
        else:
            rows[at] += text
    return [row for row in rows if row]


async def test_lines_above_it_stay_and_nothing_of_it_is_left(monkeypatch):
    tell, target = narrator()
    monkeypatch.setattr(boards, "LOOK_EVERY_S", 0)
    async with shown(stage(), tell, lambda: {1}, 5, on=True):
        tell.say("one", "good")
        await target.until("1/5")
        tell.detail(["two " * 30])
        tell.say("three")
    lines = lines_of(target.getvalue())
    assert [line.split()[-1] for line in lines] == ["one", "two", "two", "three"]


@pytest.mark.parametrize("broken", [False, True])
async def test_it_is_drawn_and_taken_away(monkeypatch, broken):
    tell, target = narrator()
    monkeypatch.setattr(boards, "LOOK_EVERY_S", 0)
    async with shown(stage(broken=broken), tell, lambda: {1}, 5, on=True):
        tell.say("what happens " * 20)
        await target.until("now      ", "what happens", "0/5" if broken else "1/5")
    assert "\x1b[2K" in target.getvalue().rsplit("now", 1)[1], "its lines are cleared"
    assert "\x1b[?25h" in target.getvalue(), "the cursor is back"


async def test_where_nobody_watches_there_is_none():
    tell, target = narrator()
    async with shown(stage(), tell, set, 5, on=False):
        tell.say("a line")
    assert "now" not in target.getvalue()
