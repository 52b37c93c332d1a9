"""Runners with exactly the labels of their jobs, at the look-alike: no job is given to a runner that has too few."""

from __future__ import annotations

import json

import httpx2
import pytest

from tests.e2e.serving import CONFIG, LABELS, Site, until

pytestmark = pytest.mark.e2e


@pytest.fixture
def site(tmp_path_factory):
    text = CONFIG.replace("labels = {labels}", 'labels = {labels}\nregistered_labels = "job"', 1)
    assert text != CONFIG
    made = Site(tmp_path_factory.mktemp("s"), text)
    yield made
    made.close()


def queue(site: Site, *labels: str, seconds: float = 0.5) -> None:
    body = {"labels": labels, "duration_s": seconds}
    httpx2.post(f"{site.forge}/_admin/jobs", json=body, timeout=10).raise_for_status()


def busy(site: Site) -> int:
    return sum(bool(row["job"]) for row in site.api("api/v1/runners")["items"])


def test_each_runner_has_the_labels_of_its_job_and_a_reload_leaves_them(site: Site):
    few, all_ = LABELS[:1], LABELS
    queue(site, *few, seconds=10)
    until(lambda: busy(site) == 1)
    queue(site, *all_, seconds=6)
    until(lambda: busy(site) == 2)
    rows = site.api("api/v1/runners")["items"]
    assert sorted(row["labels"] for row in rows) == [[], sorted(few)], "all of them are the pool's own"
    told = httpx2.get(f"{site.forge}/_admin/state", timeout=10).json()["runners"]
    found = {row["name"]: sorted(row["labels"]) for row in told}
    assert {row["id"]: found[row["id"]] for row in rows} == {
        row["id"]: row["labels"] or sorted(all_) for row in rows
    }
    # the pool gets other labels: who works goes on, and keeps what it is registered with
    text = site.config.read_text().replace('registered_labels = "job"', 'registered_labels = "all"', 1)
    site.config.write_text(text.replace(f"labels = {json.dumps(all_)}", 'labels = ["elsewhere"]', 1))
    transport = httpx2.HTTPTransport(uds=str(site.folder / "api.sock"))
    with httpx2.Client(transport=transport, timeout=20) as client:
        answer = client.post("http://ephemerd/api/v1/reload", json={"who": "ann"})
    assert answer.json()["outcome"] == "applied", answer.text
    queue(site, "elsewhere", seconds=0.2)
    assert site.completed(3)["killed"] == 0
    kept = {row["id"]: row["labels"] for row in site.api("api/v1/runners")["items"]}
    for row in rows:
        assert kept[row["id"]] in ([], row["labels"] or sorted(all_)), (
            "nobody got labels that it is not registered with"
        )
