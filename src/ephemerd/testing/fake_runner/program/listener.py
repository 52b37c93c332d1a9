"""``Runner.Listener run``: connects, waits for one job, hands it to a worker, leaves.

The order of what it prints, writes and asks for is that of runner.md, sections 4, 5, 7, 9 and 10.
"""

# This file is copied out of the package (folder.py), and pathlib would cost more than the rest of the start.
# ruff: noqa: PTH103, PTH107, PTH118, PTH119, PTH120, PTH123, TID252

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from .version import VERSION
from .wire import Exchange, Files, Link, LinkError, Signals, Stopped, main_of, say, show_name

CREDENTIALS = (".credentials", ".credentials_rsaparams", ".runner")
RESULTS = {100: "Succeeded", 101: "SucceededWithIssues", 102: "Failed", 103: "Canceled", 104: "Skipped"}
CONFLICT_TRIES = 8
ERRORS_IN_A_ROW = 10
"""After so many failed polls the listener gives up with code 2 [src]."""
RETRY_S = 1.0
"""Between two tries; the real one waits 15-60 s."""
TERM_S = 30.0
"""After SIGTERM the listener waits no longer than this for its worker [src]."""


class Leave(Exception):
    """The process ends with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def utc() -> str:
    """The time stamp of the listener's output."""
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())


def take_inputs(root: str) -> dict[str, Any]:
    """Write the files of the just-in-time configuration into the root and return the settings.

    Every ``ACTIONS_RUNNER_INPUT_*`` variable leaves the environment, so that workers do not inherit it.
    """
    blob = ""
    for name in [name for name in os.environ if name.startswith("ACTIONS_RUNNER_INPUT_")]:
        value = os.environ.pop(name)
        if name == "ACTIONS_RUNNER_INPUT_JITCONFIG":
            blob = value
    if "--jitconfig" in sys.argv[:-1]:
        blob = sys.argv[sys.argv.index("--jitconfig") + 1]
    if blob:
        import binascii

        for name, content in json.loads(binascii.a2b_base64(blob)).items():
            path = os.path.join(root, os.path.basename(name))
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.write(handle, binascii.a2b_base64(content))
            os.close(handle)
    with open(os.path.join(root, ".runner"), encoding="utf-8") as file:
        settings: dict[str, Any] = json.load(file)
    with open(os.path.join(root, ".credentials"), encoding="utf-8") as file:
        settings["secret"] = json.load(file)["data"]["clientId"]
    os.makedirs(os.path.join(root, settings.get("WorkFolder", "_work")), exist_ok=True)
    return settings


class Listener:
    """One runner's life."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.signals = Signals()
        self.signals.catch(signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
        self.files = Files(root, "Runner")
        self.files.counter("RunnerProcessStarted")
        settings = take_inputs(root)
        self.link = Link(settings["ServerUrlV2"], settings["secret"], self.signals)
        self.session = ""
        self.life: Exchange | None = None

    def run(self) -> int:
        """Live until there is nothing to do; return the exit code."""
        try:
            self.connect()
            while True:
                message = self.poll()
                offered = message is not None and message.get("type") == "RunnerJobRequest"
                if message is not None and offered and self.work(message["offer"]):
                    self.say_goodbye()
                    return self.exit_code
        except Stopped:
            say("Exiting...")
            self.close_session()
            return 0
        except Leave as leave:
            return leave.code

    exit_code = 0

    # Session

    def connect(self) -> None:
        """Open a session; ``Listening for Jobs`` only comes when there is one."""
        conflicts = errors = 0
        while True:
            try:
                if self.life is None:
                    self.life = self.link.lifeline("kind=listener")
                say("\n√ Connected to GitHub\n")
                body = {"pid": os.getpid(), "version": VERSION}
                status, answer = self.link.call("POST", "/_broker/session", body)
            except LinkError as error:
                errors += 1
                self.files.diag("BrokerMessageListener", f"cannot create a session: {error}")
                if errors >= ERRORS_IN_A_ROW:
                    raise Leave(2) from error
                self.signals.pause(RETRY_S)
                continue
            if status == 201:
                break
            if status != 409:
                say(
                    "Failed to create a session. The runner registration has been deleted from the server, "
                    "please re-configure. Runner registrations are automatically deleted for runners that have "
                    "not connected to the service recently.",
                    2,
                )
                raise Leave(1)
            conflicts += 1
            say("A session for this runner already exists.", 2)
            if conflicts >= CONFLICT_TRIES:
                say("Stop retry on SessionConflictException after retried for 240 seconds.", 2)
                raise Leave(5)
            self.signals.pause(RETRY_S)
        self.session = answer["session"]
        self.signals.ignore = bool(answer.get("ignore_stop"))
        self.files.counter("SessionCreated")
        say(f"Current runner version: '{VERSION}'\n{utc()}: Listening for Jobs")

    def close_session(self) -> None:
        """End the session; the registration is the server's business."""
        if not self.session:
            return
        try:
            self.link.call(
                "DELETE", f"/_broker/session?session={self.session}", stoppable=False, seconds=30.0
            )
        except LinkError as error:
            self.files.diag("BrokerMessageListener", f"cannot delete the session: {error}")

    def remove_files(self) -> None:
        """Remove what an ephemeral runner removes at its end."""
        for name in CREDENTIALS:
            try:
                os.remove(os.path.join(self.root, name))
            except OSError:
                continue
            if name != ".credentials_rsaparams":
                say(f"√ Removed {name}")

    def say_goodbye(self) -> None:
        """End after a job."""
        self.close_session()
        self.remove_files()

    # Waiting

    def _message_path(self, status: str) -> str:
        return f"/_broker/message?session={self.session}&status={status}&runnerVersion={VERSION}&os=linux"

    def poll(self) -> dict[str, Any] | None:
        """Wait for the next message; errors are retried, ten in a row are too many."""
        errors = 0
        while True:
            try:
                status, message = self.link.call("GET", self._message_path("Online"))
            except LinkError as error:
                if not errors:
                    say(f"{utc()}: Runner connect error: {error}. Retrying until reconnected.", 2)
                errors += 1
                if errors >= ERRORS_IN_A_ROW:
                    raise Leave(2) from error
                self.signals.pause(RETRY_S)
                continue
            if errors:
                say(f"{utc()}: Runner reconnected.")
                errors = 0
            if status == 410:
                self.connect()
            elif status == 404:
                say("The runner no longer exists on the server. Cleaning up local configuration.", 2)
                self.remove_files()
                raise Leave(0)
            elif status == 400 and message.get("error") == "RunnerVersionTooOld":
                say(
                    f"An error occurred: Runner version v{VERSION} is deprecated and cannot receive messages.",
                    2,
                )
                told = os.environ.get("ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE") == "1"
                raise Leave(7 if told else 1)
            elif status in (401, 403):
                raise Leave(1)
            else:
                return message if status == 200 else None

    # One job

    def work(self, offer: str) -> bool:
        """Take an offered job and see it through; return False if it was not to be had (a ghost polls on)."""
        self.files.counter("MessageReceived_RunnerJobRequest")
        self.files.diag("Runner", f"Acknowledging runner request '{offer}'.")
        body = {"offer": offer}
        try:
            status, _ = self.link.call("POST", "/_broker/acknowledge", body, seconds=5.0)
            if status == 404:
                self.files.diag("Runner", "Runner request not found, this ephemeral runner exits.")
                self.close_session()
                raise Leave(0)
        except LinkError as error:
            self.files.diag("Runner", f"Acknowledging failed: {error}")
        try:
            status, job = self.link.call("POST", "/_run/acquirejob", body, seconds=3600.0)
        except LinkError as error:
            status, job = 503, {"error": str(error)}
        if status != 200:
            self.files.diag("Runner", f"Skipping message Job. Job message not found: {status} {job}")
            return False
        name = job["name"]
        self.files.diag(
            "JobDispatcher", f"Job request {job['job']} for plan {offer} job {job['job']} received."
        )
        say(f"{utc()}: Running job: {name}")
        status, _ = self.link.call("POST", "/_run/renewjob", {"offer": offer, "first": True})
        if status != 200:
            self.files.diag(
                "JobDispatcher", "The first renewal failed, the job is abandoned without a worker."
            )
            return True
        self.files.diag("JobDispatcher", f"Successfully renew job {job['job']}, job is valid till later.")
        self.files.counter(f"JobRequestRenewed_{job['job']}")
        pid, pipe = self.start_worker(job)
        if "listener_dies" in job["faults"]:
            self.signals.pause(0.3)
            os.kill(os.getpid(), signal.SIGKILL)
        code = self.tend(pid, pipe, offer, float(job["renew_every"]))
        self.files.diag("JobDispatcher", f"Stop renew job request for job {job['job']}.")
        if code not in RESULTS:
            self.report_crash(offer, code)
        result = RESULTS.get(code, "Failed")
        say(f"{utc()}: Job {name} completed with result: {result}")
        if os.environ.get("ACTIONS_RUNNER_RETURN_JOB_RESULT_FOR_HOSTED") == "true":
            self.exit_code = code if code in RESULTS else 102
        return True

    def report_crash(self, offer: str, code: int) -> None:
        """Report a job whose worker ended with a code that is no result."""
        self.files.diag("JobDispatcher", f"The worker ended with {code}, the job is reported as failed.")
        body = {"offer": offer, "conclusion": "failure", "reason": "worker_crashed"}
        try:
            self.link.call("POST", "/_run/completejob", body, stoppable=False)
        except LinkError as error:
            self.files.diag("JobDispatcher", f"Reporting failed: {error}")

    def start_worker(self, job: dict[str, Any]) -> tuple[int, int]:
        """Start ``Runner.Worker spawnclient OUT IN`` and send it the job through the pipe."""
        self.files.counter("StartingWorkerProcess")
        program = os.path.join(self.root, "bin", "Runner.Worker")
        to_worker_read, to_worker_write = os.pipe()
        from_worker_read, from_worker_write = os.pipe()
        for handle in (to_worker_read, from_worker_write):
            os.set_inheritable(handle, True)
        null = os.open(os.devnull, os.O_RDWR)
        try:
            pid = os.posix_spawn(
                program,
                [program, "spawnclient", str(to_worker_read), str(from_worker_write)],
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)],
                setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE],
            )
        finally:
            for handle in (null, to_worker_read, from_worker_write, from_worker_read):
                os.close(handle)
        self.files.counter(f"RunnerSendingJobToWorker_{job['job']}")
        message = {**job, "broker": f"http://{self.link.address[0]}:{self.link.address[1]}"}
        message["secret"] = self.link.secret
        self.tell(to_worker_write, json.dumps(message))
        self.files.counter(f"SentJobToWorker_{job['job']}")
        return pid, to_worker_write

    def tell(self, pipe: int, text: str) -> None:
        """Send the worker a line."""
        try:
            os.write(pipe, (text + "\n").encode())
        except OSError as error:
            self.files.diag("JobDispatcher", f"the worker does not read: {error}")

    def tend(self, pid: int, pipe: int, offer: str, renew_every: float) -> int:
        """Renew the lease and listen for a cancellation until the worker ended; return its exit code.

        A stop signal shuts the worker down: the job fails. After SIGTERM the listener leaves in the end even
        if the worker does not, and nobody renews any more.
        """
        renew_at = time.monotonic() + renew_every
        poll: Exchange | None = None
        renewal: Exchange | None = None
        poll_at, told, leave_at = 0.0, False, None
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            now = time.monotonic()
            if self.signals.seen and not told:
                told = True
                say("Exiting...")
                self.tell(pipe, "shutdown")
                leave_at = now + TERM_S if signal.SIGTERM in self.signals.seen else None
            if leave_at is not None and now > leave_at:
                raise Leave(0)
            if now >= renew_at and renewal is None:
                renewal, renew_at = (
                    self.attempt("POST", "/_run/renewjob", {"offer": offer}),
                    now + renew_every,
                )
            if poll is None and now >= poll_at:
                poll, poll_at = self.attempt("GET", self._message_path("Busy")), now + RETRY_S
            waiting = [item for item in (poll, renewal) if item is not None]
            next_at = min(
                at for at in (renew_at, poll_at if poll is None else None, leave_at) if at is not None
            )
            for item in self.signals.wait(waiting, max(0.02, next_at - now)):
                answer = self.finish(item)
                if answer is None:
                    continue
                if item is renewal:
                    renewal = None
                    self.files.diag("JobDispatcher", f"Successfully renew job: {answer[0]}")
                else:
                    poll, poll_at = None, (0.0 if answer[0] in (200, 204) else time.monotonic() + RETRY_S)
                    if answer[1].get("type") == "JobCancellation":
                        self.files.counter("MessageReceived_JobCancellation")
                        self.tell(pipe, "cancel")

    def attempt(self, method: str, path: str, body: Any = None) -> Exchange | None:
        """Begin a request whose failure is no more than a line in the log."""
        try:
            return self.link.begin(method, path, body)
        except LinkError as error:
            self.files.diag("BrokerServer", f"{path}: {error}")
            return None

    def finish(self, exchange: Exchange) -> tuple[int, dict[str, Any]] | None:
        """Read an answer if it is there; an error counts as the answer 599."""
        try:
            return exchange.read()
        except LinkError as error:
            self.files.diag("BrokerServer", str(error))
            exchange.close()
            return 599, {}


def run() -> int:
    """Be ``Runner.Listener``."""
    show_name("Runner.Listener")
    if len(sys.argv) < 2 or sys.argv[1] != "run":
        say("usage: Runner.Listener run", 2)
        return 0 if sys.argv[1:2] == ["warmup"] else 1
    root = os.path.dirname(os.path.dirname(os.path.realpath(sys.argv[0])))
    try:
        listener = Listener(root)
    except (OSError, ValueError, KeyError) as error:
        say(f"An error occurred: {type(error).__name__}: not configured, or a bad configuration", 2)
        return 1
    return listener.run()


def main() -> None:
    """The entry point."""
    main_of(run)
