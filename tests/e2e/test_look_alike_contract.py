"""The GitHub look-alike held against the facts about GitHub, section by section.

Every test is named after the section of the facts (`github.md`) that it checks: `test_3_1_…` is section 3.1. App
credentials (2), organizations and their groups (6) are in `test_look_alike_accounts.py`; labels, downloads and
old-style tokens (3.4) are not part of the look-alike.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx2
import pytest

from ephemerd.testing.forge_sim.main import ForgeSim, Options, running
from ephemerd.testing.forge_sim.model import Hook, JobStatus, Runner
from ephemerd.testing.forge_sim.rest_runners import MAX_REGISTRATIONS, MAX_RUNNERS
from ephemerd.testing.forge_sim.world import JobSpec
from tests.unit.forge_sim.conftest import LABELS, REPO, ScriptedRunner, admin, client, quick, register, seen
from tests.unit.forge_sim.test_deliveries import Receiver

pytestmark = pytest.mark.e2e

RUNNERS = f"{REPO}/actions/runners"
JIT = f"{RUNNERS}/generate-jitconfig"
RUNS = f"{REPO}/actions/runs"
FIXTURES = Path(__file__).parents[1] / "data" / "webhooks"
SECRET = "test-secret"

Api = httpx2.AsyncClient
Start = Callable[..., Awaitable[tuple[ForgeSim, Api]]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start a look-alike without delays and a client of it: `sim, api = await start(time_scale=1.0)`."""
    async with contextlib.AsyncExitStack() as stack:

        async def begin(weather: dict[str, Any] | None = None, **options: Any) -> tuple[ForgeSim, Api]:
            chosen = Options(
                **{"weather": quick(**(weather or {})), "time_scale": 100.0, "seed": 5, **options}
            )
            sim = await stack.enter_async_context(running(chosen))
            return sim, await stack.enter_async_context(client(sim))

        yield begin


@pytest.fixture
async def sim_api(start: Start) -> tuple[ForgeSim, Api]:
    return await start()


@pytest.fixture
def sim(sim_api: tuple[ForgeSim, Api]) -> ForgeSim:
    return sim_api[0]


@pytest.fixture
def api(sim_api: tuple[ForgeSim, Api]) -> Api:
    return sim_api[1]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A webhook endpoint that keeps what it gets."""
    made = Receiver()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/webhooks/github"
    yield made
    server.close()
    await server.wait_closed()


@pytest.fixture
async def runner_of() -> AsyncIterator[Callable[[ForgeSim, str], ScriptedRunner]]:
    """Runners that take one step at a time."""
    async with contextlib.AsyncExitStack() as stack:

        def make(sim: ForgeSim, name: str) -> ScriptedRunner:
            made = ScriptedRunner(sim, name)
            stack.push_async_callback(made.close)
            return made

        yield make


async def queue(api: Api, **body: Any) -> list[int]:
    return (await admin(api, "/jobs", **{"labels": LABELS, **body}))["jobs"]  # type: ignore[no-any-return]


async def get(api: Api, path: str, **headers: str) -> Any:
    answer = await api.get(path, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def described(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["message"]


# 1. Request basics


@pytest.mark.parametrize("prefix", ["", "/api/v3"])
@pytest.mark.parametrize(
    ("changed", "status", "words"),
    [
        ({"X-GitHub-Api-Version": "2022-11-28"}, 200, None),
        ({"X-GitHub-Api-Version": "2026-03-10"}, 200, None),
        ({"X-GitHub-Api-Version": "2019-01-01"}, 410, "2019-01-01"),
        ({"User-Agent": ""}, 403, "User-Agent"),
        ({"Authorization": ""}, 401, "Requires authentication"),
        ({"Authorization": "Bearer ghp_wrong"}, 401, "Bad credentials"),
    ],
)
async def test_1_headers_of_a_call(sim, prefix, changed, status, words):
    async with client(sim, **changed) as api:
        answer = await api.get(prefix + RUNNERS)
    assert answer.status_code == status
    assert re.fullmatch(r"[0-9A-F:]{8,}", answer.headers["x-github-request-id"])
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    if words is None:
        assert answer.headers["x-github-api-version-selected"] == changed["X-GitHub-Api-Version"]
    else:
        assert words in answer.json()["message"]


async def test_1_a_call_without_a_version_gets_a_default(sim, api):
    del api.headers["X-GitHub-Api-Version"]
    answer = await api.get(RUNNERS)
    assert answer.headers["x-github-api-version-selected"] in ("2022-11-28", "2026-03-10")


async def test_1_what_does_not_exist_is_404_in_json(api):
    for path in ("/nowhere", "/repos/acme/other", f"{RUNNERS}/1", f"{REPO}/hooks/1", f"{RUNS}/1"):
        assert described(await api.get(path)) == (404, "Not Found"), path
    assert described(await api.put(RUNNERS)) == (404, "Not Found")


async def test_1_paging_by_link_headers_with_30_a_page_and_100_at_most(sim, api):
    for number in range(101):
        sim.world.queue_run(sim.world.repositories["acme/app"], [JobSpec(labels=("x",), name=f"j{number}")])
    assert len((await get(api, RUNS))["workflow_runs"]) == 30
    assert len((await get(api, f"{RUNS}?per_page=1000"))["workflow_runs"]) == 100
    assert len((await get(api, f"{RUNS}?per_page=0"))["workflow_runs"]) >= 1
    first = await api.get(f"{RUNS}?per_page=40")
    assert set(first.links) == {"next", "last"}
    assert first.links["last"]["url"] == f"{sim.url}{RUNS}?per_page=40&page=3"
    second = await api.get(first.links["next"]["url"])
    assert set(second.links) == {"first", "prev", "next", "last"}
    third = await api.get(second.links["next"]["url"])
    assert set(third.links) == {"first", "prev"}
    pages = [answer.json() for answer in (first, second, third)]
    assert {page["total_count"] for page in pages} == {101}
    ids = [run["id"] for page in pages for run in page["workflow_runs"]]
    assert len(set(ids)) == 101
    assert ids == sorted(ids, reverse=True)
    assert (await get(api, f"{RUNS}?page=9"))["workflow_runs"] == []


# 2.3 Permissions


async def test_2_3_an_endpoint_names_the_permission_that_it_wants(api):
    answer = await api.post(JIT, json={"name": "r", "runner_group_id": 2, "labels": ["x"]})
    assert answer.status_code == 403
    assert answer.headers["x-accepted-github-permissions"] == "administration=write"
    assert (await api.get(RUNS)).headers["x-accepted-github-permissions"] == "actions=read"
    assert (await api.get(f"{REPO}/hooks")).headers[
        "x-accepted-github-permissions"
    ] == "repository_hooks=read"


# 3. Runner endpoints


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"runner_group_id": ...}, 422, "Invalid input: object is missing required key: runner_group_id"),
        ({"labels": ...}, 422, "Invalid input: object is missing required key: labels"),
        ({"name": ...}, 422, "Invalid input: object is missing required key: name"),
        ({"labels": []}, 422, "Invalid property /labels: 1 item required; only 0 were supplied"),
        ({"labels": ["x"] * 101}, 422, None),
        ({"runner_group_id": 2}, 403, None),
        ({"runner_group_id": 77}, 404, "Not Found"),
        ({"name": "taken"}, 409, "Already exists - A runner with the name taken already exists."),
        ({"name": "x" * 65}, 422, None),
        ({"name": "a/b"}, 422, None),
        ({"labels": ["x"] * 100, "name": "x" * 64}, 201, None),
        ({"work_folder": "_elsewhere"}, 201, None),
    ],
)
async def test_3_1_rules_of_the_jit_call(api, body, status, message):
    await register(api, "taken")
    whole = {"name": "r1", "runner_group_id": 1, "labels": LABELS, **body}
    answer = await api.post(JIT, json={key: value for key, value in whole.items() if value is not ...})
    assert answer.status_code == status
    assert answer.headers["x-ratelimit-resource"] == "core"
    if message is not None:
        assert answer.json()["message"] == message


async def test_3_1_a_full_group_is_422(sim, api):
    repository = sim.world.repositories["acme/app"]
    filler = [
        Runner(-n, f"full-{n}", ("x",), repository, 1, secret="", created_at=0.0) for n in range(MAX_RUNNERS)
    ]
    repository.runners.update({runner.id: runner for runner in filler})
    answer = await api.post(JIT, json={"name": "one-more", "runner_group_id": 1, "labels": ["x"]})
    assert described(answer) == (422, "Runner group 1 has reached max limit of 10000 runners")


async def test_3_1_too_many_registrations_at_once_are_429(start):
    sim, api = await start(time_scale=1.0)  # the five minutes of the limit last five minutes
    await register(api, "the-first")
    recent = sim.world.repositories["acme/app"].registrations
    recent.extend([recent[0]] * (MAX_REGISTRATIONS - 2))
    await register(api, "the-last")
    answer = await api.post(JIT, json={"name": "one-more", "runner_group_id": 1, "labels": ["x"]})
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) > 0
    recent.clear()
    await register(api, "one-more")


async def test_3_1_a_fresh_runner_as_it_is_shown(api):
    body = await register(api, "r1", ["Self-Hosted", "LINUX", "Gpu"])
    assert set(body) == {"runner", "encoded_jit_config"}
    runner = body["runner"]
    labels = runner.pop("labels")
    assert sorted(label["name"] for label in labels) == ["gpu", "linux", "self-hosted"]
    assert {label["type"] for label in labels} == {"read-only"}
    assert {name: runner[name] for name in ("name", "status", "busy", "version", "ephemeral")} == {
        "name": "r1",
        "status": "offline",
        "busy": False,
        "version": None,
        "ephemeral": True,
    }
    assert 3500 < len(body["encoded_jit_config"]) < 4700, "about 4,088 characters"


async def test_3_1_labels_are_exactly_what_was_sent(api):
    runner = (await register(api, "r1", ["only-this"]))["runner"]
    assert [label["name"] for label in runner["labels"]] == ["only-this"]


async def test_3_1_a_lost_answer_has_registered_the_runner(start):
    sim, api = await start({"jit_answer_lost": 1.0})
    asked = asyncio.create_task(
        api.post(JIT, json={"name": "lost", "runner_group_id": 1, "labels": ["x"]}, timeout=60)
    )
    await seen(sim, "runner_registered", runner="lost", answer_lost=True)
    listed = await get(api, f"{RUNNERS}?name=lost")
    assert [runner["status"] for runner in listed["runners"]] == ["offline"]
    again = await api.post(JIT, json={"name": "lost", "runner_group_id": 1, "labels": ["x"]})
    assert again.status_code == 409
    assert (await api.delete(f"{RUNNERS}/{listed['runners'][0]['id']}")).status_code == 204
    assert not asked.done()
    sim.world.closing.set()
    assert (await asked).status_code == 504


async def test_3_2_runners_are_listed_by_exact_name_and_got_until_gone(api):
    for name in ("r1", "r10"):
        await register(api, name)
    whole = await get(api, RUNNERS)
    assert set(whole) == {"total_count", "runners"}
    assert whole["total_count"] == 2
    assert [r["name"] for r in (await get(api, f"{RUNNERS}?name=r1"))["runners"]] == ["r1"]
    assert (await get(api, f"{RUNNERS}?name=r2"))["total_count"] == 0
    fields = {"id": int, "name": str, "os": str, "status": str, "busy": bool, "labels": list}
    fields |= {"runner_group_id": int, "ephemeral": bool, "version": type(None)}
    for runner in whole["runners"]:
        assert {key: type(value) for key, value in runner.items()} == fields
        assert await get(api, f"{RUNNERS}/{runner['id']}") == runner


async def test_3_2_status_busy_and_version_follow_the_connection(start, runner_of):
    sim, api = await start(time_scale=1.0)  # a runner reads online for a minute after its last poll
    number = (await register(api, "r1"))["runner"]["id"]
    await queue(api)
    runner = runner_of(sim, "r1")
    await runner.offered()
    shown = await get(api, f"{RUNNERS}/{number}")
    assert (shown["status"], shown["busy"], shown["version"]) == ("online", True, "2.336.0")


# 4. DELETE as a fence


async def test_4_an_idle_runner_goes_once(api):
    number = (await register(api, "r1"))["runner"]["id"]
    answer = await api.delete(f"{RUNNERS}/{number}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert described(await api.delete(f"{RUNNERS}/{number}")) == (404, "Not Found")
    assert described(await api.get(f"{RUNNERS}/{number}")) == (404, "Not Found")
    await register(api, "r1")  # the name is free again


@pytest.mark.parametrize(("refuses_from", "assigned"), [("assignment", 422), ("acquisition", 204)])
async def test_4_a_held_job_refuses_from_assignment_or_from_acquisition(
    start, runner_of, refuses_from, assigned
):
    sim, api = await start({"refuses_from": refuses_from})
    [job] = await queue(api)
    number = (await register(api, "r1"))["runner"]["id"]
    runner = runner_of(sim, "r1")
    await runner.offered()
    assert (await get(api, f"{REPO}/actions/jobs/{job}"))["status"] == "queued", "taken, and not shown"
    answer = await api.delete(f"{RUNNERS}/{number}")
    assert answer.status_code == assigned
    if assigned == 204:
        await seen(sim, "job_requeued", job=job, cause="deregistered")
        return
    assert "still running a job" in answer.json()["message"]
    assert await runner.step("/_broker/acknowledge") == 200
    assert await runner.step("/_run/acquirejob") == 200
    assert (await api.delete(f"{RUNNERS}/{number}")).status_code == 422


async def test_4_an_acquired_job_refuses_under_either_rule(start, runner_of):
    sim, api = await start({"refuses_from": "acquisition"})
    await queue(api)
    number = (await register(api, "r1"))["runner"]["id"]
    await runner_of(sim, "r1").acquire()
    assert (await api.delete(f"{RUNNERS}/{number}")).status_code == 422


async def test_4_a_registration_consumed_by_an_assignment_is_404(start, runner_of):
    sim, api = await start({"registration_404_on_assignment": 1.0})
    await queue(api)
    number = (await register(api, "r1"))["runner"]["id"]
    await runner_of(sim, "r1").offered()
    assert (await api.get(f"{RUNNERS}/{number}")).status_code == 404
    assert (await api.delete(f"{RUNNERS}/{number}")).status_code == 404


# 5. Jobs and runs

JOB_FIELDS = {
    *("id", "run_id", "run_url", "run_attempt", "node_id", "head_sha", "head_branch", "url", "html_url"),
    *("status", "conclusion", "created_at", "started_at", "completed_at", "name", "steps", "check_run_url"),
    *("labels", "runner_id", "runner_name", "runner_group_id", "runner_group_name", "workflow_name"),
}
STEP_FIELDS = {"name", "status", "conclusion", "number", "started_at", "completed_at"}


async def test_5_a_job_from_the_queue_to_its_end(sim, api, runner_of):
    [number] = await queue(api, name="build (arm64)")
    path = f"{REPO}/actions/jobs/{number}"
    job = await get(api, path)
    assert set(job) == JOB_FIELDS
    assert (job["status"], job["conclusion"], job["steps"], job["runner_id"]) == ("queued", None, [], None)
    assert job["started_at"] == job["created_at"]
    assert job["labels"] == LABELS, "in the case of the workflow file"
    assert number > 2**32
    runner_id = (await register(api, "r1"))["runner"]["id"]
    runner = runner_of(sim, "r1")
    await runner.acquire()
    assert await runner.step("/_run/started") == 200
    job = await get(api, path)
    assert set(job) == JOB_FIELDS
    assert (job["status"], job["runner_id"], job["runner_name"]) == ("in_progress", runner_id, "r1")
    assert (job["runner_group_id"], job["runner_group_name"]) == (1, "Default")
    assert job["steps"]
    assert all(set(step) == STEP_FIELDS for step in job["steps"])
    assert await runner.complete() == 200
    job = await get(api, path)
    assert (job["status"], job["conclusion"]) == ("completed", "success")
    assert job["completed_at"] >= job["started_at"]
    assert {step["status"] for step in job["steps"]} == {"completed"}


async def test_5_jobs_of_a_run_latest_all_and_by_attempt(sim, api):
    jobs = await queue(api, count=2)
    run = next(iter(sim.world.repositories["acme/app"].runs.values()))
    for job in jobs:
        await admin(api, f"/jobs/{job}/cancel")
    assert (await api.post(f"{RUNS}/{run.id}/rerun")).status_code == 201
    again = (await get(api, f"{RUNS}/{run.id}/jobs"))["jobs"]
    assert {job["run_attempt"] for job in again} == {2}
    assert not {job["id"] for job in again} & set(jobs), "new ids"
    assert (await get(api, f"{RUNS}/{run.id}/jobs?filter=all"))["total_count"] == 4
    assert (await get(api, f"{RUNS}/{run.id}/jobs?filter=latest"))["total_count"] == 2
    first = await get(api, f"{RUNS}/{run.id}/attempts/1/jobs")
    assert sorted(job["id"] for job in first["jobs"]) == sorted(jobs)
    assert (await api.get(f"{RUNS}/{run.id}/attempts/3/jobs")).status_code == 404
    assert (await get(api, f"{RUNS}/{run.id}"))["run_attempt"] == 2


async def test_5_a_matrix_takes_three_pages(sim, api):
    await queue(api, count=256)
    [run] = sim.world.repositories["acme/app"].runs.values()
    names: set[str] = set()
    url, pages = f"{RUNS}/{run.id}/jobs?per_page=100", 0
    while url:
        answer = await api.get(url)
        names |= {job["name"] for job in answer.json()["jobs"]}
        url, pages = answer.links.get("next", {}).get("url"), pages + 1
    assert (len(names), pages) == (256, 3)


async def test_5_a_run_with_one_running_job_is_in_progress(sim, api):
    running_job, *_ = await queue(api, count=3)
    await queue(api, waiting=True)
    await admin(api, f"/jobs/{running_job}/foreign", duration_s=60)
    await queue(api)
    counts = {
        status: (await get(api, f"{RUNS}?status={status}&exclude_pull_requests=true"))["total_count"]
        for status in ("queued", "in_progress", "waiting", "pending", "completed", "success")
    }
    assert counts == {"queued": 1, "in_progress": 1, "waiting": 1, "pending": 0, "completed": 0, "success": 0}


async def test_5_runs_are_filtered(sim, api):
    await queue(api, one_run=False, count=3)
    newest, *_ = (await get(api, RUNS))["workflow_runs"]
    day = datetime.now(UTC).strftime("%Y-%m-%d")

    async def count(query: str) -> int:
        return (await get(api, f"{RUNS}?{query}"))["total_count"]  # type: ignore[no-any-return]

    for name, value in (
        ("event", newest["event"]),
        ("branch", newest["head_branch"]),
        ("actor", newest["actor"]["login"]),
        ("head_sha", newest["head_sha"]),
    ):
        assert await count(f"{name}={value}") == 3, name
        assert await count(f"{name}=something-else") == 0, name
    assert await count(f"check_suite_id={newest['check_suite_id']}") == 1
    assert await count(f"created=>=2020-01-01&status=queued&event={newest['event']}") == 3
    for created, found in (
        (f"<={day}", True),
        (f">{day}", False),
        ("<2020-01-01", False),
        ("2020-01-01..2020-12-31", False),
        ("2020-01-01..*", True),
        (f"*..{day}T00:00:00Z", False),
        (newest["created_at"], True),
    ):
        answer = await api.get(RUNS, params={"created": created})
        assert bool(answer.json()["total_count"]) is found, created
    assert (await api.get(f"{RUNS}?created=soon")).status_code == 422


async def test_5_a_filtered_list_ends_after_a_thousand(sim, api):
    repository = sim.world.repositories["acme/app"]
    for number in range(1, 1101):
        sim.world.queue_run(repository, [JobSpec(labels=("x",), held=True, name=f"j{number}")])
    assert (await get(api, f"{RUNS}?per_page=1"))["total_count"] == 1100
    last = await api.get(f"{RUNS}?status=queued&per_page=100&page=10")
    assert len(last.json()["workflow_runs"]) == 100
    assert "next" not in last.links
    beyond = await get(api, f"{RUNS}?status=queued&per_page=100&page=11")
    assert beyond["workflow_runs"] == []


async def test_5_cancel_and_rerun_codes(sim, api, runner_of):
    [job] = await queue(api)
    [run] = sim.world.repositories["acme/app"].runs.values()
    assert (await api.post(f"{RUNS}/{run.id}/cancel")).status_code == 202
    assert (await get(api, f"{REPO}/actions/jobs/{job}"))["conclusion"] == "cancelled"
    assert (await api.post(f"{RUNS}/{run.id}/cancel")).status_code == 409
    assert (await api.post(f"{RUNS}/{run.id}/force-cancel")).status_code == 409
    assert (await api.post(f"{RUNS}/{run.id}/rerun-failed-jobs")).status_code == 201
    assert (await api.post(f"{RUNS}/{run.id}/force-cancel")).status_code == 202
    [second] = (await get(api, f"{RUNS}/{run.id}/jobs"))["jobs"]
    assert (await api.post(f"{REPO}/actions/jobs/{job}/rerun")).status_code == 403, "not of this attempt"
    assert (await api.post(f"{REPO}/actions/jobs/{second['id']}/rerun")).status_code == 201
    assert (await get(api, f"{RUNS}/{run.id}"))["run_attempt"] == 3
    for path in (f"{RUNS}/1/cancel", f"{RUNS}/1/rerun", f"{REPO}/actions/jobs/1/rerun"):
        assert (await api.post(path)).status_code == 404


# 7. Rate limits


async def test_7_1_rate_limit_is_free_and_names_both_resources(sim, api):
    await api.get(REPO)
    one, two = [await get(api, "/rate_limit") for _ in range(2)]
    assert one["resources"]["core"]["used"] == two["resources"]["core"]["used"] == 1
    assert one["resources"]["core"]["limit"] == 5000
    assert one["resources"]["actions_runner_registration"]["limit"] == 10_000
    assert one["rate"] == one["resources"]["core"]
    newer = await get(api, "/rate_limit", **{"X-GitHub-Api-Version": "2026-03-10"})
    assert set(newer) == {"resources"}


async def test_7_1_a_free_call_that_is_answered_304_gives_nothing_back(sim, api):
    await api.get(REPO)
    first = await api.get("/rate_limit")
    again = await api.get("/rate_limit", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304
    assert again.headers["x-ratelimit-used"] == "1"


async def test_7_2_every_answer_shows_the_limit(sim, api):
    answers = [await api.get(REPO), await api.get(f"{RUNS}/1"), await api.delete(f"{RUNNERS}/1")]
    for number, answer in enumerate(answers, start=1):
        shown = {
            key: answer.headers[f"x-ratelimit-{key}"] for key in ("limit", "remaining", "used", "resource")
        }
        assert shown == {
            "limit": "5000",
            "remaining": str(5000 - number),
            "used": str(number),
            "resource": "core",
        }
        assert int(answer.headers["x-ratelimit-reset"]) > 1_700_000_000


async def test_7_2_an_exhausted_limit_and_a_secondary_one(start):
    sim, api = await start(rate_limit=1, time_scale=1.0)
    await api.get(REPO)
    answer = await api.get(REPO)
    assert (answer.status_code, answer.headers["x-ratelimit-remaining"]) == (403, "0")
    assert "retry-after" not in answer.headers
    assert (await api.get("/rate_limit")).status_code == 200
    sim.site.limits.limit = 5000
    for _ in range(180):  # a write costs five points, and 900 a minute is all
        sim.site.limits.spend(
            "POST", f"POST {RUNNERS}/generate-jitconfig".replace("acme/app", "{owner}/{repo}")
        )
    answer = await api.post(JIT, json={"name": "r1", "runner_group_id": 1, "labels": ["x"]})
    assert answer.status_code == 403
    assert int(answer.headers["retry-after"]) > 0
    assert (await api.get(RUNNERS)).status_code == 200, "the points of another endpoint"


# 8. ETags


@pytest.mark.parametrize("path", [RUNNERS, f"{RUNS}?status=queued", REPO, f"{REPO}/hooks"])
async def test_8_weak_etags_and_304_without_charge(sim, api, path):
    first = await api.get(path)
    etag = first.headers["etag"]
    assert re.fullmatch(r'W/"[0-9a-f]{16,}"', etag)
    assert first.headers["cache-control"] == "private, max-age=60"
    for offered in (etag, etag.removeprefix("W/"), f'"other", {etag}'):
        again = await api.get(path, headers={"If-None-Match": offered})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == etag
        assert again.headers["x-ratelimit-used"] == first.headers["x-ratelimit-used"]
    assert (await api.get(path, headers={"If-None-Match": 'W/"other"'})).status_code == 200


async def test_8_the_etag_depends_on_the_credential_and_on_what_is_shown(sim, api):
    etag = (await api.get(RUNNERS)).headers["etag"]
    async with client(sim, Authorization=f"token {sim.token}") as other:
        assert (await other.get(RUNNERS, headers={"If-None-Match": etag})).status_code == 200
    await register(api, "r1")
    assert (await api.get(RUNNERS, headers={"If-None-Match": etag})).status_code == 200


# 9. Webhooks


async def create_hook(api: Api, url: str, events: list[str] | None = None, **config: Any) -> httpx2.Response:
    body = {
        "name": "web",
        "active": True,
        "events": events or ["workflow_job"],
        "config": {"url": url, **config},
    }
    return await api.post(f"{REPO}/hooks", json=body)


async def json_hook(api: Api, receiver: Receiver) -> str:
    answer = await create_hook(api, receiver.url, content_type="json", secret=SECRET, insecure_ssl="0")
    assert answer.status_code == 201, answer.text
    return f"{REPO}/hooks/{answer.json()['id']}"


async def test_9_1_hooks_are_created_listed_pinged_and_deleted(sim, api, receiver):
    path = await json_hook(api, receiver)
    shown = await get(api, path)
    assert (shown["name"], shown["active"], shown["events"]) == ("web", True, ["workflow_job"])
    assert shown["config"] == {
        "url": receiver.url,
        "content_type": "json",
        "secret": "********",
        "insecure_ssl": "0",
    }
    assert [hook["id"] for hook in await get(api, f"{REPO}/hooks")] == [shown["id"]]
    await seen(sim, "delivery_sent", event="ping", status=202)
    assert (await api.post(f"{path}/pings")).status_code == 204
    await seen(sim, "delivery_sent", 2, event="ping", status=202)
    assert (await api.delete(path)).status_code == 204
    assert (await api.get(path)).status_code == 404


async def test_9_1_bad_hooks_are_422_and_the_default_is_a_form(sim, api, receiver):
    for config in ({}, {"url": "ftp://example.org/"}):
        assert (await api.post(f"{REPO}/hooks", json={"config": config})).status_code == 422
    made = await create_hook(api, receiver.url)
    assert made.json()["config"]["content_type"] == "form"
    await seen(sim, "delivery_sent", event="ping")
    headers, body = receiver.got[0]
    assert headers["content-type"] == "application/x-www-form-urlencoded"
    assert json.loads(parse_qs(body.decode())["payload"][0])["zen"]
    assert not [name for name in headers if name.startswith("x-hub-signature")], "no secret, no signature"


async def test_9_1_twenty_hooks_an_event(sim, api, receiver):
    repository = sim.world.repositories["acme/app"]
    for number in range(20):
        hook = Hook(
            number, f"{receiver.url}/{number}", "", "json", ("workflow_job",), active=False, created_at=0
        )
        repository.hooks[number] = hook
    assert (await create_hook(api, receiver.url)).status_code == 422
    assert (await create_hook(api, receiver.url, ["push", "workflow_job"])).status_code == 422
    assert (await create_hook(api, receiver.url, ["push"])).status_code == 201


async def test_9_2_headers_and_signatures_of_a_delivery(sim, api, receiver):
    path = await json_hook(api, receiver)
    await queue(api)
    await receiver.until(1)
    headers, body = receiver.got[-1]
    modelled = json.loads((FIXTURES / "headers.json").read_text())["deliveries"]["workflow_job.queued.json"]
    assert {name.lower() for name in modelled} <= set(headers)
    key = SECRET.encode()
    assert headers["x-hub-signature-256"] == "sha256=" + hmac.new(key, body, hashlib.sha256).hexdigest()
    assert headers["x-hub-signature"] == "sha1=" + hmac.new(key, body, hashlib.sha1).hexdigest()
    assert headers["x-github-event"] == "workflow_job"
    assert uuid.UUID(headers["x-github-delivery"]).version == 1
    assert headers["x-github-hook-id"] == path.rpartition("/")[2]
    assert headers["x-github-hook-installation-target-type"] == "repository"
    assert headers["x-github-hook-installation-target-id"] == str(sim.world.repositories["acme/app"].id)
    assert headers["user-agent"].startswith("GitHub-Hookshot/")
    assert headers["content-type"] == "application/json"


# 10. The workflow_job event


def shape(value: Any) -> Any:
    """Keys and types all the way down; a list is as its first item."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return type(value).__name__


def without_optional(shaped: dict[str, Any]) -> dict[str, Any]:
    """What differs by kind of hook (App) or is optional everywhere, taken out."""
    return {key: value for key, value in shaped.items() if key not in ("installation", "deployment")}


@pytest.mark.parametrize(
    "name",
    [
        "queued",
        "waiting",
        "in_progress",
        "completed",
        "completed.cancelled-while-queued",
        "completed.skipped",
    ],
)
async def test_10_2_a_delivery_has_the_keys_and_types_of_its_fixture(sim, api, receiver, runner_of, name):
    await json_hook(api, receiver)
    [number] = await queue(api, waiting=name == "waiting", held=name.startswith("completed."))
    job = sim.world.jobs[number]
    if name in ("in_progress", "completed"):
        await register(api, "r1")
        runner = runner_of(sim, "r1")
        await runner.acquire()
        await runner.step("/_run/started")
        if name == "completed":
            await runner.complete()
    elif name == "completed.cancelled-while-queued":
        await admin(api, f"/jobs/{number}/cancel")
    elif name == "completed.skipped":
        sim.world.finish(job, "skipped", "skipped")
    action = name.partition(".")[0]
    await seen(sim, "delivery_sent", action=action, job=number)
    body = next(
        parsed
        for headers, raw in receiver.got
        if headers["x-github-event"] == "workflow_job" and (parsed := json.loads(raw))["action"] == action
    )
    fixture = json.loads((FIXTURES / f"workflow_job.{name}.json").read_text())
    assert without_optional(shape(body)) == without_optional(shape(fixture))
    for key in ("status", "conclusion"):
        assert body["workflow_job"][key] == fixture["workflow_job"][key]
    if name.startswith("completed."):
        for key in ("runner_id", "runner_name", "runner_group_id", "runner_group_name", "steps"):
            assert body["workflow_job"][key] == fixture["workflow_job"][key]
    assert await get(api, f"{REPO}/actions/jobs/{number}") == body["workflow_job"]


async def test_10_3_a_job_cancelled_in_the_queue_sends_no_in_progress(sim, api, receiver):
    await json_hook(api, receiver)
    [number] = await queue(api)
    await admin(api, f"/jobs/{number}/cancel")
    await receiver.until(2)
    assert sorted(receiver.jobs()) == [("completed", number), ("queued", number)]


async def test_10_3_a_rerun_tells_the_old_end_once_more(sim, api, receiver):
    await json_hook(api, receiver)
    [number] = await queue(api)
    await admin(api, f"/jobs/{number}/cancel")
    await receiver.until(2)
    [again] = (await admin(api, f"/jobs/{number}/rerun"))["jobs"]
    await receiver.until(4)
    assert sorted(receiver.jobs()[2:]) == [("completed", number), ("queued", again)]
    told = [headers["x-github-delivery"] for headers, _ in receiver.got]
    assert len(set(told)) == len(told), "an event of its own, not a redelivery"


# 11. Deliveries


ITEM_FIELDS = {
    *("id", "guid", "delivered_at", "redelivery", "duration", "status", "status_code", "event", "action"),
    *("installation_id", "repository_id", "throttled_at"),
}


async def test_11_deliveries_are_paged_by_cursor_and_chosen_by_status(sim, api, receiver):
    path = await json_hook(api, receiver)
    await seen(sim, "delivery_sent", event="ping", status=202)
    receiver.status = 500
    failed = await queue(api, count=3)
    await seen(sim, "delivery_sent", 3, event="workflow_job", status=500)
    items: list[dict[str, Any]] = []
    url = f"{path}/deliveries?per_page=3"
    while url:
        answer = await api.get(url)
        items += answer.json()
        url = answer.links.get("next", {}).get("url")
        assert url is None or "cursor=" in url
        assert not {"prev", "last", "first"} & set(answer.links)
    assert len({item["id"] for item in items}) == 4
    assert all(set(item) == ITEM_FIELDS for item in items)
    assert {item["status"] for item in items if item["status_code"] == 202} == {"OK"}
    bad = await get(api, f"{path}/deliveries?status=failure")
    assert [item["event"] for item in bad] == ["workflow_job"] * 3
    assert [item["event"] for item in await get(api, f"{path}/deliveries?status=success")] == ["ping"]
    assert (await api.get(f"{path}/deliveries?status=maybe")).status_code == 422
    whole = await get(api, f"{path}/deliveries/{bad[0]['id']}")
    assert ITEM_FIELDS | {"request", "response"} <= set(whole)
    assert set(whole["request"]) == set(whole["response"]) == {"headers", "payload"}
    assert whole["request"]["payload"]["workflow_job"]["id"] in failed
    assert whole["request"]["headers"]["X-GitHub-Delivery"] == whole["guid"]


async def test_11_a_redelivery_is_202_and_keeps_its_guid(sim, api, receiver):
    receiver.status = 503
    path = await json_hook(api, receiver)
    await seen(sim, "delivery_sent", event="ping", status=503)
    [ping] = await get(api, f"{path}/deliveries")
    receiver.status = 202
    assert (await api.post(f"{path}/deliveries/{ping['id']}/attempts")).status_code == 202
    await seen(sim, "delivery_sent", redelivery=True, status=202)
    again, first = await get(api, f"{path}/deliveries")
    assert (again["guid"], again["redelivery"], first["redelivery"]) == (first["guid"], True, False)
    assert again["id"] != first["id"]
    assert (await api.post(f"{path}/deliveries/1/attempts")).status_code == 404


async def test_11_what_never_arrived_is_listed_with_its_payload(sim, api):
    async with await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
    made = await create_hook(api, f"http://127.0.0.1:{port}/", content_type="json")
    path = f"{REPO}/hooks/{made.json()['id']}"
    [job] = await queue(api)
    await seen(sim, "delivery_sent", job=job, status=0)
    [item] = [d for d in await get(api, f"{path}/deliveries?status=failure") if d["event"] == "workflow_job"]
    assert item["status"] != "OK"
    whole = await get(api, f"{path}/deliveries/{item['id']}")
    assert whole["request"]["payload"]["workflow_job"]["id"] == job


# 12. The blob


async def test_12_three_files_whose_settings_are_strings(sim, api):
    body = await register(api, "r1")
    files = {
        name: json.loads(base64.b64decode(content))
        for name, content in json.loads(base64.b64decode(body["encoded_jit_config"])).items()
    }
    assert set(files) == {".runner", ".credentials", ".credentials_rsaparams"}
    settings = files[".runner"]
    wanted = {"AgentId", "AgentName", "PoolId", "PoolName", "Ephemeral", "ServerUrl", "ServerUrlV2"}
    assert wanted | {"GitHubUrl", "WorkFolder", "UseV2Flow"} <= set(settings)
    assert {type(value) for value in settings.values()} == {str}
    assert (settings["AgentId"], settings["Ephemeral"]) == (str(body["runner"]["id"]), "True")
    assert files[".credentials"]["scheme"] == "OAuth"


# 13. Assignment


@pytest.mark.parametrize(
    ("wanted", "offered", "matches"),
    [
        (["linux"], ["LINUX", "gpu"], True),
        (["Linux", "GPU"], ["linux", "gpu", "more"], True),
        (["linux", "gpu"], ["linux"], False),
        ([], ["linux"], False),
    ],
)
async def test_13_every_label_of_the_job_has_to_be_on_the_runner(start, runner_of, wanted, offered, matches):
    sim, api = await start()
    [job] = await queue(api, labels=wanted)
    await register(api, "r1", offered)
    runner = runner_of(sim, "r1")
    await runner.connect()
    poll = asyncio.create_task(runner.poll())
    await seen(sim, "runner_online", runner="r1")
    if matches:
        await seen(sim, "job_assigned", job=job, runner="r1")
        assert (await poll).status_code == 200
        return
    [other] = await queue(api, labels=offered)
    await seen(sim, "job_assigned", job=other, runner="r1")
    assert sim.world.jobs[job].status is JobStatus.QUEUED
    assert (await poll).status_code == 200


# The path of an enterprise server


async def test_the_same_below_api_v3_and_every_address_leads_back_there(sim, api):
    [number] = await queue(api)
    prefix = "/api/v3"
    job = await get(api, f"{prefix}{REPO}/actions/jobs/{number}")
    assert job["url"] == f"{sim.url}{prefix}{REPO}/actions/jobs/{number}"
    assert job["html_url"].startswith(f"{sim.url}/acme/app/")
    assert (await get(api, job["run_url"]))["jobs_url"].startswith(sim.url + prefix)
    assert (await get(api, f"{prefix}{REPO}"))["url"] == f"{sim.url}{prefix}{REPO}"
    for n in range(2):
        await register(api, f"r{n}")
    answer = await api.get(f"{prefix}{RUNNERS}?per_page=1")
    assert answer.links["next"]["url"].startswith(f"{sim.url}{prefix}/")
    assert (await api.get(prefix + "/rate_limit")).status_code == 200
