"""Read-only views over the core's state and the store, for API, metrics and command line.

Everything is read as of the last commit. Lists are paged by a cursor: the `next` of one page is the `after`
of the next.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable
from operator import attrgetter
from typing import TypeVar

from ephemerd.app import render
from ephemerd.app.applications import Applications
from ephemerd.app.daemon import HEARTBEAT, Daemon
from ephemerd.app.operator import near
from ephemerd.app.records import Records, clamp
from ephemerd.app.stories import story
from ephemerd.core.health import assess
from ephemerd.core.rows import HostRow, PoolRow
from ephemerd.core.waiting import why_waiting
from ephemerd.domain.ids import RunnerId, parse_job_key
from ephemerd.domain.job import ENDED_STATUSES, Job, JobStatus
from ephemerd.domain.pool import SECOND, Pool
from ephemerd.domain.runner import HOLDS_SLOT, Runner, RunnerState
from ephemerd.ports.views import (
    HealthView,
    HostView,
    JobView,
    Page,
    PoolView,
    RateView,
    RunnerView,
    Snapshot,
    StatusView,
    StorageView,
    StoryView,
)

EXHAUSTED_FOR = 60 * SECOND
"""ms for which health speaks of a lack of file descriptors after it was seen last."""
LITTLE = 200 * 1024**2
"""Bytes left on the store's disk below which health warns: a burst of deliveries takes some tens of MiB."""
SILENT_AFTER = round(4 * HEARTBEAT * SECOND)
"""ms without a turn of the loop after which it counts as stuck: a commit may well take seconds."""
SEVERITY = ("ok", "degraded", "stuck")
STATES = tuple(state.value for state in RunnerState)
HOLDING = tuple(state.value for state in RunnerState if state in HOLDS_SLOT)

Named = TypeVar("Named", PoolView, HostView)
Row = TypeVar("Row", Runner, Job)


class BadCursor(ValueError):
    """A list does not know where to go on; the message says so."""


class Queries(Records):
    """Views of one daemon. Cheap unless said otherwise; nothing here changes anything."""

    def __init__(self, daemon: Daemon, version: str, applications: Applications | None = None) -> None:
        super().__init__(daemon.ports.store)
        self._daemon = daemon
        self._version = version
        self._applications = applications

    def health(self) -> HealthView:
        """What the core sees, and what the shell knows besides: the store, the loop, the quarantine."""
        daemon, now = self._daemon, self._now()
        found = assess(daemon.core.state, now)
        status, reasons = found.status, list(found.reasons)
        for severity, reason in self._own_reasons(now):
            status = max(status, severity, key=SEVERITY.index)
            reasons.append(reason)
        return HealthView(status, tuple(reasons))

    def _own_reasons(self, now: int) -> list[tuple[str, str]]:
        daemon, pulse = self._daemon, self._daemon.pulse
        reasons = []
        if pulse.error:
            reasons.append(
                ("stuck", f"nothing can be stored ({pulse.error}); free space or mend the disk of the store")
            )
        silent = now - pulse.heartbeat
        if silent > SILENT_AFTER:
            reasons.append(
                ("stuck", f"the main loop has not turned for {silent // SECOND} s; restart the daemon")
            )
        if pulse.refused:
            refused = "the last reload was refused, and the configuration before it is in use"
            reasons.append(("degraded", f"{refused}; mend it and reload: {pulse.refused}"))
        if pulse.quarantined:
            many = "1 event" if pulse.quarantined == 1 else f"{pulse.quarantined} events"
            todo = "`ephemerd store quarantine` shows them: report the error, then forget them with --clear"
            reasons.append(("degraded", f"{many} could not be handled and are kept in quarantine; {todo}"))
        if pulse.exhausted is not None and now - pulse.exhausted < EXHAUSTED_FOR:
            reasons.append(
                ("degraded", "connections wait for file descriptors; raise LimitNOFILE of the daemon's unit")
            )
        reasons += [("degraded", view.failing) for view in pulse.recoveries.values() if view.failing]
        if self._applications is not None:
            reasons += [("degraded", reason) for reason in self._applications.reasons()]
        size = daemon.upkeep.size
        if size is not None and size.disk_free is not None and size.disk_free < LITTLE:
            left = f"the disk of the store has {size.disk_free // 1024**2} MiB left"
            reasons.append(("degraded", f"{left}; free space before deliveries have to be refused"))
        return reasons

    def ready(self) -> bool:
        """Whether deliveries are taken and stored."""
        return self._daemon.ready

    def status(self) -> StatusView:
        daemon, now = self._daemon, self._now()
        core, pulse, inbox = daemon.core, daemon.pulse, daemon.inbox
        pools, hosts = self.pools(), self.hosts()
        # Counted by the rows, which the difference of slots is told from; how many there are of each is counted in C.
        states = [row.state for row in core.state.runners.values()]
        runners = {state.value: states.count(state) for state in RunnerState}
        held = sum(host.held for host in hosts)
        holding = sum(states.count(state) for state in HOLDS_SLOT)
        return StatusView(
            version=self._version,
            store=daemon.life.store,
            epoch=pulse.epoch,
            pid=os.getpid(),
            now=now,
            started=pulse.started,
            uptime_s=render.seconds(now - pulse.started),
            ready=daemon.ready,
            stopping=daemon.stopping,
            draining=core.draining(),
            cordoned=tuple(pool.name for pool in pools if pool.cordoned),
            health=self.health(),
            jobs=self._job_counts(),
            runners=runners,
            slots=sum(host.slots for host in hosts),
            slots_held=held,
            slot_accounting_difference=held - holding,
            inbox_depth=len(inbox),
            inbox_lag_s=inbox.lag(),
            quarantined=pulse.quarantined,
            commands_running=daemon.executor.running,
            reconciled=dict(pulse.reconciled),
            heartbeat=pulse.heartbeat,
            rates=self._rates(),
            needs_restart=pulse.needs_restart,
            storage=self._storage(),
            applications=self._applications.views() if self._applications is not None else (),
            recoveries=tuple(pulse.recoveries[name] for name in sorted(pulse.recoveries)),
        )

    def _storage(self) -> StorageView | None:
        size = self._daemon.upkeep.size
        if size is None:
            return None
        return StorageView(size.total, size.reusable, size.disk_free, size.oldest)

    def line(self) -> str:
        """The daemon in one line, for the service manager. Cheap."""
        index, health = self._daemon.core.state.index, self.health()
        held, queued = sum(index.held.values()), index.by_status.get(JobStatus.QUEUED.value, 0)
        line = f"{health.status}: {held} runners, {len(index.running)} jobs running, {queued} waiting"
        return f"{line}; {health.reasons[0]}" if health.reasons else line

    def snapshot(self) -> Snapshot:
        """Everything that metrics show."""
        counters = dict(self._daemon.core.state.counters)
        return Snapshot(self.status(), self.pools(), self.hosts(), counters)

    def hosts(self) -> tuple[HostView, ...]:
        """Configured hosts, and those that are not any more while runners are left there."""
        core = self._daemon.core
        index, slots = core.state.index, {host.name: host.slots for host in core.state.setup.hosts}
        for name in (*index.held, *index.abandoned):
            slots.setdefault(name, 0)
        views = []
        for name, count in slots.items():
            held = core.state.slots_held(name)
            abandoned = index.abandoned.get(name, 0)
            host = core.state.hosts.get(name)
            by, since = _cordon((host,))
            cordoned, ago = bool(by), self._ago(since)
            free, versions = max(0, count - held), self._versions(name)
            views.append(HostView(name, count, held, free, abandoned, cordoned, by, ago, versions))
        return tuple(views)

    def _versions(self, host: str) -> tuple[str, ...]:
        """Return which downloaded runner applications new runners of a host are made from."""
        views = self._applications.views() if self._applications is not None else ()
        host_of = self._daemon.core.state.host_of
        found = {
            view.version for view in views for pool in view.pools if view.version and host_of(pool) == host
        }
        return tuple(sorted(found))

    def pools(self) -> tuple[PoolView, ...]:
        """Configured pools, in the order of the configuration, then those that went while runners are left."""
        state = self._daemon.core.state
        left = [
            row.pool
            for name, row in sorted(state.pools.items())
            if not row.configured and state.index.live.get(name)
        ]
        counted = state.index.by_state
        queued = dict.fromkeys((pool.name for pool in state.setup.pools), 0)
        for group in state.index.groups.values():
            for name in group.pools:
                if name in queued:
                    queued[name] += len(group.queued)
        return tuple(
            self._pool(
                pool, {name: counted.get((pool.name, name), 0) for name in STATES}, queued.get(pool.name)
            )
            for pool in (*state.setup.pools, *left)
        )

    def _pool(self, pool: Pool, runners: dict[str, int], queued: int | None) -> PoolView:
        state = self._daemon.core.state
        meta = (str(state.meta.get("cordoned", "")), int(state.meta.get("cordoned_at", 0)))
        by, since = _cordon((state.pools.get(pool.name), state.hosts.get(pool.host)), meta)
        return PoolView(
            name=pool.name,
            forge=pool.scope.forge,
            scope=str(pool.scope),
            labels=pool.labels,
            host=pool.host,
            runtime=pool.runtime,
            max_concurrent=pool.max_concurrent,
            min_idle=pool.min_idle,
            orphan_grace_s=pool.orphan_grace / SECOND,
            surplus_grace_s=pool.surplus_grace / SECOND,
            job_timeout_s=None if pool.job_timeout is None else pool.job_timeout / SECOND,
            probes=pool.probes,
            cordoned=self._daemon.core.cordoned(pool.name),
            held=sum(runners[name] for name in HOLDING),
            queued=queued or 0,
            runners=runners,
            configured=queued is not None,
            cordoned_by=by,
            cordoned_s=self._ago(since),
        )

    def pool_page(self, *, after: str = "", limit: int = 100) -> Page[PoolView]:
        """`pools`, paged by name. Raises `BadCursor`."""
        return _by_name(self.pools(), after, limit)

    def host_page(self, *, after: str = "", limit: int = 100) -> Page[HostView]:
        """`hosts`, paged by name. Raises `BadCursor`."""
        return _by_name(self.hosts(), after, limit)

    def runners(
        self, *, after: str = "", limit: int = 100, pool: str = "", host: str = "", state: str = ""
    ) -> Page[RunnerView]:
        """Runners, newest first; `after` is a runner's creation number."""
        before = int(after) if after else None
        rows = (
            row
            for row in reversed(self._daemon.core.state.runners.values())
            if (before is None or row.order < before)
            and (not pool or row.pool == pool)
            and (not host or row.host == host)
            and (not state or row.state.value == state)
        )
        limit = clamp(limit)
        newest = _newest(limit + 1, rows)
        return Page(tuple(self._runner(row) for row in newest[:limit]), _next(newest, limit))

    def runner(self, name: str) -> RunnerView | None:
        """One runner that the state still knows."""
        row = self._daemon.core.state.runners.get(RunnerId(name))
        return self._runner(row) if row is not None else None

    def jobs(
        self, *, after: str = "", limit: int = 100, status: str = "", repository: str = ""
    ) -> Page[JobView]:
        """Jobs, newest first; `status` may also be `active` (not ended). `after` is an arrival number, names of
        repositories compare without case. Reads all that are kept, up to 200,000."""
        before = int(after) if after else None
        wanted = repository.lower()
        rows = (
            row
            for row in reversed(self._daemon.core.state.jobs.values())
            if (before is None or row.order < before)
            and _has_status(row, status)
            and (not wanted or row.key.repository.lower() == wanted)
        )
        limit = clamp(limit)
        newest = _newest(limit + 1, rows)
        return Page(tuple(self._job(row) for row in newest[:limit]), _next(newest, limit))

    def job(self, text: str) -> JobView | None:
        """One job by its id `forge/owner/repo/number`."""
        key = parse_job_key(text)
        row = self._daemon.core.state.jobs.get(key) if key is not None else None
        return self._job(row) if row is not None else None

    async def story(self, subject: str) -> StoryView | None:
        """The whole story of a runner or job; None where nothing is known of it."""
        runner, job = self.runner(subject), self.job(subject)
        lines = await story(self._daemon, subject)
        if not lines and runner is None and job is None:
            return None
        kind = "runner" if parse_job_key(subject) is None else "job"
        return StoryView(subject, kind, lines, runner, job)

    async def near(self, text: str) -> tuple[str, ...]:
        """Runners and jobs whose ids resemble the text, also those that are gone."""
        state = self._daemon.core.state
        found = [*await self._daemon.ports.store.subjects_like(text)] if text else []
        live = [*state.runners, *(str(key) for key, row in state.jobs.items() if row.ended is None)]
        return tuple(dict.fromkeys([*found, *near(text, live)]))[:10]

    def _job_counts(self) -> dict[str, int]:
        counts = {status.value: 0 for status in JobStatus}
        counts.update(
            (name, count) for name, count in self._daemon.core.state.index.by_status.items() if name in counts
        )
        return counts

    def _rates(self) -> tuple[RateView, ...]:
        return tuple(
            RateView(
                name,
                told.resource,
                told.limit,
                told.remaining,
                told.reset * SECOND,
                told.account,
                told.reserve,
            )
            for name, forge in self._daemon.ports.forges.items()
            for told in forge.budgets()
        )

    def _runner(self, row: Runner) -> RunnerView:
        return render.runner(row, self._now(), self._daemon.core.state.setup.policy.soft_sign_life)

    def _job(self, row: Job) -> JobView:
        now = self._now()
        why = ""
        if row.status is JobStatus.QUEUED:
            why = why_waiting(self._daemon.core.state, row.key, now)
        return render.job(row, now, why)

    def _ago(self, since: int) -> float | None:
        return render.seconds(self._now() - since) if since else None

    def _now(self) -> int:
        return self._daemon.ports.clock.now()


def _cordon(
    rows: Iterable[PoolRow | HostRow | None], all_of_it: tuple[str, int] = ("", 0)
) -> tuple[str, int]:
    """Return who cordoned and why, and since when: the nearest row's word, else that for everything."""
    for row in rows:
        if row is not None and row.cordoned:
            return row.cordoned, row.cordoned_at
    return all_of_it if all_of_it[0] else ("", 0)


def _newest(most: int, rows: Iterable[Row]) -> list[Row]:
    """Return the newest, newest first; quick where they come nearly so, as the newest rows were added last."""
    return heapq.nlargest(most, rows, key=_order)


_order = attrgetter("order")


def _next(rows: list[Runner] | list[Job], limit: int) -> str | None:
    """Return where to go on after the first `limit` of the rows; one row more says that there is more."""
    return str(rows[limit - 1].order) if len(rows) > limit else None


def _by_name(views: tuple[Named, ...], after: str, limit: int) -> Page[Named]:
    limit, names = clamp(limit), [view.name for view in views]
    if after and after not in names:
        raise BadCursor(f"after is no name of this list any more: {after[:63]!r}; begin without one")
    start = names.index(after) + 1 if after else 0
    page = views[start : start + limit]
    return Page(page, page[-1].name if start + limit < len(views) else None)


def _has_status(row: Job, status: str) -> bool:
    if status == "active":
        return row.status not in ENDED_STATUSES
    return not status or row.status.value == status
