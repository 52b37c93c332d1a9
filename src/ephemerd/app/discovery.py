"""Reads the jobs of scopes, repository by repository: finds out which there are, looks at some of them in each
round, and tells the core what was read and how far that goes.

One repository that cannot be read does not keep the others from being read. What was not read wholly is never told
as if it had been.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from ephemerd.app.inbox import Inbox
from ephemerd.app.ledger import Judge, Ledger
from ephemerd.app.roster import FAILED_FOR, LIST_EVERY, Entry, Kind, Pace, Roster
from ephemerd.app.spending import Ease, Spending, budget_of
from ephemerd.app.trust import Standing, Trust
from ephemerd.core import events as e
from ephemerd.domain.access import Access
from ephemerd.domain.ids import Scope
from ephemerd.domain.job import Job
from ephemerd.domain.pool import SECOND, Setup
from ephemerd.ports.errors import Denied, PortError, Refused, Unseen
from ephemerd.ports.forge import Forge, Look, RepositorySeen
from ephemerd.ports.system import Clock

logger = logging.getLogger(__name__)

AT_ONCE = 3
"""Repositories that are looked at at a time; with the runs of each that makes nine requests at most, of the ten
connections to a forge."""
ROUND = 90 * SECOND
"""No look begins later in a round, ms."""
LOOK_LIMIT, GLANCE_LIMIT = 180.0, 40.0
"""Outer nets in seconds, above the deadlines that the adapter keeps itself."""

T = TypeVar("T")


class Read(Protocol):
    """Makes one call that only reads, within a limit in seconds, and raises its `PortError`."""

    def __call__(
        self, scope: Scope, call: Callable[[], Coroutine[Any, Any, T]], limit: float, /
    ) -> Coroutine[Any, Any, T]: ...


@dataclass(slots=True)
class _Round:
    """One round of looks. `vouched`: up to when deliveries are (ms, 0 for not at all); `read`: those that were read
    wholly; `error`: what ended it, where something did."""

    roster: Roster
    spending: Spending
    began: int
    steps: Iterator[tuple[Entry, Kind]]
    vouched: int = 0
    read: list[Entry] = field(default_factory=list)
    good: int = 0
    refused: list[tuple[Entry, PortError]] = field(default_factory=list)
    error: PortError | None = None

    def failure(self) -> PortError | None:
        """Return what is told as the failure of all: what ended the round, or a credential that nothing let in."""
        if self.error is not None or self.good or not self.refused:
            return self.error
        _, error = self.refused[-1]
        return error if isinstance(error, Denied) and not isinstance(error, Unseen) else None


class Discovery:
    """The listings of jobs at one forge."""

    def __init__(
        self,
        forge: Forge,
        read: Read,
        inbox: Inbox,
        clock: Clock,
        setup: Setup,
        *,
        answers: Callable[[Scope], bool] = lambda scope: False,
    ) -> None:
        """`answers` says whether the forge answered something about a scope just now."""
        self.forge = forge
        self.trust = Trust()
        self.ledger = Ledger()
        self._answers = answers
        self._every = 0
        self._told: frozenset[Scope] = frozenset()
        self._read = read
        self._inbox = inbox
        self._clock = clock
        self._rosters: dict[Scope, Roster] = {}
        self._spending: dict[str, Spending] = {}
        self._access: Access | None = None
        self.configure(setup)

    def configure(self, setup: Setup) -> None:
        """Take in who may use the machines: repositories that may not are not asked about."""
        name = self.forge.name
        self._access = next((row for row in setup.access if row.forge == name), None)
        pools = [pool for pool in setup.pools if pool.scope.forge == name]
        self._rosters = {
            scope: self._rosters.get(scope) or Roster.of(scope)
            for scope in sorted({one.scope for one in pools})
        }
        for roster in self._rosters.values():
            roster.hurry(0)
        self._every = setup.policy.reconcile_every
        self._told = frozenset(pool.scope for pool in pools if pool.observed)
        self.trust.configure(self._every, self._told)

    def notice(self, job: Job) -> None:
        """Hear that a job's row changed: its repository is lively."""
        now = self._clock.now()
        self.ledger.note(job)
        for scope, roster in self._rosters.items():
            if scope.serves(job.key):
                roster.notice(job.key.repository, now)

    def freed(self, job: Job) -> None:
        """Hear that a runner of ours is done with a job: another one of its run may be queued now. The run's jobs are
        read at the next look, also where a list of runs does not show that anything happened."""
        for scope, roster in self._rosters.items():
            entry = roster.entries.get(job.key.repository.lower())
            if entry is not None and job.run_id and scope.serves(job.key) and scope not in self._told:
                entry.again.add(job.run_id)

    def awoke(self) -> None:
        """Hear that the machine slept."""
        for roster in self._rosters.values():
            roster.forget()

    async def list_jobs(self, scope: Scope) -> PortError | None:
        """Make one round in a scope; each part of it waits for room in the inbox. Return what made it fail."""
        roster, now = self._rosters.setdefault(scope, Roster.of(scope)), self._clock.now
        standing = self.trust.of(scope, now())
        try:
            await self._find_out(roster, standing)
        except PortError as error:
            return error
        spending = self._spending_of(roster)
        steps = self._choose(roster, spending, standing)
        turn = _Round(roster, spending, now(), steps, self.trust.since(scope, now()))
        await asyncio.gather(*(self._work(turn) for _ in range(AT_ONCE)))
        failed = turn.failure()
        if failed is not None:
            return failed
        for entry, refusal in turn.refused:
            self._set_aside(roster, entry, refusal)
        await self._inbox.put(self._listed(turn))
        return None

    def _choose(self, roster: Roster, spending: Spending, standing: Standing) -> Iterator[tuple[Entry, Kind]]:
        now = self._clock.now
        if standing is Standing.NONE:
            return roster.choose(now, spending, self.forge.glance_is_free)
        pace = Pace(standing, self._every, self._answers(roster.scope))
        return roster.choose_audits(now, spending, self.forge.audit_is_free, pace)

    async def is_gone(self, scope: Scope, repository: str) -> bool:
        """Say whether a repository that cannot be seen is there no more, by a whole list of its owner's."""
        roster = self._rosters.get(scope)
        owner = repository.lower().partition("/")[0]
        if roster is None or roster.fixed or owner not in self._owners(scope):
            return False
        now = self._clock.now()
        if roster.listed is None or now - roster.listed >= LIST_EVERY:
            roster.hurry(now)
            try:
                await self._find_out(roster)
            except PortError:
                return False
        fresh = roster.listed is not None and now - roster.listed < LIST_EVERY
        return fresh and repository.lower() not in roster.names

    # -- which repositories there are ------------------------------------------------------------------------

    async def _find_out(self, roster: Roster, standing: Standing = Standing.NONE) -> None:
        """List the repositories where that is due; while it fails, those that are known go on."""
        now = self._clock.now()
        if not roster.wants_list(now, standing):
            return
        owners = self._owners(roster.scope)
        if not owners:
            raise Refused(
                f"{roster.scope.path} has no list of repositories; name its organizations in "
                f"forge.{self.forge.name}.repositories, such as acme/*"
            )
        spending = self._spending_of(roster)
        if spending.low and roster.listed is not None:
            return
        found: list[RepositorySeen] = []
        pages = 0
        try:
            for owner in owners:
                listing = partial(self.forge.repositories, owner)
                seen = await self._read(roster.scope, listing, LOOK_LIMIT)
                found += seen.found
                pages += seen.pages
        except PortError as error:
            if roster.listed is None:
                raise
            roster.due = now + LIST_EVERY
            self._say("the repositories could not be listed; those known are read", roster.scope, error)
            return
        roster.take_in(found, pages, self._allows, now)

    def _owners(self, scope: Scope) -> tuple[str, ...]:
        """Return whose repositories a scope has: an enterprise's are known by the patterns that allow them."""
        if scope.kind == "org":
            return (scope.target.lower(),)
        if scope.kind != "enterprise" or self._access is None:
            return ()
        named = (pattern.lower().partition("/")[0] for pattern in self._access.repositories if "/" in pattern)
        return tuple(dict.fromkeys(owner for owner in named if owner and "*" not in owner))

    def _allows(self, repository: RepositorySeen) -> bool:
        return self._access is None or self._access.lets_in(repository.name, public=repository.public)

    def _spending_of(self, roster: Roster) -> Spending:
        told = budget_of(self.forge.budgets(), roster.scope.target.lower().partition("/")[0])
        spending = self._spending.setdefault(told.account if told is not None else "", Spending())
        spending.begin(self._clock.now(), told)
        return spending

    # -- what happens in them --------------------------------------------------------------------------------

    async def _work(self, turn: _Round) -> None:
        """Take one step after the other, until there is none, the round is long enough, or one failed for all."""
        for entry, kind in turn.steps:
            if turn.error is not None or self._clock.now() - turn.began > ROUND:
                return
            if entry.busy:  # another round has it
                continue
            entry.busy = True
            try:
                await self._step(turn, entry, kind)
            except (Denied, Refused) as error:
                if turn.roster.fixed:
                    turn.error = error
                else:
                    turn.refused.append((entry, error))
            except PortError as error:
                turn.error = error
            else:
                turn.good += 1
            finally:
                entry.busy = False

    async def _step(self, turn: _Round, entry: Entry, kind: Kind) -> None:
        scope, spending, began = turn.roster.scope, turn.spending, self._clock.now()
        if kind is Kind.GLANCE:
            seen = await self._read(scope, lambda: self.forge.glance(entry.name), GLANCE_LIMIT)
            spending.saw_idle(began, 1, seen.charged)
            if not entry.take_glance(began, seen):
                return
            kind, began = Kind.LIVELY, self._clock.now()
        elif kind in (Kind.AUDIT, Kind.IDLE_AUDIT):
            if await self._audit(turn, entry, kind, began):
                return
            began = self._clock.now()
        # Beside deliveries rounds are rare, and each is to repair what was missed.
        ease = Ease.EASY if scope in self._told else spending.ease
        depth = entry.depth(began, ease) if kind is Kind.LIVELY else Look.WHOLE
        again = frozenset(entry.again)
        looked = await self._read(scope, lambda: self.forge.active_jobs(entry.name, depth, again), LOOK_LIMIT)
        entry.again -= again
        count = {Kind.FIRST: spending.looked_first, Kind.IDLE: spending.saw_idle}.get(kind, spending.looked)
        count(began, looked.asked, looked.charged)
        for part in e.read_in_parts(scope, looked.reports):
            await self._inbox.put(part)
        entry.take_look(began, depth, looked)
        if looked.complete:
            turn.read.append(entry)

    async def _audit(self, turn: _Round, entry: Entry, kind: Kind, began: int) -> bool:
        """Lay a repository's newest runs beside what is known; say whether that suffices."""
        scope, judge = turn.roster.scope, Judge(self.ledger, entry.name, self._clock.now)
        seen = await self._read(scope, lambda: self.forge.audit(entry.name, judge), LOOK_LIMIT)
        count = turn.spending.looked if kind is Kind.AUDIT else turn.spending.saw_idle
        count(began, seen.asked, seen.charged)
        for part in e.read_in_parts(scope, seen.reports):
            await self._inbox.put(part)
        return entry.take_audit(began, seen, judge)

    def _set_aside(self, roster: Roster, entry: Entry, error: PortError) -> None:
        """Leave a repository alone that cannot be read, and see soon whether it is still there."""
        now = self._clock.now()
        entry.failed_until = now + FAILED_FOR
        if roster.listed is not None:
            roster.hurry(roster.listed + LIST_EVERY)
        self._say(f"the jobs of {entry.name} cannot be read", roster.scope, error)

    def _listed(self, turn: _Round) -> e.JobsListed:
        roster, now = turn.roster, self._clock.now()
        covered = roster.covered(turn.read, now)
        lively = roster.is_lively(now)
        if roster.fixed and turn.read:
            return e.JobsListed(roster.scope, roster.open(), lively=lively)
        as_of = roster.as_of(turn.began, turn.vouched)
        return e.JobsListed(roster.scope, roster.open(), repositories=covered, as_of=as_of, lively=lively)

    def _say(self, what: str, scope: Scope, error: PortError) -> None:
        logger.warning(what, extra={"fields": {"scope": str(scope), "error": error.detail}})
