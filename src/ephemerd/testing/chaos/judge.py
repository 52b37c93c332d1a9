"""Judges a play: by the look-alike's truth log, and by the daemon's own books for what only they can tell."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from ephemerd.testing.chaos.options import Deliveries
from ephemerd.testing.forge_sim.outcomes import broken_jobs
from ephemerd.testing.forge_sim.truth import Record

STORED = 202


def broken_by_weather(truth: Sequence[Record], counted: Iterable[int]) -> list[dict[str, Any]]:
    """Counted jobs that failed because the weather broke their runner, each with what it did and how it ended."""
    faults: dict[str, list[str]] = {}
    ends: dict[int, Record] = {}
    for record in truth:
        if record["kind"] == "misbehaved":
            faults.setdefault(record["runner"], []).append(record["what"])
        elif record["kind"] == "job_completed":
            ends[record["job"]] = record
    return [
        {
            "job": job,
            "runner": ends[job]["runner"],
            "faults": faults.get(ends[job]["runner"], []),
            "reason": ends[job]["reason"],
        }
        for job in sorted(broken_jobs(truth) & set(counted))
    ]


def wedged(truth: Iterable[Record]) -> set[str]:
    """Runners whose worker the weather lets live on for ever."""
    return {r["runner"] for r in truth if r["kind"] == "misbehaved" and r["what"] == "wedged_worker"}


def deliveries(truth: Iterable[Record], store: Path) -> Deliveries:
    """Compare the deliveries that the forge saw acknowledged with the store and the journal.

    Every stored delivery must be in the journal once: per job, the journal holds as many reports by webhook as
    the store holds deliveries. One that was fetched from the forge's list and told of a job that waited long is
    there as what the forge answered when it was asked about that job. The daemon must have ended.
    """
    acknowledged: set[str] = set()
    job_of: dict[str, int] = {}
    for record in truth:
        if record["kind"] == "delivery_lost":
            job_of[record["guid"]] = record["job"]  # its own list tells of it, and the daemon reads that
        elif record["kind"] == "delivery_sent" and record["event"] == "workflow_job":
            job_of[record["guid"]] = record["job"]
            if record["status"] == STORED:
                acknowledged.add(record["guid"])
    stored, journalled = books(store)
    expected = Counter(job_of.get(guid, 0) for guid in stored)
    return Deliveries(
        acknowledged=len(acknowledged),
        missing=len(acknowledged - stored),
        processed=len(stored),
        twice=(journalled - expected).total(),
        never=(expected - journalled).total(),
    )


def books(store: Path) -> tuple[set[str], Counter[int]]:
    """The ids of the stored deliveries, and how many reports by delivery the journal holds of each job."""
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as books:
        stored = {str(row[0]) for row in books.execute("SELECT id FROM delivery")}
        told = books.execute(
            "SELECT json_extract(event, '$.report.key.id') FROM journal "
            "WHERE json_extract(event, '$.kind') = 'JobReported' "
            "AND json_extract(event, '$.told') IN ('webhook', 'lookup')"
        )
        return stored, Counter(int(row[0]) for row in told)
