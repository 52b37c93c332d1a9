"""What the shell measures: latencies and requests, in prometheus' own metrics of a private registry.

Names come without the prefix. A name that is not declared here is a mistake and raises; label sets that are
known beforehand start at 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram

PREFIX = "ephemerd"
REQUEST = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
PROBE = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
STARTUP = (0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)
WAIT = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 21600.0)
DURATION = (10.0, 30.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 7200.0, 21600.0, 86400.0)


@dataclass(frozen=True, slots=True)
class Known:
    """Label values that are known when the daemon starts; `webhooks` are pairs (event, result), `recovered` results."""

    forges: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    webhooks: tuple[tuple[str, str], ...] = ()
    recovered: tuple[str, ...] = ()


class PrometheusMeter:
    """The `Meter` of the ports over one registry."""

    def __init__(self, registry: CollectorRegistry, known: Known | None = None) -> None:
        known = known or Known()
        self._counters: Mapping[str, Counter] = {
            "webhooks_total": self._counter(
                registry, "webhooks", "Deliveries by what became of them.", ("forge", "event", "result")
            ),
            "deliveries_recovered_total": self._counter(
                registry,
                "deliveries_recovered",
                "Failed deliveries that were fetched from the forge's list, by what became of them.",
                ("forge", "result"),
            ),
            "forge_requests_total": self._counter(
                registry,
                "forge_requests",
                "Requests to a forge; status 0 got no answer.",
                ("forge", "endpoint", "status"),
            ),
        }
        self._histograms: Mapping[str, Histogram] = {
            name: Histogram(f"{PREFIX}_{name}", text, labels, registry=registry, buckets=buckets)
            for name, text, labels, buckets in (
                ("forge_request_duration_seconds", "Requests to a forge.", ("forge", "endpoint"), REQUEST),
                ("probe_duration_seconds", "Looks into environments.", ("probe",), PROBE),
                ("runner_startup_seconds", "From planned to listening.", ("runtime",), STARTUP),
                ("job_queue_wait_seconds", "From first seen to started.", (), WAIT),
                ("job_duration_seconds", "From started to done.", (), DURATION),
            )
        }
        self._found: dict[tuple[Any, ...], Counter] = {}
        """Each counter with its labels, as it was asked for: to find it takes longer than to add to it."""
        self._start_at_zero(known)

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a declared counter."""
        found = self._found.get((name, *labels.items()))
        if found is None:
            counter = self._counters[name]
            found = self._found[name, *labels.items()] = counter.labels(**labels) if labels else counter
        found.inc(amount)

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """Add to a declared histogram; what a clock made negative counts as 0."""
        histogram = self._histograms[name]
        (histogram.labels(**labels) if labels else histogram).observe(max(0.0, seconds))

    def declared(self) -> tuple[Counter | Histogram, ...]:
        """Return every metric, for its reference."""
        return (*self._counters.values(), *self._histograms.values())

    @staticmethod
    def _counter(registry: CollectorRegistry, name: str, text: str, labels: Iterable[str]) -> Counter:
        return Counter(f"{PREFIX}_{name}", text, tuple(labels), registry=registry)

    def _start_at_zero(self, known: Known) -> None:
        webhooks = self._counters["webhooks_total"]
        for forge in known.forges:
            for event, result in known.webhooks:
                webhooks.labels(forge=forge, event=event, result=result)
            for result in known.recovered:
                self._counters["deliveries_recovered_total"].labels(forge=forge, result=result)
        for runtime in known.runtimes:
            self._histograms["runner_startup_seconds"].labels(runtime=runtime)
            self._histograms["probe_duration_seconds"].labels(probe=runtime)
