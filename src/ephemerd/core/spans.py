"""Durations in words."""

from __future__ import annotations

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def span(ms: int) -> str:
    """Return a duration for people: the two largest units, milliseconds below ten seconds as a fraction."""
    sign, ms = ("-", -ms) if ms < 0 else ("", ms)
    if ms < 10_000:
        return f"{sign}{ms / 1_000:.3f}".rstrip("0").rstrip(".") + " s"
    parts, rest = [], ms
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}")
    return sign + " ".join(parts[:2])
