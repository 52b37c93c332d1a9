"""Label sets: how they are normalised, keyed and matched.

The rule is GitHub's (labels compare without case, a runner with more labels than the job asks for
matches) and `tests/data/label_keys.json` states it row by row.
"""

from __future__ import annotations

from collections.abc import Iterable

SEPARATOR = "\x1f"


def normalise(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the labels trimmed, lower-cased, without blanks or doubles, sorted by code point."""
    cleaned = {label.strip().lower() for label in labels}
    return tuple(sorted(label for label in cleaned if label))


def class_key(labels: Iterable[str]) -> str:
    """Return the class key: the normalised labels joined by U+001F; equal keys mean equal classes."""
    return SEPARATOR.join(normalise(labels))


def satisfies(runner_labels: Iterable[str], job_labels: Iterable[str]) -> bool:
    """Say whether a runner with `runner_labels` may be given a job that asks for `job_labels`."""
    return covers(normalise(runner_labels), normalise(job_labels))


def covers(runner_labels: Iterable[str], job_labels: Iterable[str]) -> bool:
    """`satisfies` for labels that are normalised already."""
    return set(runner_labels).issuperset(job_labels)


def usable(label: str) -> bool:
    """Say whether a label can be kept apart from others: one with U+001F inside could forge a key."""
    return SEPARATOR not in label.strip()
