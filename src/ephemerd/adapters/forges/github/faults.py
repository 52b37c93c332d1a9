"""What an answer that is no success means, by remedy; and what its headers say of the rate limits; pure.

Sources: GitHub's pages on rate limits and on troubleshooting the REST API; field reports where named. The rule
above all: an exhausted quota, a lost permission or an outage must never read as "gone" or "removable"
(pytorch/pytorch#87500: a quota failure taken as permission killed a fleet of runners in five minutes).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from ephemerd.adapters.forges.github.wire import API_VERSION, Request
from ephemerd.adapters.kit.answer import Answer
from ephemerd.domain.runner import FenceAnswer
from ephemerd.ports.errors import Denied, Gone, Limited, PortError, Refused, RetryLater, Unseen
from ephemerd.ports.forge import Budget

NO_HEADER_WAIT_MS = 60_000  # GitHub: without a header wait at least one minute
LONGEST_WAIT_MS = 2 * 3600 * 1000  # a quota is refilled hourly; a header that says more is wrong
_LIMIT_WORDS = ("rate limit", "abuse detection")
_QUOTED = 300
_SECRET_LIKE = re.compile(r"gh[a-z]_\w+|github_pat_\w+|[^\s\"',;:]{80,}")
REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOVED = (
    "the repository was renamed or transferred, or the forge's url points past the API; set scope and url to where "
    "it is now"
)
_OUTDATED = (
    f"API version {API_VERSION} is not supported by this GitHub any more; update ephemerd, or check that the "
    "forge's url is the API's base URL"
)
_FULL = "the runner group holds 10,000 registrations, GitHub's limit; remove registrations that nobody needs"


class _Message(msgspec.Struct):
    message: Any = None


def budget(headers: Mapping[str, str]) -> Budget | None:
    """Read the rate limit that an answer tells; None where it tells none or a part is no number."""
    limit, remaining, reset = (
        _number(headers.get(f"x-ratelimit-{part}")) for part in ("limit", "remaining", "reset")
    )
    if limit is None or remaining is None or reset is None:
        return None
    return Budget(headers.get("x-ratelimit-resource", "core")[:64], limit, remaining, reset)


def end_of_life(headers: Mapping[str, str]) -> str:
    """Return what `Deprecation` and `Sunset` headers announce, "" where there are none."""
    named = {name: _plain(headers.get(name, "")) for name in ("deprecation", "sunset")}
    return ", ".join(f"{name} {value}" for name, value in named.items() if value)


def fence_answer(status: int) -> FenceAnswer | None:
    """Read the answer to a DELETE by its status alone; None where nothing was learnt (a veto).

    422 is the refusal while a job is held, 400 that of the scale-set service; at least three wordings and one
    500 are on record, so that no wording is trusted. 404 may also be a lost permission, or an assignment that
    consumed the registration (actions/runner#4617): the core knows what it is worth.
    """
    if status == 204:
        return FenceAnswer.ACCEPTED
    if status in {400, 422}:
        return FenceAnswer.REFUSED
    return FenceAnswer.NOT_FOUND if status == 404 else None


def no_answer(request: Request, text: str) -> RetryLater:
    """Return the failure of a request that got no complete answer."""
    return RetryLater(f"no answer from GitHub to {request.endpoint} on {request.about}: {text}")


def fault(request: Request, answer: Answer, *, now: float, secrets: Collection[str] = ()) -> PortError:
    """Return what an answer that is not the expected success means.

    `now` is the wall clock in seconds since the epoch, for a reset time where the answer has no `Date`;
    `secrets` are taken out of what GitHub is quoted with.
    """
    status, headers = answer.status, answer.headers
    said = _said(answer.body, secrets)
    head = f"GitHub answered {status} to {request.endpoint} on {request.about}" + (
        f" ({said})" if said else ""
    )
    tail = f" [request id {id_}]" if (id_ := _plain(headers.get("x-github-request-id", ""))) else ""

    def text(advice: str) -> str:
        return f"{head}: {advice}{tail}"

    if (limit := limit_of(answer, now)) is not None:
        return Limited(
            text(f"a rate limit; the next request may go out in {limit.ms / 1000:.0f} s"), after_ms=limit.ms
        )
    if status == 401:
        return Denied(text("the token is wrong, expired or revoked; put a valid one in its place"))
    if status == 403:
        wanted = _plain(headers.get("x-accepted-github-permissions", ""))
        return Denied(text("the token may not do this" + (f"; it needs {wanted}" if wanted else "")))
    if status == 404:
        if not request.hint:
            return Gone(text("it is not there, or the token may not see it"))
        return Denied(text(request.hint)) if request.writes else Unseen(text(request.hint))
    if status in REDIRECTS:
        return Refused(text(_MOVED))
    if status == 410:
        return Refused(text(_OUTDATED))
    if status == 422:
        return Refused(
            text(_FULL if _is_full(said) else "the request is refused as it stands; check labels and group")
        )
    if status in {408, 425} or not 400 <= status < 500:
        after = _retry_after_ms(headers, now)
        return RetryLater(text("no usable answer; the request may have been carried out"), after_ms=after)
    return Refused(text("the request is refused as it stands"))


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a limit lasts, ms; `named` says that GitHub told it."""

    ms: int
    named: bool


def limit_of(answer: Answer, now: float) -> Wait | None:
    """Return how long to wait where an answer tells of a limit; None for any other answer."""
    if answer.status != 429 and not (
        answer.status == 403 and _is_limit(answer.headers, _said(answer.body, ()))
    ):
        return None
    wait = _limit_wait_ms(answer.headers, now)
    return Wait(NO_HEADER_WAIT_MS, False) if wait is None else Wait(wait, True)


def seconds_until(reset: int, headers: Mapping[str, str], now: float) -> float:
    """Return the seconds until a reset, by the answer's own `Date`; a second more, at most two hours."""
    return min(max(0.0, reset - _date(headers.get("date"), now) + 1.0), LONGEST_WAIT_MS / 1000)


def is_suspended(answer: Answer) -> bool:
    """Say whether a 403 tells that an App's installation is suspended."""
    return "suspended" in _said(answer.body, ()).lower()


def clock_ahead(headers: Mapping[str, str], now: float) -> float | None:
    """Return by how many seconds the forge's clock is ahead of ours; None where the answer has no `Date`."""
    there = _date(headers.get("date"), -1.0)
    return None if there < 0 else there - now


def sent_at(headers: Mapping[str, str]) -> int:
    """Return when the forge sent an answer, by its own clock, ms since the epoch; 0 where it does not say."""
    return round(_date(headers.get("date"), 0.0) * 1000)


def limit_wait_ms(headers: Mapping[str, str], now: float) -> int:
    """Return how long to wait after a limit, ms: `retry-after`, the reset of an empty quota, or a minute."""
    wait = _limit_wait_ms(headers, now)
    return NO_HEADER_WAIT_MS if wait is None else wait


def _limit_wait_ms(headers: Mapping[str, str], now: float) -> int | None:
    """Return what the headers of a limit name; None where they name nothing.

    The answer's own `Date` is the clock for a reset, so that a wrong clock of this host does not matter.
    """
    waits = [_retry_after_ms(headers, now)]
    reset = _number(headers.get("x-ratelimit-reset"))
    if _number(headers.get("x-ratelimit-remaining")) == 0 and reset is not None:
        left = reset - _date(headers.get("date"), now)
        waits.append(int(left * 1000) + 1000 if left > 0 else None)
    known = [wait for wait in waits if wait is not None]
    return min(max(known), LONGEST_WAIT_MS) if known else None


def _is_limit(headers: Mapping[str, str], said: str) -> bool:
    if "retry-after" in headers or _number(headers.get("x-ratelimit-remaining")) == 0:
        return True
    return any(words in said.lower() for words in _LIMIT_WORDS)


def _is_full(said: str) -> bool:
    return "max limit" in said.lower() or "10000" in said or "10,000" in said


def _retry_after_ms(headers: Mapping[str, str], now: float) -> int | None:
    """Return `retry-after` (seconds or a date) in ms, at least a second; None where it is missing or senseless."""
    given = headers.get("retry-after")
    seconds: float | None = _number(given)
    if seconds is None and given:
        until = _date(given, -1.0)
        seconds = until - _date(headers.get("date"), now) if until >= 0 else None
    return None if seconds is None else int(min(max(seconds, 1.0) * 1000, LONGEST_WAIT_MS))


def _number(text: str | None) -> int | None:
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else None


def _date(text: str | None, otherwise: float) -> float:
    try:
        return parsedate_to_datetime(text).timestamp() if text else otherwise
    except (ValueError, TypeError, OverflowError):
        return otherwise


def _said(body: bytes, secrets: Collection[str]) -> str:
    """Return GitHub's own message, bounded, without anything that is or looks like a secret."""
    try:
        message = msgspec.json.decode(body, type=_Message).message
    except (msgspec.DecodeError, RecursionError):
        return ""
    if not isinstance(message, str):
        return ""
    for secret in secrets:
        message = message.replace(secret, "[hidden]")
    message = _SECRET_LIKE.sub("[hidden]", message[:10_000])
    return _plain(message)


def _plain(text: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in text[:_QUOTED]).strip()
