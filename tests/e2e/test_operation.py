"""Operating the daemon as a program: reload, logs, drain, the service manager's words, an upgrade in place."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import ephemerd
from tests.e2e.serving import Site, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


@pytest.fixture
def site(tmp_path_factory):
    made = Site(tmp_path_factory.mktemp("o"))
    yield made
    made.close()


def command(
    site: Site, *arguments: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ephemerd", *arguments, "--socket", str(site.folder / "api.sock")],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, **(env or {})},
    )


def change(site: Site, *changes: tuple[str, str]) -> None:
    text = site.config.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    site.config.write_text(text)


def pools(site: Site) -> dict[str, int]:
    return {pool["name"]: pool["max_concurrent"] for pool in site.api("api/v1/pools")["items"]}


def nothing_lost(outcomes: dict[str, object]) -> None:
    for name in ("killed", "disturbed", "lost", "leaked", "fence_breaches"):
        assert outcomes[name] == 0, (name, outcomes)


GPU = '\n[pools.gpu]\nlabels = ["self-hosted", "gpu"]\nruntime = "process"\nmax_concurrent = 2\n'


def test_the_configuration_changes_while_jobs_run_and_none_is_harmed(site):
    site.queue(6, seconds=3.0)
    until(lambda: site.api("api/v1/status")["runners"]["running"] >= 2)
    change(site, ("max_concurrent = 4", "max_concurrent = 1"), ("\n[runner]", f"{GPU}\n[runner]"))
    done = command(site, "reload", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["outcome"] == "applied"
    assert {"pools.linux.max_concurrent", "pools.gpu.labels"} <= {one["key"] for one in answer["changes"]}
    assert pools(site) == {"linux": 1, "gpu": 2}
    change(site, ("max_concurrent = 1", "max_concurrent = 3"), (GPU, ""))
    site.daemon.send_signal(signal.SIGHUP)
    until(lambda: pools(site) == {"linux": 3})
    nothing_lost(site.completed(6))
    assert site.api("api/v1/status")["slot_accounting_difference"] == 0


def test_a_bad_file_is_refused_and_said_and_the_old_one_serves_on(site):
    good = site.config.read_text()
    change(site, ("max_concurrent = 4", "max_concurent = 9"))
    done = command(site, "reload")
    assert done.returncode == 3
    assert "max_concurrent" in done.stderr
    assert "ephemerd.toml" in done.stderr
    health = site.api("healthz")
    assert health["status"] == "degraded"
    assert "reload was refused" in health["reasons"][0]
    site.queue(1)
    nothing_lost(site.completed(1))
    site.config.write_text(good.replace('metrics_listen = "none"', 'metrics_listen = "127.0.0.1:1"'))
    done = command(site, "reload")
    assert done.returncode == 0
    assert "server.metrics_listen" in done.stdout
    assert "needs a restart" in done.stdout
    assert site.api("api/v1/status")["needs_restart"] == ["server.metrics_listen"]
    assert site.api("healthz")["status"] == "ok"


def test_logs_of_a_living_runner_and_of_one_that_is_gone(site):
    site.queue(1, seconds=3.0)
    runner = until(
        lambda: next(
            (one["id"] for one in site.api("api/v1/runners")["items"] if one["state"] == "running"), None
        )
    )
    following = subprocess.Popen(
        [sys.executable, "-m", "ephemerd", "logs", runner, "-f", "--socket", str(site.folder / "api.sock")],
        stdout=subprocess.PIPE,
        text=True,
    )
    nothing_lost(site.completed(1))
    followed, _ = following.communicate(timeout=100)
    assert following.returncode == 0
    assert "Listening for Jobs" in followed
    assert "completed with result" in followed
    until(lambda: not (site.folder / "state" / "runners" / runner).exists())
    gone = command(site, "logs", runner)
    assert gone.returncode == 0, gone.stderr
    assert gone.stdout == followed
    everything = command(site, "logs", runner, "--all").stdout
    assert "==> output <==" in everything
    assert "Worker_" in everything


def test_fp_60_a_drain_waits_for_the_job_and_no_longer(site):
    site.queue(1, seconds=20.0)
    until(lambda: site.api("api/v1/status")["runners"]["running"] == 1)
    early = command(site, "drain", "linux", "--wait", "--timeout", "0s", "--json")
    assert early.returncode == 7
    assert json.loads(early.stdout)["left"], "who is waited for"
    done = command(site, "drain", "linux", "--wait", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["left"] == []
    nothing_lost(site.completed(1))
    site.queue(1)
    assert command(site, "uncordon", "linux").returncode == 0
    nothing_lost(site.completed(2))


@pytest.fixture
def manager(tmp_path_factory) -> Iterator[tuple[str, list[str]]]:
    """A service manager's socket, and what was said on it."""
    address = str(tmp_path_factory.mktemp("n") / "notify")
    said: list[str] = []
    end = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    end.bind(address)

    def listen() -> None:
        while True:
            try:
                said.append(end.recv(4096).decode())
            except OSError:
                return
            if said[-1] == "END":
                return

    thread = threading.Thread(target=listen)
    thread.start()
    yield address, said
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.sendto(b"END", address)
    thread.join()
    end.close()


def test_the_service_manager_is_told(site, manager, monkeypatch):
    address, said = manager
    site.daemon.send_signal(signal.SIGTERM)
    assert site.daemon.wait(60) == 0
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "3000000")
    daemon = site.start()
    until(lambda: "READY=1" in said)
    until(lambda: said.count("WATCHDOG=1") >= 3)
    until(lambda: any(word.startswith("STATUS=ok: ") for word in said))
    first = said.index("READY=1")
    daemon.send_signal(signal.SIGHUP)
    until(lambda: any(word.startswith("RELOADING=1\nMONOTONIC_USEC=") for word in said))
    until(lambda: "READY=1" in said[first + 1 :])
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(60) == 0
    assert "STOPPING=1" in said


def newer_version(folder: Path) -> Path:
    """Return a folder with a copy of the program that calls itself newer and migrates the store."""
    package = folder / "newer" / "ephemerd"
    shutil.copytree(
        Path(ephemerd.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
    )
    init = package / "__init__.py"
    text = init.read_text()
    assert ephemerd.__version__ in text
    init.write_text(text.replace(ephemerd.__version__, "99.0.0"))
    migrations = package / "adapters" / "stores" / "sqlite" / "migrations"
    number = len(list(migrations.glob("*.sql"))) + 1
    (migrations / f"{number:04}_of_a_newer_version.sql").write_text("CREATE TABLE of_a_newer_version (n);\n")
    return package.parent


def test_fp_60_an_upgrade_in_place_while_jobs_run(site, monkeypatch):
    site.queue(3, seconds=20.0)
    until(lambda: site.api("api/v1/status")["runners"]["running"] == 3)
    before = {one["id"] for one in site.api("api/v1/runners")["items"] if one["state"] == "running"}
    site.daemon.send_signal(signal.SIGTERM)
    assert site.daemon.wait(60) == 0
    with monkeypatch.context() as newer:
        newer.setenv("PYTHONPATH", str(newer_version(site.folder)))
        daemon = site.start()
        status = site.api("api/v1/status")
        assert status["version"] == "99.0.0"
        adopted = {one["id"] for one in site.api("api/v1/runners")["items"] if one["adopted"]}
        assert adopted == before, "the runners of the older version are adopted"
        site.queue(2)
        outcomes = site.completed(5)
        nothing_lost(outcomes)
        assert outcomes["dispatches"] == 5
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(60) == 0
    (kept,) = (site.folder / "state").glob("state.db.v*.backup")
    older = site.second(site.config.read_text())
    assert older.returncode == 5
    assert "newer ephemerd" in older.stderr
    assert kept.name in older.stderr
    assert "Traceback" not in older.stderr
