"""What the store remembers, as views: decisions, the journal, what is in quarantine. Paged by their numbers."""

from __future__ import annotations

from collections.abc import Mapping

from ephemerd.app import render
from ephemerd.core import codec
from ephemerd.ports.store import Store
from ephemerd.ports.views import DecisionView, JournalView, Page, QuarantineView, SegmentView

MOST = 1000
"""Entries of a page."""
LOOKED_AT_ONCE, LOOKED_THROUGH = 1000, 10_000
"""Decisions that are read for a page where the store has no index of what is wanted: at a time, in all."""


class Records:
    """Each call asks the store and may raise its `PortError`s."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def decisions(
        self,
        *,
        after: int = 0,
        limit: int = 100,
        runner: str = "",
        outcome: str = "",
        newest: bool = False,
        only: Mapping[str, str] | None = None,
    ) -> Page[DecisionView]:
        """Decisions in the order of their ids, newest first where asked.

        `only` names fields of a decision and what they must be, "" anything. The store has no index of these, so
        that a page looks through `LOOKED_THROUGH` decisions at most: it may be short while there is a next one.
        """
        limit, wanted = clamp(limit), {name: value for name, value in (only or {}).items() if value}
        ask = self._store.decisions
        found: list[DecisionView] = []
        looked = 0
        while True:
            size = LOOKED_AT_ONCE if wanted else limit + 1
            plain = await ask(after=after, limit=size, runner=runner, outcome=outcome, newest=newest)
            for view in (render.decision(codec.decode_decision(one)) for one in plain):
                if any(getattr(view, name) != value for name, value in wanted.items()):
                    after = view.id
                elif len(found) == limit:
                    return Page(tuple(found), str(found[-1].id))
                else:
                    found.append(view)
                    after = view.id
            looked += len(plain)
            if len(plain) < size or not after:
                return Page(tuple(found))
            if looked >= LOOKED_THROUGH:
                return Page(tuple(found), str(after))

    async def journal(self, *, subject: str = "", after: int = 0, limit: int = 100) -> Page[JournalView]:
        """Journal records in their order, those that concern a runner or job where one is named."""
        limit = clamp(limit)
        entries = await self._store.journal(subject=subject, after=after, limit=limit + 1)
        views = tuple(render.journal(entry) for entry in entries[:limit])
        return Page(views, str(views[-1].seq) if len(entries) > limit else None)

    async def segment(self, number: int | None = None) -> SegmentView | None:
        """A journal segment's beginning, the newest one's without a number; None where there is none."""
        found = await self._store.segment(number)
        return render.segment(found) if found is not None else None

    async def quarantine(self, *, after: int = 0, limit: int = 100) -> Page[QuarantineView]:
        """What could not be handled, oldest first, by its number."""
        limit = clamp(limit)
        found = await self._store.set_aside(after=after, limit=limit + 1)
        items = tuple(
            QuarantineView(one.seq, one.at, one.forge, one.delivery, one.size, one.error)
            for one in found[:limit]
        )
        return Page(items, str(items[-1].seq) if len(found) > limit else None)


def clamp(limit: int) -> int:
    """Keep a page's size within 1 … 1000."""
    return max(1, min(limit, MOST))
