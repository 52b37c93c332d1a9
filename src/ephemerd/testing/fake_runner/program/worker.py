"""``Runner.Worker spawnclient IN OUT``: reads one job from the pipe, works, reports, exits with 100 + result."""

# This file is copied out of the package (folder.py), and pathlib would cost more than the rest of the start.
# ruff: noqa: PTH120, TID252

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from .wire import Files, Link, LinkError, Signals, main_of, show_name

RESULTS = {"success": 100, "failure": 102, "cancelled": 103, "skipped": 104}
READ_JOB_S = 30.0
"""The job has to come through the pipe in this time [src]."""
DAEMON_S = 600.0
"""A process that a job leaves behind ends by itself after so long."""


class Pipe:
    """Lines from the listener."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.rest = b""
        self.open = True

    def fileno(self) -> int:
        """For select."""
        return self.handle

    def read(self) -> list[str]:
        """The whole lines that have come; at the end of the pipe it counts as closed."""
        piece = os.read(self.handle, 65536)
        if not piece:
            self.open = False
        *lines, self.rest = (self.rest + piece).split(b"\n")
        return [line.decode() for line in lines]


class Worker:
    """One job's life."""

    def __init__(self, root: str, pipe: Pipe) -> None:
        self.pipe = pipe
        self.signals = Signals()
        self.signals.catch(signal.SIGTERM, signal.SIGINT)
        self.files = Files(root, "Worker")
        self.files.counter("WorkerProcessStarted")
        self.files.counter("WorkerWaitingForJobMessage")
        self.orders: list[str] = []

    def run(self) -> int:
        """Read the job, run it, report it; return the exit code."""
        job = self.receive()
        if job is None:
            return 1
        number = job["job"]
        self.files.counter(f"WorkerJobMessageReceived_{number}")
        self.files.diag("Worker", f"Job message received: {number}")
        link = Link(job["broker"], job["secret"], self.signals)
        life = link.lifeline(f"kind=worker&offer={job['offer']}")
        self.files.counter(f"WorkerJobServerQueueStarted_{number}")
        body = {"offer": job["offer"]}
        began = time.monotonic()
        self.report(link, "/_run/started", body)
        self.files.counter(f"WorkerJobInitialized_{number}")
        faults, seconds = job["faults"], float(job["seconds"])
        if "leave_daemon" in faults:
            leave_daemon()
        if "completed_while_worker_runs" in faults:
            self.report(
                link, "/_run/completejob", {**body, "conclusion": job["conclusion"], "reason": "finished"}
            )
        order = self.sleep(began + seconds)
        conclusion, reason = {
            "": (job["conclusion"], "finished"),
            "cancel": ("cancelled", "cancelled"),
            "shutdown": ("failure", "shutdown"),
        }[order]
        self.files.diag("JobRunner", f"Job result: {conclusion} ({reason})")
        self.report(link, "/_run/completejob", {**body, "conclusion": conclusion, "reason": reason})
        if "wedged_worker" in faults:
            self.signals.ignore = True
            self.sleep(began + seconds + 3600.0, deaf=True)
        life.close()
        return RESULTS.get(conclusion, 102)

    def receive(self) -> dict[str, Any] | None:
        """Read the job message; None if it does not come."""
        until = time.monotonic() + READ_JOB_S
        while self.pipe.open and time.monotonic() < until:
            if self.signals.wait([self.pipe], until - time.monotonic()):
                lines = self.pipe.read()
                self.orders += lines[1:]
                if lines:
                    job: dict[str, Any] = json.loads(lines[0])
                    return job
        return None

    def sleep(self, until: float, *, deaf: bool = False) -> str:
        """Work until then; return early with ``cancel`` or ``shutdown``. SIGINT is ignored [src]."""
        while time.monotonic() < until:
            if not deaf:
                if signal.SIGTERM in self.signals.seen or "shutdown" in self.orders:
                    return "shutdown"
                if "cancel" in self.orders:
                    return "cancel"
            readers = [self.pipe] if self.pipe.open else []
            if self.signals.wait(readers, until - time.monotonic()):
                self.orders += self.pipe.read()
        return ""

    def report(self, link: Link, path: str, body: dict[str, Any]) -> None:
        """Tell the forge; five tries, as the real one [src]."""
        for _ in range(5):
            try:
                status, _ = link.call("POST", path, body, stoppable=False)
            except LinkError as error:
                self.files.diag("JobServer", f"{path}: {error}")
                self.signals.wait([], 1.0)
                continue
            if status in (200, 401, 404):
                return


def leave_daemon() -> None:
    """Start a process of its own session that outlives the job and bears no tracking id."""
    if os.fork() != 0:
        return
    os.setsid()
    os.environ.pop("RUNNER_TRACKING_ID", None)
    os.execv(sys.executable, [sys.executable, "-ISc", f"import time; time.sleep({DAEMON_S})"])


def run() -> int:
    """Be ``Runner.Worker``."""
    show_name("Runner.Worker")
    root = os.path.dirname(os.path.dirname(os.path.realpath(sys.argv[0])))
    return Worker(root, Pipe(int(sys.argv[2]))).run()


def main() -> None:
    """The entry point."""
    main_of(run)
