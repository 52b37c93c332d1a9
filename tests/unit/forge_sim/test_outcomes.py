"""Outcomes are a pure function of truth records, and each word means what SIMULATION.md says."""

from __future__ import annotations

import itertools

import pytest

from ephemerd.testing.forge_sim.outcomes import broken_jobs, held_at, holdings, outcomes, quantile, wall_to_ms
from ephemerd.testing.forge_sim.truth import TruthLog, read_truth


def story(*steps):
    """Records from (kind, fields) pairs, 100 ms apart."""
    clock = itertools.count()
    return [
        {"seq": n + 1, "ms": n * 100.0, "at": 5000 + n * 100, "kind": kind, **fields}
        for n, (kind, fields) in zip(clock, steps, strict=False)
    ]


def queued(job=1):
    return ("job_queued", {"job": job, "tag": "", "labels": ["x"]})


def registered(runner="r"):
    return ("runner_registered", {"runner": runner})


def sign(kind, job=1, runner="r", **fields):
    return (kind, {"job": job, "runner": runner, **fields})


def ended(reason, *, job=1, runner="r", conclusion="success", acquired=True):
    fields = {"job": job, "runner": runner, "conclusion": conclusion, "reason": reason, "acquired": acquired}
    return ("job_completed", fields)


TAKEN = (queued(), registered(), sign("job_assigned"), sign("job_acquired"), sign("worker_started", pid=1))


def test_nothing_happened():
    result = outcomes([])
    assert (result["jobs"], result["killed"], result["queue_to_start_ms"]["p50"]) == (0, 0, None)


def test_a_good_job():
    records = story(
        *TAKEN,
        ended("finished"),
        sign("worker_exited", pid=1, clean=True),
        ("runner_deregistered", {"runner": "r", "by": "self"}),
        ("api_call", {"method": "POST", "path": "/", "status": 201, "took_ms": 1}),
    )
    result = outcomes(records)
    assert result["completed"] == result["jobs"] == result["dispatches"] == 1
    assert (
        result["killed"]
        == result["wasted"]
        == result["leaked"]
        == result["lost"]
        == result["unfinished"]
        == 0
    )
    assert result["api_calls_per_job"] == 1
    assert result["queue_to_start_ms"] == {"p50": 400, "p95": 400, "max": 400}


@pytest.mark.parametrize("reason", ["shutdown", "worker_crashed", "lost_communication"])
def test_a_destroyed_runner_is_a_kill_also_without_a_worker(reason):
    with_worker = story(*TAKEN, ended(reason, conclusion="failure"))
    without = story(*TAKEN[:4], ended(reason, conclusion="failure"))
    assert outcomes(with_worker)["killed"] == outcomes(without)["killed"] == 1


@pytest.mark.parametrize("reason", ["finished", "cancelled"])
def test_a_job_that_failed_by_itself_or_was_cancelled_is_none(reason):
    assert outcomes(story(*TAKEN, ended(reason, conclusion="failure")))["killed"] == 0


@pytest.mark.parametrize("fault", ["hang_after_acknowledge", "listener_dies"])
def test_what_the_weather_broke_is_nobodys_kill(fault):
    records = story(*TAKEN, ("misbehaved", {"runner": "r", "what": fault}), ended("lost_communication"))
    result = outcomes(records)
    assert (result["killed"], result["broken_jobs"]) == (0, 1)
    assert broken_jobs(records) == {1}
    assert broken_jobs(story(*TAKEN, ended("lost_communication"))) == set(), "that is a kill"


@pytest.mark.parametrize(
    ("cause", "faults", "disturbed"),
    [
        ("runner_lost", [], 1),
        ("deregistered", [], 1),
        ("not_picked_up", [], 0),
        ("ghost", ["ghost"], 0),
        ("runner_lost", ["exit_without_job"], 0),
    ],
)
def test_disturbed_is_an_assignment_that_lost_its_runner(cause, faults, disturbed):
    broken = [("misbehaved", {"runner": "r", "what": what}) for what in faults]
    records = story(queued(), registered(), sign("job_assigned"), *broken, sign("job_requeued", cause=cause))
    result = outcomes(records)
    assert (result["disturbed"], result["lost"]) == (disturbed, 1)


def test_wasted_allows_for_cancelled_and_foreign_jobs_and_for_broken_runners():
    runners = [registered(name) for name in "abcde"]
    base = [queued(1), queued(2), *runners]
    assert outcomes(story(*base))["wasted"] == 5
    cancelled = [("job_cancelled_queued", {"job": 1}), ended("cancelled", runner=None, acquired=False)]
    foreign = [
        ("foreign_taken", {"job": 2, "runner": "x"}),
        ended("foreign", job=2, runner="x", acquired=False),
    ]
    broken = [("misbehaved", {"runner": "a", "what": "ghost"})]
    result = outcomes(story(*base, *cancelled, *foreign, *broken))
    assert (result["wasted"], result["unused_runners"], result["broken_runners"]) == (2, 5, 1)
    assert (result["lost"], result["leaked"]) == (0, 5)
    assert outcomes(story(queued(), *cancelled))["wasted"] == 0, "never below nothing"


def test_fences_are_counted_by_their_answers():
    def fence(status, held):
        return ("fence_asked", {"runner": "r", "status": status, "held": held, "job": None})

    result = outcomes(story(fence(422, True), fence(204, False), fence(204, True), fence(404, False)))
    assert (result["fences"], result["fence_refusals"], result["fence_breaches"]) == (4, 1, 1)


def test_an_unfinished_job_is_not_lost():
    result = outcomes(story(*TAKEN))
    assert (result["unfinished"], result["lost"]) == (1, 0)


def test_holding_lasts_from_the_assignment_to_the_end_of_the_worker():
    records = story(*TAKEN, ended("finished"), sign("worker_exited", pid=1, clean=True))
    intervals = holdings(records)
    assert [(i.begins_ms, i.ends_ms) for i in intervals] == [(200, 600)]
    assert held_at(intervals, "r", 199) is None
    assert held_at(intervals, "r", 550) is intervals[0], "the worker outlives its report"
    assert held_at(intervals, "r", 600) is None
    assert held_at(intervals, "other", 300) is None


def test_holding_ends_with_a_requeue_or_an_end_without_worker_and_may_still_last():
    requeued = story(queued(), sign("job_assigned"), sign("job_requeued", cause="not_picked_up"))
    assert holdings(requeued)[0].ends_ms == 200
    lost = story(queued(), sign("job_assigned"), ended("lost_communication", acquired=False))
    assert holdings(lost)[0].ends_ms == 200
    [still] = holdings(story(*TAKEN))
    assert held_at([still], "r", 10_000) is still


def test_wall_clock_times_map_to_the_logs_own_clock():
    assert wall_to_ms(story(queued()), 5250) == 250


def test_quantiles_are_nearest_rank():
    assert quantile([1, 2, 3, 4], 0.5) == 2
    assert quantile([1, 2, 3, 4], 0.95) == 4
    assert quantile([], 0.5) is None


async def test_the_truth_log_writes_reads_and_wakes(tmp_path):
    path = tmp_path / "truth.jsonl"
    log = TruthLog(path)
    log.add("job_queued", job=1)
    assert not await log.wait_until(lambda: len(log.records) > 1, 0.01)
    log.add("job_waiting", job=2)
    assert await log.wait_until(lambda: len(log.records) > 1, 0.01)
    assert [line.strip() for line in log.lines(1)] == path.read_text().splitlines()[1:]
    assert len(list(log.lines(0, frozenset({"job_waiting"})))) == 1
    log.close()
    with path.open("a") as file:
        file.write('{"seq": 3, "cut o')
    assert read_truth(path) == log.records
