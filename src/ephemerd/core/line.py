"""A waiting line: jobs by their arrival number, oldest first, each operation as cheap as in a short line."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from ephemerd.domain.ids import JobKey

LEAST_DEAD = 64
"""So many places of jobs that have left are kept at least before the line is packed anew."""


class Line:
    """An ordered set of jobs. Iterating yields keys, the oldest first; it must not change meanwhile."""

    __slots__ = ("_at", "_places")

    def __init__(self) -> None:
        self._at: dict[int, JobKey] = {}
        self._places: list[int] = []

    def add(self, order: int, key: JobKey) -> None:
        """Put a job at its place."""
        self._at[order] = key
        if not self._places or order > self._places[-1]:
            self._places.append(order)
            return
        place = bisect_left(self._places, order)
        if self._places[place] != order:
            insort(self._places, order)

    def drop(self, order: int) -> None:
        """Take a job out; its place is packed away later."""
        del self._at[order]
        if len(self._places) > 2 * len(self._at) + LEAST_DEAD:
            self._places = sorted(self._at)

    def oldest(self) -> JobKey | None:
        """Return the oldest job, or None in an empty line."""
        return next(iter(self), None)

    def __iter__(self) -> Iterator[JobKey]:
        at = self._at
        for order in self._places:
            key = at.get(order)
            if key is not None:
                yield key

    def __len__(self) -> int:
        return len(self._at)
