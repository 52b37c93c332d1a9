"""Requests to one GitHub: the token, the deadline, rate limits as told, a record of each call.

A read is sent once more where an open connection broke, where a newer token is at hand after a 401, and where
GitHub redirects it within its own origin; a write is sent exactly once. All of it within the call's deadline.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import ephemerd
from ephemerd.adapters.forges.github import faults, wire
from ephemerd.adapters.forges.github.conditional import Kept, Key, mark_of
from ephemerd.adapters.forges.github.limits import Limits
from ephemerd.adapters.forges.github.tokens import TokenSource
from ephemerd.adapters.kit.answer import Answer, NoAnswer
from ephemerd.adapters.kit.http import HttpClient, Stopwatch
from ephemerd.ports.errors import Limited, NotSent, PortError, RetryLater
from ephemerd.ports.forge import Budget, CallRecord

USER_AGENT = f"ephemerd/{ephemerd.__version__}"
NO_STATUS = 0
"""The status of a `CallRecord` where no answer came."""
_CALLS = 10_000
_ACCOUNTS = 256
_APP, _OTHERS = "(app)", "(others)"
_REDIRECTS = 3

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Tally:
    """What some questions cost: requests, and those of them that count against the hourly limit (a 304 does not)."""

    asked: int = 0
    charged: int = 0


class Connection:
    """Sends `wire.Request`s to one base URL. Neither its repr nor what it raises or logs holds the token."""

    def __init__(
        self,
        http: HttpClient,
        *,
        base: str,
        tokens: TokenSource,
        timeout_s: float,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`base` as `wire.base_url` gave it; `timeout_s` bounds one request; `now` is the wall clock, `monotonic`
        the one that limits are kept by, both in seconds."""
        self.base = base
        self.timeout_s = timeout_s
        self._http = http
        self._tokens = tokens
        self._now = now
        self._monotonic = monotonic
        self._limits: dict[str, Limits] = {}
        self._kept = Kept()
        self._marks: dict[str, bytes] = {}
        self._calls: deque[CallRecord] = deque(maxlen=_CALLS)
        self._announced: set[str] = set()
        self._sent: deque[str] = deque(maxlen=16)  # only to take them out of what GitHub is quoted with
        tokens.bind(self._signed)

    async def fetch(self, request: wire.Request, deadline: float, tally: Tally | None = None) -> Answer:
        """Return the answer where it is a 200; else raise what it means."""
        answer = await self.ask(request, deadline, tally)
        if answer.status != 200:
            raise self.fault(request, answer)
        return answer

    async def ask(self, request: wire.Request, deadline: float, tally: Tally | None = None) -> Answer:
        """Return the answer, whatever its status, after the few repeats that a read may have.

        `tally` is added to for each request that goes out.
        """
        may_break, may_renew, may_move = (0, 0, 0) if request.writes else (1, 1, _REDIRECTS)
        while True:
            try:
                answer, renewed = await self._once(request, deadline, tally)
            except NoAnswer as error:
                failure = error
            else:
                location = answer.headers.get("location", "")
                if renewed and may_renew:
                    may_renew -= 1
                elif renewed and request.writes:
                    raise RetryLater(
                        f"GitHub answered 401 to {request.endpoint} on {request.about}: the token was no longer "
                        "good, and another one is at hand now"
                    )
                elif answer.status in faults.REDIRECTS and location and may_move:
                    request = wire.moved(self.base, request, location)
                    may_move -= 1
                else:
                    return answer
                continue
            if not (failure.broken and may_break):
                raise faults.no_answer(request, failure.text)
            may_break -= 1

    def fault(self, request: wire.Request, answer: Answer) -> PortError:
        """Return what an answer means that is not the expected success."""
        return faults.fault(request, answer, now=self._now(), secrets=tuple(self._sent))

    @property
    def installed(self) -> bool:
        """Whether the credential is an App's, which reaches what it is installed on."""
        return self._tokens.installed

    def budgets(self) -> tuple[Budget, ...]:
        """Return the rate limits as last told, by account and resource."""
        now = self._monotonic()
        return tuple(told for name in sorted(self._limits) for told in self._limits[name].budgets(now))

    def take_calls(self) -> list[CallRecord]:
        """Return and forget the calls since last time; the oldest fall out beyond ten thousand."""
        taken = list(self._calls)
        self._calls.clear()
        return taken

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()

    async def _within(self, question: Awaitable[T], deadline: float) -> T:
        """Await the token source; where it takes too long, `RetryLater`."""
        try:
            async with asyncio.timeout_at(deadline):
                return await question
        except TimeoutError:
            pass
        raise RetryLater(f"{self._tokens.name} gave no answer in time; nothing was sent to GitHub")

    async def _once(self, request: wire.Request, deadline: float, tally: Tally | None) -> tuple[Answer, bool]:
        """Send once; return the answer, and whether another token than the one refused is at hand.

        The token is a local of this and of what it calls, never of a frame that raises a `PortError`.
        """
        holder = self._tokens.holder(request.account)
        limits = self._limits_of(holder)
        self._may_go(limits, request)
        token = await self._within(self._tokens.token(request.account), deadline)
        if limits.hold(request, self._monotonic()) is not None:  # it may have taken a while
            token = ""  # nothing that is raised has it in its frame
            self._may_go(limits, request)
        tally = tally if tally is not None else Tally()
        answer = await self._sent_with(token, request, limits, deadline, holder, tally)
        renewed = answer.status == 401 and await self._within(
            self._tokens.refused(request.account, token), deadline
        )
        return answer, renewed

    async def _signed(self, request: wire.Request, jwt: str) -> Answer:
        """Send an App's own request; its failures are those of what needs the token."""
        limits = self._limits_of(_APP)
        self._may_go(limits, request)
        try:
            return await self._sent_with(jwt, request, limits, _time() + self.timeout_s, _APP, Tally())
        except NoAnswer as error:
            failure = error
        raise faults.no_answer(request, failure.text)

    def _may_go(self, limits: Limits, request: wire.Request) -> None:
        """Raise where a request has to wait: `Limited` where GitHub said so, else `NotSent`."""
        hold = limits.hold(request, self._monotonic())
        if hold is None:
            return
        kind = Limited if hold.limited else NotSent
        raise kind(
            f"{request.endpoint} on {request.about} was not sent: {hold.why}; it may go out in {hold.seconds:.0f} s",
            after_ms=max(1000, round(hold.seconds * 1000)),
        )

    async def _sent_with(
        self, token: str, request: wire.Request, limits: Limits, deadline: float, holder: str, tally: Tally
    ) -> Answer:
        if token not in self._sent:
            self._sent.append(token)
        limits.spent(request, self._monotonic())
        headers = wire.headers(USER_AGENT, token, body=bool(request.body))
        key, mark = (holder, wire.absolute(self.base, request)), mark_of(token)
        kept = self._kept.find(key, mark) if request.conditional else None
        if kept is not None:
            headers["If-None-Match"] = kept.headers["etag"]
        tally.asked += 1
        tally.charged += 1
        answer = await self._send(request, headers, deadline)
        self._note(request, answer, limits)
        if kept is not None and answer.status == 304:
            tally.charged -= 1
            return kept if request.whole else answer
        if request.conditional:
            self._mark(holder, mark)
            self._kept.keep(key, mark, answer, whole=request.whole)
        return answer

    def _mark(self, holder: str, mark: bytes) -> None:
        """Remember by which token an account's questions are asked now."""
        if holder in self._marks or len(self._marks) < _ACCOUNTS:
            self._marks[holder] = mark

    def is_kept(self, request: wire.Request) -> bool:
        """Say whether a question costs nothing of the limit where nothing has changed."""
        key = self._key(request)
        mark = self._marks.get(key[0])
        return mark is not None and self._kept.has(key, mark)

    def forget(self, request: wire.Request) -> None:
        """Drop what is kept of a question that will not be asked again."""
        self._kept.forget(self._key(request))

    def _key(self, request: wire.Request) -> Key:
        return self._tokens.holder(request.account), wire.absolute(self.base, request)

    async def _send(self, request: wire.Request, headers: dict[str, str], deadline: float) -> Answer:
        limit = min(deadline, _time() + self.timeout_s)
        watch, status = Stopwatch(), NO_STATUS
        try:
            answer = await self._http.send(
                request.method,
                wire.absolute(self.base, request),
                headers=headers,
                body=request.body,
                deadline=limit,
            )
            status = answer.status
            return answer
        finally:
            self._calls.append(CallRecord(request.endpoint, status, watch.seconds()))

    def _note(self, request: wire.Request, answer: Answer, limits: Limits) -> None:
        at, told = self._monotonic(), faults.budget(answer.headers)
        if told is not None:
            left = faults.seconds_until(told.reset, answer.headers, self._now())
            limits.told(request, told, left, at)
        wait = faults.limit_of(answer, self._now())
        if wait is None:
            limits.answered(at)
        else:
            limits.limited(wait.ms / 1000, at, named=wait.named)
        notice = faults.end_of_life(answer.headers)
        if notice and request.endpoint not in self._announced:
            self._announced.add(request.endpoint)
            log.warning("GitHub announces the end of %s: %s; update ephemerd", request.endpoint, notice)

    def _limits_of(self, holder: str) -> Limits:
        """Return the limits of a credential; beyond a bound of them the rest share one entry."""
        name = holder if holder in self._limits or len(self._limits) < _ACCOUNTS else _OTHERS
        return self._limits.setdefault(name, Limits(name))


def _time() -> float:
    return asyncio.get_running_loop().time()
