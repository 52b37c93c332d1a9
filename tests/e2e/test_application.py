"""The daemon as a program whose runner application is downloaded: from nothing, renewed, refused, and served badly."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e import serving
from tests.e2e.serving import CONFIG, Site

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
DOWNLOADED = CONFIG.replace(
    'application = "{folder}/application"', 'application = "download"\ndownload = {{ every = "1s" }}'
)
WARM = DOWNLOADED.replace("max_concurrent = 4", "max_concurrent = 4\nmin_idle = 1")


def until(condition: Callable[[], Any]) -> Any:
    """Wait for a condition, also on a busy machine."""
    return serving.until(condition, 200.0)


class Downloading(Site):
    """A site whose forge may be told, before the daemon starts, how to serve its applications."""

    def __init__(self, folder: Path, config: str, **knobs: Any) -> None:
        self.knobs = knobs
        self.client = httpx2.Client(transport=httpx2.HTTPTransport(verify=False), timeout=30)
        super().__init__(folder, config)

    def start(self) -> Any:
        if self.knobs:
            self.offer(**self.knobs)
            self.knobs = {}
        daemon = self.run("serve", "--config", str(self.config), out="serve")
        until(lambda: daemon.poll() is not None or self.ready())
        assert daemon.poll() is None, self.log()
        return daemon

    def ready(self) -> bool:
        try:
            return self.client.get(f"http://127.0.0.1:{self.port}/readyz").status_code == 200
        except httpx2.TransportError:
            return False

    def offer(self, **knobs: Any) -> dict[str, Any]:
        answer = self.client.post(f"{self.forge}/_admin/applications", json=knobs)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def close(self) -> None:
        self.client.close()
        super().close()

    def application(self) -> dict[str, Any]:
        (found,) = self.api("api/v1/status")["applications"]
        assert isinstance(found, dict)
        return found

    def truth(self, kind: str) -> list[dict[str, Any]]:
        lines = self.client.get(f"{self.forge}/_admin/truth?kinds={kind}").text.splitlines()
        return [json.loads(line) for line in lines if line]

    def finished(self, count: int) -> None:
        """Wait until so many jobs are over; a spare may still listen."""
        until(lambda: self.outcomes()["completed"] >= count)
        assert self.outcomes()["lost"] == 0

    def reasons(self) -> str:
        return " ".join(self.api("api/v1/status")["health"]["reasons"])


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s")


@contextmanager
def site(folder: Path, config: str, **knobs: Any) -> Iterator[Downloading]:
    made = Downloading(folder, config, **knobs)
    try:
        yield made
    finally:
        made.close()


def test_jobs_run_on_an_application_that_nobody_unpacked(folder):
    with site(folder, DOWNLOADED) as running:
        running.queue(3)
        outcomes = running.completed(3, 200.0)
        assert (outcomes["wasted"], outcomes["killed"], outcomes["lost"]) == (0, 0, 0)
        found = running.application()
        assert (found["version"], found["verified"], found["pools"]) == ("2.336.0", True, ["linux"])
        (version,) = (
            path for path in (folder / "state/applications").iterdir() if not path.name.startswith(".")
        )
        assert found["folder"] == str(version)
        assert not (version / "bin/Runner.Listener").stat().st_mode & 0o222
        assert [host["applications"] for host in running.api("api/v1/hosts")["items"]] == [["2.336.0"]]
        assert running.offer()["served"] == 1
        assert running.api("api/v1/status")["health"]["status"] == "ok"


def test_a_start_is_not_held_up_and_pools_wait_with_a_reason_until_it_is_mended(folder):
    with site(folder, WARM, checksum="wrong") as running:
        assert running.ready()
        running.queue(2)
        until(lambda: "and the forge states" in running.reasons())
        until(lambda: any("starts no runners" in job["why"] for job in running.api("api/v1/jobs")["items"]))
        assert running.truth("runner_registered") == []
        assert running.application()["version"] == ""
        running.offer(checksum="right")
        running.daemon.send_signal(signal.SIGHUP)
        running.finished(2)


def test_a_version_that_is_refused_is_replaced_by_the_next_one_without_a_loop(folder):
    with site(folder, WARM) as running:
        until(lambda: running.api("api/v1/status")["runners"]["listening"] == 1)
        running.offer(publish="2.337.0", refuse_below="2.337.0")
        until(lambda: running.application()["version"] == "2.337.0")
        running.queue(2)
        running.finished(2)
        assert len(running.truth("version_refused")) <= 2
        assert running.application()["versions"] == ["2.336.0", "2.337.0"]
        until(lambda: running.api("api/v1/status")["health"]["status"] == "ok")


def test_where_the_newest_version_is_refused_the_pool_rests_until_there_is_another(folder):
    with site(folder, DOWNLOADED) as running:
        running.offer(refuse_below="2.999.0")
        running.queue(4)
        until(lambda: "refuses the version of its runner application" in running.reasons())
        until(lambda: "the newest one that it lists" in running.reasons())
        until(lambda: running.api("api/v1/status")["slots_held"] == 0)
        registered = len(running.truth("runner_registered"))
        assert registered <= 4
        running.offer(publish="2.999.0")
        assert len(running.truth("runner_registered")) == registered
        running.daemon.send_signal(signal.SIGHUP)
        running.finished(4)
        until(lambda: running.api("api/v1/status")["health"]["status"] == "ok")
