"""Metrics read from the snapshot at the moment of a scrape: nothing is counted twice, no event is lost.

The counters are the core's own, part of its committed state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ephemerd.adapters.telemetry.meter import PREFIX
from ephemerd.domain.runner import Rule
from ephemerd.domain.verdict import Verdict, Via
from ephemerd.ports.views import Snapshot

OUTCOMES = ("reaped", "vetoed", "escaped")
CONCLUSIONS = ("success", "failure", "cancelled")
NO_POOL = ""
"""`pool` of a job that none of our runners had."""

Labels = tuple[str, ...]

TEXTS = {
    "orphan_reap_decisions": "Decisions of the gate by outcome and the verdict they rest on.",
    "nominations": "Runners that a rule said could go; a nomination has no authority.",
    "vetoes": "Nominated runners that were kept, by the means that proved it.",
    "fence_breaches": "Signs of a job after an accepted fence: the forge broke its promise.",
    "flag_contradictions": "Looks at the forge that called a runner not busy whose worker was seen a minute before.",
    "fence_refusals": "Fences that the forge refused, since the runner holds a job.",
    "dispatches": "Runners made.",
    "wasted_dispatches": "Runners that ended without a job.",
    "jobs_finished": "Jobs that ended, by the pool that ran them (empty: none of ours).",
}


class SnapshotCollector(Collector):
    """Turns one snapshot into metric families, every label set that is known beforehand included."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot

    def describe(self) -> Iterable[Metric]:
        """Say nothing beforehand: registering must not need a running daemon."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield all families of one snapshot."""
        snapshot = self._snapshot()
        yield from _counters(snapshot)
        yield from _things(snapshot)
        yield from _daemon(snapshot)
        yield from _storage(snapshot)
        yield from _rates(snapshot)


def _counters(snapshot: Snapshot) -> Iterator[Metric]:
    """The core's counters: known ones in their place, others under their own name."""
    names, values = _sorted_out(snapshot.counters)
    for name, (labels, zeros) in _known(snapshot).items():
        found = values.pop(name, {})
        label_names = names.pop(name, labels)
        family = CounterMetricFamily(f"{PREFIX}_{name}", TEXTS[name], labels=label_names)
        filled = {**dict.fromkeys(zeros, 0), **found} if label_names == labels else found
        for label_values in sorted(filled):
            family.add_metric(label_values, filled[label_values])
        yield family
    for name in sorted(values):
        family = CounterMetricFamily(f"{PREFIX}_{name}", f"The core's counter {name}.", labels=names[name])
        for label_values, count in sorted(values[name].items()):
            family.add_metric(label_values, count)
        yield family


def _known(snapshot: Snapshot) -> dict[str, tuple[Labels, list[Labels]]]:
    pools = [pool.name for pool in snapshot.pools]
    verdicts = [verdict.value for verdict in Verdict]
    by_pool: list[Labels] = [(pool,) for pool in pools]
    return {
        "orphan_reap_decisions": (("outcome", "verdict"), list(product(OUTCOMES, verdicts))),
        "nominations": (("rule",), [(rule.value,) for rule in Rule]),
        "vetoes": (("via",), [(via.value,) for via in Via]),
        "fence_breaches": ((), [()]),
        "fence_refusals": ((), [()]),
        "flag_contradictions": (("pool",), by_pool),
        "dispatches": (("pool",), by_pool),
        "wasted_dispatches": (("pool",), by_pool),
        "jobs_finished": (("conclusion", "pool"), list(product(CONCLUSIONS, [*pools, NO_POOL]))),
    }


def _sorted_out(counters: dict[str, int]) -> tuple[dict[str, Labels], dict[str, dict[Labels, int]]]:
    """Split `name_total|label=value|…` into label names by name and counts by label values."""
    names: dict[str, Labels] = {}
    values: dict[str, dict[Labels, int]] = {}
    for key, count in counters.items():
        name, *pairs = key.split("|")
        split = [pair.partition("=") for pair in pairs]
        name = name.removesuffix("_total")
        label_names = tuple(label for label, _, _ in split)
        if names.setdefault(name, label_names) == label_names:
            values.setdefault(name, {})[tuple(value for _, _, value in split)] = count
    return names, values


def _things(snapshot: Snapshot) -> Iterator[Metric]:
    runners = _gauge("runners", "Runners by pool and state.", ("pool", "state"))
    for pool in snapshot.pools:
        for state, count in pool.runners.items():
            runners.add_metric((pool.name, state), count)
    yield runners
    jobs = _gauge("jobs", "Jobs that are remembered, by status.", ("status",))
    for status, count in snapshot.status.jobs.items():
        jobs.add_metric((status,), count)
    yield jobs
    slots = _gauge("slots", "Slots by host and state.", ("host", "state"))
    for host in snapshot.hosts:
        slots.add_metric((host.name, "held"), host.held)
        slots.add_metric((host.name, "free"), host.free)
    yield slots
    yield _single(
        "slot_accounting_difference",
        "Held slots less the runners that hold them; must be 0.",
        snapshot.status.slot_accounting_difference,
    )


def _daemon(snapshot: Snapshot) -> Iterator[Metric]:
    status = snapshot.status
    yield _single("inbox_depth", "Events that wait.", status.inbox_depth)
    yield _single("inbox_lag_seconds", "Age of the oldest event that waits.", status.inbox_lag_s)
    yield _single("quarantined_events", "Events that could not be handled and are kept.", status.quarantined)
    yield _single("commands_running", "Commands without an answer yet.", status.commands_running)
    yield _single("draining", "1 while draining.", int(status.draining))
    health = _gauge("health", "1 for the present status.", ("status",))
    for name in ("ok", "degraded", "stuck"):
        health.add_metric((name,), int(status.health.status == name))
    yield health
    beat = _gauge("loop_heartbeat_timestamp_seconds", "Last turn of a loop, shell clock.", ("loop",))
    beat.add_metric(("main",), status.heartbeat / 1000)
    yield beat
    listed = _gauge(
        "reconcile_last_success_timestamp_seconds",
        "Up to when all jobs are known, read or vouched for, shell clock.",
        ("scope",),
    )
    for scope in dict.fromkeys(pool.scope for pool in snapshot.pools):
        listed.add_metric((scope,), status.reconciled.get(scope, 0) / 1000)
    yield listed
    looked = _gauge(
        "delivery_recovery_last_success_timestamp_seconds",
        "When a hook's failed deliveries were last looked through, shell clock.",
        ("hook",),
    )
    failing = _gauge(
        "hook_failing", "1 while nothing that the forge sends by a hook comes through.", ("hook",)
    )
    for recovery in status.recoveries:
        looked.add_metric((recovery.hook,), (recovery.looked or 0) / 1000)
        failing.add_metric((recovery.hook,), int(bool(recovery.failing)))
    yield looked
    yield failing
    build = InfoMetricFamily(f"{PREFIX}_build", "The program.")
    build.add_metric((), {"version": status.version, "store": status.store})
    yield build


def _storage(snapshot: Snapshot) -> Iterator[Metric]:
    """The store as last measured; nothing until then."""
    storage = snapshot.status.storage
    if storage is None:
        return
    yield _single("store_size_bytes", "The store on disk, its log included.", storage.total)
    yield _single("store_reusable_bytes", "Of that, free for use again.", storage.reusable)
    if storage.disk_free is not None:
        yield _single("store_disk_free_bytes", "Left on the store's disk.", storage.disk_free)
    if storage.oldest is not None:
        yield _single(
            "journal_oldest_timestamp_seconds", "Oldest journal entry, shell clock.", storage.oldest / 1000
        )


def _rates(snapshot: Snapshot) -> Iterator[Metric]:
    labels = ("forge", "account", "resource")
    limit = _gauge("forge_rate_limit", "A forge's rate limit.", labels)
    remaining = _gauge("forge_rate_limit_remaining", "What is left of it.", labels)
    reset = _gauge("forge_rate_limit_reset_timestamp_seconds", "When it is full again.", labels)
    for rate in snapshot.status.rates:
        names = (rate.forge, rate.account, rate.resource)
        limit.add_metric(names, rate.limit)
        remaining.add_metric(names, rate.remaining)
        reset.add_metric(names, rate.reset / 1000)
    yield from (limit, remaining, reset)


def _gauge(name: str, text: str, labels: Labels) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=labels)


def _single(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, value=value)
