"""The rows, their indexes, and nothing that decides. Rows change only through `Turn`."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from ephemerd.core.agenda import Agenda
from ephemerd.core.index import Group, Index
from ephemerd.core.rows import ClassRow, HostRow, PoolRow, ScopeRow
from ephemerd.domain.ids import JobKey, RunnerId, Scope, scope_text
from ephemerd.domain.job import ENDED_STATUSES, Job
from ephemerd.domain.pool import Host, Policy, Pool, Setup
from ephemerd.domain.runner import Runner

Rows = Mapping[str, Mapping[str, Any]]

COUNTED_FROM_START = (
    *(
        f"orphan_reap_decisions_total|outcome={outcome}|verdict={verdict}"
        for outcome in ("escaped", "reaped", "vetoed")
        for verdict in ("busy", "idle", "unknown")
    ),
    "fence_breaches_total",
    "fence_refusals_total",
)


class State:
    """Everything the core knows. The setup comes with `Booted`; the agenda is derived from the rows."""

    __slots__ = (
        "_by_scope",
        "agenda",
        "classes",
        "counters",
        "hosts",
        "index",
        "jobs",
        "meta",
        "pools",
        "runners",
        "scopes",
        "setup",
        "spared",
    )

    def __init__(self) -> None:
        self.setup = Setup((), (), Policy())
        self.jobs: dict[JobKey, Job] = {}
        self.runners: dict[RunnerId, Runner] = {}
        self.scopes: dict[str, ScopeRow] = {}
        self._by_scope: dict[Scope, ScopeRow] = {}
        """The same rows: they are looked at several times an event."""
        self.pools: dict[str, PoolRow] = {}
        self.hosts: dict[str, HostRow] = {}
        self.spared: tuple[str, ...] = ()
        """The pools that want runners to stand by."""
        self.classes: dict[str, ClassRow] = {}
        self.counters: dict[str, int] = dict.fromkeys(COUNTED_FROM_START, 0)
        self.meta: dict[str, Any] = {}
        self.index = Index()
        self.agenda = Agenda()

    @property
    def policy(self) -> Policy:
        return self.setup.policy

    @property
    def store(self) -> str:
        return str(self.meta.get("store", ""))

    @property
    def epoch(self) -> str:
        return str(self.meta.get("epoch", ""))

    @property
    def booted(self) -> int:
        """When this process life began, ms."""
        return int(self.meta.get("booted", 0))

    def keep_pool(self, row: PoolRow) -> None:
        """Make this the pool's row."""
        name, spares = row.pool.name, row.pool.min_idle > 0
        self.pools[name] = row
        if spares != (name in self.spared):
            self.spared = tuple(sorted({*self.spared, name} if spares else {*self.spared} - {name}))

    def keep_scope(self, row: ScopeRow) -> None:
        """Make this the scope's row."""
        self.scopes[scope_text(row.scope)] = row
        self._by_scope[row.scope] = row

    def pool(self, name: str) -> Pool:
        """Return a pool's last known configuration."""
        return self.pools[name].pool

    def scope(self, scope: Scope) -> ScopeRow:
        """Return what is known of a scope, a blank row where nothing is."""
        return self._by_scope.get(scope) or ScopeRow(scope)

    def group(self, name: str) -> Group | None:
        return self.index.groups.get(name)

    def slots_held(self, host: str) -> int:
        """Count the slots that runners hold on a host."""
        return self.index.held.get(host, 0)

    def slots_free(self, host: str) -> int:
        """Count the slots of a host that are neither held nor reserved; may be negative after a change."""
        row = self.hosts.get(host)
        slots = row.slots if row is not None and row.configured else 0
        return slots - self.index.held.get(host, 0) - self.index.reserved.get(host, 0)

    def live_of_scope(self, scope: Scope) -> list[Runner]:
        """Return the runners of a scope that are live, oldest first."""
        found = [
            self.runners[name]
            for pool_name, row in self.pools.items()
            if row.pool.scope == scope
            for name in self.index.live.get(pool_name, ())
        ]
        return sorted(found, key=lambda runner: runner.order)

    def is_observed(self, scope: Scope) -> bool:
        """Say whether deliveries tell of a scope's jobs; where they do not, we poll.

        A pool that is configured no more says what held for it once, and counts only where no other is left.
        """
        rows = [row for row in self.pools.values() if row.pool.scope == scope]
        configured = [row for row in rows if row.configured]
        return any(row.pool.observed for row in configured or rows)

    def uses(self, scope: Scope) -> bool:
        """Say whether a pool of the scope is configured, or a runner of an earlier one still lives."""
        pools = [(name, row) for name, row in self.pools.items() if row.pool.scope == scope]
        return any(row.configured or self.index.live.get(name) for name, row in pools)

    def host_of(self, pool: str) -> str:
        """Return the host of a pool, "" where the pool is not known."""
        row = self.pools.get(pool)
        return row.pool.host if row is not None else ""

    def scope_for(self, job: JobKey, pool: str = "") -> Scope | None:
        """Return the scope by which the forge can be asked about a job: the pool's, else any that serves it."""
        if pool in self.pools:
            return self.pools[pool].pool.scope
        for name in sorted(self.pools):
            if self.pools[name].pool.scope.serves(job):
                return self.pools[name].pool.scope
        return None


def load(rows: Rows) -> State:
    """Build the state from decoded rows (kind -> id -> row); indexes are made anew."""
    state = State()
    for _, scope_row in sorted(rows.get("scope", {}).items()):
        state.keep_scope(scope_row)
    for _, pool_row in sorted(rows.get("pool", {}).items()):
        state.keep_pool(pool_row)
    for name, host_row in sorted(rows.get("host", {}).items()):
        state.hosts[name] = host_row
    for name, class_row in sorted(rows.get("class", {}).items()):
        state.classes[name] = class_row
        if class_row.held:
            state.index.held_back[name] = None
    state.setup = Setup(
        pools=tuple(row.pool for row in state.pools.values() if row.configured),
        hosts=tuple(Host(row.name, row.slots) for row in state.hosts.values() if row.configured),
        policy=rows.get("policy", {}).get("policy", Policy()),
        access=tuple(row for _, row in sorted(rows.get("access", {}).items())),
    )
    state.counters.update(sorted(rows.get("counter", {}).items()))
    state.meta.update(sorted(rows.get("meta", {}).items()))
    for runner in sorted(rows.get("runner", {}).values(), key=lambda row: row.order):
        state.runners[runner.id] = runner
        state.index.runner_changed(None, runner)
    ended: list[Job] = []
    others: list[Job] = []
    for job in rows.get("job", {}).values():
        (ended if job.status in ENDED_STATUSES and not job.asking else others).append(job)
    ended.sort(key=attrgetter("order"))
    ended.sort(key=lambda job: job.ended or 0)  # twice by a number: once by pairs takes twice as long
    state.jobs.update([(job.key, job) for job in ended])
    state.index.ended_jobs(state.jobs)
    for job in sorted(others, key=lambda job: job.order):
        state.jobs[job.key] = job
        state.index.job_changed(None, job, state.host_of)
    return state
