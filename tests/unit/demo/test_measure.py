"""The report: the daemon's decisions against the look-alike's truth, and which promises were broken."""

from __future__ import annotations

import dataclasses
import json

import pytest

from ephemerd.testing.demo import options as demo_options
from ephemerd.testing.demo.measure import make_report, vetoed_holding_job
from ephemerd.testing.demo.options import DemoOptions, DemoReport, broken_promises

AT = 1_000_000  # the wall clock at the first record


def truth():
    """One runner that held one job from 100 to 400 ms, and one that never had any."""
    steps: list[tuple[int, str, dict[str, object]]] = [
        (0, "forge_started", {}),
        (10, "job_queued", {"job": 1, "tag": "counted", "labels": ["x"]}),
        (20, "runner_registered", {"runner": "r1"}),
        (30, "api_call", {"method": "POST", "path": "/", "status": 201, "took_ms": 40.0, "runner": "r1"}),
        (40, "runner_registered", {"runner": "r2"}),
        (100, "job_assigned", {"job": 1, "runner": "r1"}),
        (150, "job_acquired", {"job": 1, "runner": "r1"}),
        (200, "worker_started", {"job": 1, "runner": "r1", "pid": 5}),
        (
            390,
            "job_completed",
            {"job": 1, "runner": "r1", "conclusion": "success", "reason": "finished", "acquired": True},
        ),
        (400, "worker_exited", {"job": 1, "runner": "r1", "pid": 5, "clean": True}),
        (410, "runner_deregistered", {"runner": "r1", "by": "self"}),
    ]
    return [
        {"seq": n + 1, "ms": float(ms), "at": AT + ms, "kind": kind, **fields}
        for n, (ms, kind, fields) in enumerate(steps)
    ]


def decided(outcome, *, runner="r1", nomination=1, ms=300):
    return {"outcome": outcome, "runner": runner, "nomination": nomination, "at": AT + ms}


def report(**changes) -> DemoReport:
    given = {
        "truth": truth(),
        "decisions": [],
        "nominated": 0,
        "runners": [],
        "counted": [1],
        "act_jobs": 0,
        "kills": {"asked": 0, "vetoed": 0, "too_late": 0, "accepted": 0},
        "failures": [],
        "leaks": [],
        "daemon_exit": 0,
        "wall_s": 1.234,
        **changes,
    }
    return make_report(DemoOptions(act=False), **given)


def test_pairs_are_counted_once_and_only_while_a_job_was_held():
    decisions = [
        decided("vetoed", ms=90),  # not yet
        decided("vetoed", ms=200),
        decided("vetoed", ms=300),  # the same nomination again
        decided("vetoed", nomination=2, ms=399),
        decided("reaped", nomination=3, ms=300),
        decided("vetoed", nomination=4, ms=401),  # no more
        decided("vetoed", runner="r2", nomination=5),
    ]
    assert vetoed_holding_job(truth(), decisions) == 2


def test_dispatch_is_the_time_from_planning_to_the_process_less_the_forges_own():
    rows = [
        {"id": "r1", "created": AT + 5, "started": AT + 60},
        {"id": "r2", "created": AT + 5, "started": AT + 900},  # its registration was never answered
        {"id": "r3", "created": AT + 5, "started": None},
    ]
    assert report(runners=rows).dispatch_ms == {"p50": 15.0, "p95": 15.0}
    assert report().dispatch_ms == {"p50": None, "p95": None}


def lossy(*, started_ms: int):
    """A truth in which the job's delivery was lost, and its worker started so long after."""
    told = [one | ({"ms": float(started_ms)} if one["kind"] == "worker_started" else {}) for one in truth()]
    lost = {"kind": "delivery_lost", "guid": "g", "action": "queued", "job": 1, "listed": False}
    return [*told[:2], {"seq": 3, "ms": 11.0, "at": AT + 11, **lost}, *told[2:]]


def test_a_job_whose_delivery_was_lost_starts_within_a_reconcile_interval_and_a_start():
    made = report(truth=lossy(started_ms=9010))
    assert (made.lost_queued, made.lost_to_start_ms["max"], made.reconcile_ms) == (1, 9000.0, 12_000.0)
    assert not [one for one in made.broken_promises if "lost" in one]
    late = report(truth=lossy(started_ms=23_010))
    [broken] = [one for one in late.broken_promises if "delivery was lost" in one]
    assert "started after 23.0 s" in broken
    assert "(12 s)" in broken
    slow = [
        {"ms": 0.0, "kind": "job_queued", "job": 2, "tag": ""},
        {"ms": 15_000.0, "kind": "worker_started", "runner": "r2", "job": 2, "pid": 7},
        {"ms": 0.0, "kind": "delivery_sent", "action": "queued", "job": 2, "status": 202},
    ]
    busy = report(truth=[*lossy(started_ms=23_010), *({"seq": 90, "at": AT, **one} for one in slow)])
    assert busy.told_to_start_ms["max"] == 15_000
    assert not [one for one in busy.broken_promises if "delivery was lost" in one]
    in_an_outage = {"seq": 0, "ms": 1.0, "at": AT, "kind": "outage", "state": "begins", "what": "503"}
    away = report(truth=[*lossy(started_ms=23_010), in_an_outage])
    assert not [one for one in away.broken_promises if "delivery was lost" in one]


def test_requests_before_their_time_and_teardowns_in_an_outage_break_a_promise():
    call = {"kind": "api_call", "method": "GET", "path": "/", "took_ms": 1.0, "who": "token"}
    rest = [
        {"ms": 500.0, "status": 429, "wait_ms": 60_000, **call},
        {"ms": 9000.0, "status": 200, **call},
        {"ms": 9100.0, "kind": "outage", "state": "begins", "what": "429"},
        {"ms": 9200.0, "kind": "listener_exited", "runner": "r2", "pid": 6, "clean": True},
    ]
    made = report(truth=[*truth(), *({"seq": 90 + n, "at": AT, **one} for n, one in enumerate(rest))])
    assert (made.early_calls, made.torn_down_in_outage) == (1, 1)
    assert "1 requests were sent before the time that the forge had named" in made.broken_promises
    assert "1 runners were torn down while the forge answered nobody" in made.broken_promises


def test_what_is_left_is_named_and_counted():
    made = report(leaks=["process 77 (Runner.Worker)"])
    assert made.leaked == 2
    assert made.leaks == ["process 77 (Runner.Worker)", "registration r2"]


def test_the_report_is_the_json_that_was_agreed_on():
    keys = [
        "jobs",
        "completed",
        "killed",
        "disturbed",
        "lost",
        "leaked",
        "dispatches",
        "wasted",
        "nominated",
        "vetoed",
        "vetoed_holding_job",
        "reaped",
        "escaped",
        "fence_refusals",
        "fence_breaches",
        "time_scale",
        "queue_to_start_ms",
        "dispatch_ms",
        "api_calls_per_job",
        "wall_s",
    ]
    shown = json.loads(json.dumps(report().as_json()))
    assert set(keys) <= set(shown)
    assert set(shown["queue_to_start_ms"]) == {"p50", "p95", "max"}
    assert set(shown["dispatch_ms"]) == {"p50", "p95"}
    assert (shown["completed"], shown["jobs"], shown["wall_s"]) == (1, 1, 1.23)


def good() -> DemoReport:
    steps = [r for r in truth() if r.get("runner") != "r2"]
    return report(truth=steps, decisions=[decided("vetoed"), decided("reaped", runner="r9")])


def test_a_good_report_breaks_no_promise():
    assert good().broken_promises == []
    assert good().exit_code == 0
    assert broken_promises(good(), act=True) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"completed": 0}, "0 of 1"),
        ({"killed": 1}, "killed"),
        ({"lost": 1}, "never run"),
        ({"leaked": 1}, "left"),
        ({"escaped": 1}, "without proof"),
        ({"disturbed": 1}, "lost the runner"),
        ({"wasted": 1}, "for nothing"),
        ({"vetoed_holding_job": 0}, "showed nothing"),
        ({"reaped": 0}, "no idle runner"),
        ({"daemon_exit": 1}, "code 1"),
    ],
)
def test_each_broken_promise_is_a_sentence(change, words):
    [sentence] = broken_promises(dataclasses.replace(good(), **change), act=True)
    assert words in sentence


@pytest.mark.parametrize("change", [{"disturbed": 1}, {"wasted": 3}])
def test_in_rough_weather_a_runner_may_be_made_in_vain(change):
    rough = dataclasses.replace(good(), weather="hostile", **change)
    assert broken_promises(rough, act=True) == []
    assert "bursty" in demo_options.PROMISED_WEATHERS


def test_a_failure_of_the_act_breaks_a_promise():
    made = report(failures=["in the act r1 was not vetoed"])
    assert made.broken_promises[0] == "in the act r1 was not vetoed"
    assert made.exit_code == 8


def test_outages_are_counted_by_their_beginnings():
    states = ("begins", "ends", "begins")
    steps = [
        {"seq": 90 + n, "ms": 500.0 + n, "at": AT + 500 + n, "kind": "outage", "state": state, "what": "503"}
        for n, state in enumerate(states)
    ]
    assert report(truth=[*truth(), *steps]).outages == 2
    assert report().outages == 0
