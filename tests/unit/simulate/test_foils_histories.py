"""Five constructed histories, one for each check of the gate: only with that check the job survives.

In all of them a runner is discharged and left over: its intent job was taken by somebody else's runner, and the
delivery of the job that it is given is late. It is nominated as surplus 2 s after that start; what happens in
which of the moments that follow is what the histories differ in.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ephemerd.testing.simulate.foils import POLICIES
from ephemerd.testing.simulate.incidents import Report, Variant, replay_adopt

BEGIN = datetime(2026, 9, 1, 12, 0, 0, tzinfo=UTC)
LABELS = ["self-hosted", "linux", "x64"]
SPARE, OURS, THEIRS = "spare", 2, 1
CHECKS = ("probe", "log", "fence", "settle", "revalidate")

Line = dict[str, Any]


def line(seconds: float, kind: str, **fields: Any) -> Line:
    at = (BEGIN + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"at": at, "kind": kind, **fields}


@dataclass(frozen=True)
class History:
    """When the job is given to the spare, when its worker starts and when that is delivered (s), and what
    else is so."""

    assigned: float
    worker: float
    variant: Variant
    policy: dict[str, float] = field(default_factory=dict)
    delivered: float | None = None

    def lines(self) -> list[Line]:
        """The whole journal. The nomination is at 8.000, the first probe is answered at 8.010, the fence at
        8.110, the second probe at 13.120."""
        note = line(
            0,
            "note",
            replay="adopt",
            policy={"grace_s": 600, "surplus_grace_s": 2, **self.policy},
            expect=[
                {"check": "no_kill", "text": "nobody is killed"},
                {"check": "job_ends", "job": OURS, "conclusion": "success", "text": "the job ends well"},
                {"check": "nothing_left", "text": "nothing is left"},
            ],
        )
        told = [] if self.delivered is None else [self.delivered]
        return [
            note,
            line(0, "job_queued", job=THEIRS, labels=LABELS),
            line(1, "runner_registered", runner=SPARE, intent_job=THEIRS),
            line(5, "runner_listening", runner=SPARE),
            line(6, "job_in_progress", job=THEIRS, runner="somebody-elses"),
            line(self.assigned, "job_assigned", job=OURS, runner=SPARE, truth=True),
            line(self.worker, "worker_started", job=OURS, runner=SPARE, truth=True),
            *(line(at, "job_in_progress", job=OURS, runner=SPARE) for at in told),
            line(self.worker + 60, "worker_exited", job=OURS, runner=SPARE, truth=True),
            line(self.worker + 61, "job_completed", job=OURS, runner=SPARE, conclusion="success"),
            line(self.worker + 62, "runner_exited", runner=SPARE, code=0),
        ]


HISTORIES = {
    # The listener's files tell nothing, and the forge is wrong: the worker alone can be seen.
    "probe": History(7.0, 7.2, Variant(silent_log=True, fence="accepts")),
    # The forge accepts as long as the job is not acquired, and the worker takes half a minute to be there.
    "log": History(7.0, 40.0, Variant(with_offer=True, fence="accepts")),
    # The job is given, and nothing of it is to be seen on the host for 13 s: the forge alone knows.
    "fence": History(7.0, 20.0, Variant()),
    # The job comes after the first look and before the fence, whose answer is wrong.
    "settle": History(8.03, 8.06, Variant(fence="accepts")),
    # The same in a pool without a probe (fence at 8.200): there is no second look, but a delivery comes.
    "revalidate": History(
        8.12, 8.15, Variant(probes=False, fence="accepts"), policy={"grace_s": 3}, delivered=8.18
    ),
}


def replayed(tmp_path: Path, history: History, policy: str) -> Report:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in history.lines()), encoding="utf-8")
    return replay_adopt(path, history.variant, policy=POLICIES[policy])


@pytest.mark.parametrize("check", CHECKS)
def test_the_gate_as_it_is_brings_the_job_through(tmp_path, check):
    report = replayed(tmp_path, HISTORIES[check], "gate")
    assert report.killed == []
    assert [text for text, held in report.expectations if not held] == []
    assert report.problems == []


@pytest.mark.parametrize("check", CHECKS)
def test_without_the_check_the_job_is_killed(tmp_path, check):
    report = replayed(tmp_path, HISTORIES[check], f"gate-no-{check}")
    assert [(runner, job) for _, runner, job in report.killed] == [(SPARE, OURS)]
    assert ("nobody is killed", False) in report.expectations


@pytest.mark.parametrize("check", CHECKS)
def test_no_other_check_makes_up_for_it_and_none_is_missed_in_vain(tmp_path, check):
    """Each history needs exactly the one check that it is named after."""
    deadly = [other for other in CHECKS if replayed(tmp_path, HISTORIES[check], f"gate-no-{other}").killed]
    assert deadly == [check]


def test_the_gate_was_entered_in_each_history(tmp_path):
    """A zero is the gate's doing: in each history it decided at least once about the spare."""
    for check in CHECKS:
        decisions = replayed(tmp_path, HISTORIES[check], "gate").decisions
        assert decisions, check
        assert decisions[0].outcome == "vetoed", check
