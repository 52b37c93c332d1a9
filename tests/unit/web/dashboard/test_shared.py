"""Pages are made once for all who ask for the same, and anew after each commit."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ephemerd.web.dashboard.shared import MOST, Shared
from ephemerd.web.pace import LATE, Pace


class Page:
    def __init__(self) -> None:
        self.commits = 0
        self.made = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.fails = False
        self.lag = 0.0
        pace = Pace(lambda: self.lag, lambda: self.commits)
        self.shared = Shared(lambda request: request.headers.get("who"), pace)
        self.ask = self.shared.once(self.render)

    async def render(self, request: Request) -> Response:
        self.made += 1
        number = self.made
        await self.gate.wait()
        if self.fails:
            raise OSError("away")
        return PlainTextResponse(f"{request.url.path} {number}", headers={"x-kept": "yes"})

    async def get(self, path: str = "/", who: str = "ann", *, update: bool = True) -> Response:
        headers = [(b"who", who.encode()), *([(b"hx-request", b"true")] if update else [])]
        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": headers}
        return await self.ask(Request(scope))


@pytest.fixture
async def page():
    return Page()


async def test_many_who_ask_at_once_get_one_rendering(page):
    page.gate.clear()
    asked = [asyncio.create_task(page.get()) for _ in range(50)]
    await asyncio.sleep(0)
    page.gate.set()
    answers = await asyncio.gather(*asked)
    assert {bytes(answer.body) for answer in answers} == {b"/ 1"}
    assert {answer.headers["x-kept"] for answer in answers} == {"yes"}
    assert page.made == 1


async def test_a_commit_makes_it_anew(page):
    await page.get()
    await page.get()
    assert page.made == 1
    page.commits += 1
    await page.get()
    assert page.made == 2


@pytest.mark.parametrize("update", [True, False])
async def test_who_asks_while_a_page_waits_for_its_turn_gets_that_one(page, update):
    page.lag = LATE
    asked = [asyncio.create_task(page.get(update=update)) for _ in range(5)]
    await asyncio.sleep(0)
    page.commits += 1
    asked += [asyncio.create_task(page.get(update=update)) for _ in range(5)]
    await asyncio.sleep(0)
    assert page.made == 0
    page.lag = 0.0
    answers = await asyncio.gather(*asked)
    assert {bytes(answer.body) for answer in answers} == {b"/ 1"}


async def test_other_readers_and_other_pages_are_their_own_and_whole_pages_always_new(page):
    await page.get()
    await page.get(who="eve")
    await page.get("/jobs")
    await page.get(update=False)
    await page.get(update=False)
    assert page.made == 5


async def test_one_who_leaves_does_not_take_it_from_the_others(page):
    page.gate.clear()
    first, second = asyncio.create_task(page.get()), asyncio.create_task(page.get())
    await asyncio.sleep(0)
    first.cancel()
    page.gate.set()
    assert (await second).body == b"/ 1"


async def test_a_failure_is_told_and_not_kept(page):
    page.fails = True
    with pytest.raises(OSError, match="away"):
        await page.get()
    page.fails = False
    assert (await page.get()).status_code == 200


async def test_what_is_kept_is_bounded(page):
    for number in range(MOST + 8):
        await page.get(f"/{number}")
    await page.get("/0")
    assert page.made == MOST + 9
