"""What a play of chaos is judged by: the forge's truth, and the daemon's books."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from ephemerd.testing.chaos import judge
from ephemerd.testing.chaos.options import Deliveries


def books(path: Path, deliveries: list[str], jobs: list[int], asked: tuple[int, ...] = ()) -> Path:
    """A store with these delivery ids, and reports by webhook of these jobs in its journal; about `asked` the forge
    was asked when an old delivery of theirs was fetched."""
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE delivery (id TEXT)")
        made.execute("CREATE TABLE journal (seq INTEGER PRIMARY KEY, event TEXT)")
        made.executemany("INSERT INTO delivery VALUES (?)", [(guid,) for guid in deliveries])
        events: list[dict[str, Any]] = [
            {"kind": "JobReported", "told": "webhook", "report": {"key": {"id": job}}} for job in jobs
        ]
        events += [{"kind": "JobReported", "told": "lookup", "report": {"key": {"id": job}}} for job in asked]
        events += [
            {"kind": "JobReported", "told": "listing", "report": {"key": {"id": 1}}},
            {"kind": "Woke"},
        ]
        made.executemany("INSERT INTO journal (event) VALUES (?)", [(json.dumps(event),) for event in events])
        made.commit()
    return path


def sent(guid: str, job: int | None, status: int, event: str = "workflow_job") -> dict[str, Any]:
    return {"kind": "delivery_sent", "guid": guid, "job": job, "status": status, "event": event}


def test_each_delivery_once(tmp_path):
    truth = [
        sent("ping", None, 200, "ping"),
        sent("a", 1, 202),
        sent("a", 1, 202),  # delivered twice: one delivery
        sent("b", 1, 0),  # stored, and the answer died with the daemon
        sent("c", 2, 202),
        sent("d", 2, 0),  # nobody was there
    ]
    store = books(tmp_path / "s.db", ["a", "b", "c"], [1, 1, 2])
    expected = Deliveries(acknowledged=2, missing=0, processed=3, twice=0, never=0)
    assert judge.deliveries(truth, store) == expected


def test_what_is_lost_processed_twice_or_never(tmp_path):
    truth = [sent("a", 1, 202), sent("b", 2, 202), sent("c", 3, 202)]
    store = books(tmp_path / "s.db", ["a", "b"], [1, 1])
    assert judge.deliveries(truth, store) == Deliveries(
        acknowledged=3, missing=1, processed=2, twice=1, never=1
    )


def test_one_that_was_lost_and_fetched_from_the_forges_list_is_processed_once(tmp_path):
    truth = [sent("a", 1, 0), {"kind": "delivery_lost", "guid": "b", "job": 2, "action": "queued"}]
    once = Deliveries(acknowledged=0, missing=0, processed=2, twice=0, never=0)
    assert judge.deliveries(truth, books(tmp_path / "s.db", ["a", "b"], [1], asked=(2,))) == once
    twice = Deliveries(acknowledged=0, missing=0, processed=2, twice=1, never=0)
    assert judge.deliveries(truth, books(tmp_path / "t.db", ["a", "b"], [1, 2], asked=(2,))) == twice


def ended(job: int, runner: str, reason: str) -> list[dict[str, Any]]:
    return [
        {"kind": "job_queued", "job": job, "ms": 0.0, "tag": "counted"},
        {"kind": "job_assigned", "job": job, "runner": runner, "ms": 1.0},
        {"kind": "job_acquired", "job": job, "runner": runner, "ms": 2.0},
        {
            "kind": "job_completed",
            "job": job,
            "runner": runner,
            "ms": 3.0,
            "conclusion": "failure",
            "reason": reason,
            "acquired": True,
        },
    ]


def test_a_job_is_the_weathers_only_with_its_proof():
    truth = [
        *ended(1, "r1", "lost_communication"),
        {"kind": "misbehaved", "runner": "r1", "what": "listener_dies"},
        *ended(2, "r2", "lost_communication"),
        *ended(3, "r3", "finished"),
        {"kind": "misbehaved", "runner": "r3", "what": "wedged_worker"},
    ]
    proof = {"job": 1, "runner": "r1", "faults": ["listener_dies"], "reason": "lost_communication"}
    assert judge.broken_by_weather(truth, [1, 2, 3]) == [proof]
    assert judge.broken_by_weather(truth, [2, 3]) == []
    assert judge.wedged(truth) == {"r3"}
