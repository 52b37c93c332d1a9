"""A waiting line: jobs by their arrival number, oldest first, each operation as cheap as in a short line."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import msgspec

from ephemerd.domain.ids import JobKey

LEAST_DEAD = 64
"""So many places of jobs that have left are kept at least before the line is packed anew."""


class Line(msgspec.Struct, eq=False):
    """An ordered set of jobs. Iterating yields keys, the oldest first; it must not change meanwhile.

    jobs     by arrival number, in no order
    _start   before this one, all places are empty
    """

    jobs: dict[int, JobKey] = {}
    _places: list[int] = []
    _start: int = 0

    def add(self, order: int, key: JobKey) -> None:
        """Put a job at its place."""
        self.jobs[order] = key
        if not self._places or order > self._places[-1]:
            self._places.append(order)
            return
        place = bisect_left(self._places, order)
        if self._places[place] != order:
            self._places.insert(place, order)
        self._start = min(self._start, place)

    def drop(self, order: int) -> None:
        """Take a job out; its place is packed away later."""
        del self.jobs[order]
        if len(self._places) > 2 * len(self.jobs) + LEAST_DEAD:
            self._places = sorted(self.jobs)
            self._start = 0
        while self._start < len(self._places) and self._places[self._start] not in self.jobs:
            self._start += 1

    def first(self) -> int | None:
        """Return the arrival number of the oldest job, or None in an empty line."""
        return self._places[self._start] if self._start < len(self._places) else None

    def oldest(self) -> JobKey | None:
        """Return the oldest job, or None in an empty line."""
        first = self.first()
        return None if first is None else self.jobs[first]

    def __iter__(self) -> Iterator[JobKey]:
        at = self.jobs
        for place in range(self._start, len(self._places)):
            key = at.get(self._places[place])
            if key is not None:
                yield key

    def __len__(self) -> int:
        return len(self.jobs)
