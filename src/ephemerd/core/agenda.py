"""When the core wants to be woken: one moment a subject, the earliest first, no scan ever."""

from __future__ import annotations

from heapq import heappop, heappush

Subject = tuple[str, str]
"""Kind and id."""


class Agenda:
    """At most one moment (ms) for each subject; setting it again replaces it."""

    __slots__ = ("_heap", "_when")

    def __init__(self) -> None:
        self._when: dict[Subject, int] = {}
        self._heap: list[tuple[int, Subject]] = []
        """Each moment with its subject, and some that have been moved or called off since."""

    def set(self, kind: str, name: str, at: int | None) -> None:
        """Wake for this subject at `at`, or not at all where it is None."""
        subject, when = (kind, name), self._when
        if at is None:
            when.pop(subject, None)
        elif when.get(subject) != at:
            when[subject] = at
            heappush(self._heap, (at, subject))

    def is_over(self, kind: str, name: str, now: int) -> bool:
        """Say whether the subject's moment has come and `due` has not told of it yet."""
        at = self._when.get((kind, name))
        return at is not None and at <= now

    def next(self) -> int | None:
        """Return the earliest moment, or None."""
        heap, when = self._heap, self._when
        while heap:
            at, subject = heap[0]
            if when.get(subject) == at:
                return at
            heappop(heap)
        return None

    def due(self, now: int) -> list[Subject]:
        """Take out what is due, in an order that depends on the subjects alone."""
        heap, when = self._heap, self._when
        found: list[Subject] = []
        while heap and heap[0][0] <= now:
            at, subject = heappop(heap)
            if when.get(subject) == at:
                del when[subject]
                found.append(subject)
        return sorted(found)

    def moments(self) -> dict[Subject, int]:
        """Return a copy of all moments, for checks."""
        return dict(self._when)
