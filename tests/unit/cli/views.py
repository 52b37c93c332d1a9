"""The views of a small daemon as the API sends them, made from the view classes themselves."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from ephemerd.ports.views import (
    DecisionView,
    EvidenceView,
    GateView,
    HealthView,
    HostView,
    JobView,
    PoolView,
    RateView,
    RunnerView,
    StatusView,
    StoryLine,
)

NOW = 1_790_000_000_000
STATES = ("planned", "registering", "starting", "listening", "assigned", "running", "finishing", "gone")


def plain(view: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(asdict(view)))
    return found


def status(**more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "version": "0.1.0",
        "store": "k3v9",
        "epoch": "x7",
        "pid": 4711,
        "now": NOW,
        "started": NOW - 3_725_000,
        "uptime_s": 3_725.0,
        "ready": True,
        "stopping": False,
        "draining": False,
        "cordoned": (),
        "health": HealthView("ok"),
        "jobs": {"queued": 2, "running": 1, "done": 40, "waiting": 0},
        "runners": {state: (1 if state in {"running", "listening"} else 0) for state in STATES},
        "slots": 4,
        "slots_held": 2,
        "slot_accounting_difference": 0,
        "inbox_depth": 0,
        "inbox_lag_s": 0.002,
        "quarantined": 0,
        "commands_running": 0,
        "reconciled": {"github/repo:acme/app": NOW - 65_000},
        "heartbeat": NOW,
        "rates": (RateView("github", "core", 5000, 4900, NOW + 60_000),),
    }
    return plain(StatusView(**{**fields, **more}))


def pool(**more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "name": "linux",
        "forge": "github",
        "scope": "github/repo:acme/app",
        "labels": ("linux", "self-hosted", "x64"),
        "host": "local",
        "runtime": "process",
        "max_concurrent": 4,
        "min_idle": 0,
        "orphan_grace_s": 600.0,
        "surplus_grace_s": 30.0,
        "job_timeout_s": None,
        "probes": True,
        "cordoned": False,
        "held": 2,
        "queued": 3,
        "runners": {"running": 1, "listening": 1, "gone": 0},
    }
    return plain(PoolView(**{**fields, **more}))


def host(**more: Any) -> dict[str, Any]:
    fields = {"name": "local", "slots": 4, "held": 2, "free": 2, "abandoned": 0, "cordoned": False}
    return plain(HostView(**{**fields, **more}))


def runner(number: int, **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": f"eph-k3v9-x7-{number}",
        "pool": "linux",
        "host": "local",
        "scope": "github/repo:acme/app",
        "state": "listening",
        "since": NOW - 5_000,
        "since_s": 5.0,
        "created": NOW - 60_000,
        "age_s": 60.0,
        "started": NOW - 50_000,
        "listening": NOW - 40_000,
        "intent": "github/acme/app/41",
        "job": None,
        "bound": "",
        "worker": None,
        "over": None,
        "registration": number,
        "environment": f"pid:{number}",
        "nominations": 0,
        "vetoes": 0,
        "vetoed_until": None,
        "fence": "",
        "gate": None,
        "stuck": "",
        "ending": "",
        "exit_code": None,
        "adopted": False,
    }
    return plain(RunnerView(**{**fields, **more}))


def job(number: int, **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": f"github/acme/app/{number}",
        "forge": "github",
        "repository": "acme/app",
        "number": number,
        "name": "build",
        "run_id": 7,
        "attempt": 1,
        "labels": ("linux", "x64"),
        "status": "queued",
        "since": NOW - 9_000,
        "since_s": 9.0,
        "first_seen": NOW - 9_000,
        "waited_s": 9.0,
        "started": None,
        "ended": None,
        "runner": None,
        "ours": False,
        "conclusion": None,
        "why": "no slot is free",
    }
    return plain(JobView(**{**fields, **more}))


def decision(number: int, **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": number,
        "at": NOW - 1_000 * (10 - number),
        "runner": "eph-k3v9-x7-7",
        "pool": "linux",
        "nomination": number,
        "rule": "surplus",
        "outcome": "vetoed",
        "verdict": "busy",
        "via": "probe",
        "reason": "a worker runs",
        "age_s": 5.0,
        "bound_s": 23_400.0,
        "evidence": (EvidenceView("busy", "probe", NOW, "Runner.Worker, pid 12"),),
    }
    return plain(DecisionView(**{**fields, **more}))


def line(at: int, kind: str, text: str, subject: str = "", *evidence: str) -> dict[str, Any]:
    return plain(StoryLine(NOW + at, at, kind, subject, text, evidence))


GATE = GateView(3, "surplus", "left over", "settling", NOW, ())
RUNNERS = [
    runner(12, state="running", job="github/acme/app/42", bound="hard", vetoes=2),
    runner(7, gate=GATE, fence="accepted"),
    runner(1, state="gone", ending="job done", job="github/acme/app/40", exit_code=0),
]
JOBS = [
    job(43),
    job(42, status="running", runner="eph-k3v9-x7-12", ours=True, why=""),
    job(40, status="done", conclusion="failure", runner="eph-k3v9-x7-1", ours=True, why=""),
]
DECISIONS = [decision(3, outcome="reaped", verdict="idle", via="fence"), decision(2), decision(1)]
