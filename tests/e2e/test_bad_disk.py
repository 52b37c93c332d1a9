"""Bad days of the disk, with the daemon as a program: full, read-only, locked, damaged."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import serving
from tests.e2e.serving import Site
from tests.e2e.small_disk import delivery, fill, room, send, small_disk, stored

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
until = partial(serving.until, seconds=180.0)
BACKOFF = '\n[runner.claim_retry]\nbackoff = ["2s"]\n'


@contextmanager
def served(folder: Path):
    site = Site(folder)
    try:
        yield site
    finally:
        site.close()


def health(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = site.api("api/v1/status")["health"]
    return found


def says(site: Site, *words: str) -> bool:
    """Whether a reason of health holds all of these words."""
    return any(all(word in reason for word in words) for reason in health(site)["reasons"])


def ephemerd(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ephemerd", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def killed(site: Site) -> None:
    site.daemon.send_signal(signal.SIGKILL)
    site.daemon.wait(30)


@pytest.mark.account("root")
@pytest.mark.platform("linux")
def test_a_thousand_deliveries_while_the_disk_is_full(tmp_path_factory):
    """Each is refused with 503 or is there afterwards; when there is space again, work goes on by itself."""
    folder = tmp_path_factory.mktemp("d")
    with small_disk(folder / "state", "24m") as disk, served(folder) as site:
        until(lambda: site.api("api/v1/status")["reconciled"])
        filler = fill(disk, 192 * 1024)
        first = send(site, range(1000))
        assert set(first.values()) == {202, 503}
        accepted = {number for number, status in first.items() if status == 202}
        assert send(site, [2000])[2000] == 503
        assert health(site)["status"] == "stuck"
        assert says(site, "nothing can be stored", "disk")
        assert not site.ready()
        filler.unlink()
        until(site.ready)
        until(lambda: not says(site, "nothing can be stored"))
        again = send(site, sorted(set(first) - accepted))
        assert set(again.values()) == {202}
        assert set(send(site, sorted(accepted)[:20]).values()) == {202}, "known ones are taken, and not twice"
        killed(site)
        names, jobs = stored(disk / "state.db")
        assert {delivery(number)[0] for number in first} <= names
        assert jobs == 1000
        checked = ephemerd("store", "check", "--store", disk / "state.db")
        assert checked.returncode == 0, checked.stderr


@pytest.mark.account("root")
@pytest.mark.platform("linux")
def test_what_was_accepted_before_the_disk_was_full_survives_a_death_meanwhile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("d")
    with small_disk(folder / "state", "24m") as disk, served(folder) as site:
        until(lambda: site.api("api/v1/status")["reconciled"])
        filler = fill(disk, 192 * 1024)
        first = send(site, range(600))
        killed(site)
        filler.unlink()
        site.daemon = site.start()
        killed(site)
        names, _ = stored(disk / "state.db")
        lost = [
            number for number, status in first.items() if status == 202 and delivery(number)[0] not in names
        ]
        assert lost == []


@pytest.mark.account("root")
@pytest.mark.platform("linux")
def test_no_space_after_a_registration(tmp_path_factory):
    """The registration is taken back, its demand is kept, health says why; with space the job runs."""
    folder = tmp_path_factory.mktemp("d")
    with small_disk(folder / "state" / "runners", "8m") as disk, served(folder) as site:
        site.config.write_text(site.config.read_text() + BACKOFF)
        killed(site)
        site.daemon = site.start()
        filler = fill(disk)
        site.queue(2)
        until(lambda: says(site, "Pool linux could not make", "No space left"))
        until(lambda: site.api("api/v1/status")["health"]["status"] == "degraded")
        assert site.ready(), "the store has another disk"
        filler.unlink()
        outcomes = site.completed(2, 180)
        assert (outcomes["killed"], outcomes["lost"], outcomes["leaked"]) == (0, 0, 0)
        until(lambda: not says(site, "could not make"))
        # the registration goes with the job, what is left of the last runner's folder a moment later
        until(lambda: [path.name for path in disk.iterdir() if not path.name.startswith(".")] == [])
        assert room(disk) > 7 * 1024**2


@pytest.mark.account("root")
@pytest.mark.platform("linux")
def test_a_read_only_disk_is_refused_at_the_start(tmp_path_factory):
    folder = tmp_path_factory.mktemp("d")
    with served(folder) as site, small_disk(folder / "other", "4m") as disk:
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        refused = site.second(site.config.read_text().replace(f"{folder}/state/state.db", f"{disk}/state.db"))
        assert refused.returncode == 5
        assert f"{disk} is not writable" in refused.stderr
        assert "Traceback" not in refused.stderr


def test_another_program_that_locks_the_store_only_delays(tmp_path_factory):
    folder = tmp_path_factory.mktemp("d")
    with served(folder) as site:
        until(lambda: site.api("api/v1/status")["reconciled"])
        with closing(sqlite3.connect(folder / "state" / "state.db", isolation_level=None)) as other:
            until(lambda: _locks(other))
            flood = send(site, range(700), at_once=350)
            assert set(flood.values()) == {503}
            assert says(site, "nothing can be stored", "locked")
            other.execute("COMMIT")
        until(site.ready)
        assert set(send(site, range(700)).values()) == {202}
        killed(site)
        names, jobs = stored(folder / "state" / "state.db")
        assert ({delivery(number)[0] for number in range(700)} <= names, jobs) == (True, 700)


def _locks(connection: sqlite3.Connection) -> bool:
    with contextlib.suppress(sqlite3.OperationalError):
        connection.execute("BEGIN IMMEDIATE")
        return True
    return False


def test_a_damaged_store_is_refused_and_a_backup_takes_its_place(tmp_path_factory):
    """The way that the message names is walked to its end, while a job runs."""
    folder = tmp_path_factory.mktemp("d")
    store, copy = folder / "state" / "state.db", folder / "copy.db"
    with served(folder) as site:
        (job,) = site.queue(1, seconds=20)
        until(lambda: any(one["state"] == "running" for one in site.api("api/v1/runners")["items"]))
        assert ephemerd("store", "backup", copy, "--store", store).returncode == 0
        killed(site)
        with closing(sqlite3.connect(store)) as connection:  # what is in the log goes into the file
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        content = store.read_bytes()
        assert len(content) > 10 * 4096
        store.write_bytes(content[:4096] + bytes(range(256)) * 16 * (len(content) // 4096 - 1))
        refused = site.second(site.config.read_text())
        assert refused.returncode == 5
        assert "store backup" in refused.stderr
        checked = ephemerd("store", "check", "--store", store, "--json")
        assert checked.returncode == 5
        shutil.copyfile(copy, store)
        site.daemon = site.start()
        outcomes = site.completed(1, 180)
        assert (outcomes["killed"], outcomes["lost"], outcomes["leaked"]) == (0, 0, 0)
        assert any(str(job) in one["id"] for one in site.api("api/v1/jobs")["items"])


def test_an_export_holds_no_secret(tmp_path_factory):
    folder = tmp_path_factory.mktemp("d")
    with served(folder) as site:
        site.queue(2)
        site.completed(2, 180)
        exported = ephemerd("store", "export", "--config", site.config)
        assert exported.returncode == 0
        kinds = {json.loads(line)["kind"] for line in exported.stdout.splitlines()}
        assert {"store", "row", "delivery", "segment", "entry"} <= kinds
        for secret in ("token-for-tests", "hook-secret", "encoded_jit_config", "eyJ"):
            assert secret not in exported.stdout
