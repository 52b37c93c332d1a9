"""How things read: times, durations, states with the shape that stands for them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from markupsafe import Markup, escape

SHAPES = {
    "planned": "dots",
    "registering": "ring-quarter",
    "starting": "ring-half",
    "listening": "ring",
    "assigned": "diamond-open",
    "running": "disc",
    "finishing": "disc-half",
    "retiring": "triangle",
    "stuck": "cross",
    "abandoned": "square-cross",
    "gone": "dash",
    "queued": "bars",
    "waiting": "hand",
    "done": "check",
    "success": "check",
    "failure": "cross",
    "cancelled": "dash",
    "ok": "check",
    "degraded": "triangle-up",
    "reaped": "triangle",
    "vetoed": "shield",
    "escaped": "star",
    "idle": "ring",
    "busy": "disc",
    "unknown": "question",
}
"""Shape by state, status, outcome or verdict, so that nothing is told by colour alone."""

MEANINGS = {
    "planned": "its slot is taken; nothing is started yet",
    "registering": "the forge is asked for a registration",
    "starting": "its environment starts",
    "listening": "ready for a job",
    "assigned": "a job was offered to it",
    "running": "executes a job",
    "finishing": "its job is over; it exits by itself",
    "retiring": "it is being ended, by a permit of the gate",
    "stuck": "waits for a person or a bound",
    "abandoned": "would not die; its slot was given back",
    "gone": "proven gone",
}

TONES = {
    "planned": "new",
    "registering": "new",
    "starting": "new",
    "listening": "ready",
    "assigned": "offer",
    "running": "work",
    "finishing": "done",
    "retiring": "leave",
    "stuck": "bad",
    "abandoned": "bad",
    "gone": "off",
    "queued": "wait",
    "waiting": "wait",
    "done": "done",
    "success": "good",
    "failure": "bad",
    "timed_out": "bad",
    "startup_failure": "bad",
    "cancelled": "off",
    "ok": "good",
    "degraded": "wait",
    "reaped": "leave",
    "vetoed": "work",
    "escaped": "bad",
    "idle": "ready",
    "busy": "work",
    "unknown": "wait",
}
"""Colour of the style sheet by word."""


@dataclass(frozen=True, slots=True)
class Tag:
    """A word with its shape, tone and meaning."""

    word: str
    shape: str
    tone: str
    meaning: str


def tag(word: str) -> Tag:
    """Return how a state, status, outcome or verdict is shown; an unknown word is shown plainly."""
    return Tag(word, SHAPES.get(word, "dash"), TONES.get(word, "off"), MEANINGS.get(word, ""))


def span(seconds: float | None) -> str:
    """Return a duration in at most two units: `4.2 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`; a dash for None."""
    if seconds is None:
        return "–"
    if 0 < seconds < 10:
        return f"{seconds:.1f}".rstrip("0").rstrip(".") + " s"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    for big, size, small, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {big} {rest} {small}" if rest else f"{whole // size} {big}"
    return f"{whole} s"


def clock(ms: int | None, *, fine: bool = False) -> str:
    """Return the time of day in UTC; scripts in the page turn it into the reader's own."""
    if ms is None:
        return "–"
    text = datetime.fromtimestamp(ms / 1_000, UTC).strftime("%H:%M:%S")
    return f"{text}.{ms % 1_000:03d}" if fine else text


def iso(ms: int) -> str:
    """Return a moment for machines."""
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def day(ms: int) -> str:
    """Return the date in UTC."""
    return datetime.fromtimestamp(ms / 1_000, UTC).strftime("%Y-%m-%d")


def size(count: int | None) -> str:
    """Return a number of bytes for people."""
    if count is None:
        return "–"
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("the last unit takes all")


def plural(count: int, one: str, many: str = "") -> str:
    """Return `1 runner`, `2 runners`."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def short_job(job: str | None) -> str:
    """Return `name/number` of a job's id `forge/owner/name/number`."""
    return "/".join(job.split("/")[-2:]) if job else ""


def short_runner(name: str) -> str:
    """Return the end of one of our runners' names, epoch and counter, which tells it from all others."""
    parts = name.split("-")
    return "-".join(parts[2:]) if name.startswith("eph-") and len(parts) > 3 else name


def runner_url(name: str) -> str:
    return "/runners/" + quote(name, safe="")


def job_url(name: str) -> str:
    return "/jobs/" + quote(name, safe="/")


def counted(numbers: dict[str, int], skip: Iterable[str] = ("gone",)) -> list[tuple[Tag, int]]:
    """Return the states that some runner is in, in the order of their life."""
    return [(tag(name), count) for name, count in numbers.items() if count and name not in set(skip)]


def prose(text: str) -> Markup:
    """Return a sentence with what stands in backticks as code, everything else escaped."""
    parts = [escape(part) for part in text.split("`")]
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else part for place, part in enumerate(parts)
    )
