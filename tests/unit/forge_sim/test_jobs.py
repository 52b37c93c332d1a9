"""Runs and jobs as REST shows them: lists, attempts, cancel, re-run, approval, foreign runners."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.forge_sim.conftest import LABELS, REPO, admin, register, seen

DATA = Path(__file__).parents[2] / "data"


async def job(api, number):
    return (await api.get(f"{REPO}/actions/jobs/{number}")).json()


async def queue(api, **body):
    return (await admin(api, "/jobs", **{"labels": LABELS, **body}))["jobs"]


async def runs(api, status):
    return (await api.get(f"{REPO}/actions/runs?status={status}")).json()


async def end(sim, api, runner_of, name, conclusion="success"):
    """Let a fresh runner take whatever is queued and end it."""
    await register(api, name)
    runner = runner_of(sim, name)
    await runner.acquire()
    await runner.step("/_run/started")
    await runner.complete(conclusion, "finished")


async def test_a_queued_job_has_the_fields_of_the_fixture(api):
    [number] = await queue(api, name="build (arm64)")
    shown = await job(api, number)
    fixture = json.loads((DATA / "webhooks" / "workflow_job.queued.json").read_text())["workflow_job"]
    assert set(shown) == set(fixture)
    assert (shown["status"], shown["labels"], shown["name"]) == ("queued", LABELS, "build (arm64)")
    assert shown["started_at"] == shown["created_at"]
    assert shown["id"] > 2**32


async def test_runs_are_found_by_the_states_of_their_jobs(sim, api, runner_of):
    [one] = await queue(api)
    assert (await runs(api, "queued"))["total_count"] == 1
    await end(sim, api, runner_of, "r1")
    assert (await runs(api, "queued"))["total_count"] == 0
    assert (await runs(api, "completed"))["total_count"] == (await runs(api, "success"))["total_count"] == 1
    await queue(api, count=2)
    await end(sim, api, runner_of, "r2")
    [mixed] = (await runs(api, "in_progress"))["workflow_runs"]
    jobs = (await api.get(f"{REPO}/actions/runs/{mixed['id']}/jobs")).json()
    assert sorted(j["status"] for j in jobs["jobs"]) == ["completed", "queued"]
    assert (await api.get(f"{REPO}/actions/runs/{mixed['id']}")).json()["status"] == "in_progress"
    assert (await job(api, one))["conclusion"] == "success"


async def test_jobs_of_one_run_and_jobs_of_many_runs(api):
    together = await admin(api, "/jobs", labels=LABELS, count=3)
    apart = await admin(api, "/jobs", labels=LABELS, count=3, one_run=False)
    assert (len(together["runs"]), len(apart["runs"])) == (1, 3)


async def test_cancelled_while_queued_ends_without_a_runner(sim, api):
    [number] = await queue(api)
    run = (await job(api, number))["run_id"]
    assert (await api.post(f"{REPO}/actions/runs/{run}/cancel")).status_code == 202
    shown = await job(api, number)
    assert (shown["status"], shown["conclusion"]) == ("completed", "cancelled")
    assert (shown["runner_id"], shown["runner_name"]) == (0, "")
    assert (await api.post(f"{REPO}/actions/runs/{run}/cancel")).status_code == 409
    outcomes = (await api.get("/_admin/outcomes")).json()
    assert (outcomes["cancelled_queued"], outcomes["lost"]) == (1, 0)


async def test_a_rerun_has_new_ids_and_the_next_attempt(sim, api, runner_of):
    [number] = await queue(api)
    await end(sim, api, runner_of, "r1", "failure")
    run = (await job(api, number))["run_id"]
    base = f"{REPO}/actions/runs/{run}"
    assert (await api.post(f"{base}/rerun-failed-jobs")).status_code == 201
    [again] = (await api.get(f"{base}/jobs")).json()["jobs"]
    assert (again["run_attempt"], again["status"]) == (2, "queued")
    assert again["id"] != number
    assert (await api.get(f"{base}/jobs?filter=all")).json()["total_count"] == 2
    assert (await api.get(f"{base}/attempts/1/jobs")).json()["jobs"][0]["id"] == number
    assert (await api.get(f"{base}/attempts/3/jobs")).status_code == 404
    assert (await api.post(f"{base}/rerun")).status_code == 403, "it runs already"
    assert (await api.post(f"{REPO}/actions/jobs/{number}/rerun")).status_code == 403, "an older attempt"


async def test_only_failed_runs_have_failed_jobs_to_run_again(sim, api, runner_of):
    [number] = await queue(api)
    await end(sim, api, runner_of, "r1")
    run = (await job(api, number))["run_id"]
    assert (await api.post(f"{REPO}/actions/runs/{run}/rerun-failed-jobs")).status_code == 403
    assert (await api.post(f"{REPO}/actions/runs/{run}/rerun")).status_code == 201
    [again] = (await api.get(f"{REPO}/actions/runs/{run}/jobs")).json()["jobs"]
    assert again["run_attempt"] == 2


async def test_a_waiting_job_is_queued_by_its_approval(sim, api):
    [number] = await queue(api, waiting=True)
    assert (await job(api, number))["status"] == "waiting"
    assert (await runs(api, "waiting"))["total_count"] == 1
    await admin(api, f"/jobs/{number}/approve")
    assert (await job(api, number))["status"] == "queued"
    assert (await api.post(f"/_admin/jobs/{number}/approve")).status_code == 409


async def test_a_foreign_runner_takes_and_ends_a_job(sim, api):
    [number] = await queue(api)
    await admin(api, f"/jobs/{number}/foreign", runner="other-host-1", duration_s=1.5)
    shown = await job(api, number)
    assert (shown["status"], shown["runner_name"]) == ("in_progress", "other-host-1")
    assert (await api.post(f"/_admin/jobs/{number}/foreign", json={})).status_code == 409
    await seen(sim, "job_completed", reason="foreign")
    outcomes = (await api.get("/_admin/outcomes")).json()
    assert (outcomes["foreign_taken"], outcomes["completed"], outcomes["lost"]) == (1, 0, 0)


async def test_two_reruns_of_a_cancelled_job_by_the_admin_api(api):
    [number] = await queue(api)
    await admin(api, f"/jobs/{number}/cancel")
    [again] = (await admin(api, f"/jobs/{number}/rerun"))["jobs"]
    assert (await job(api, again))["run_attempt"] == 2


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/jobs", {}, 422),
        ("/jobs", {"labels": "linux"}, 422),
        ("/jobs", {"labels": ["x"], "duration_s": -1}, 422),
        ("/jobs", {"labels": ["x"], "name": "n", "count": 2}, 422),
        ("/jobs", {"labels": ["x"], "count": "many"}, 422),
        ("/jobs", {"labels": ["x"], "repository": "no/where"}, 404),
        ("/jobs/5/cancel", {}, 404),
        ("/permute", {"made_for": {"a": 1, "b": 2}}, 404),
        ("/faults", {"fault": "bad-luck"}, 422),
        ("/faults", {"fault": "ghost", "runner": "nobody"}, 404),
        ("/outage", {"kind": "flood"}, 422),
        ("/hooks", {"url": "nowhere"}, 422),
        ("/repositories", {"name": "just-a-name"}, 422),
    ],
)
async def test_the_admin_api_says_what_is_wrong(api, path, body, status):
    answer = await api.post("/_admin" + path, json=body)
    assert answer.status_code == status
    assert answer.json()["error"]


async def test_the_admin_api_is_not_for_browsers_and_wants_objects(api):
    assert (
        await api.post("/_admin/jobs", json={}, headers={"Origin": "http://evil.invalid"})
    ).status_code == 403
    assert (await api.post("/_admin/jobs", content=b"[]")).status_code == 400
    assert (await api.post("/_admin/jobs", content=b"{")).status_code == 422
    assert (await api.get("/_admin/wait?for=christmas")).status_code == 422


async def test_waiting_for_conditions_and_the_state(sim, api, runner_of):
    [number] = await queue(api)
    assert (await api.get(f"/_admin/wait?for=jobs_ended&jobs={number}&timeout=0.05")).json() == {
        "held": False
    }
    await end(sim, api, runner_of, "r1")
    for condition in ("jobs_ended", "jobs_started", "jobs_acquired", "jobs_assigned", "no_runners"):
        answer = await api.get(f"/_admin/wait?for={condition}&timeout=20")
        assert answer.json() == {"held": True}, condition
    await register(api, "r2")
    await runner_of(sim, "r2").connect()
    assert (await api.get("/_admin/wait?for=runners_listening&count=1")).json() == {"held": True}
    state = (await api.get("/_admin/state")).json()
    assert [(j["id"], j["status"], j["runner"]) for j in state["jobs"]] == [(number, "completed", "r1")]
    assert [(r["name"], r["online"], r["job"]) for r in state["runners"]] == [("r2", True, None)]


async def test_the_truth_can_be_read_in_parts(sim, api):
    await queue(api, count=2)
    lines = (await api.get("/_admin/truth?kinds=job_queued")).text.splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["job_queued"] * 2
    last = json.loads(lines[-1])["seq"]
    assert (await api.get(f"/_admin/truth?since={last}&kinds=job_queued")).text == ""
