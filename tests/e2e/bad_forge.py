"""A daemon with the real GitHub adapter before a forge that has bad days: hours pass in virtual time.

Store, runtime and clock are in memory, so that hours cost seconds; every answer of the forge travels over a real
socket, through the real adapter, whatever it is: a status, silence, a reset, another certificate, no listener at all.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ephemerd.adapters.forges.github.client import GitHubForge
from ephemerd.adapters.forges.github.tokens import FixedToken
from ephemerd.app.daemon import Daemon, Ports
from ephemerd.core.events import FoundEnvironment, JobReported
from ephemerd.core.health import Health, assess
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import ForgeStatus, Told
from ephemerd.domain.pool import Policy
from ephemerd.domain.runner import Runner
from ephemerd.domain.verdict import Sign
from tests.e2e.scripted_server import Raw, Received, Reply, Reset, Server, Silence
from tests.unit.app.fakes import (
    FakeClock,
    FakeMeter,
    FakeRuntime,
    FakeStore,
    idle_report,
    key,
    report,
    setup,
    until,
)

HOST = "forge.test"
RUNNERS = "/repos/acme/app/actions/runners"
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000

ANSWERS: dict[str, Callable[[], object]] = {
    "401": lambda: Reply(401, {"message": "Bad credentials"}),
    "403": lambda: Reply(403, {"message": "Resource not accessible by personal access token"}),
    "403 limit": lambda: Reply(
        403, {"message": "You have exceeded a secondary rate limit"}, {"Retry-After": "600"}
    ),
    "429": lambda: Reply(429, {"message": "too many requests"}, {"Retry-After": "600"}),
    "404": lambda: Reply(404, {"message": "Not Found"}),
    "500": lambda: Reply(500, {"message": "Server Error"}),
    "502 page": lambda: Reply(502, b"<html>Bad gateway</html>", {"Content-Type": "text/html"}),
    "reset": Reset,
    "silence": Silence,
    "half an answer": lambda: Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"),
    "another page": lambda: Reply(200, b"<html>log in first</html>", {"Content-Type": "text/html"}),
}


@dataclass
class Truth:
    """What the forge knows, and what is wrong with it now: a key of `ANSWERS`, or "" where all is well."""

    names: dict[int, str] = field(default_factory=dict)
    jobs: dict[int, dict[str, Any]] = field(default_factory=dict)
    wrong: str = ""
    deleted: list[int] = field(default_factory=list)

    def answer(self, request: Received) -> object:
        if self.wrong:
            return ANSWERS[self.wrong]()
        path = request.target.partition("?")[0]
        if request.method == "POST":
            number = 100 + len(self.names) + len(self.deleted)
            self.names[number] = request.json["name"]
            return Reply(201, {"runner": self._runner(number), "encoded_jit_config": "blob"})
        if found := re.fullmatch(rf"{RUNNERS}/(\d+)", path):
            return self._one(request.method, int(found[1]))
        if path == RUNNERS:
            runners = [self._runner(number) for number in self.names]
            return Reply(200, {"total_count": len(runners), "runners": runners})
        if path.endswith("/actions/runs"):
            runs = [{"id": 1, "repository": {"full_name": "acme/app"}}] if "queued" in request.target else []
            return Reply(200, {"total_count": len(runs), "workflow_runs": runs})
        if path.endswith("/jobs"):
            return Reply(200, {"total_count": len(self.jobs), "jobs": list(self.jobs.values())})
        if found := re.fullmatch(r"/repos/acme/app/actions/jobs/(\d+)", path):
            job = self.jobs.get(int(found[1]))
            return Reply(200, job) if job is not None else Reply(404, {"message": "Not Found"})
        return Reply(200, {"full_name": "acme/app"})

    def _one(self, method: str, number: int) -> Reply:
        if number not in self.names:
            return Reply(404, {"message": "Not Found"})
        if method == "GET":
            return Reply(200, self._runner(number))
        del self.names[number]
        self.deleted.append(number)
        return Reply(204)

    def _runner(self, number: int) -> dict[str, Any]:
        name = self.names[number]
        return {"id": number, "name": name, "status": "online", "busy": False, "labels": [], "version": "2"}


class BadForge:
    """The daemon and its forge. `tls`: by https, with a certificate that can be exchanged. `patience`: so many
    seconds of ours a call may take; short only where silence is what is waited for."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, tls: bool = False, patience: float = 20.0
    ) -> None:
        self.truth = Truth()
        self.server = Server(self.truth.answer)
        self.clock, self.store, self.runtime = FakeClock(), FakeStore(), FakeRuntime()
        self.busy: set[RunnerId] = set()
        self.left: set[RunnerId] = set()
        self.runtime.answers["probe"] = lambda runner, _: idle_report(workers=int(runner in self.busy))
        self.runtime.answers["list"] = lambda _: self._environments()
        self.resolves = True
        self._patience = patience
        self._folder, self._tls = folder, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if tls else None
        self._listening: asyncio.Server | None = None
        self._port = 0
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._resolve)

    async def __aenter__(self) -> BadForge:
        if self._tls is not None:
            self.new_certificate("good")
        await self.listen()
        scheme = "https" if self._tls else "http"
        self.forge = GitHubForge(
            "github",
            url=f"{scheme}://{HOST}:{self._port}",
            tokens=FixedToken("token"),
            ca_file=self._folder / "good.pem" if self._tls else None,
            timeout_s=self._patience,
            now=lambda: self.clock.ms / 1000,
            monotonic=lambda: self.clock.ms / 1000,
        )
        ports = Ports(self.store, {"github": self.forge}, {"linux": self.runtime}, self.clock, FakeMeter())
        # The budget of writes is refilled in real time: what it is in virtual time is the core's tests' matter.
        prompt = Policy(write_per_second=1e6, write_per_second_limited=1e6)
        made = setup(prompt, max_concurrent=20, surplus_grace=0)
        self.daemon = Daemon(ports, made)
        await self.daemon.open()
        self.running = asyncio.create_task(self.daemon.run())
        await self.settle()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.daemon.stop(bound=10)
        await self.running
        await self.go_away()

    # -- the forge's bad days ------------------------------------------------------------------------

    async def listen(self) -> None:
        self._listening = await asyncio.start_server(
            self.server.serve, "127.0.0.1", self._port, ssl=self._tls
        )
        self._port = self._listening.sockets[0].getsockname()[1]

    async def go_away(self) -> None:
        """Nothing listens any more; connections that are open are closed."""
        if self._listening is not None:
            self._listening.close()
        await self.server.stop()

    def new_certificate(self, name: str) -> None:
        """Serve new connections with a certificate of its own, as `name`.pem in the folder."""
        assert self._tls is not None
        write_certificate(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        self._tls.load_cert_chain(self._folder / f"{name}.pem", self._folder / f"{name}.key")

    def _resolve(self, host: Any, port: Any, *rest: Any, **named: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name != HOST:
            return self._real(host, port, *rest, **named)
        if not self.resolves:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return self._real("127.0.0.1", port, *rest, **named)

    # -- time and news -------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Return when everything that is due was done and answered."""

        def quiet() -> bool:
            daemon = self.daemon
            wake = daemon.core.next_wake()
            due = wake is not None and wake <= self.clock.ms
            return daemon.ready and not due and daemon.settled

        await until(quiet, seconds=60)

    async def pass_time(self, ms: int, step: int = 10 * SECOND) -> None:
        end = self.clock.ms + ms
        while self.clock.ms < end:
            self.clock.ms += min(step, end - self.clock.ms)
            self.daemon.inbox.nudge()
            await self.settle()

    async def told(self, number: int, status: ForgeStatus, **fields: Any) -> None:
        """The forge says something of a job, by a delivery; its listing says the same from now on."""
        job = {"id": number, "run_id": 1, "status": status.value, "labels": ["linux"], "name": "build"}
        self.truth.jobs[number] = {**job, **fields}
        if status is ForgeStatus.COMPLETED:
            del self.truth.jobs[number]
        self.daemon.inbox.tell(JobReported(report(number, status, **fields), Told.WEBHOOK))
        await self.settle()

    async def listening(self, number: int) -> RunnerId:
        """Queue a job and bring the runner that is made for it to listen."""
        known = len(self.runtime.orders)
        await self.told(number, ForgeStatus.QUEUED)
        await until(lambda: len(self.runtime.orders) > known)
        runner = self.runtime.orders[-1].runner
        await self.settle()
        self.runtime.tell(runner, Sign.LISTENING)
        await self.settle()
        return runner

    async def working(self, number: int) -> RunnerId:
        runner = await self.listening(number)
        self.busy.add(runner)
        self.runtime.tell(runner, Sign.ANNOUNCED)
        self.runtime.tell(runner, Sign.WORKER)
        await self.told(number, ForgeStatus.IN_PROGRESS, runner_name=runner)
        return runner

    def leave(self, runner: RunnerId, code: int) -> None:
        """Its environment ends by itself."""
        self.left.add(runner)
        self.runtime.exit(runner, code)

    def _environments(self) -> list[FoundEnvironment]:
        return [
            FoundEnvironment(order.runner, f"env-{order.runner}", order.pool, ended=order.runner in self.left)
            for order in self.runtime.orders
            if f"env-{order.runner}" not in self.destroyed()
        ]

    # -- looking -------------------------------------------------------------------------------------

    def row(self, runner: RunnerId) -> Runner:
        return self.daemon.core.state.runners[runner]

    def job(self, number: int) -> Any:
        return self.daemon.core.state.jobs[key(number)]

    def health(self) -> Health:
        return assess(self.daemon.core.state, self.clock.ms)

    def destroyed(self) -> set[str]:
        return {environment for _, environment, _ in self.runtime.named("destroy")}

    def everything_written(self) -> str:
        return json.dumps([self.store.rows, [entry.event for entry in self.store.entries]], default=str)


def write_certificate(certificate: Path, private: Path) -> None:
    """Write a fresh certificate, signed by itself, for `HOST`."""
    made = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(made.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .sign(made, hashes.SHA256())
    )
    certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        made.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
