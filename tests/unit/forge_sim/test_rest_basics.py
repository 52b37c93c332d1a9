"""What every REST call meets: credentials, versions, limits, ETags, paging, both base paths, outages."""

from __future__ import annotations

import asyncio

import pytest

from ephemerd.testing.weather import Uniform
from tests.unit.forge_sim.conftest import REPO, admin, client, register


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Basic abc"}, 401),
        ({"User-Agent": ""}, 403),
        ({"X-GitHub-Api-Version": "2020-01-01"}, 410),
        ({"X-GitHub-Api-Version": "2026-03-10"}, 200),
    ],
)
async def test_who_may_ask(sim, headers, status):
    async with client(sim, **headers) as api:
        answer = await api.get(f"{REPO}/actions/runners")
    assert answer.status_code == status
    assert answer.headers["x-github-request-id"]
    if status != 200:
        assert answer.json()["message"]


async def test_the_same_under_the_path_of_an_enterprise_server(api):
    assert (await api.get(f"/api/v3{REPO}")).json()["full_name"] == "acme/app"
    assert (await api.get(REPO)).json()["private"] is True
    assert (await api.get("/meta")).status_code == 200
    assert (await api.get("/")).status_code == 200


@pytest.mark.parametrize(
    "path", ["/repos/acme/other", "/repos/acme/other/actions/runners", f"{REPO}/actions/jobs/1"]
)
async def test_what_is_not_there_is_404(api, path):
    assert (await api.get(path)).status_code == 404


async def test_etags_are_weak_differ_by_credential_and_spare_the_limit(sim, api):
    first = await api.get(f"{REPO}/actions/runners")
    etag = first.headers["etag"]
    assert etag.startswith('W/"')
    again = await api.get(f"{REPO}/actions/runners", headers={"If-None-Match": etag})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["x-ratelimit-used"] == first.headers["x-ratelimit-used"]
    async with client(sim, Authorization=f"token {sim.token}") as other:
        assert (await other.get(f"{REPO}/actions/runners")).headers["etag"] != etag
    await register(api, "r1")
    changed = await api.get(f"{REPO}/actions/runners", headers={"If-None-Match": etag})
    assert changed.status_code == 200


async def test_lists_are_paged_by_link_headers(api):
    for number in range(5):
        await register(api, f"r{number}")
    names, url = [], f"{REPO}/actions/runners?per_page=2"
    while url:
        answer = await api.get(url)
        assert answer.json()["total_count"] == 5
        names += [runner["name"] for runner in answer.json()["runners"]]
        url = answer.links.get("next", {}).get("url")
    assert names == [f"r{number}" for number in range(5)]
    last = await api.get(f"{REPO}/actions/runners?per_page=2&page=3")
    assert set(last.links) == {"prev", "first"}
    assert "link" not in (await api.get(f"{REPO}/actions/runners?per_page=1000&page=x")).headers


async def test_rate_limit_endpoint_is_free_and_loses_rate_in_the_newer_version(sim, api):
    await api.get(REPO)
    body = (await api.get("/rate_limit")).json()
    assert body["resources"]["core"]["used"] == 1
    assert body["rate"]["limit"] == 5000
    async with client(sim, **{"X-GitHub-Api-Version": "2026-03-10"}) as newer:
        assert "rate" not in (await newer.get("/rate_limit")).json()


async def test_the_primary_limit_answers_403_with_its_reset(start):
    sim = await start(options={"rate_limit": 2})
    async with client(sim) as api:
        for _ in range(2):
            assert (await api.get(REPO)).status_code == 200
        answer = await api.get(REPO)
    assert answer.status_code == 403
    assert answer.headers["x-ratelimit-remaining"] == "0"
    assert int(answer.headers["x-ratelimit-reset"]) > 0


async def test_the_secondary_limit_answers_403_with_retry_after(sim, api):
    sim.world.time_scale = 1.0  # the minute of the limit lasts a minute
    for _ in range(900):
        sim.site.limits.spend("GET", "GET /repos/{owner}/{repo}")
    answer = await api.get(REPO)
    assert answer.status_code == 403
    assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("kind", "status", "header"),
    [("503", 503, None), ("403-rate-limit", 403, "x-ratelimit-reset"), ("429", 429, "retry-after")],
)
async def test_outages_answer_as_the_weather_says(api, kind, status, header):
    await admin(api, "/outage", kind=kind, seconds=60)
    answer = await api.get(REPO)
    assert answer.status_code == status
    assert header is None or header in answer.headers
    await admin(api, "/outage", kind=None)
    assert (await api.get(REPO)).status_code == 200


async def test_an_outage_ends_by_itself(api):
    await admin(api, "/outage", kind="timeout", seconds=0.2)
    assert (await api.get(REPO)).status_code == 504
    assert (await api.get(REPO)).status_code == 200


async def test_the_weather_plans_outages(start):
    sim = await start(
        outage_every=Uniform(0.01, 0.02), outage_lasts=Uniform(0.01, 0.02), outage_kind={"503": 1.0}
    )

    def ended() -> bool:
        return any(r["kind"] == "outage" and r["state"] == "ends" for r in sim.truth.records)

    assert await sim.truth.wait_until(ended, 20)


async def test_every_call_is_in_the_truth_log_by_its_template(sim, api):
    await asyncio.gather(api.get(REPO), api.get(f"{REPO}/actions/jobs/77"))
    calls = {(r["method"], r["path"], r["status"]) for r in sim.truth.records if r["kind"] == "api_call"}
    assert calls == {
        ("GET", "/repos/{owner}/{repo}", 200),
        ("GET", "/repos/{owner}/{repo}/actions/jobs/{job_id:int}", 404),
    }
