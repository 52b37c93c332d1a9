"""Just-in-time registrations: what is accepted, what is shown, and when a runner may be deleted."""

from __future__ import annotations

import base64
import json

import httpx2
import pytest

from tests.unit.forge_sim.conftest import LABELS, REPO, admin, client, kinds, register, seen

JIT = f"{REPO}/actions/runners/generate-jitconfig"


async def test_a_registration_is_shown_as_github_shows_it(api):
    body = await register(api, "r1", ["Self-Hosted", "X64"])
    runner = body["runner"]
    assert {label["name"] for label in runner.pop("labels")} == {"self-hosted", "x64"}
    assert runner == {
        "id": runner["id"],
        "name": "r1",
        "os": "unknown",
        "status": "offline",
        "busy": False,
        "ephemeral": True,
        "runner_group_id": 1,
        "version": None,
    }
    shown = (await api.get(f"{REPO}/actions/runners/{runner['id']}")).json()
    assert shown["name"] == "r1"
    assert {label["type"] for label in shown["labels"]} == {"read-only"}


async def test_the_blob_holds_three_files_with_string_values(sim, api):
    body = await register(api, "r1")
    files = json.loads(base64.b64decode(body["encoded_jit_config"]))
    assert set(files) == {".runner", ".credentials", ".credentials_rsaparams"}
    settings = json.loads(base64.b64decode(files[".runner"]))
    assert all(isinstance(value, str) for value in settings.values())
    assert settings["AgentId"] == str(body["runner"]["id"])
    assert settings["AgentName"] == "r1"
    assert settings["UseV2Flow"] == "true"
    assert settings["ServerUrlV2"].startswith(sim.url)
    assert 2500 < len(body["encoded_jit_config"]) < 5000


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"name": None}, 422, "/name"),
        ({"name": "x" * 65}, 422, "/name"),
        ({"name": "a:b"}, 422, "/name"),
        ({"labels": []}, 422, "1 item required"),
        ({"labels": ["x"] * 101}, 422, "100 items"),
        ({"labels": "linux"}, 422, "/labels"),
        ({"runner_group_id": "1"}, 422, "/runner_group_id"),
        ({"runner_group_id": 2}, 403, "GitHub-hosted"),
        ({"runner_group_id": 3}, 404, "Not Found"),
        ({"work_folder": ""}, 422, "/work_folder"),
    ],
)
async def test_bad_registrations_are_refused(api, change, status, words):
    body = {"name": "r1", "runner_group_id": 1, "labels": LABELS, **change}
    answer = await api.post(JIT, json=body)
    assert answer.status_code == status
    assert words in answer.json()["message"]


@pytest.mark.parametrize("key", ["name", "runner_group_id", "labels"])
async def test_a_missing_key_is_named(api, key):
    body = {"name": "r1", "runner_group_id": 1, "labels": LABELS}
    del body[key]
    answer = await api.post(JIT, json=body)
    assert answer.status_code == 422
    assert answer.json()["message"] == f"Invalid input: object is missing required key: {key}"


@pytest.mark.parametrize("content", [b"{", b"[]"])
async def test_a_body_that_is_no_object_is_refused(api, content):
    assert (await api.post(JIT, content=content)).status_code == 400


async def test_a_taken_name_is_409_until_it_is_free_again(api):
    runner = (await register(api, "r1"))["runner"]
    answer = await api.post(JIT, json={"name": "r1", "runner_group_id": 1, "labels": LABELS})
    assert answer.status_code == 409
    assert "already exists" in answer.json()["message"]
    assert (await api.delete(f"{REPO}/actions/runners/{runner['id']}")).status_code == 204
    await register(api, "r1")


async def test_a_deleted_runner_is_404_and_its_name_matches_exactly(api):
    runner = (await register(api, "r1"))["runner"]
    await register(api, "r10")
    found = (await api.get(f"{REPO}/actions/runners?name=r1")).json()
    assert [r["name"] for r in found["runners"]] == ["r1"]
    url = f"{REPO}/actions/runners/{runner['id']}"
    assert (await api.delete(url)).status_code == 204
    assert (await api.delete(url)).status_code == 404
    assert (await api.get(url)).status_code == 404
    assert (await api.get(f"{REPO}/actions/runners?name=r1")).json()["total_count"] == 0


async def test_a_held_job_refuses_the_deletion_before_in_progress(sim, api, runner_of):
    runner = (await register(api, "r1"))["runner"]
    url = f"{REPO}/actions/runners/{runner['id']}"
    [job] = (await admin(api, "/jobs", labels=LABELS))["jobs"]
    scripted = runner_of(sim, "r1")
    await scripted.offered()
    assert (await api.get(f"{REPO}/actions/jobs/{job}")).json()["status"] == "queued"
    assert (await api.delete(url)).status_code == 422
    shown = (await api.get(url)).json()
    assert (shown["busy"], shown["status"], shown["version"]) == (True, "online", "2.336.0")
    assert sim.truth.records[-1]["kind"] == "api_call"
    [fence] = [r for r in sim.truth.records if r["kind"] == "fence_asked"]
    assert (fence["status"], fence["held"], fence["job"]) == (422, True, job)


async def test_a_forge_that_refuses_only_from_acquisition_on(start, runner_of):
    sim = await start(refuses_from="acquisition")
    async with client(sim) as api:
        first = (await register(api, "r1"))["runner"]
        await admin(api, "/jobs", labels=LABELS)
        await runner_of(sim, "r1").offered()
        assert (await api.delete(f"{REPO}/actions/runners/{first['id']}")).status_code == 204
        [requeued] = await seen(sim, "job_requeued")
        assert requeued["cause"] == "deregistered"
        second = (await register(api, "r2"))["runner"]
        await runner_of(sim, "r2").acquire()
        assert (await api.delete(f"{REPO}/actions/runners/{second['id']}")).status_code == 422
        outcomes = (await api.get("/_admin/outcomes")).json()
    assert outcomes["disturbed"] == 1
    assert outcomes["fence_breaches"] == 1
    assert outcomes["fence_refusals"] == 1


async def test_an_assignment_may_consume_the_registration(sim, api, runner_of):
    await admin(api, "/faults", fault="registration_404_on_assignment")
    runner = (await register(api, "r1"))["runner"]
    url = f"{REPO}/actions/runners/{runner['id']}"
    assert (await api.get(url)).status_code == 200
    await admin(api, "/jobs", labels=LABELS)
    await runner_of(sim, "r1").offered()
    assert (await api.get(url)).status_code == 404
    assert (await api.delete(url)).status_code == 404
    assert (await api.get(f"{REPO}/actions/runners")).json()["total_count"] == 0


async def test_a_wrong_view_lets_a_busy_runner_go_and_the_job_goes_on(sim, api, runner_of):
    await admin(api, "/faults", fault="delete_accepted_while_held")
    runner = (await register(api, "r1"))["runner"]
    await admin(api, "/jobs", labels=LABELS)
    scripted = runner_of(sim, "r1")
    await scripted.acquire()
    assert (await api.delete(f"{REPO}/actions/runners/{runner['id']}")).status_code == 204
    assert await scripted.complete() == 200
    outcomes = (await api.get("/_admin/outcomes")).json()
    assert (outcomes["completed"], outcomes["killed"], outcomes["fence_breaches"]) == (1, 0, 1)


async def test_a_lost_answer_leaves_a_registration_behind(start):
    sim = await start(jit_answer_lost=1.0)
    async with client(sim) as api:
        with pytest.raises(httpx2.ReadTimeout):
            await api.post(JIT, json={"name": "r1", "runner_group_id": 1, "labels": LABELS}, timeout=0.5)
        assert (await api.get(f"{REPO}/actions/runners?name=r1")).json()["total_count"] == 1
        outcomes = (await api.get("/_admin/outcomes")).json()
    assert (outcomes["wasted"], outcomes["broken_runners"], outcomes["leaked"]) == (0, 1, 1)


async def test_lists_may_leave_a_live_runner_out_and_flags_may_lie(start, runner_of):
    sim = await start(list_omits_runner=1.0, busy_flag_wrong=1.0)
    async with client(sim) as api:
        runner = (await register(api, "r1"))["runner"]
        assert (await api.get(f"{REPO}/actions/runners")).json()["total_count"] == 0
        await admin(api, "/jobs", labels=LABELS)
        await runner_of(sim, "r1").acquire()
        assert (await api.get(f"{REPO}/actions/runners/{runner['id']}")).json()["busy"] is False


async def test_group_limit(sim, api, monkeypatch):
    monkeypatch.setattr("ephemerd.testing.forge_sim.rest_runners.MAX_RUNNERS", 1)
    await register(api, "r1")
    answer = await api.post(JIT, json={"name": "r2", "runner_group_id": 1, "labels": LABELS})
    assert answer.status_code == 422
    assert "max limit" in answer.json()["message"]
    assert kinds(sim, "runner_registered") == ["runner_registered"]


async def test_spared_runners_are_not_broken_by_the_weather(start):
    sim = await start(jit_answer_lost=1.0, ghost=1.0, stop_ignored=1.0)
    async with client(sim) as api:
        assert await admin(api, "/spare", spare=True) == {"spare": True}
        await register(api, "spared")
        await admin(api, "/spare", spare=False)
        body = {"name": "broken", "runner_group_id": 1, "labels": LABELS}
        with pytest.raises(httpx2.TimeoutException):
            await api.post(JIT, json=body, timeout=0.5)
        await seen(sim, "runner_registered", runner="broken", answer_lost=True)
    faults = {runner.name: set(runner.faults) for runner in sim.world.runners.values()}
    assert faults == {"spared": set(), "broken": {"ghost", "stop_ignored"}}
