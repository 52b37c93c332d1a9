"""Metrics: every family parses as OpenMetrics, known label sets start at 0, the core's counters are shown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as old_families

from ephemerd.adapters.telemetry.meter import Known
from ephemerd.adapters.telemetry.metrics import Metrics
from ephemerd.domain.runner import Rule
from ephemerd.ports.system import Meter
from ephemerd.ports.views import (
    HealthView,
    HostView,
    PoolView,
    RateView,
    RecoveryView,
    Snapshot,
    StatusView,
    StorageView,
)

OPEN = "application/openmetrics-text; version=1.0.0"
STATES = {"planned": 0, "listening": 1, "gone": 2}

STATUS = StatusView(
    version="1.2.3",
    store="s1",
    epoch="abcd",
    pid=1,
    now=2_000,
    started=1_000,
    uptime_s=1.0,
    ready=True,
    stopping=False,
    draining=True,
    cordoned=(),
    health=HealthView("degraded", ("look at it",)),
    jobs={"queued": 3, "running": 1},
    runners=STATES,
    slots=4,
    slots_held=1,
    slot_accounting_difference=0,
    inbox_depth=7,
    inbox_lag_s=0.5,
    quarantined=0,
    commands_running=2,
    reconciled={"github/repo:acme/app": 1_500},
    heartbeat=1_750,
    rates=(RateView("github", "core", 5000, 4990, 60_000),),
)
POOL = PoolView(
    name="linux",
    forge="github",
    scope="github/repo:acme/app",
    labels=("linux",),
    host="local",
    runtime="process",
    max_concurrent=4,
    min_idle=0,
    orphan_grace_s=600.0,
    surplus_grace_s=30.0,
    job_timeout_s=None,
    probes=True,
    cordoned=False,
    held=1,
    queued=3,
    runners=STATES,
)
COUNTERS = {
    "nominations_total|rule=surplus": 5,
    "orphan_reap_decisions_total|outcome=vetoed|verdict=busy": 2,
    "fence_breaches_total": 1,
    "dispatches_total|pool=linux": 9,
    "dispatches_total|pool=removed": 4,
    "jobs_finished_total|conclusion=timed_out|pool=linux": 1,
    "abandoned_total|host=local": 3,
}
SNAPSHOT = Snapshot(STATUS, (POOL,), (HostView("local", 4, 1, 3, 0, False),), COUNTERS)
KNOWN = Known(
    ("github",),
    ("process",),
    (("workflow_job", "stored"), ("unknown", "too_large")),
    ("stored", "unreadable"),
)


@pytest.fixture
def metrics():
    made = Metrics(KNOWN)
    made.show(lambda: SNAPSHOT)
    return made


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text, _ = metrics.text(OPEN)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in open_families(text.decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return samples(metrics)[f"ephemerd_{name}", tuple(sorted(labels.items()))]


def test_both_formats_parse_and_hold_the_same_families(metrics):
    new, new_type = metrics.text(OPEN)
    old, old_type = metrics.text("text/plain")
    assert "openmetrics" in new_type
    assert "text/plain" in old_type
    new_names = {family.name for family in open_families(new.decode())}
    old_names = {family.name.removesuffix("_total") for family in old_families(old.decode())}
    assert new_names <= old_names | {"ephemerd_build"}
    assert all(name.startswith("ephemerd_") for name in new_names)


def test_the_names_of_the_contract_are_there(metrics):
    names = {name for name, _ in samples(metrics)}
    for name in [
        "orphan_reap_decisions_total",
        "nominations_total",
        "vetoes_total",
        "fence_breaches_total",
        "runners",
        "jobs",
        "jobs_finished_total",
        "job_queue_wait_seconds_bucket",
        "job_duration_seconds_bucket",
        "runner_startup_seconds_bucket",
        "dispatches_total",
        "wasted_dispatches_total",
        "slots",
        "slot_accounting_difference",
        "webhooks_total",
        "inbox_depth",
        "inbox_lag_seconds",
        "forge_rate_limit",
        "forge_rate_limit_remaining",
        "forge_rate_limit_reset_timestamp_seconds",
        "probe_duration_seconds_bucket",
        "reconcile_last_success_timestamp_seconds",
        "deliveries_recovered_total",
        "loop_heartbeat_timestamp_seconds",
        "draining",
        "build_info",
    ]:
        assert f"ephemerd_{name}" in names, name


def test_the_cores_counters_are_shown(metrics):
    assert value(metrics, "nominations_total", rule="surplus") == 5
    assert value(metrics, "orphan_reap_decisions_total", outcome="vetoed", verdict="busy") == 2
    assert value(metrics, "fence_breaches_total") == 1
    assert value(metrics, "dispatches_total", pool="linux") == 9
    assert value(metrics, "jobs_finished_total", conclusion="timed_out", pool="linux") == 1


def test_a_pool_that_was_removed_keeps_its_counter(metrics):
    assert value(metrics, "dispatches_total", pool="removed") == 4


def test_counters_that_have_no_text_here_are_shown_too(metrics):
    assert value(metrics, "abandoned_total", host="local") == 3


def test_known_label_sets_start_at_zero(metrics):
    for rule in Rule:
        assert value(metrics, "nominations_total", rule=rule.value) == (5 if rule is Rule.SURPLUS else 0)
    for outcome in ("reaped", "vetoed", "escaped"):
        for verdict in ("idle", "busy", "unknown"):
            value(metrics, "orphan_reap_decisions_total", outcome=outcome, verdict=verdict)
    assert value(metrics, "wasted_dispatches_total", pool="linux") == 0
    assert value(metrics, "jobs_finished_total", conclusion="success", pool="") == 0
    assert value(metrics, "webhooks_total", forge="github", event="workflow_job", result="stored") == 0
    assert value(metrics, "deliveries_recovered_total", forge="github", result="unreadable") == 0
    assert value(metrics, "probe_duration_seconds_count", probe="process") == 0


def test_things_and_the_daemon_itself(metrics):
    assert value(metrics, "runners", pool="linux", state="listening") == 1
    assert value(metrics, "jobs", status="queued") == 3
    assert value(metrics, "slots", host="local", state="held") == 1
    assert value(metrics, "slots", host="local", state="free") == 3
    assert value(metrics, "inbox_depth") == 7
    assert value(metrics, "draining") == 1
    assert value(metrics, "health", status="degraded") == 1
    assert value(metrics, "health", status="ok") == 0
    assert value(metrics, "loop_heartbeat_timestamp_seconds", loop="main") == 1.75
    assert value(metrics, "reconcile_last_success_timestamp_seconds", scope="github/repo:acme/app") == 1.5
    assert (
        value(
            metrics, "forge_rate_limit_reset_timestamp_seconds", forge="github", account="", resource="core"
        )
        == 60
    )
    assert value(metrics, "build_info", version="1.2.3", store="s1") == 1


def test_a_scope_that_was_never_listed_is_at_zero(metrics):
    metrics = Metrics()
    metrics.show(lambda: replace(SNAPSHOT, status=replace(STATUS, reconciled={})))
    assert value(metrics, "reconcile_last_success_timestamp_seconds", scope="github/repo:acme/app") == 0


def test_the_store_is_shown_once_it_was_measured(metrics):
    assert not [name for name, _ in samples(metrics) if "store" in name]
    metrics = Metrics()
    measured = StorageView(total=10_000, reusable=4_096, disk_free=500, oldest=7_000)
    metrics.show(lambda: replace(SNAPSHOT, status=replace(STATUS, storage=measured)))
    assert value(metrics, "store_size_bytes") == 10_000
    assert value(metrics, "store_reusable_bytes") == 4_096
    assert value(metrics, "store_disk_free_bytes") == 500
    assert value(metrics, "journal_oldest_timestamp_seconds") == 7
    empty = Metrics()
    unknown = replace(measured, disk_free=None, oldest=None)
    empty.show(lambda: replace(SNAPSHOT, status=replace(STATUS, storage=unknown)))
    assert "ephemerd_store_disk_free_bytes" not in {name for name, _ in samples(empty)}


def test_labels_from_outside_are_escaped(metrics):
    odd = 'a"b\\c\nd'
    metrics = Metrics()
    metrics.show(lambda: replace(SNAPSHOT, counters={f"jobs_finished_total|conclusion={odd}|pool=linux": 1}))
    assert value(metrics, "jobs_finished_total", conclusion=odd, pool="linux") == 1


def test_the_meter_counts_and_observes(metrics):
    meter: Meter = metrics.meter
    meter.count("webhooks_total", forge="github", event="workflow_job", result="stored")
    meter.count("forge_requests_total", 2, forge="github", endpoint="GET job", status="200")
    meter.observe("job_queue_wait_seconds", 3.0)
    meter.observe("probe_duration_seconds", -1.0, probe="process")
    assert value(metrics, "webhooks_total", forge="github", event="workflow_job", result="stored") == 1
    assert value(metrics, "forge_requests_total", forge="github", endpoint="GET job", status="200") == 2
    assert value(metrics, "job_queue_wait_seconds_sum") == 3.0
    assert value(metrics, "job_queue_wait_seconds_bucket", le="5.0") == 1
    assert value(metrics, "probe_duration_seconds_sum", probe="process") == 0


def test_a_name_that_is_not_declared_is_a_mistake(metrics):
    with pytest.raises(KeyError):
        metrics.meter.count("tpyo_total")
    with pytest.raises(KeyError):
        metrics.meter.observe("tpyo_seconds", 1.0)


def test_two_daemons_in_one_process_do_not_share():
    first, second = Metrics(), Metrics()
    first.meter.observe("job_queue_wait_seconds", 1.0)
    assert value(first, "job_queue_wait_seconds_count") == 1
    assert value(second, "job_queue_wait_seconds_count") == 0


def test_figures_are_the_samples_of_a_scrape(metrics):
    metrics.meter.observe("forge_request_duration_seconds", 0.2, forge="github", endpoint="register")
    figures = list(metrics.figures())
    labels = {"forge": "github", "endpoint": "register", "le": "0.25"}
    assert ("forge_request_duration_seconds_bucket", labels, 1.0) in figures
    assert ("draining", {}, 1.0) in figures
    assert not any(name.startswith("ephemerd") for name, _, _ in figures)


def test_how_failed_deliveries_are_fetched_is_told_by_hook():
    metrics = Metrics(KNOWN)
    recoveries = (
        RecoveryView("github/app", "github", 2500, 7),
        RecoveryView("github/org:acme", "github", None, 0, failing="nothing comes through"),
    )
    metrics.show(lambda: replace(SNAPSHOT, status=replace(STATUS, recoveries=recoveries)))
    name = "delivery_recovery_last_success_timestamp_seconds"
    assert value(metrics, name, hook="github/app") == 2.5
    assert value(metrics, name, hook="github/org:acme") == 0
    assert value(metrics, "hook_failing", hook="github/app") == 0
    assert value(metrics, "hook_failing", hook="github/org:acme") == 1
