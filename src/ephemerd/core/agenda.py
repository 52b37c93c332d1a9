"""When the core wants to be woken: one moment a subject, the earliest first, no scan ever."""

from __future__ import annotations

import heapq


class Agenda:
    """At most one moment (ms) for each (kind, id); setting it again replaces it."""

    __slots__ = ("_heap", "_when")

    def __init__(self) -> None:
        self._heap: list[tuple[int, str, str]] = []
        self._when: dict[tuple[str, str], int] = {}

    def set(self, kind: str, name: str, at: int | None) -> None:
        """Wake for this subject at `at`, or not at all where it is None."""
        if at is None:
            self._when.pop((kind, name), None)
        elif self._when.get((kind, name)) != at:
            self._when[kind, name] = at
            heapq.heappush(self._heap, (at, kind, name))

    def next(self) -> int | None:
        """Return the earliest moment, or None."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def due(self, now: int) -> list[tuple[str, str]]:
        """Take out what is due, in an order that depends on the subjects alone."""
        found: list[tuple[str, str]] = []
        while self._heap and self._heap[0][0] <= now:
            at, kind, name = heapq.heappop(self._heap)
            if self._when.get((kind, name)) == at:
                del self._when[kind, name]
                found.append((kind, name))
        return sorted(found)

    def moments(self) -> dict[tuple[str, str], int]:
        """Return a copy of all moments, for checks."""
        return dict(self._when)

    def _drop_stale(self) -> None:
        while self._heap and self._when.get(self._heap[0][1:]) != self._heap[0][0]:
            heapq.heappop(self._heap)
