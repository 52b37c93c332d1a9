"""The modelled forge and runtime do what github.md and runner.md say, each case by itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from ephemerd.domain.ids import JobKey, Scope
from ephemerd.domain.job import ForgeStatus, JobReport
from ephemerd.domain.verdict import Listing, Sign
from ephemerd.testing.simulate.forge import ModelForge
from ephemerd.testing.simulate.heap import VirtualTime
from ephemerd.testing.simulate.runtime import LOST_AFTER, ModelRuntime
from ephemerd.testing.simulate.truth import Matrix, Outcome, TrueEnvironment, TrueJob
from ephemerd.testing.weather import Weather
from tests.unit.simulate.build import calm, just

APP = Scope("github", "repo:acme/app")
LABELS = ("linux", "x64")
FIXED = {
    "webhook_delay": just(0.1),
    "assign": just(0.1),
    "acknowledge": just(0.1),
    "acquire": just(1),
    "spawn": just(2),
    "report": just(1),
    "boot": just(3),
    "wind_down": just(1),
    "stop": just(1),
}


class Bench:
    """A forge and a runtime without a daemon; `told` and `signs` are what a daemon would hear."""

    def __init__(self, **changes: Any) -> None:
        self.time = VirtualTime(1_000)
        self.outcome = Outcome()
        self.told: list[JobReport] = []
        self.signs: list[tuple[str, Sign]] = []
        self.exited: list[str] = []
        weather: Weather = calm(**{**FIXED, **changes})
        rng = random.Random(1)
        self.forge = ModelForge(self.time, weather, rng, self.outcome, self.told.append)
        self.runtime = ModelRuntime(
            self.time,
            weather,
            rng,
            self.outcome,
            self.forge,
            lambda env, sign, _: self.signs.append((env.name, sign)),
            lambda env: self.exited.append(env.name),
        )

    def job(self, number: int = 1, seconds: int = 60, **options: Any) -> TrueJob:
        return self.forge.queue(JobKey("github", "acme/app", number), LABELS, seconds * 1000, **options)

    def runner(self, name: str = "r1", labels: tuple[str, ...] = LABELS) -> TrueEnvironment:
        registration = self.forge.register(APP, name, labels)
        assert registration is not None
        return self.runtime.start(name, "pool", registration)

    def run(self, ms: int) -> None:
        end = self.time.now + ms
        while (due := self.time.next()) is not None and due <= end:
            self.time.step()
        self.time.now = end

    def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            assert self.time.step(), "it never comes to that"


def test_a_job_runs_from_the_queue_to_the_exit_in_the_order_of_the_real_one():
    bench = Bench()
    env = bench.runner()
    job = bench.job(seconds=60)
    bench.run(70_000)
    assert sorted(bench.signs, key=str) == sorted((("r1", sign) for sign, _ in env.signs), key=str)
    assert [sign for sign, _ in env.signs] == [
        Sign.LISTENING,
        Sign.OFFERED,
        Sign.ACKNOWLEDGED,
        Sign.ANNOUNCED,
        Sign.WORKER,
        Sign.ENDED,
    ]
    assert [report.status for report in bench.told] == [
        ForgeStatus.QUEUED,
        ForgeStatus.IN_PROGRESS,
        ForgeStatus.COMPLETED,
    ]
    assert (job.fate, job.conclusion, bench.exited) == ("ran", "success", ["r1"])
    assert bench.told[1].runner_name == bench.told[2].runner_name == "r1"
    assert (bench.outcome.used, bench.outcome.runners) == (1, 1)
    assert bench.outcome.waits == [3_000 + 100 + 100 + 1_000 + 2_000]
    assert env.left is not None
    assert bench.forge.registrations == {}, "an ephemeral registration goes with its one job"


def test_an_assignment_does_not_show_in_what_the_forge_says():
    bench = Bench()
    bench.runner()
    job = bench.job()
    bench.until(lambda: job.held_by is not None)
    assert (bench.forge.report(job).status, bench.forge.report(job).runner_name) == (ForgeStatus.QUEUED, None)
    bench.until(lambda: job.worker is not None)
    assert bench.forge.report(job).status is ForgeStatus.QUEUED


@pytest.mark.parametrize("labels", [("linux", "x64", "big"), ("x64", "linux")])
def test_a_runner_takes_a_job_whose_labels_it_covers(labels):
    bench = Bench()
    bench.runner(labels=labels)
    job = bench.job()
    bench.run(10_000)
    assert job.held_by == "r1"


@pytest.mark.parametrize("labels", [("linux",), ("arm64", "linux")])
def test_a_runner_that_lacks_a_label_takes_nothing(labels):
    bench = Bench()
    bench.runner(labels=labels)
    job = bench.job()
    bench.run(10_000)
    assert job.held_by is None


def test_runners_are_fungible_and_the_seed_says_who_takes_what():
    bench = Bench()
    for number in range(6):
        bench.runner(f"r{number}")
    bench.run(4_000)
    jobs = [bench.job(number) for number in range(6)]
    bench.run(5_000)
    takers = [job.held_by for job in jobs]
    assert sorted(str(taker) for taker in takers) == [f"r{number}" for number in range(6)]
    assert takers != [f"r{number}" for number in range(6)]


def test_a_name_is_taken_once():
    bench = Bench()
    assert bench.forge.register(APP, "r1", LABELS) is not None
    assert bench.forge.register(APP, "r1", LABELS) is None
    assert bench.outcome.runners == 1


@pytest.mark.parametrize(
    ("moment", "answer"),
    [("idle", "accepted"), ("assigned", "refused"), ("acquired", "refused"), ("over", "not_found")],
)
def test_deregistering_is_refused_while_a_job_is_held(moment, answer):
    bench = Bench()
    env = bench.runner()
    bench.run(4_000)
    if moment != "idle":
        job = bench.job()
        bench.until(
            {
                "assigned": lambda: job.held_by is not None,
                "acquired": lambda: env.announced is not None,
                "over": lambda: env.over,
            }[moment]
        )
    assert bench.forge.deregister(env.registration.id) == answer
    assert bench.outcome.fence_calls_while_held == int(moment in ("assigned", "acquired"))


def test_after_an_early_completion_the_forge_refuses_no_more_although_the_worker_runs():
    bench = Bench(completed_while_worker_runs=1.0)
    env = bench.runner()
    job = bench.job(seconds=60)
    bench.until(lambda: job.status == "completed")
    assert env.worker
    assert env.executing()
    assert not bench.forge.busy(env.registration)
    assert bench.forge.deregister(env.registration.id) == "accepted"
    ended, _ = bench.runtime.destroy(env)
    assert ended, "to end it now is a kill all the same"


def test_taken_away_between_assignment_and_acquisition_a_job_goes_to_another():
    bench = Bench(refuses_from="acquisition")
    env = bench.runner()
    job = bench.job()
    bench.until(lambda: env.offered is not None)
    assert bench.forge.deregister(env.registration.id) == "accepted"
    bench.runner("r2")
    bench.run(10_000)
    assert (bench.signs.count(("r1", Sign.SKIPPED)), job.held_by) == (1, "r2")
    assert bench.outcome.disturbed == 1
    assert env.alive, "deregistering does not stop the process"
    assert bench.outcome.again[0] < 10_000


def test_taken_away_while_its_assignment_travels_a_runner_never_hears_of_the_job():
    bench = Bench(refuses_from="acquisition", assign=just(5))
    env = bench.runner()
    job = bench.job()
    bench.until(lambda: job.held_by is not None)
    assert env.offered is None, "nothing on the machine shows it yet"
    assert bench.forge.deregister(env.registration.id) == "accepted"
    bench.runner("r2")
    bench.run(20_000)
    assert (env.offered, job.held_by, bench.outcome.disturbed) == (None, "r2", 1)


def test_where_it_refuses_from_the_assignment_the_forge_knows_before_the_machine_does():
    bench = Bench(refuses_from="assignment", assign=just(5))
    env = bench.runner()
    job = bench.job()
    bench.until(lambda: job.held_by is not None)
    assert env.offered is None
    assert bench.forge.deregister(env.registration.id) == "refused"


def test_the_busy_flag_lags_and_is_wrong_at_times():
    bench = Bench(busy_flag_lag=just(30))
    env = bench.runner()
    bench.job(seconds=600)
    bench.until(lambda: env.worker)
    assert not bench.forge.busy(env.registration)
    bench.run(30_000)
    assert bench.forge.busy(env.registration)
    wrong = Bench(busy_flag_wrong=0.5)
    env = wrong.runner()
    assert not wrong.forge.busy(env.registration), "it is never wrong about an idle one"
    wrong.job(seconds=600)
    wrong.until(lambda: env.worker)
    assert {wrong.forge.busy(env.registration) for _ in range(30)} == {True, False}


def test_max_parallel_holds_jobs_back_until_one_is_over():
    bench = Bench()
    matrix = Matrix(2)
    for number in range(4):
        bench.runner(f"r{number}")
    jobs = [bench.job(number, 60, matrix=matrix) for number in range(4)]
    bench.run(30_000)
    assert sum(job.held_by is not None for job in jobs) == 2
    assert matrix.full()
    assert [bench.forge.held_back(job) for job in jobs if job.held_by is None] == [True, True]
    bench.run(120_000)
    assert [job.fate for job in jobs] == ["ran"] * 4
    assert matrix.active == 0


def test_an_approval_lets_a_job_into_the_queue():
    bench = Bench()
    bench.runner()
    job = bench.job(waiting=True)
    bench.run(10_000)
    assert (job.status, job.held_by, bench.told[0].status) == ("waiting", None, ForgeStatus.WAITING)
    bench.forge.approve(job)
    bench.forge.approve(job)
    bench.run(10_000)
    assert job.held_by == "r1"
    assert [report.status for report in bench.told[1:2]] == [ForgeStatus.QUEUED]
    assert job.queued == 11_000, "it waits from then on"


def test_started_and_cancelled_in_one_batch_the_runner_takes_another_job():
    bench = Bench()
    env = bench.runner()
    trick = bench.job(1, trick=True)
    bench.until(lambda: trick.fate == "cancelled")
    job = bench.job(2)
    bench.run(20_000)
    named = [(r.key.id, r.status, r.runner_name) for r in bench.told if r.key.id == 1 and r.runner_name]
    assert named == [(1, ForgeStatus.IN_PROGRESS, "r1"), (1, ForgeStatus.COMPLETED, "r1")]
    assert (trick.conclusion, job.held_by, env.job) == ("cancelled", "r1", job)
    assert bench.outcome.cancelled == 1


def test_a_hung_acquirer_fails_its_job_after_ten_minutes():
    bench = Bench(hang_after_acknowledge=1.0)
    env = bench.runner()
    job = bench.job()
    bench.run(590_000)
    assert (job.status, job.held_by, env.announced) == ("queued", "r1", None)
    bench.run(30_000)
    assert (job.fate, job.conclusion, bench.outcome.broken) == ("broken", "failure", 1)
    assert env.alive
    assert bench.forge.registrations == {}


def test_a_ghost_lets_its_job_go_and_listens_on():
    bench = Bench(ghost=1.0)
    env = bench.runner()
    job = bench.job()
    bench.run(10_000)
    assert bench.signs[-1] == ("r1", Sign.SKIPPED)
    assert (env.alive, job.held_by, bench.outcome.disturbed) == (True, None, 0)
    bench.run(60_000)
    assert job.key.id in bench.forge.queued


def test_a_wedged_worker_lives_on_after_its_job():
    bench = Bench(wedged_worker=1.0)
    env = bench.runner()
    job = bench.job(seconds=10)
    bench.run(600_000)
    assert (job.fate, env.alive, env.worker, env.over) == ("ran", True, True, True)
    assert not env.holding()
    ended, _ = bench.runtime.destroy(env)
    assert (ended, bench.outcome.disturbed) == (False, 0)


def test_a_runner_that_exits_without_a_job_leaves_its_registration():
    bench = Bench(exit_without_job=1.0)
    bench.runner()
    bench.run(10_000)
    assert bench.exited == ["r1"]
    assert len(bench.forge.registrations) == 1


@pytest.mark.parametrize("moment", ["announced", "worker"])
def test_a_runner_that_is_killed_loses_its_job_when_the_lease_lapses(moment):
    bench = Bench()
    env = bench.runner()
    job = bench.job(seconds=600)
    bench.until(lambda: env.announced is not None if moment == "announced" else env.worker)
    ended, wait = bench.runtime.destroy(env)
    job.fate = "killed"
    assert (ended, wait) == (True, 1_000)
    bench.run(wait)
    assert bench.runtime.environments == {}
    assert bench.forge.deregister(env.registration.id) == "refused", "the forge does not know yet"
    bench.run(LOST_AFTER)
    assert (job.conclusion, bench.forge.registrations) == ("failure", {})


def test_a_polite_stop_ends_a_job_and_the_listener_leaves_by_itself():
    bench = Bench()
    env = bench.runner()
    bench.job(seconds=600)
    bench.until(lambda: env.worker)
    assert bench.runtime.stop(env)
    bench.run(5_000)
    assert (env.alive, bench.exited, env.removed) == (False, ["r1"], False)


def test_a_listener_that_ignores_the_stop_goes_on():
    bench = Bench(stop_ignored=1.0)
    env = bench.runner()
    job = bench.job(seconds=20)
    bench.until(lambda: env.worker)
    assert not bench.runtime.stop(env)
    bench.run(40_000)
    assert job.fate == "ran"


def test_the_probe_sees_processes_and_files_as_they_are():
    bench = Bench()
    env = bench.runner()
    assert not bench.runtime.probe(env).listening
    bench.job(seconds=20)
    bench.until(lambda: env.worker)
    report = bench.runtime.probe(env)
    assert (report.listing, report.workers, report.listener_alive) == (Listing.COMPLETE, 1, True)
    assert (report.offered_at, report.announced_at, report.ended_at) == (env.offered, env.announced, None)
    bench.until(lambda: not env.alive)
    gone = bench.runtime.probe(env)
    assert (gone.listing, gone.workers, gone.listener_alive) == (Listing.EMPTY, 0, False)
    assert gone.ended_at is not None


def test_deliveries_can_be_late_silent_and_skewed():
    bench = Bench(sibling_skew=just(5))
    bench.job(1)
    bench.job(2, siblings=True)
    bench.run(1_000)
    assert [report.key.id for report in bench.told] == [1]
    bench.run(5_000)
    assert [report.key.id for report in bench.told] == [1, 2]
    bench.forge.silent = True
    bench.job(3)
    bench.forge.silent, bench.forge.late = False, 60_000
    bench.runner()
    bench.run(50_000)
    assert {report.status for report in bench.told} == {ForgeStatus.QUEUED}
    bench.run(60_000)
    assert ForgeStatus.IN_PROGRESS in {report.status for report in bench.told}
    assert 3 not in {report.key.id for report in bench.told if report.status is ForgeStatus.QUEUED}


def test_virtual_time_runs_calls_in_their_order_and_never_back():
    time, ran = VirtualTime(10), list[str]()
    time.at(30, ran.append, "c")
    time.after(5, ran.append, "a")
    time.at(0, ran.append, "now")
    time.at(30, ran.append, "d")
    assert time.next() == 10
    moments = []
    while time.step():
        moments.append(time.now)
    assert (ran, moments) == (["now", "a", "c", "d"], [10, 15, 30, 30])
    assert time.next() is None
