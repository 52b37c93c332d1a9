"""Field problems end to end: the daemon and real processes against the look-alike, whose runners misbehave.

Numbers are those of docs/FIELD-PROBLEMS.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.serving import Site, until

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(Path(tmp_path_factory.mktemp("f")))
    yield made
    made.close()


def order(site: Site, path: str, body: dict[str, Any]) -> httpx2.Response:
    return site.own.post(f"http://ephemerd/api/v1/{path}", json=body, timeout=30)


def misbehaving(site: Site, fault: str, seconds: float = 0.5) -> tuple[int, dict[str, Any]]:
    """Queue a job whose runner has a fault; return the job and the runner that was made for it."""
    before = {row["id"] for row in site.api("api/v1/runners")["items"]}
    site.web.post(f"{site.forge}/_admin/faults", json={"fault": fault}).raise_for_status()
    (job,) = site.queue(1, seconds)

    def fresh() -> Any:
        rows = site.api("api/v1/runners")["items"]
        return next((row for row in rows if row["id"] not in before), None)

    return job, until(fresh)


def row(site: Site, runner: str) -> dict[str, Any]:
    found: dict[str, Any] = site.api(f"api/v1/runners/{runner}")
    return found


def test_fp_04_completed_is_told_while_the_worker_still_runs(site: Site) -> None:
    """The forge calls the job over seconds before its worker leaves: nobody hurries it."""
    _, runner = misbehaving(site, "completed_while_worker_runs", 3.0)
    until(lambda: row(site, runner["id"])["state"] == "gone")
    outcomes = site.outcomes()
    assert (outcomes["killed"], outcomes["disturbed"], outcomes["lost"]) == (0, 0, 0)
    decisions = site.api(f"api/v1/decisions?runner={runner['id']}")["items"]
    assert [one for one in decisions if one["outcome"] != "vetoed"] == []


def test_fp_23_an_end_without_a_job_is_replaced_under_another_name(site: Site) -> None:
    """Exit code and all are recorded of the listener itself, and its configuration is used no second time."""
    job, runner = misbehaving(site, "exit_without_job")
    until(lambda: row(site, runner["id"])["state"] == "gone")
    assert row(site, runner["id"])["exit_code"] is not None
    until(lambda: site.api(f"api/v1/jobs/github/acme/app/{job}").get("conclusion") == "success")
    others = [one for one in site.api("api/v1/runners")["items"] if one["id"] != runner["id"]]
    assert others
    assert site.outcomes()["lost"] == 0


def test_fp_58_a_worker_that_hangs_is_kept_until_a_person_ends_it_by_name(site: Site) -> None:
    _, runner = misbehaving(site, "wedged_worker")
    name = runner["id"]
    until(lambda: row(site, name)["state"] == "finishing")
    refused = order(site, f"runners/{name}/kill", {"who": "ann", "reason": "hangs"})
    assert refused.status_code == 409
    assert row(site, name)["state"] == "finishing"
    forced = order(site, f"runners/{name}/kill", {"who": "ann", "reason": "hangs", "even_if_busy": True})
    assert forced.status_code == 200
    until(lambda: row(site, name)["state"] == "gone")
    last = [one for one in site.api(f"api/v1/decisions?runner={name}")["items"] if one["rule"] == "operator"]
    assert any("ann asked: hangs" in one["reason"] for one in last)
    until(lambda: site.api("api/v1/status")["slots_held"] == 0)
