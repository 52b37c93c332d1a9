"""The Forge page's model: budgets, calls, failures and deliveries, from the status and the meter. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ephemerd.ports.views import PoolView, RateView, RecoveryView, StatusView

Figure = tuple[str, Mapping[str, str], float]
"""A metric's sample: its name without the prefix, labels, value."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of one endpoint: how many, seconds they took (percentiles read off the histogram's buckets), and those
    whose status was not as wanted, by status."""

    endpoint: str
    count: int
    p50: float | None
    p90: float | None
    mean: float | None
    failures: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class ForgeModel:
    """One forge: `reconciled` by scope (ms, 0 for not yet), `deliveries` as (event, result, count), `recoveries` by
    hook: deliveries that failed and were fetched."""

    name: str
    rates: tuple[RateView, ...]
    reconciled: tuple[tuple[str, int], ...]
    calls: tuple[Calls, ...]
    deliveries: tuple[tuple[str, str, int], ...]
    recoveries: tuple[RecoveryView, ...]


def forges(
    status: StatusView, pools: Iterable[PoolView], figures: Iterable[Figure]
) -> tuple[ForgeModel, ...]:
    """Return a model for each forge that a pool, a budget or a call names."""
    pools, figures = list(pools), list(figures)
    names = [pool.forge for pool in pools]
    names += [rate.forge for rate in status.rates]
    names += [labels["forge"] for _, labels, _ in figures if "forge" in labels]
    return tuple(
        ForgeModel(
            name,
            tuple(rate for rate in status.rates if rate.forge == name),
            tuple(
                (scope, status.reconciled.get(scope, 0))
                for scope in dict.fromkeys(pool.scope for pool in pools if pool.forge == name)
            ),
            _calls(name, figures),
            _deliveries(name, figures),
            tuple(one for one in status.recoveries if one.forge == name),
        )
        for name in dict.fromkeys(names)
    )


def _calls(forge: str, figures: list[Figure]) -> tuple[Calls, ...]:
    buckets: dict[str, list[tuple[float, float]]] = {}
    sums: dict[str, float] = {}
    failures: dict[str, dict[str, int]] = {}
    for name, labels, value in figures:
        if labels.get("forge") != forge:
            continue
        endpoint = labels.get("endpoint", "")
        if name == "forge_request_duration_seconds_bucket":
            buckets.setdefault(endpoint, []).append((float(labels["le"]), value))
        elif name == "forge_request_duration_seconds_sum":
            sums[endpoint] = value
        elif name == "forge_requests_total" and value and not labels["status"].startswith(("2", "3")):
            status = "no answer" if labels["status"] == "0" else labels["status"]
            failures.setdefault(endpoint, {})[status] = int(value)
    made = []
    for endpoint in sorted(buckets.keys() | failures.keys()):
        counted = sorted(buckets.get(endpoint, []))
        count = int(counted[-1][1]) if counted else sum(failures.get(endpoint, {}).values())
        mean = sums.get(endpoint, 0.0) / count if count and counted else None
        lost = tuple(sorted(failures.get(endpoint, {}).items()))
        made.append(Calls(endpoint, count, quantile(counted, 0.5), quantile(counted, 0.9), mean, lost))
    return tuple(made)


def quantile(buckets: list[tuple[float, float]], share: float) -> float | None:
    """Read a percentile off cumulative buckets (upper bound, count), linear within one; None without counts.

    In the last, endless bucket it is that bucket's lower bound: not less than this.
    """
    if not buckets or not buckets[-1][1]:
        return None
    wanted = share * buckets[-1][1]
    below, before = 0.0, 0.0
    for bound, count in buckets:
        if count >= wanted and count > before:
            if bound == float("inf"):
                return below
            return below + (bound - below) * (wanted - before) / (count - before)
        below, before = bound, count
    return below


def _deliveries(forge: str, figures: list[Figure]) -> tuple[tuple[str, str, int], ...]:
    found = [
        (labels["event"], labels["result"], int(value))
        for name, labels, value in figures
        if name == "webhooks_total" and labels.get("forge") == forge and value
    ]
    return tuple(sorted(found))
