"""One job between assignment and end: the order of signs, deadlines, faults, cancellation."""

from __future__ import annotations

import asyncio

import pytest

from ephemerd.testing.forge_sim import offers
from tests.unit.forge_sim.conftest import LABELS, REPO, admin, kinds, register, seen

JOB_SIGNS = (
    "job_queued",
    "job_assigned",
    "job_acknowledged",
    "job_acquired",
    "worker_started",
    "job_in_progress",
    "job_completed",
    "worker_exited",
    "runner_deregistered",
)


@pytest.fixture
def short_lease(monkeypatch):
    """The lease lasts 0.6 s, as long as an offer may wait; a cancelled job may take 0.3 s."""
    monkeypatch.setattr(offers, "LEASE_S", 60.0)
    monkeypatch.setattr(offers, "CANCEL_S", 30.0)


async def outcomes(api):
    return (await api.get("/_admin/outcomes")).json()


async def ready(sim, api, runner_of, name="r1", **job):
    """A registered runner and a queued job: returns the scripted runner and the job's id."""
    await register(api, name)
    [number] = (await admin(api, "/jobs", labels=LABELS, **job))["jobs"]
    return runner_of(sim, name), number


async def test_a_job_shows_no_runner_until_the_worker_reports(sim, api, runner_of):
    runner, job = await ready(sim, api, runner_of)
    await runner.acquire()
    url = f"{REPO}/actions/jobs/{job}"
    before = (await api.get(url)).json()
    assert (before["status"], before["runner_id"], before["runner_name"], before["steps"]) == (
        "queued",
        None,
        None,
        [],
    )
    async with runner.http.stream("GET", f"/_broker/lifeline?pid=42&offer={runner.offer}") as life:
        assert life.status_code == 200
        await seen(sim, "worker_started", pid=42)
        assert await runner.step("/_run/started") == 200
        during = (await api.get(url)).json()
        assert (during["status"], during["runner_name"], during["conclusion"]) == ("in_progress", "r1", None)
        assert await runner.complete() == 200
        after = (await api.get(url)).json()
        assert (after["status"], after["conclusion"]) == ("completed", "success")
        answer = await api.delete(f"{REPO}/actions/runners/{runner.runner.id}")
        assert answer.status_code == 422, "the worker is still alive"
    await seen(sim, "worker_exited", clean=True)
    assert (await runner.http.delete(f"/_broker/session?session={runner.session}")).status_code == 204
    assert kinds(sim, *JOB_SIGNS) == list(JOB_SIGNS)
    assert (await outcomes(api))["completed"] == 1


async def test_an_assignment_that_is_not_picked_up_is_queued_again(sim, api, runner_of):
    runner, job = await ready(sim, api, runner_of)
    await runner.offered()
    [record] = await seen(sim, "job_requeued")
    assert (record["job"], record["cause"]) == (job, "not_picked_up")
    assert await runner.step("/_broker/acknowledge") == 404
    await runner.acquire()
    assert (await outcomes(api))["disturbed"] == 0, "its runner was only slow"


async def test_a_runner_lost_before_it_acquired_disturbs_the_job(sim, api, runner_of):
    runner, _ = await ready(sim, api, runner_of)
    async with runner.http.stream("GET", "/_broker/lifeline?pid=1"):
        await runner.offered()
        await runner.step("/_broker/acknowledge")
    [record] = await seen(sim, "job_requeued")
    assert record["cause"] == "runner_lost"
    assert (await outcomes(api))["disturbed"] == 1


async def test_a_job_whose_runner_stops_renewing_fails_and_counts_as_killed(short_lease, sim, api, runner_of):
    runner, job = await ready(sim, api, runner_of)
    await runner.acquire()
    [lost] = await seen(sim, "runner_lost")
    assert lost["job"] == job
    [ended] = await seen(sim, "job_completed")
    assert (ended["reason"], ended["conclusion"]) == ("lost_communication", "failure")
    assert await runner.step("/_run/renewjob") == 404
    assert await runner.complete() == 404
    result = await outcomes(api)
    assert (result["killed"], result["completed"], result["leaked"]) == (1, 0, 0)


async def test_renewing_moves_the_end_of_the_lease(sim, api, runner_of):
    runner, _ = await ready(sim, api, runner_of)
    await runner.acquire()
    [offer] = sim.site.offers.by_id.values()
    before = offer.timers["lease"]
    assert await runner.step("/_run/renewjob") == 200
    assert before.cancelled()
    assert offer.timers["lease"].when() > before.when()
    assert await runner.complete() == 200
    assert offer.timers == {}


async def test_a_stopped_runner_counts_as_a_kill(sim, api, runner_of):
    runner, _ = await ready(sim, api, runner_of)
    await runner.acquire()
    assert await runner.complete("failure", "shutdown") == 200
    assert (await outcomes(api))["killed"] == 1


async def test_a_job_that_is_meant_to_fail_is_no_kill(sim, api, runner_of):
    runner, _ = await ready(sim, api, runner_of, conclusion="failure")
    await runner.acquire()
    assert await runner.complete("failure", "finished") == 200
    result = await outcomes(api)
    assert (result["killed"], result["completed"]) == (0, 1)


async def test_a_ghost_loses_the_job_and_polls_on(sim, api, runner_of):
    await admin(api, "/faults", fault="ghost")
    runner, job = await ready(sim, api, runner_of)
    await runner.offered()
    assert await runner.step("/_broker/acknowledge") == 200
    assert await runner.step("/_run/acquirejob") == 404
    [record] = await seen(sim, "job_requeued")
    assert (record["job"], record["cause"]) == (job, "ghost")
    assert (await api.get(f"{REPO}/actions/runners/{runner.runner.id}")).status_code == 404
    polling = asyncio.create_task(runner.poll())
    await register(api, "r2")
    await runner_of(sim, "r2").acquire()
    assert not polling.done()
    polling.cancel()
    result = await outcomes(api)
    assert (result["disturbed"], result["broken_runners"], result["wasted"]) == (0, 1, 0)


async def test_a_hang_after_acknowledge_fails_the_job_without_a_kill(short_lease, sim, api, runner_of):
    await admin(api, "/faults", fault="hang_after_acknowledge")
    runner, job = await ready(sim, api, runner_of)
    await runner.offered()
    assert await runner.step("/_broker/acknowledge") == 200
    hanging = asyncio.create_task(runner.step("/_run/acquirejob"))
    [ended] = await seen(sim, "job_completed")
    assert (ended["job"], ended["reason"]) == (job, "lost_communication")
    assert not hanging.done()
    hanging.cancel()
    assert (await outcomes(api))["killed"] == 0


async def test_an_idle_runner_may_be_removed_and_is_sent_away(sim, api, runner_of):
    await admin(api, "/faults", fault="exit_without_job")
    await register(api, "r1")
    runner = runner_of(sim, "r1")
    await runner.connect()
    assert (await runner.poll()).status_code == 404
    assert (await outcomes(api))["broken_runners"] == 1


async def test_a_deregistered_runner_is_told_at_its_next_poll(sim, api, runner_of):
    body = await register(api, "r1")
    runner = runner_of(sim, "r1")
    await runner.connect()
    assert (await api.delete(f"{REPO}/actions/runners/{body['runner']['id']}")).status_code == 204
    answer = await runner.poll()
    assert (answer.status_code, answer.json()["error"]) == (404, "RunnerNotFound")
    answer = await runner.http.post("/_broker/session", json={})
    assert answer.status_code == 401


async def test_sessions_conflict_and_bad_credentials_are_refused(sim, api, runner_of):
    await register(api, "r1")
    runner = runner_of(sim, "r1")
    await runner.connect()
    assert (await runner.http.post("/_broker/session", json={})).status_code == 409
    assert (await runner.http.get("/_broker/message?session=wrong")).status_code == 410
    bad = {"Authorization": "Bearer wrong"}
    assert (await runner.http.post("/_broker/session", headers=bad)).status_code == 401
    assert (await runner.http.post("/_broker/acknowledge", content=b"{")).status_code == 400


async def test_another_runner_cannot_take_an_offer(sim, api, runner_of):
    first, _ = await ready(sim, api, runner_of)
    await register(api, "r2")
    second = runner_of(sim, "r2")
    second.offer = await first.offered()
    assert await second.step("/_run/acquirejob") == 404


async def test_acquiring_twice_is_a_conflict(sim, api, runner_of):
    runner, _ = await ready(sim, api, runner_of)
    await runner.acquire()
    assert await runner.step("/_run/acquirejob") == 409


async def test_cancelling_a_running_job_goes_through_its_listener(sim, api, runner_of):
    runner, job = await ready(sim, api, runner_of)
    await runner.acquire()
    await admin(api, f"/jobs/{job}/cancel")
    answer = await runner.poll("Busy")
    assert answer.json()["type"] == "JobCancellation"
    assert await runner.complete("cancelled", "cancelled") == 200
    result = await outcomes(api)
    assert (result["killed"], result["cancelled_queued"], result["completed"]) == (0, 0, 0)


async def test_a_cancelled_job_that_does_not_end_is_ended_by_the_forge(short_lease, sim, api, runner_of):
    runner, job = await ready(sim, api, runner_of)
    await runner.acquire()
    await admin(api, f"/jobs/{job}/cancel")
    [ended] = await seen(sim, "job_completed")
    assert (ended["conclusion"], ended["reason"]) == ("cancelled", "cancelled")
    assert (await outcomes(api))["killed"] == 0


async def test_cancelling_between_offer_and_acquire_withdraws_the_offer(sim, api, runner_of):
    runner, job = await ready(sim, api, runner_of)
    await runner.offered()
    await admin(api, f"/jobs/{job}/cancel")
    assert await runner.step("/_broker/acknowledge") == 404
    assert (await outcomes(api))["cancelled_queued"] == 1
    refused = await api.post(f"/_admin/jobs/{job}/cancel")
    assert refused.status_code == 409


async def test_a_closed_session_leaves_an_idle_registration_offline(sim, api, runner_of):
    body = await register(api, "r1")
    runner = runner_of(sim, "r1")
    async with runner.http.stream("GET", "/_broker/lifeline?pid=1"):
        await runner.connect()
        await runner.http.delete(f"/_broker/session?session={runner.session}")
    await seen(sim, "listener_exited", clean=True)
    shown = (await api.get(f"{REPO}/actions/runners/{body['runner']['id']}")).json()
    assert shown["status"] == "offline"


async def test_the_registration_of_a_runner_that_does_not_leave_goes_after_a_while(sim, api, runner_of):
    runner, _ = await ready(sim, api, runner_of)
    await runner.acquire()
    await runner.complete()
    [record] = await seen(sim, "runner_deregistered")
    assert record["by"] == "expired"


async def test_a_hidden_job_shows_nowhere_but_in_the_fence(sim, api, runner_of):
    runner, job = await ready(sim, api, runner_of)
    await admin(api, f"/jobs/{job}/hide")
    await runner.acquire()
    assert await runner.step("/_run/started") == 200
    url = f"{REPO}/actions/runners/{runner.runner.id}"
    assert (await api.get(f"{REPO}/actions/jobs/{job}")).json()["status"] == "queued"
    assert (await api.get(url)).json()["busy"] is False
    assert (await api.delete(url)).status_code == 422
    assert "job_in_progress" not in kinds(sim)
    await admin(api, f"/jobs/{job}/reveal")
    assert (await api.get(f"{REPO}/actions/jobs/{job}")).json()["runner_name"] == "r1"
    assert (await api.get(url)).json()["busy"] is True
    assert await runner.complete() == 200
    await admin(api, f"/jobs/{job}/reveal")
    assert kinds(sim, "job_in_progress", "job_completed") == ["job_in_progress", "job_completed"]
