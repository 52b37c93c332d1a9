"""Engines that are reached over a network: by OpenSSH with a real server, by TLS with certificates of both sides."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ephemerd.adapters.runtimes.docker import EngineOptions
from ephemerd.domain.permit import Warrant
from ephemerd.domain.verdict import Sign
from ephemerd.ports.errors import Broken, RetryLater
from ephemerd.ports.runtime import StartOrder
from ephemerd.testing.contracts.runtime import FIRST, STORE, Sink, quiet, until_report
from ephemerd.testing.engines.own import why_not
from tests.e2e.docker_runtime import POOL, SECRET, Lab
from tests.e2e.engine import TestEngine
from tests.e2e.stand_in import until

pytestmark = [pytest.mark.e2e, pytest.mark.platform("linux"), pytest.mark.account("root")]


@pytest.fixture
async def lab(docker_engine: TestEngine):
    made = Lab(docker_engine)
    yield made
    await made.close()


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


async def whole_life(lab: Lab, reach: EngineOptions) -> None:
    """Start, listen, work, be probed by the engine's listing, end."""
    runtime, sink = lab.runtime(reach=reach), Sink()
    runtime.attach(sink)
    environment = await runtime.start(StartOrder(FIRST, POOL, STORE, SECRET))
    await sink.until_sign(FIRST, Sign.LISTENING)
    report = await until_report(lambda: runtime.probe(FIRST, environment), quiet)
    assert "by the engine" in report.detail
    await lab.begin_job(FIRST)
    await until_report(lambda: runtime.probe(FIRST, environment), lambda each: each.workers == 1)
    await sink.until_sign(FIRST, Sign.ANNOUNCED)
    await runtime.destroy(environment, lab.permit(FIRST, environment, Warrant.FORCED))
    assert lab.remains(FIRST) == []


# ssh


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[tuple[int, tuple[str, ...]]]:
    """A server of our own on loopback; its port, and a client that trusts it and has a key."""
    if reason := why_not(("sshd", "ssh", "ssh-keygen")):
        pytest.skip(f"{reason} (make system installs it as root on Debian)")
    for name in ("host", "user"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name)
    port = free_port()
    (tmp_path / "authorized").write_text((tmp_path / "user.pub").read_text())
    (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {(tmp_path / 'host.pub').read_text()}")
    (tmp_path / "sshd").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path / 'host'}\nPidFile none\nUsePAM no\nStrictModes no\n"
        f"AuthorizedKeysFile {tmp_path / 'authorized'}\nPermitRootLogin prohibit-password\n"
    )
    (tmp_path / "ssh").write_text(
        f"Host *\nIdentityFile {tmp_path / 'user'}\nIdentitiesOnly yes\nUserKnownHostsFile {tmp_path / 'known'}\n"
        "StrictHostKeyChecking yes\n"
    )
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    program = subprocess.Popen(
        ["/usr/sbin/sshd", "-D", "-e", "-f", str(tmp_path / "sshd")], stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: _listens(port))
        yield port, ("ssh", "-F", str(tmp_path / "ssh"))
    finally:
        program.terminate()
        program.wait(30)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


async def test_an_engine_by_ssh(lab: Lab, ssh):
    port, client = ssh
    url = f"ssh://root@127.0.0.1:{port}{lab.engine.socket}"
    await whole_life(lab, replace(lab.reach, url=url, ssh=client))


async def test_a_tunnel_that_broke_is_opened_again_and_no_exit_is_told(lab: Lab, ssh):
    port, client = ssh
    url = f"ssh://root@127.0.0.1:{port}{lab.engine.socket}"
    runtime, sink = lab.runtime(reach=replace(lab.reach, url=url, ssh=client)), Sink()
    runtime.attach(sink)
    environment = await runtime.start(StartOrder(FIRST, POOL, STORE, SECRET))
    await sink.until_sign(FIRST, Sign.LISTENING)
    tunnel = runtime.engine.tunnel
    assert tunnel is not None
    assert tunnel.process is not None
    broken = tunnel.process
    broken.kill()
    await broken.wait()
    await until_report(lambda: _patiently(runtime, environment), quiet)
    assert tunnel.process is not broken
    assert sink.exits == []


async def _patiently(runtime, environment):
    while True:
        try:
            return await runtime.probe(FIRST, environment)
        except RetryLater:
            await asyncio.sleep(0.05)


async def test_a_server_that_is_not_known_is_not_talked_to(lab: Lab, ssh, tmp_path):
    port, client = ssh
    (tmp_path / "known").write_text("")
    runtime = lab.runtime(reach=replace(lab.reach, url=f"ssh://root@127.0.0.1:{port}", ssh=client))
    with pytest.raises(RetryLater, match="Host key verification failed"):
        await runtime.list(STORE)


# TLS


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """An authority, and a certificate for each side."""
    if reason := why_not(("openssl",)):
        pytest.skip(f"{reason} (make system installs it as root on Debian)")
    folder = tmp_path / "tls"
    folder.mkdir()
    new = (
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    )
    run(*new, "-subj", "/CN=test authority", "-keyout", folder / "ca-key.pem", "-out", folder / "ca.pem")
    for name in ("server", "client"):
        signed = (
            "-CA",
            folder / "ca.pem",
            "-CAkey",
            folder / "ca-key.pem",
            "-addext",
            "basicConstraints=CA:FALSE",
        )
        named = ("-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1")
        run(*new, *signed, *named, "-keyout", folder / f"{name}-key.pem", "-out", folder / f"{name}.pem")
    (folder / "client-key.pem").rename(folder / "key.pem")
    (folder / "client.pem").rename(folder / "cert.pem")
    return folder


@contextlib.asynccontextmanager
async def before(engine: TestEngine, certificates: Path) -> AsyncIterator[int]:
    """A door with TLS before an engine, which asks for a certificate; yield its port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates / "ca.pem"))
    context.load_cert_chain(certificates / "server.pem", certificates / "server-key.pem")
    context.verify_mode = ssl.CERT_REQUIRED

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while text := await reader.read(65536):
                writer.write(text)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(engine.url.removeprefix("unix://"))
        await asyncio.gather(pass_on(reader, back), pass_on(there, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_an_engine_by_tls(lab: Lab, certificates):
    async with before(lab.engine, certificates) as port:
        await whole_life(lab, replace(lab.reach, url=f"tcp://127.0.0.1:{port}", tls_dir=certificates))
        for runtime in lab.runtimes:
            await runtime.close()


async def test_without_certificates_that_can_be_used_nothing_is_sent(lab: Lab, certificates, tmp_path):
    async with before(lab.engine, certificates) as port:
        url = f"tcp://127.0.0.1:{port}"
        with pytest.raises(Broken, match=r"it needs ca\.pem"):
            await lab.runtime(reach=replace(lab.reach, url=url, tls_dir=tmp_path / "nowhere")).list(STORE)
        with pytest.raises(RetryLater):
            await lab.runtime(reach=replace(lab.reach, url=url)).list(STORE)
        for runtime in lab.runtimes:
            await runtime.close()
