"""`GET /api/v1/events`: what changes, as server-sent events (WHATWG HTML, section 9.2).

An event's `id` is the number of its journal entry, `data` the whole of it as JSON on one line. All come as
`message`, a `heartbeat` alone under its own name. Whoever does not read is cut off after `STUCK` seconds and
goes on by `Last-Event-ID`.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from functools import lru_cache

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ephemerd.app.feed import HEARTBEAT, KINDS, Feed, FeedEvent, TooMany
from ephemerd.web.access import Access
from ephemerd.web.answers import problem
from ephemerd.web.operations import PREFIX, Choices, Given, Number, Operation, Param

STUCK = 60.0
"""Seconds in which a subscriber must take what is sent."""
RETRY = 2000
"""ms after which a browser connects again."""
MEDIA = "text/event-stream"
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
AGAIN = {"retry-after": "10"}

TEXT = """\
Each event has `id` (the number of its journal entry), `kind` (the journal's name of what happened), `at` (ms),
`subjects` (runners, jobs, pools and hosts that it concerns, sorted) and `data` (what became of them: `runners` id ->
state, `jobs` id -> status, `decisions`). Where much happens at once, many come as one of kind `many` with a `count`,
`kinds` (kind -> how many) and the last state of each; `reset` means that everything may have changed: read it anew.
All are of the type `message`. A `heartbeat`, of its own type, comes every 15 s in which nothing else does. After a
loss, send the last id as the header `Last-Event-ID` (browsers do) or as `after`: what was missed comes first. An
event that is read back from the journal has no `data`."""


def event_operations(feed: Feed) -> list[Operation]:
    """Declare the stream."""

    async def events(given: Given) -> Response:
        if given.request.method == "HEAD":
            return Response(headers=HEADERS, media_type=MEDIA)
        owner = given.access.token if given.access is not None else b""
        if feed.is_full(owner):
            return problem(503, "as many follow already as may; try again later", headers=AGAIN)
        after = given.values["last-event-id"]
        if after is None:
            after = given.values["after"]
        kinds = given.text("kind")
        return EventStream(
            feed,
            given.access,
            after=after if isinstance(after, int) else None,
            kinds=frozenset(kinds.split(",")) if kinds else frozenset(),
            subject=given.text("subject"),
        )

    return [
        Operation(
            *("events", "GET", f"{PREFIX}/events", "What changes, as it changes (server-sent events)."),
            events,
            {200: FeedEvent},
            params=(
                Number("after", "Begin after this event; none: with what comes.", default=None),
                Choices("kind", "Only of these kinds; `reset` comes in any case.", words=KINDS),
                Param("subject", "Only what concerns this runner, job, pool or host."),
            ),
            headers=(Number("last-event-id", "Goes before `after`; browsers send it.", default=None),),
            problems=(503,),
            media=MEDIA,
            text=TEXT,
        )
    ]


class EventStream(Response):
    """A subscription as an answer that ends when the client goes, or may not see it any more."""

    def __init__(
        self, feed: Feed, access: Access | None, *, after: int | None, kinds: frozenset[str], subject: str
    ) -> None:
        super().__init__(headers=HEADERS, media_type=MEDIA)
        del self.headers["content-length"]
        owner = access.token if access is not None else b""
        self._events = feed.subscribe(after, kinds=kinds, subject=subject, owner=owner)
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the feed is closed, the client is gone or does not read, or its token is void."""
        sending = asyncio.create_task(self._send(send), name="events")
        leaving = asyncio.create_task(_gone(receive), name="events: client")
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            results = await asyncio.gather(sending, leaving, return_exceptions=True)
        if isinstance(results[0], Exception) and not isinstance(results[0], TooMany | TimeoutError | OSError):
            raise results[0]

    async def _send(self, send: Send) -> None:
        async def out(body: bytes, *, more: bool = True) -> None:
            async with asyncio.timeout(STUCK):
                await send({"type": "http.response.body", "body": body, "more_body": more})

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await out(b"retry: %d\n\n" % RETRY)
        with suppress(TooMany):  # the last place was taken meanwhile: the client comes again
            async with aclosing(self._events) as events:
                async for event in events:
                    if self._access is not None and not self._access.good():
                        break
                    await out(wire(event))
        await out(b"", more=False)


@lru_cache(maxsize=512)
def wire(event: FeedEvent) -> bytes:
    """Return an event as it is sent; made once for all who get it."""
    kind = b"event: heartbeat\n" if event.kind == HEARTBEAT else b""
    return b"id: %d\n%sdata: %s\n\n" % (event.id, kind, msgspec.json.encode(event))


async def _gone(receive: Receive) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
