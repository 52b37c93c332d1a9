"""Updates that are rendered once for all who ask for the same: many tabs cost as much as one."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

FRESH = 1.0
"""Seconds for which an update holds where nothing was committed since: it tells of time too."""
MOST = 32

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class _Made:
    commits: int
    at: float
    answer: asyncio.Future[Response]


class Shared:
    """Keeps the newest updates. `commits` counts what was committed; `reader` names who sees the same as whom."""

    def __init__(self, commits: Callable[[], int], reader: Callable[[Request], Hashable]) -> None:
        self._commits = commits
        self._reader = reader
        self._kept: OrderedDict[Hashable, _Made] = OrderedDict()

    def once(self, endpoint: Endpoint) -> Endpoint:
        """Wrap an endpoint whose updates are the same for all of one kind of reader; whole pages are not shared."""

        async def answer(request: Request) -> Response:
            if request.headers.get("hx-request") != "true":
                return await endpoint(request)
            key = (request.url.path, request.url.query, self._reader(request))
            now = asyncio.get_running_loop().time()
            made = self._kept.get(key)
            if made is None or made.commits != self._commits() or now - made.at > FRESH:
                made = _Made(self._commits(), now, asyncio.ensure_future(endpoint(request)))
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
