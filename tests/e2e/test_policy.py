"""Who may use the machines, from the real deliveries and answers of the look-alike to what `jobs` says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.serving import LABELS, Site, until

pytestmark = pytest.mark.e2e


@pytest.fixture
def site(tmp_path_factory):
    made = Site(tmp_path_factory.mktemp("s"))
    yield made
    made.close()


def queue(site: Site, **fields: Any) -> int:
    body = {"labels": LABELS, "duration_s": 0.2, **fields}
    answer = site.web.post(f"{site.forge}/_admin/jobs", json=body)
    number: int = answer.json()["jobs"][0]
    return number


def test_a_job_from_a_fork_is_refused_and_explained_and_others_run(site: Site):
    strange = queue(site, fork="mallory/app", branch="main", held=True)
    path = f"api/v1/jobs/github/acme/app/{strange}"
    until(lambda: "from a fork" in str(site.api(path)))
    assert site.api("api/v1/status")["slots_held"] == 0
    ours = queue(site)
    site.completed(1)
    until(lambda: site.api(f"api/v1/jobs/github/acme/app/{ours}")["conclusion"] == "success")
    refused = site.api(path)
    assert (refused["status"], refused["runner"]) == ("queued", None)
    assert "forge.github.forks" in refused["why"]
    story = str(site.api(f"{path}/story"))
    assert "its commit from a fork" in story
    assert 'ephemerd_jobs_refused_total{reason="fork"} 1.0' in site.api("metrics")
    # the policy is read again: what was refused is served
    text = site.config.read_text().replace("[forge.github]", '[forge.github]\nforks = ["acme/app"]', 1)
    site.config.write_text(text)
    site.web.post(f"{site.forge}/_admin/jobs/{strange}/unhold", json={}).raise_for_status()
    answer = site.own.post("http://ephemerd/api/v1/reload", json={"who": "ann"}, timeout=20)
    assert answer.json()["outcome"] == "applied", answer.text
    assert site.completed(2)["killed"] == 0
