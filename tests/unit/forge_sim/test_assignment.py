"""Who gets which job: subset of labels, any to any, pins, pauses, limits of a run."""

from __future__ import annotations

import pytest

from tests.unit.forge_sim.conftest import LABELS, admin, client, register, seen


async def listening(sim, api, runner_of, names, labels=None):
    """Registered and connected runners, while nothing is assigned."""
    await admin(api, "/assignment", paused=True)
    runners = {}
    for name in names:
        await register(api, name, labels)
        runners[name] = runner_of(sim, name)
        await runners[name].connect()
    return runners


def assigned(sim):
    return {r["runner"]: r["job"] for r in sim.truth.records if r["kind"] == "job_assigned"}


async def test_a_permutation_gives_nobody_its_own_job(sim, api, runner_of):
    await listening(sim, api, runner_of, ["r1", "r2", "r3"])
    jobs = (await admin(api, "/jobs", labels=LABELS, count=3))["jobs"]
    made_for = dict(zip(["r1", "r2", "r3"], jobs, strict=True))
    pinned = (await admin(api, "/permute", made_for=made_for))["pinned"]
    assert sorted(pinned.values()) == jobs
    assert all(pinned[name] != made_for[name] for name in made_for)
    assert assigned(sim) == {}
    await admin(api, "/assignment", paused=False)
    await seen(sim, "job_assigned", 3)
    assert assigned(sim) == pinned


@pytest.mark.parametrize("made_for", [{}, {"r1": 50000000001}, {"r1": 50000000001, "r2": 50000000001}])
async def test_a_permutation_takes_two_at_least(api, made_for):
    await admin(api, "/jobs", labels=LABELS)
    assert (await api.post("/_admin/permute", json={"made_for": made_for})).status_code == 422


async def test_a_pinned_job_waits_for_its_runner_and_the_runner_for_its_job(sim, api, runner_of):
    await listening(sim, api, runner_of, ["r1", "r2"])
    first, second = (await admin(api, "/jobs", labels=LABELS, count=2))["jobs"]
    await admin(api, f"/jobs/{second}/pin", runner="r1")
    await admin(api, "/assignment", paused=False)
    await seen(sim, "job_assigned", 2)
    assert assigned(sim) == {"r1": second, "r2": first}
    assert (await api.post(f"/_admin/jobs/{first}/pin", json={"runner": "r1"})).status_code == 409


async def test_a_held_job_is_not_assigned_until_it_is_let_go(sim, api, runner_of):
    sim.world.time_scale = 1.0  # a job that nobody picks up is not queued again while the test runs
    await listening(sim, api, runner_of, ["r1"])
    [held] = (await admin(api, "/jobs", labels=LABELS, held=True))["jobs"]
    [free] = (await admin(api, "/jobs", labels=LABELS))["jobs"]
    await admin(api, "/assignment", paused=False)
    await seen(sim, "job_assigned")
    assert assigned(sim) == {"r1": free}
    await register(api, "r2")
    await runner_of(sim, "r2").connect()
    await admin(api, f"/jobs/{held}/unhold")
    await seen(sim, "job_assigned", 2)
    assert assigned(sim)["r2"] == held


@pytest.mark.parametrize(
    ("job", "runner", "match"),
    [
        (["SELF-HOSTED"], ["self-hosted", "gpu"], True),
        (["self-hosted", "gpu"], ["self-hosted"], False),
        ([], ["self-hosted"], False),
        ([" linux "], ["Linux"], True),
    ],
)
async def test_labels_match_by_subset_without_case(sim, api, runner_of, job, runner, match):
    await register(api, "r1", runner)
    await runner_of(sim, "r1").connect()
    await admin(api, "/jobs", labels=job)
    marker = (await admin(api, "/jobs", labels=["elsewhere"]))["jobs"]
    await register(api, "r2", ["elsewhere"])
    await runner_of(sim, "r2").connect()
    await seen(sim, "job_assigned", 2 if match else 1)
    assert assigned(sim)["r2"] == marker[0]
    assert ("r1" in assigned(sim)) is match


async def test_a_runner_of_another_repository_is_no_match(sim, api, runner_of):
    await admin(api, "/repositories", name="acme/other")
    await register(api, "r1")
    await runner_of(sim, "r1").connect()
    await admin(api, "/jobs", labels=LABELS, repository="acme/other")
    [own] = (await admin(api, "/jobs", labels=LABELS))["jobs"]
    await seen(sim, "job_assigned")
    assert assigned(sim) == {"r1": own}


async def test_a_run_takes_no_more_than_its_max_parallel(sim, api, runner_of):
    runners = await listening(sim, api, runner_of, ["r1", "r2", "r3"])
    await admin(api, "/jobs", labels=LABELS, count=3, max_parallel=1)
    await admin(api, "/assignment", paused=False)
    await seen(sim, "job_assigned")
    [marker] = (await admin(api, "/jobs", labels=LABELS))["jobs"]
    await seen(sim, "job_assigned", job=marker)
    assert len(assigned(sim)) == 2
    name = next(name for name, job in assigned(sim).items() if job != marker)
    await runners[name].acquire()
    await runners[name].complete()
    await seen(sim, "job_assigned", 3)


async def test_orders_differ_by_seed_and_not_by_run(start, runner_of):
    orders = []
    for seed in (1, 1, 2):
        sim = await start(options={"repository": "acme/app"})
        sim.world.seed = seed
        async with client(sim) as api:
            await listening(sim, api, runner_of, [f"r{n}" for n in range(6)])
            await admin(api, "/jobs", labels=LABELS, count=6)
            await admin(api, "/assignment", paused=False)
            await seen(sim, "job_assigned", 6)
        orders.append(list(assigned(sim).items()))
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
