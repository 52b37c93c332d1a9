"""When the core wants to be woken: one moment a subject, the earliest first, no scan ever."""

from __future__ import annotations

import heapq

Subject = tuple[str, str]
"""Kind and id."""


class Agenda:
    """At most one moment (ms) for each subject; setting it again replaces it."""

    __slots__ = ("_due", "_heap", "_when")

    def __init__(self) -> None:
        self._when: dict[Subject, int] = {}
        self._due: dict[int, dict[Subject, None]] = {}
        """Who wants to be woken at a moment."""
        self._heap: list[int] = []
        """Each moment of `_due`, and some at which nobody wants to be woken any more."""

    def set(self, kind: str, name: str, at: int | None) -> None:
        """Wake for this subject at `at`, or not at all where it is None."""
        subject = (kind, name)
        before = self._when.get(subject)
        if before == at:
            return
        if before is not None:
            together = self._due[before]
            del together[subject]
            if not together:
                del self._due[before]
        if at is None:
            del self._when[subject]
            return
        self._when[subject] = at
        if at in self._due:
            self._due[at][subject] = None
        else:
            self._due[at] = {subject: None}
            heapq.heappush(self._heap, at)

    def is_over(self, kind: str, name: str, now: int) -> bool:
        """Say whether the subject's moment has come and `due` has not told of it yet."""
        at = self._when.get((kind, name))
        return at is not None and at <= now

    def next(self) -> int | None:
        """Return the earliest moment, or None."""
        while self._heap and self._heap[0] not in self._due:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None

    def due(self, now: int) -> list[Subject]:
        """Take out what is due, in an order that depends on the subjects alone."""
        found: list[Subject] = []
        while self._heap and self._heap[0] <= now:
            together = self._due.pop(heapq.heappop(self._heap), {})
            for subject in together:
                del self._when[subject]
            found += together
        return sorted(found)

    def moments(self) -> dict[Subject, int]:
        """Return a copy of all moments, for checks."""
        return dict(self._when)
