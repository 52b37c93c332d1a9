"""The board below the narration on a terminal: how far the jobs are, what the gate does, what happens now.

It only shows. What it cannot read, since a program is just busy or away, stays as it was.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field

import httpx2

from ephemerd.testing.demo.clients import Json
from ephemerd.testing.demo.narrator import Narrator
from ephemerd.testing.demo.options import DemoError
from ephemerd.testing.demo.stage import Stage

LOOK_EVERY_S = 0.5
BAR = 30


@dataclass(slots=True)
class Board:
    """What is shown. `wanted` jobs are to be run in all; the rest is as last read."""

    wanted: int
    done: int = 0
    waiting: int = 0
    working: int = 0
    runners: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)
    veto: str = ""
    now: str = ""

    def count(self, jobs: Iterable[Json], ours: set[int]) -> None:
        """Take in the forge's jobs; those of the act and of the bursts are ours, extra ones come to nothing."""
        mine = [job for job in jobs if job["id"] in ours]
        self.done = sum(job["status"] == "completed" for job in mine)
        self.working = sum(job["status"] == "in_progress" for job in mine)
        self.waiting = len(mine) - self.done - self.working
        self.wanted = max(self.wanted, len(mine))

    def judge(self, decisions: list[Json]) -> None:
        """Take in the gate's decisions, newest first."""
        self.outcomes = {}
        for decision in decisions:
            self.outcomes[decision["outcome"]] = self.outcomes.get(decision["outcome"], 0) + 1
        kept = next((one for one in decisions if one["outcome"] == "vetoed"), None)
        if kept is not None:
            self.veto = f"last veto: {kept['runner']} stays ({kept['verdict']}, by {kept['via']})"

    def rows(self) -> list[tuple[str, str]]:
        """Return title and text of each line."""
        full = round(BAR * self.done / self.wanted) if self.wanted else 0
        bar = "\N{BLACK SQUARE}" * full + "\N{MIDDLE DOT}" * (BAR - full)
        live = ", ".join(f"{n} {state}" for state, n in self.runners.items() if n and state != "gone")
        counted = ", ".join(f"{self.outcomes.get(name, 0)} {name}" for name in ("vetoed", "reaped"))
        if self.outcomes.get("escaped"):
            counted += f", {self.outcomes['escaped']} ESCAPED"
        return [
            ("jobs", f"{bar} {self.done}/{self.wanted}  {self.working} at work, {self.waiting} waiting"),
            ("runners", live or "none"),
            ("gate", f"{counted}  {self.veto}".rstrip()),
            ("now", self.now),
        ]


@contextlib.asynccontextmanager
async def shown(
    stage: Stage, narrator: Narrator, ours: Callable[[], set[int]], wanted: int, *, on: bool
) -> AsyncIterator[None]:
    """Show the board while the context is open, if it is `on`; `ours()` gives the ids of the jobs that count."""
    if not on:
        yield
        return
    board = Board(wanted)
    with narrator.board(board.rows) as draw:
        task = asyncio.create_task(_keep_reading(stage, narrator, board, ours, draw))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])


async def _keep_reading(
    stage: Stage, narrator: Narrator, board: Board, ours: Callable[[], set[int]], draw: Callable[[], None]
) -> None:
    while True:
        board.now = narrator.last
        with contextlib.suppress(DemoError, httpx2.HTTPError, ValueError, KeyError, TypeError):
            await read(stage, board, ours())
        draw()
        await asyncio.sleep(LOOK_EVERY_S)


async def read(stage: Stage, board: Board, ours: set[int]) -> None:
    """Read once from both sides."""
    board.count((await stage.forge.state())["jobs"], ours)
    board.runners = (await stage.daemon.get("/api/v1/status"))["runners"]
    page = await stage.daemon.get("/api/v1/decisions", newest="true", limit=1000)
    board.judge(page["items"])
