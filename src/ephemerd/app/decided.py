"""Decisions chosen by outcome, verdict, rule and means, newest first, with a bound on how much is read."""

from __future__ import annotations

from dataclasses import dataclass

from ephemerd.app.queries import Queries, clamp
from ephemerd.ports.views import DecisionView

READ_AT_ONCE = 1_000
MOST_READS = 10
"""A page looks through 10,000 decisions at most; its cursor goes on from there."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which decisions: an empty value takes all."""

    outcome: str = ""
    verdict: str = ""
    rule: str = ""
    via: str = ""
    runner: str = ""

    def takes(self, made: DecisionView) -> bool:
        """Say whether a decision is one of these."""
        return all(
            not wanted or wanted == found
            for wanted, found in (
                (self.outcome, made.outcome),
                (self.verdict, made.verdict),
                (self.rule, made.rule),
                (self.via, made.via),
                (self.runner, made.runner),
            )
        )


@dataclass(frozen=True, slots=True)
class Chosen:
    """One page, newest first; `next` is the cursor of what is older, 0 at the end. A page may be short of its
    size, also empty, where the bound on reading was met first."""

    items: tuple[DecisionView, ...]
    next: int


async def decided(queries: Queries, wanted: Wanted, *, before: int = 0, limit: int = 50) -> Chosen:
    """Return the decisions older than the id `before` (0: from the newest) that are wanted."""
    limit = clamp(limit)
    found: list[DecisionView] = []
    for _ in range(MOST_READS):
        page = await queries.decisions(
            after=before, limit=READ_AT_ONCE, runner=wanted.runner, outcome=wanted.outcome, newest=True
        )
        for made in page.items:
            before = made.id
            if wanted.takes(made):
                found.append(made)
                if len(found) == limit:
                    return Chosen(tuple(found), before if before > 1 else 0)
        if page.next is None:
            return Chosen(tuple(found), 0)
    return Chosen(tuple(found), before)
