"""The filters of the list of runs (github.md, section 5): a filtered list ends after a thousand runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from ephemerd.testing.forge_sim import payloads
from ephemerd.testing.forge_sim.model import Run
from ephemerd.testing.forge_sim.world import Refused

MAX_FILTERED = 1000
"""A list with any of the filters has no more results than this [doc]."""

_FILTERS: Mapping[str, Callable[[Run, str], bool]] = {
    "actor": lambda run, wanted: wanted.lower() == payloads.ACTOR,
    "branch": lambda run, wanted: wanted == run.branch,
    "check_suite_id": lambda run, wanted: wanted == str(payloads.check_suite(run)),
    "created": lambda run, wanted: created_within(run.created_at, wanted),
    "event": lambda run, wanted: wanted == payloads.EVENT,
    "head_sha": lambda run, wanted: wanted == payloads.SHA,
    "status": lambda run, wanted: wanted in payloads.run_status(run),
}
"""``status`` takes a status or a conclusion. ``exclude_pull_requests`` is no filter: there are none here."""


def chosen(runs: list[Run], query: Mapping[str, str]) -> list[Run]:
    """The runs that every filter of ``query`` lets through, in the order given."""
    wanted = [(matches, query[name]) for name, matches in _FILTERS.items() if name in query]
    if not wanted:
        return runs
    return [run for run in runs if all(matches(run, value) for matches, value in wanted)][:MAX_FILTERED]


def created_within(at: float, wanted: str) -> bool:
    """Whether a time lies in a range as GitHub's search writes it: ``2026-11-29``, ``>=…``, ``<…``, ``…..…``,
    with ``*`` for an open end; a day stands for all of it. What is no date is refused with 422."""
    moment = datetime.fromtimestamp(at, UTC)
    for sign in (">=", "<=", ">", "<"):
        if wanted.startswith(sign):
            first, end = _span(wanted.removeprefix(sign))
            return {
                ">=": moment >= first,
                ">": moment >= end,
                "<=": moment < end,
                "<": moment < first,
            }[sign]
    low, dots, high = wanted.partition("..")
    return (low == "*" or moment >= _span(low)[0]) and (
        high == "*" or moment < _span(high if dots else low)[1]
    )


def _span(text: str) -> tuple[datetime, datetime]:
    """The first instant of a day or second, and the one after its last."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise Refused(422, f"Validation Failed: created: {text!r} is no date") from None
    length = timedelta(seconds=1) if "T" in text else timedelta(days=1)
    at = at.replace(tzinfo=at.tzinfo or UTC)
    return at, at + length
