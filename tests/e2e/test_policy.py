"""Who may use the machines, from the real deliveries and answers of the look-alike to what `jobs` says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.serving import CONFIG, LABELS, Site, until

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


# Of an organization with several repositories, each with a hook of its own and the right secret.
BY_ORGANIZATION = CONFIG.replace('"repo:acme/app"', '"org:acme"').replace(
    "[pools.linux]",
    'repositories = ["acme/*"]\nrepositories_denied = ["acme/denied"]\nbranches = ["main"]\n\n[pools.linux]',
)


@pytest.fixture
def company(tmp_path_factory):
    made = Site(tmp_path_factory.mktemp("s"), BY_ORGANIZATION)
    for name, private in (("acme/denied", True), ("acme/open", False)):
        for path, body in (
            ("repositories", {"name": name, "private": private}),
            ("hooks", {"url": made.hook, "repository": name}),
        ):
            made.web.post(f"{made.forge}/_admin/{path}", json=body).raise_for_status()
    yield made
    made.close()


def reload(site: Site, old: str, new: str) -> None:
    text = site.config.read_text()
    assert old in text
    site.config.write_text(text.replace(old, new, 1))
    answer = site.own.post("http://ephemerd/api/v1/reload", json={"who": "ann"}, timeout=20)
    assert answer.json()["outcome"] == "applied", answer.text


def why(site: Site, repository: str, job: int) -> str:
    answer = site.own.get(f"http://ephemerd/api/v1/jobs/github/{repository}/{job}")
    return str(answer.json().get("why", ""))


def says(site: Site, repository: str, job: int, words: str) -> None:
    """Wait until that is said of why a job waits."""
    until(lambda: words in why(site, repository, job))


def test_each_refusal_is_stored_explained_and_counted_and_nothing_runs_for_it(company: Site):
    strange = {
        ("acme/denied", "repository", "repositories_denied"): queue(company, repository="acme/denied"),
        ("acme/open", "public", "is public"): queue(company, repository="acme/open"),
        ("acme/app", "branch", "branches does not allow the branch 'wild'"): queue(company, branch="wild"),
    }
    for (repository, _, words), job in strange.items():
        says(company, repository, job, words)
    queue(company)
    assert company.completed(1)["dispatches"] == 1
    reload(company, 'branches = ["main"]', 'workflows = ["nightly*"]')
    late = queue(company)
    says(company, "acme/app", late, "workflows does not allow the workflow 'CI")
    metrics = company.api("metrics")
    for reason in ("repository", "public", "branch", "workflow"):
        assert f'ephemerd_jobs_refused_total{{reason="{reason}"}}' in metrics
        assert f'ephemerd_jobs_refused_total{{reason="{reason}"}} 0.0' not in metrics
    assert company.outcomes()["dispatches"] == 1
    assert company.api("api/v1/status")["slots_held"] == 0


def test_a_repository_has_no_more_runners_at_a_time_than_it_may(company: Site):
    reload(company, 'branches = ["main"]', "repository_runners = 1")
    jobs = [queue(company, duration_s=5.0) for _ in range(2)]
    until(lambda: any("repository_runners" in why(company, "acme/app", job) for job in jobs))
    alive = [one for one in company.api("api/v1/runners")["items"] if one["state"] != "gone"]
    assert len(alive) == 1
    outcomes = company.completed(2)
    assert (outcomes["dispatches"], outcomes["wasted"], outcomes["killed"]) == (2, 0, 0), (
        "one after the other"
    )
