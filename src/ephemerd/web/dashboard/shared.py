"""Pages that are made once for all who ask for the same: many tabs cost as much as one.

Who asks while the page still waits for its turn gets that one, for it will be made after they asked. An update is told
again besides, for a moment, where nothing was committed since.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from ephemerd.web.pace import Pace

FRESH = 1.0
"""Seconds for which an update holds where nothing was committed since: it tells of time too."""
MOST = 32

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(slots=True)
class _Made:
    """A page that is made, or will be: `at` is when that began, in the loop's seconds, None before."""

    at: float | None = None
    commits: int = 0
    answer: asyncio.Future[Response] = field(init=False)


class Shared:
    """Keeps the newest pages. `reader` names who sees the same as whom."""

    def __init__(self, reader: Callable[[Request], Hashable], pace: Pace) -> None:
        self._reader = reader
        self._pace = pace
        self._kept: OrderedDict[Hashable, _Made] = OrderedDict()

    def once(self, endpoint: Endpoint) -> Endpoint:
        """Wrap an endpoint whose pages are the same for all of one kind of reader."""

        async def answer(request: Request) -> Response:
            update = request.headers.get("hx-request") == "true"
            key = (update, request.url.path, request.url.query, self._reader(request))
            made = self._kept.get(key)
            if made is None or not self._holds(made, update):
                made = _Made()
                made.answer = asyncio.ensure_future(self._make(made, endpoint, request))
                self._kept[key] = made
                self._kept.move_to_end(key)
                while len(self._kept) > MOST:
                    self._kept.popitem(last=False)
            try:
                found = await asyncio.shield(made.answer)
            except Exception:
                self._kept.pop(key, None)
                raise
            return Response(found.body, found.status_code, dict(found.headers))

        return answer

    def _holds(self, made: _Made, update: bool) -> bool:
        if made.at is None:
            return True
        return update and made.commits == self._pace.commits() and _now() - made.at <= FRESH

    async def _make(self, made: _Made, endpoint: Endpoint, request: Request) -> Response:
        await self._pace.turn()
        made.at, made.commits = _now(), self._pace.commits()
        return await self._pace.counted(endpoint(request))


def _now() -> float:
    return asyncio.get_running_loop().time()
