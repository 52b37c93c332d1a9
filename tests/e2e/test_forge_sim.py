"""The look-alike and the fake runner against each other, with real processes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ephemerd.testing.fake_runner.folder import write_folder
from ephemerd.testing.forge_sim.main import ForgeSim, Options, running
from ephemerd.testing.forge_sim.outcomes import outcomes
from ephemerd.testing.forge_sim.truth import read_truth
from ephemerd.testing.weather import Uniform, load
from tests.e2e.forge_manager import Manager, command_name

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PROMPT = dataclasses.replace(
    load("bursty"),
    boot=Uniform(0, 0.2),
    spawn=Uniform(0, 0.2),
    report=Uniform(0, 0.1),
    wind_down=Uniform(0, 0.1),
    stop=Uniform(0, 0.05),
)
"""The bursty weather with short waits, so that one step can be looked at."""


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    """Start a look-alike and a manager for it: `sim, manager = await start()`."""
    template = write_folder(tmp_path / "template")
    async with contextlib.AsyncExitStack() as stack:

        async def begin(**options: Any) -> tuple[ForgeSim, Manager]:
            chosen = Options(**{"weather": PROMPT, "time_scale": 20.0, "seed": 3, **options})
            sim = await stack.enter_async_context(running(chosen))
            manager = Manager(sim.url, sim.token, "acme/app", template, tmp_path)
            stack.push_async_callback(manager.close)
            return sim, manager

        yield begin


async def seen(sim: ForgeSim, kind: str, **fields: Any) -> dict[str, Any]:
    def found() -> list[dict[str, Any]]:
        return [r for r in sim.truth.records if r["kind"] == kind and fields.items() <= r.items()]

    assert await sim.truth.wait_until(lambda: bool(found()), 60), (kind, fields)
    return found()[0]


async def test_a_burst_runs_through(start, tmp_path):
    sim, manager = await start(weather="bursty", time_scale=40.0, truth_path=tmp_path / "truth.jsonl")
    await manager.queue(8)
    runners = await manager.start(8)
    await manager.wait("jobs_ended")
    assert [await runner.exit_code() for runner in runners] == [0] * 8
    await manager.wait("no_runners")
    await seen(sim, "listener_exited", runner=runners[-1].name)
    result = outcomes(read_truth(tmp_path / "truth.jsonl"))
    expected = {
        "jobs": 8,
        "completed": 8,
        "dispatches": 8,
        "killed": 0,
        "disturbed": 0,
        "lost": 0,
        "wasted": 0,
    }
    assert {key: result[key] for key in expected} == expected
    assert (result["leaked"], result["unfinished"]) == (0, 0)
    made, took = list(range(8)), [r["runner"] for r in sim.truth.records if r["kind"] == "job_assigned"]
    assert len(set(took)) == 8
    assert [int(name.split("-")[1]) - 1 for name in took] != made, "a permutation, not the order of making"


async def test_signs_come_in_the_order_of_the_real_application(start):
    _, manager = await start()
    [job] = await manager.queue(name="build (arm64, release)")
    [runner] = await manager.start()
    assert await runner.exit_code() == 0
    lines = [line.partition("Z: ")[2] or line for line in runner.output.splitlines() if line]
    assert lines == [
        "√ Connected to GitHub",
        "Current runner version: '2.336.0'",
        "Listening for Jobs",
        "Running job: build (arm64, release)",
        "Job build (arm64, release) completed with result: Succeeded",
        "√ Removed .credentials",
        "√ Removed .runner",
    ]
    assert runner.counters() == [
        "RunnerProcessStarted",
        "SessionCreated",
        "MessageReceived_RunnerJobRequest",
        f"JobRequestRenewed_{job}",
        "StartingWorkerProcess",
        f"RunnerSendingJobToWorker_{job}",
        f"SentJobToWorker_{job}",
    ]
    assert runner.counters("Worker")[:3] == [
        "WorkerProcessStarted",
        "WorkerWaitingForJobMessage",
        f"WorkerJobMessageReceived_{job}",
    ]
    assert "Acknowledging runner request" in runner.diagnostics()
    assert runner.diagnostics("Worker")
    assert not (runner.root / ".runner").exists()


@pytest.mark.platform("linux")
async def test_the_process_table_shows_the_real_names_and_the_group(start):
    _, manager = await start()
    await manager.queue(duration_s=60)
    [runner] = await manager.start()
    await manager.wait("jobs_started")
    worker = await manager.worker_of(runner)
    assert command_name(runner.process.pid) == "Runner.Listener"
    assert command_name(worker) == "Runner.Worker"
    assert os.getpgid(worker) == runner.process.pid
    environment = Path(f"/proc/{worker}/environ").read_bytes()
    assert b"JITCONFIG" not in environment
    assert b"RUNNER_PERFLOG=" in environment
    assert (runner.root / ".credentials").stat().st_mode & 0o777 == 0o600


async def test_a_held_job_refuses_the_fence_and_an_idle_runner_does_not(start):
    _, manager = await start()
    [busy] = await manager.start()
    await manager.queue(duration_s=1)
    await manager.wait("jobs_acquired")
    assert await manager.delete(busy) == 422
    [idle] = await manager.start()
    await manager.wait("runners_listening", count=1)
    assert await manager.delete(idle) == 204
    idle.signal(signal.SIGINT)
    assert await idle.exit_code() == 0
    assert "Exiting..." in idle.output
    assert await busy.exit_code() == 0
    result = await manager.outcomes()
    assert (result["killed"], result["fence_refusals"], result["fence_breaches"], result["wasted"]) == (
        0,
        1,
        0,
        1,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_stop_during_a_job_kills_it_and_is_counted(start, number):
    _, manager = await start()
    [job] = await manager.queue(duration_s=60)
    [runner] = await manager.start()
    await manager.wait("jobs_started")
    runner.signal(number)
    assert await runner.exit_code() == 0
    assert "completed with result: Failed" in runner.output
    shown = (await manager.http.get(f"/repos/acme/app/actions/jobs/{job}")).json()
    assert shown["conclusion"] == "failure"
    assert (await manager.outcomes())["killed"] == 1


async def test_a_killed_group_is_lost_communication_and_a_kill(start):
    sim, manager = await start(time_scale=200.0)  # the lease lasts 3 s
    await manager.queue(duration_s=60)
    [runner] = await manager.start()
    await manager.wait("jobs_started")
    os.killpg(runner.process.pid, signal.SIGKILL)
    await seen(sim, "worker_exited", clean=False)
    await seen(sim, "listener_exited", clean=False)
    await manager.wait("jobs_ended")
    ended = await seen(sim, "job_completed")
    assert ended["reason"] == "lost_communication"
    assert (await manager.outcomes())["killed"] == 1


async def test_a_killed_worker_is_reported_by_its_listener(start):
    sim, manager = await start()
    await manager.queue(duration_s=60)
    [runner] = await manager.start()
    await manager.wait("jobs_started")
    os.kill(await manager.worker_of(runner), signal.SIGKILL)
    assert await runner.exit_code() == 0
    assert (await seen(sim, "job_completed"))["reason"] == "worker_crashed"
    assert (await manager.outcomes())["killed"] == 1


async def test_a_runner_that_dies_idle_disturbs_nothing_but_the_job_it_is_given(start):
    sim, manager = await start(time_scale=40.0)
    [first] = await manager.start()
    await manager.wait("runners_listening", count=1)
    os.killpg(first.process.pid, signal.SIGKILL)
    await seen(sim, "listener_exited")
    await manager.queue(duration_s=0.1)
    await seen(sim, "job_requeued", cause="runner_lost")
    [second] = await manager.start()
    assert await second.exit_code() == 0
    result = await manager.outcomes()
    assert (result["disturbed"], result["completed"], result["killed"]) == (1, 1, 0)


async def test_cancelling_a_running_job_reaches_its_worker(start):
    _, manager = await start()
    [job] = await manager.queue(duration_s=60)
    [runner] = await manager.start()
    await manager.wait("jobs_started")
    await manager.admin(f"/jobs/{job}/cancel")
    assert await runner.exit_code() == 0
    assert "completed with result: Canceled" in runner.output
    assert "MessageReceived_JobCancellation" in runner.counters()
    assert (await manager.outcomes())["killed"] == 0


async def test_renewals_keep_a_job_that_outlasts_its_lease(start):
    sim, manager = await start(time_scale=300.0)  # renewed every 0.2 s, lost after 2 s
    await manager.queue(duration_s=4)
    [runner] = await manager.start()
    assert await runner.exit_code() == 0
    assert (await seen(sim, "job_completed"))["reason"] == "finished"


async def test_exit_codes_carry_the_result_on_request(start):
    _, manager = await start()
    await manager.queue(duration_s=0.1, conclusion="failure")
    [runner] = await manager.start(ACTIONS_RUNNER_RETURN_JOB_RESULT_FOR_HOSTED="true")
    assert await runner.exit_code() == 102


# Misbehaviour on request


async def faulty(manager: Manager, fault: str, **job: Any) -> Any:
    await manager.admin("/faults", fault=fault)
    await manager.queue(**job)
    [runner] = await manager.start()
    return runner


async def test_a_ghost_skips_the_message_and_listens_on(start):
    sim, manager = await start()
    ghost = await faulty(manager, "ghost", duration_s=0.1)
    await seen(sim, "job_requeued", cause="ghost")
    [good] = await manager.start()
    assert await good.exit_code() == 0
    assert ghost.process.returncode is None
    assert "Skipping message Job" in ghost.diagnostics()
    assert "Running job" not in ghost.output
    assert await manager.delete(ghost) == 404


async def test_a_hung_listener_shows_nothing_after_its_acknowledgement(start):
    sim, manager = await start(time_scale=200.0)
    runner = await faulty(manager, "hang_after_acknowledge")
    assert (await seen(sim, "job_completed"))["reason"] == "lost_communication"
    assert runner.process.returncode is None
    assert runner.counters()[-1] == "MessageReceived_RunnerJobRequest"
    assert (await manager.outcomes())["killed"] == 0


async def test_a_wedged_worker_outlives_its_job(start):
    sim, manager = await start()
    runner = await faulty(manager, "wedged_worker", duration_s=0.1)
    await manager.wait("jobs_ended")
    await seen(sim, "runner_deregistered", by="expired")
    assert runner.process.returncode is None
    os.killpg(runner.process.pid, signal.SIGKILL)
    await seen(sim, "worker_exited")
    result = await manager.outcomes()
    assert (result["completed"], result["killed"]) == (1, 0)


async def test_a_listener_that_dies_leaves_its_worker_to_finish(start):
    sim, manager = await start()
    runner = await faulty(manager, "listener_dies", duration_s=2)
    assert await runner.exit_code() == -signal.SIGKILL
    await seen(sim, "listener_exited", clean=False)
    assert not [r for r in sim.truth.records if r["kind"] == "worker_exited"]
    await seen(sim, "worker_exited", clean=True)
    assert (await manager.outcomes())["completed"] == 1


async def test_a_runner_may_be_sent_away_without_a_job(start):
    _, manager = await start()
    await manager.admin("/faults", fault="exit_without_job")
    [runner] = await manager.start()
    assert await runner.exit_code() == 0
    assert "no longer exists on the server" in runner.output
    assert (await manager.outcomes())["broken_runners"] == 1


async def test_a_stop_can_be_ignored_but_a_kill_works(start):
    sim, manager = await start()
    await manager.admin("/faults", fault="stop_ignored")
    [runner] = await manager.start()
    await seen(sim, "runner_online")
    await manager.wait("runners_listening", count=1)
    runner.signal(signal.SIGINT)
    runner.signal(signal.SIGTERM)
    await manager.queue(duration_s=0.1)
    await manager.wait("jobs_ended")
    assert await runner.exit_code() == 0
    assert "Exiting..." not in runner.output


@pytest.mark.platform("linux")
async def test_a_job_can_leave_a_daemon_of_its_own_session_behind(start):
    _, manager = await start()
    runner = await faulty(manager, "leave_daemon", duration_s=0.2)
    assert await runner.exit_code() == 0
    root = str(runner.root).encode()
    left = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _environment_has(entry, root)
    ]
    assert len(left) == 1
    assert os.getsid(left[0]) == left[0] != runner.process.pid
    os.kill(left[0], signal.SIGKILL)


def _environment_has(entry: Path, text: bytes) -> bool:
    try:
        return text in (entry / "environ").read_bytes()
    except OSError:
        return False


async def test_completed_may_come_while_the_worker_still_runs(start):
    sim, manager = await start()
    runner = await faulty(manager, "completed_while_worker_runs", duration_s=1)
    completed = await seen(sim, "job_completed")
    assert not [r for r in sim.truth.records if r["kind"] == "worker_exited"]
    exited = await seen(sim, "worker_exited")
    assert exited["ms"] - completed["ms"] > 300
    assert await runner.exit_code() == 0


# The look-alike as a program


PROGRAM = """
import sys
from pathlib import Path
from ephemerd.testing.forge_sim.main import Options, serve
sys.exit(serve(Options(weather="calm", time_scale=50.0, write_runner_dir=Path(sys.argv[1]))))
"""


async def program(folder: Path) -> tuple[asyncio.subprocess.Process, dict[str, Any]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        line = json.loads(await process.stdout.readline())
    return process, line


async def test_it_runs_as_a_program_and_ends_on_sigterm_with_open_polls(tmp_path):
    process, line = await program(tmp_path / "template")
    manager = Manager(line["url"], line["token"], line["repository"], Path(line["runner"]), tmp_path)
    try:
        [runner] = await manager.start()
        await manager.wait("runners_listening", count=1)
        process.terminate()
        async with asyncio.timeout(30):
            assert await process.wait() == 0
        assert process.stderr is not None
        assert await process.stderr.read() == b""
        assert await runner.exit_code() == 2, "it gives up after ten failed polls"
        assert "Runner connect error" in runner.output
    finally:
        await manager.close()
        if process.returncode is None:
            process.kill()
            await process.wait()
