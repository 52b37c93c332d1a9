"""A daemon's life as a process: its end on signals, what a hangup does, the exit code of a start that fails."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import signal
import socket
from pathlib import Path

import pytest
import structlog

from ephemerd import serving
from ephemerd.config.effective import Effective, Examined, examine
from ephemerd.core.machine import Core
from ephemerd.domain.pool import DAY
from ephemerd.serving import Wishes
from tests.unit.app.fakes import until
from tests.unit.configured import CONFIG, folder, load

__all__ = ["folder"]


def start(effective: Effective, **more: object) -> tuple[int, str]:
    """Run `serve` to its end and return its code and what it wrote."""
    stderr = io.StringIO()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.stderr", stderr)
        code = serving.serve(effective, Wishes(log_level="error", **more))  # type: ignore[arg-type]
    return code, stderr.getvalue()


@pytest.fixture
def restored():
    """Logging and signals as they were, after `serve` has run here."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    root.handlers[:] = before
    root.setLevel(level)
    structlog.reset_defaults()
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("restored")
def test_a_port_that_is_taken_is_code_5_with_two_lines(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, text = start(load(folder, ("127.0.0.1:0", f"127.0.0.1:{port}")))
    assert code == 5
    assert text.splitlines() == [
        f"error: cannot listen on 127.0.0.1:{port}: the address is in use",
        "  fix: free the port or choose another in [server]",
    ]
    assert not Path("api.sock").exists()


@pytest.mark.usefixtures("restored")
def test_a_store_that_cannot_be_opened_is_code_5(folder):
    (folder / "state.db").write_bytes(b"this is no database, and quite long enough to be looked at" * 99)
    code, text = start(load(folder))
    assert code == 5
    assert "state.db" in text
    assert "Traceback" not in text


@pytest.mark.usefixtures("restored")
def test_an_open_api_beyond_loopback_is_refused(folder):
    code, text = start(load(folder), open_api="0.0.0.0:0")
    assert code == 5
    assert "without a token" in text


@pytest.mark.usefixtures("restored")
def test_a_core_that_cannot_begin_is_told_in_two_lines(folder, monkeypatch):
    def raising(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Core, "handle", raising)
    code, text = start(load(folder))
    assert code == 1
    assert "error: the core cannot begin with this store: a bug" in text


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_peace(folder, number):
    effective = load(folder)
    run = serving._run

    async def run_and_end(daemon, *more):
        ending = asyncio.create_task(run(daemon, *more))
        await daemon.booted()
        os.kill(os.getpid(), number)
        await ending

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(serving, "_run", run_and_end)
        code, _ = start(effective)
    assert code == 0
    assert not Path("api.sock").exists()


@pytest.mark.usefixtures("restored")
def test_a_second_signal_does_not_wait(folder, monkeypatch):
    effective = load(folder)
    run = serving._run

    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    async def run_and_end(daemon, *more):
        ending = asyncio.create_task(run(daemon, *more))
        await daemon.booted()
        daemon.executor._running.add(stuck := asyncio.create_task(hang()))
        stuck.add_done_callback(daemon.executor._ended)
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: daemon.stopping)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(ending, 10)

    monkeypatch.setattr(serving, "_run", run_and_end)
    assert start(effective)[0] == 0


@pytest.mark.usefixtures("restored")
def test_a_hangup_reads_the_configuration_again_and_applies_it(folder, monkeypatch):
    effective = load(folder)
    run, seen = serving._run, []
    changes = (('labels = ["linux"]\n', 'labels = ["linux"]\nmax_concurrent = 9\n'),)
    more = '\n[retention]\nhistory = "3d"\n'

    def again() -> Examined:
        text = CONFIG.format(folder=folder).replace(*changes[0], 1) + more
        path = folder / "again.toml"
        path.write_text(text)
        return examine(path, {"HOME": str(folder)}, environment=False)

    async def run_and_end(daemon, *rest):
        ending = asyncio.create_task(run(daemon, *rest))
        await daemon.booted()
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: daemon.upkeep.keep.age == 3 * DAY, 60)
        seen.append((daemon.core.state.pool("linux").max_concurrent, logging.getLogger().level))
        os.kill(os.getpid(), signal.SIGTERM)
        await ending

    monkeypatch.setattr(serving, "_run", run_and_end)
    code, _ = start(effective, reread=again)
    assert code == 0
    assert seen == [(9, logging.ERROR)], "--log-level goes before the configuration"
