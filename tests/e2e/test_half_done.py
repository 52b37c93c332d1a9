"""The daemon dies between two steps of a runner's life, by a real kill; the next life finds and repairs the step."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.serving import LABELS, Site, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

LIMIT = 240.0
"""Seconds, for a machine that has much else to do."""
DYING = Path(__file__).with_name("dying.py")
QUICK = """
[policy]
settle = "200ms"
look_again = "500ms"
nominate_every = "1s"
reconcile_every = "2s"
registering_limit = "10s"

[runner.claim_retry]
backoff = ["200ms", "1s"]
"""


class HalfDone(Site):
    """A site whose first daemon dies at an instant. `dies` and `lives` are the two lives."""

    def __init__(self, folder: Path, instant: str) -> None:
        self.instant = instant
        super().__init__(folder)

    def start(self) -> subprocess.Popen[bytes]:
        if self.instant:
            self.config.write_text(self.config.read_text() + QUICK)
        return super().start()

    def run(self, *arguments: str, out: str) -> subprocess.Popen[bytes]:
        if arguments[0] != "serve" or not self.instant:
            return super().run(*arguments, out=out)
        with (self.folder / "dying.err").open("ab") as said:
            process = subprocess.Popen(
                [sys.executable, str(DYING), self.instant, *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
        self.instant = ""
        self.processes.append(process)
        return process

    def died(self, *, ended: int | None = None) -> None:
        """Wait until the first life ended as it was made to, and begin the next, after the end of the job `ended`."""
        assert self.daemon.wait(LIMIT) == -signal.SIGKILL, (self.folder / "dying.err").read_text()
        if ended is not None:
            self.ended(ended)
        self.daemon = self.start()

    def ended(self, job: int) -> None:
        """Wait until the look-alike counts a job as ended."""
        wanted = {"for": "jobs_ended", "timeout": "60", "jobs": str(job)}
        assert self.web.get(f"{self.forge}/_admin/wait", params=wanted, timeout=90).json()["held"]

    def admin(self, path: str, **body: Any) -> Any:
        return self.web.post(f"{self.forge}/_admin{path}", json=body, timeout=30).json()

    def hold(self) -> int:
        """Queue a job that nobody is given for now."""
        [job] = self.admin("/jobs", count=1, labels=LABELS, duration_s=0.5, held=True)["jobs"]
        return int(job)

    def truth(self, kind: str) -> list[dict[str, Any]]:
        lines = self.web.get(
            f"{self.forge}/_admin/truth", params={"kinds": kind}, timeout=30
        ).text.splitlines()
        return [json.loads(line) for line in lines]

    def runners(self, *states: str) -> list[str]:
        items = self.api("api/v1/runners")["items"]
        return [item["id"] for item in items if not states or item["state"] in states]

    def order_end(self, runner: str) -> None:
        """An operator asks to end an idle runner; the daemon may die before it answers."""
        path = f"http://ephemerd/api/v1/runners/{runner}/kill"
        with contextlib.suppress(httpx2.HTTPError):
            self.own.post(path, json={"reason": "test", "who": "test"}, timeout=90)

    def left(self) -> list[str]:
        work = self.folder / "state" / "runners"
        return sorted(path.name for path in work.iterdir()) if work.exists() else []

    def nothing_is_left(self, completed: int) -> dict[str, Any]:
        """Wait for the end; check jobs, registrations, folders, processes and slots."""
        outcomes = self.completed(completed, LIMIT)
        until(lambda: self.left() == [], LIMIT)
        until(lambda: self.api("api/v1/status")["slots_held"] == 0, LIMIT)
        assert self.api("api/v1/status")["slot_accounting_difference"] == 0
        for name in ("killed", "disturbed", "lost", "leaked", "fence_breaches"):
            assert outcomes[name] == 0, (name, outcomes, self.log())
        return outcomes


@pytest.fixture
def dying(tmp_path_factory):
    made = []

    def site(instant: str) -> HalfDone:
        made.append(HalfDone(tmp_path_factory.mktemp("h"), instant))
        return made[-1]

    yield site
    for each in made:
        each.close()


@pytest.mark.parametrize(
    ("instant", "registrations"),
    [
        ("planned", 1),
        ("registered, not told", 2),
        ("registered, not started", 2),
        ("folder half made", 2),
        ("folder made, nothing started", 2),
    ],
)
def test_a_runner_that_was_not_started_is_taken_back_and_made_anew(dying, instant, registrations):
    """Its credential died with the daemon: the registration is found, taken back, and the job gets another runner."""
    site = dying(instant)
    site.queue(1)
    site.died()
    outcomes = site.nothing_is_left(1)
    assert outcomes["dispatches"] == registrations


def test_a_runner_that_was_started_and_not_recorded_is_adopted(dying):
    site = dying("started, not recorded")
    [job] = site.queue(1, seconds=3.0)
    site.died()
    outcomes = site.nothing_is_left(1)
    assert outcomes["dispatches"] == 1
    assert outcomes["wasted"] == 0
    first = site.truth("runner_registered")[0]["runner"]
    assert [record["runner"] for record in site.truth("job_acquired")] == [first]
    assert str(job) in json.dumps(site.api(f"api/v1/runners/{first}/story"))


def test_a_runner_that_was_started_and_not_recorded_is_known_although_it_is_over(dying):
    """The next life begins so late that the job has ended: its end was told to nobody, and the job reads as queued."""
    site = dying("started, not recorded")
    [job] = site.queue(1)
    site.died(ended=job)
    outcomes = site.nothing_is_left(1)
    assert outcomes["dispatches"] == 1
    assert outcomes["wasted"] == 0


@pytest.mark.parametrize(
    "instant",
    [
        "asked to fence, not fenced",
        "fenced, not told",
        "fenced, not destroyed",
        "killed, not removed",
        "half removed",
        "destroyed, not recorded",
    ],
)
def test_the_end_of_an_idle_runner_is_seen_through(dying, instant):
    """An accepted fence that was recorded is not asked again. Of one that was not, the forge says "not found", which
    proves nothing: the runner leaves when its listener is told the same."""
    site = dying(instant)
    job = site.hold()
    [runner] = until(lambda: site.runners("listening"), LIMIT)
    site.order_end(runner)
    site.died()
    until(lambda: runner in site.runners("gone"), LIMIT)
    site.admin(f"/jobs/{job}/unhold")
    outcomes = site.nothing_is_left(1)
    assert outcomes["dispatches"] in (
        2,
        3,
    )  # the one that was being made for the job may have died with the daemon
    asked = [record["status"] for record in site.truth("fence_asked") if record["runner"] == runner]
    assert asked[0] == 204
    assert set(asked[1:]) <= ({404} if instant == "fenced, not told" else set())


def test_an_exit_that_nobody_heard_is_picked_up_with_its_code_and_log(dying):
    """The job ended, the runner left, and the daemon died before it was told: the code is in the exit file."""
    site = dying("exited, not told")
    site.queue(1)
    site.died()
    outcomes = site.nothing_is_left(1)
    assert outcomes["dispatches"] == 1
    [item] = site.api("api/v1/runners")["items"]
    assert item["exit_code"] == 0
    logs = list((site.folder / "state" / "logs").glob("*.log"))
    assert len(logs) == 1
    assert "completed with result: Succeeded" in logs[0].read_text()


def test_what_a_runner_does_while_nobody_is_there_is_picked_up(dying):
    """It takes its job, works and leaves while there is no daemon at all."""
    site = dying("")
    job = site.hold()
    until(lambda: site.runners("listening"), LIMIT)
    site.daemon.kill()
    site.daemon.wait(30)
    site.admin(f"/jobs/{job}/unhold")
    site.ended(job)
    site.daemon = site.start()
    outcomes = site.nothing_is_left(1)
    assert outcomes["dispatches"] == 1
    [item] = site.api("api/v1/runners")["items"]
    assert (item["state"], item["exit_code"]) == ("gone", 0)
    until(lambda: [job["conclusion"] for job in site.api("api/v1/jobs")["items"]] == ["success"], LIMIT)
