"""`/metrics`: one registry with the snapshot's collector and the meter, in the format that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from ephemerd.adapters.telemetry.collector import SnapshotCollector
from ephemerd.adapters.telemetry.meter import PREFIX, Known, PrometheusMeter
from ephemerd.ports.views import Snapshot


class Metrics:
    """All metrics of one daemon. `meter` measures from the start; `show` ties the snapshot in."""

    def __init__(self, known: Known | None = None) -> None:
        self._registry = CollectorRegistry()
        self.meter = PrometheusMeter(self._registry, known)

    def show(self, snapshot: Callable[[], Snapshot]) -> None:
        """Read the state from here at each scrape; called once."""
        self._registry.register(SnapshotCollector(snapshot))

    def text(self, accept: str) -> tuple[bytes, str]:
        """Return the exposition and its content type: OpenMetrics where it is accepted, else the old text."""
        encoder, content_type = choose_encoder(accept)
        return encoder(self._registry), content_type

    def figures(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """Yield all samples as (name without the prefix, labels, value), as a scrape would see them now."""
        for family in self._registry.collect():
            for sample in family.samples:
                yield sample.name.removeprefix(f"{PREFIX}_"), sample.labels, sample.value
