"""Things that hang, end to end: the daemon as a program, real runners that misbehave, minutes scaled to seconds.

A ghost listener, and one that hangs after it acknowledged a job: each is dealt with
by itself or by a person, no job is lost by it, and the slot serves again.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ephemerd.testing.demo.settings import scaled_policy
from tests.e2e.process_runtime import running
from tests.e2e.serving import Site, until
from tests.e2e.test_field_problems import misbehaving, row

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
FACTOR = 40
GONE_KEPT = "3h"


class ScaledSite(Site):
    """Minutes are seconds and a half, for the forge as for the daemon."""

    def _start_forge(self) -> str:
        self.run(
            *("forge-sim", "--token-file", "token", "--webhook-secret-file", "hook"),
            *("--hook-url", self.hook, "--write-runner", "application", "--time-scale", str(FACTOR)),
            out="forge",
        )
        line = until(lambda: (self.folder / "forge.out").read_text().partition("\n")[0])
        url: str = json.loads(line)["url"]
        return url

    def start(self) -> subprocess.Popen[bytes]:
        text = self.config.read_text()
        if "[policy]" not in text:
            policy = {**scaled_policy(FACTOR), "gone_kept": GONE_KEPT}
            lines = [f'{name} = "{value}"' for name, value in policy.items()]
            grace = '\n[runner.orphan_sweep]\ngrace = "15s"\n'
            self.config.write_text("\n".join([text, "[policy]", *lines, grace]))
        return super().start()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = ScaledSite(Path(tmp_path_factory.mktemp("u")))
    yield made
    made.close()


def decided(site: Site, runner: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = site.api(f"api/v1/decisions?runner={runner}")["items"]
    return found


def settled(site: Site) -> None:
    """Nothing is lost, killed or left over, and every slot is free."""
    until(lambda: site.api("api/v1/status")["slots_held"] == 0, 60)
    outcomes = site.outcomes()
    assert (outcomes["killed"], outcomes["lost"]) == (0, 0), outcomes
    until(lambda: site.outcomes()["leaked"] == 0, 60)


def test_fp_22_a_ghost_listener_ends_as_spent_and_its_job_is_run_by_another(site: Site) -> None:
    """It lost its registration with the job that it was offered, and goes on trying."""
    job, runner = misbehaving(site, "ghost")
    until(lambda: site.api(f"api/v1/jobs/github/acme/app/{job}").get("conclusion") == "success", 90)
    until(lambda: row(site, runner["id"])["state"] == "gone", 90)
    ends = [one for one in decided(site, runner["id"]) if one["outcome"] != "vetoed"]
    assert [one["rule"] for one in ends] == ["spent"]
    settled(site)


def test_fp_16_a_listener_that_hangs_after_acknowledging_is_replaced_and_ended_by_way_of_the_forge(
    site: Site,
) -> None:
    _, runner = misbehaving(site, "hang_after_acknowledge")
    until(lambda: "acknowledged" in row(site, runner["id"])["stuck"], 60)
    (other,) = site.queue(1)
    until(lambda: site.api(f"api/v1/jobs/github/acme/app/{other}").get("conclusion") == "success", 90)
    until(lambda: row(site, runner["id"])["state"] == "gone", 90)
    ends = [one for one in decided(site, runner["id"]) if one["outcome"] != "vetoed"]
    assert len(ends) == 1
    assert ends[0]["outcome"] == "reaped"
    settled(site)


def test_daemons_that_a_job_left_behind_are_gone_before_the_slot_is_free(site: Site) -> None:
    job, runner = misbehaving(site, "leave_daemon")
    until(lambda: site.api(f"api/v1/jobs/github/acme/app/{job}").get("conclusion") == "success", 90)
    until(lambda: row(site, runner["id"])["state"] == "gone", 90)
    assert running(runner["id"]) == []
    settled(site)
