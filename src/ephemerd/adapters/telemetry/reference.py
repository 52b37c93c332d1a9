"""The reference of metrics, made from the families that a scrape gives; `scripts/documentation.py` writes it."""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from typing import Any, get_args, get_origin, get_type_hints

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from ephemerd.adapters.telemetry.collector import SnapshotCollector
from ephemerd.adapters.telemetry.meter import PREFIX, PrometheusMeter
from ephemerd.ports.views import HostView, PoolView, RateView, Snapshot, StatusView, StorageView

LATER = {
    "abandoned_total": ("host", "Environments that would not end and were given up."),
    "deliberate_ends_total": (
        "warrant pool",
        "Runners ended on purpose: by order, or past their job_timeout.",
    ),
    "ended_without_a_job_total": ("pool", "Runners that ended by themselves without having had a job."),
    "jobs_refused_total": ("reason", "Jobs that the policy does not serve."),
    "refused_jobs_taken_total": ("reason", "Of those, given to a runner of ours by the forge all the same."),
    "reports_ignored_total": ("reason", "News of jobs that could not be used."),
    "start_failures_total": ("pool", "Environments that could not be started."),
}
"""Counters of the core that are there from their first count on: their labels and what they count."""


Row = tuple[str, str, str, str]
"""Name, kind, labels, what it says."""


def reference() -> str:
    """Return the Markdown table of every metric."""
    rows = [*_snapshot_s(), *_meter_s()]
    known = {name for name, *_ in rows}
    later = ((f"{PREFIX}_{name}", "counter", label, text) for name, (label, text) in LATER.items())
    rows += [row for row in later if row[0] not in known]
    lines = ["| metric | kind | labels | says |", "| --- | --- | --- | --- |"]
    for name, kind, labels, text in sorted(rows):
        shown = ", ".join(f"`{label}`" for label in labels.split()) or "–"
        lines.append(f"| `{name}` | {kind} | {shown} | {text} |")
    return "\n".join(lines) + "\n"


def _snapshot_s() -> list[Row]:
    """Return what is read from the snapshot of a daemon with one of everything."""
    status = replace(_one(StatusView), storage=StorageView(0, 0, 0, 0), rates=(_one(RateView),))
    snapshot = Snapshot(status, (_one(PoolView),), (_one(HostView),), {})
    return [_row(family, family) for family in SnapshotCollector(lambda: snapshot).collect()]


def _meter_s() -> list[Row]:
    """Return what the shell measures."""
    meter = PrometheusMeter(CollectorRegistry())
    return [_row(next(iter(metric.describe())), metric) for metric in meter.declared()]


def _row(family: Metric, labelled: object) -> Row:
    suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
    labels = getattr(labelled, "_labelnames", ()) if family.type != "info" else family.samples[0].labels
    return f"{family.name}{suffix}", family.type, " ".join(labels), family.documentation


def _one(view: type) -> Any:
    """Return a view whose fields are nothing in particular."""
    hints = get_type_hints(view)
    return view(
        **{
            field.name: _nothing(hints[field.name])
            for field in fields(view)
            if field.default is MISSING and field.default_factory is MISSING
        }
    )


def _nothing(kind: Any) -> Any:
    if type(None) in get_args(kind):
        return None
    kind = get_origin(kind) or kind
    return _one(kind) if hasattr(kind, "__dataclass_fields__") else kind()
