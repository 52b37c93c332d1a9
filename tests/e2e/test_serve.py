"""The daemon as a program: jobs run, it stops and dies without harm, and what it refuses."""

from __future__ import annotations

import hashlib
import hmac
import re
import signal
import time
from pathlib import Path

import httpx2
import pytest

from tests.e2e.serving import SECRET, Site, until

pytestmark = pytest.mark.e2e


@pytest.fixture
def site(tmp_path_factory):
    made = Site(tmp_path_factory.mktemp("s"))
    yield made
    made.close()


def nothing_lost(outcomes: dict[str, object]) -> None:
    for name in ("killed", "disturbed", "lost", "leaked", "wasted", "fence_breaches"):
        assert outcomes[name] == 0, (name, outcomes)


def test_jobs_are_run_each_by_a_fresh_runner(site):
    site.queue(6)
    outcomes = site.completed(6)
    nothing_lost(outcomes)
    assert outcomes["dispatches"] == 6
    until(lambda: site.api("api/v1/status")["slots_held"] == 0)
    status = site.api("api/v1/status")
    assert status["health"]["status"] == "ok"
    assert status["slot_accounting_difference"] == 0
    jobs = site.api("api/v1/jobs")["items"]
    assert {job["conclusion"] for job in jobs} == {"success"}
    story = site.api(f"api/v1/jobs/{jobs[0]['id']}/story")
    assert story["lines"]
    metrics = site.api("metrics")
    assert 'ephemerd_dispatches_total{pool="linux"} 6.0' in metrics
    assert 'ephemerd_jobs_finished_total{conclusion="success",pool="linux"} 6.0' in metrics
    assert re.search(r"ephemerd_runner_startup_seconds_count\{.*\} 6.0", metrics)
    everything = site.log() + "".join(str(site.api(f"api/v1/{path}")) for path in ("journal", "runners"))
    assert "token-for-tests" not in everything
    assert SECRET not in everything


def test_a_stop_leaves_runners_running_and_the_next_life_adopts_them(site):
    site.queue(3, seconds=6.0)
    until(lambda: site.api("api/v1/status")["runners"]["running"] >= 1)
    site.daemon.send_signal(signal.SIGTERM)
    assert site.daemon.wait(40) == 0
    assert not (site.folder / "api.sock").exists()
    site.start()
    outcomes = site.completed(3)
    nothing_lost(outcomes)
    assert outcomes["dispatches"] == 3


def test_a_sudden_death_loses_nothing(site):
    site.queue(5, seconds=2.0)
    until(lambda: site.api("api/v1/status")["slots_held"] >= 1)
    site.daemon.kill()
    site.daemon.wait(10)
    site.start()
    outcomes = site.completed(5)
    for name in ("killed", "lost", "leaked", "fence_breaches"):
        assert outcomes[name] == 0, (name, outcomes)


def test_another_daemon_is_refused_and_does_no_harm(site):
    config = site.config.read_text()
    same_store = site.second(config)
    assert same_store.returncode == 5
    assert f"pid {site.daemon.pid}" in same_store.stderr
    same_port = site.second(config.replace("state.db", "other.db"))
    assert same_port.returncode == 5
    assert f"127.0.0.1:{site.port}" in same_port.stderr
    same_socket = site.second(config.replace("state.db", "other.db").replace(f":{site.port}", ":0"))
    assert same_socket.returncode == 5
    assert "another daemon answers" in same_socket.stderr
    for refused in (same_store, same_port, same_socket):
        assert "Traceback" not in refused.stderr
        assert "fix:" in refused.stderr
    assert site.ready()
    site.queue(1)
    nothing_lost(site.completed(1))


def signed(body: bytes, event: str = "workflow_job") -> dict[str, str]:
    right = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    return {
        "content-type": "application/json",
        "x-github-event": event,
        "x-github-delivery": hashlib.sha256(body).hexdigest(),
        "x-hub-signature-256": f"sha256={right}",
    }


def test_bad_input_is_refused_and_nothing_is_lost_by_it(site):
    def post(body: bytes, headers: dict[str, str], path: str = site.hook) -> int:
        return httpx2.post(path, content=body, headers=headers, timeout=30).status_code

    assert post(b"{}", {}) == 401
    assert post(b"{}", {**signed(b"{}"), "x-hub-signature-256": "sha256=" + "0" * 64}) == 401
    assert post(b"{nonsense", signed(b"{nonsense")) == 400
    assert post(b"{}", {**signed(b"{}"), "content-type": "text/plain"}) == 415
    assert post(b"{}", signed(b"{}", "ping")) == 200
    assert post(b"{}", signed(b"{}"), site.hook + "x") == 404
    large = b" " * (25 * 1024 * 1024 + 1)
    assert post(large, signed(large)) == 413
    assert httpx2.get(site.hook, timeout=10).status_code == 405
    site.queue(1)
    nothing_lost(site.completed(1))
    assert site.api("api/v1/status")["quarantined"] == 0


def switches(pid: int) -> int:
    """How often the process gave the processor up by itself, over all its threads."""
    total = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        total += int(re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", status.read_text(), re.MULTILINE)[0])
    return total


@pytest.mark.platform("linux")
def test_an_idle_daemon_is_small_and_sleeps(site):
    until(lambda: site.api("api/v1/status")["reconciled"])
    until(lambda: site.api("api/v1/status")["commands_running"] == 0)
    time.sleep(1.0)  # what is measured is the time itself
    before = switches(site.daemon.pid)
    time.sleep(5.0)
    assert switches(site.daemon.pid) - before <= 10
    (kib,) = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{site.daemon.pid}/status").read_text())
    assert int(kib) < 90_000
