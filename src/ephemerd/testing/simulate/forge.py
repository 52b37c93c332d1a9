"""The modelled forge: it registers, assigns in a permutation of its own, delivers late, and has bad days.

It behaves as facts about GitHub say (github.md sections 3, 4, 13): runners are fungible, a job that is not
picked up in 60 s is queued again, deregistering is refused while a job is held, an ephemeral registration
goes with its one job.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from ephemerd.domain.ids import JobKey, Scope
from ephemerd.domain.job import ForgeStatus, JobReport
from ephemerd.domain.labels import satisfies
from ephemerd.testing.simulate.heap import VirtualTime
from ephemerd.testing.simulate.truth import Matrix, Outcome, TrueJob, TrueRegistration
from ephemerd.testing.weather import Spread, Uniform, Weather

REQUEUE = 60_000
STATUS = {
    "queued": ForgeStatus.QUEUED,
    "waiting": ForgeStatus.WAITING,
    "in_progress": ForgeStatus.IN_PROGRESS,
    "completed": ForgeStatus.COMPLETED,
}


def draw(spread: Spread, rng: random.Random) -> int:
    """Draw a duration in ms; a spread of nothing draws nothing."""
    if type(spread) is Uniform and spread.hi == 0.0 == spread.lo:
        return 0
    return int(spread.draw(rng) * 1000)


class ModelForge:
    """Jobs, registrations, assignment and deliveries; `deliver` takes a report to the daemon.

    late    deliveries of starts and ends take so much longer (ms); silent: nothing is delivered at all
    served  when a job of a class (repository and labels) was last assigned
    """

    def __init__(
        self,
        time: VirtualTime,
        weather: Weather,
        rng: random.Random,
        outcome: Outcome,
        deliver: Callable[[JobReport], None],
    ) -> None:
        self.time, self.weather, self.rng, self.outcome = time, weather, rng, outcome
        self._deliver = deliver
        self.jobs: dict[int, TrueJob] = {}
        self.open: dict[int, TrueJob] = {}
        self.queued: dict[int, TrueJob] = {}
        self.registrations: dict[int, TrueRegistration] = {}
        self.by_name: dict[str, TrueRegistration] = {}
        self.idle: dict[int, TrueRegistration] = {}
        self.offer: Callable[[TrueRegistration, TrueJob], None] = lambda _registration, _job: None
        self.outage_until = 0
        self.outage_kind = ""
        self.late = 0
        self.silent = False
        self.served: dict[tuple[str, tuple[str, ...]], int] = {}
        self._next_id = 1_000
        self._assigning = False

    def queue(
        self,
        key: JobKey,
        labels: tuple[str, ...],
        duration: int,
        *,
        counted: bool = True,
        waiting: bool = False,
        attempt: int = 1,
        matrix: Matrix | None = None,
        trick: bool = False,
        siblings: bool = False,
    ) -> TrueJob:
        """Queue a job, or let it wait for an approval, and tell the daemon of it; among siblings, with a skew."""
        job = TrueJob(key, labels, duration, self.time.now, counted, attempt=attempt, matrix=matrix)
        job.trick = trick
        self.jobs[key.id] = self.open[key.id] = job
        if waiting:
            job.status = "waiting"
        else:
            self.queued[key.id] = job
        self.tell(job, draw(self.weather.sibling_skew, self.rng) if siblings else 0)
        self.wake()
        return job

    def approve(self, job: TrueJob) -> None:
        """Somebody approves a waiting job: it is queued."""
        if job.status == "waiting":
            job.status, job.queued = "queued", self.time.now
            self.queued[job.key.id] = job
            self.tell(job)
            self.wake()

    def tell(self, job: TrueJob, skew: int = 0) -> None:
        """Send the job's present state as a webhook, with the weather's delay, loss and doubling."""
        report = self.report(job)
        weather, rng = self.weather, self.rng
        if self.silent:
            return
        if weather.webhook_lost and rng.random() < weather.webhook_lost:
            self.outcome.happened("webhook_lost")
            return
        delay = draw(weather.webhook_delay, rng) + skew
        if job.status in ("in_progress", "completed"):
            delay += self.late
        if weather.webhook_late.share:
            late = weather.webhook_late.draw(rng)
            if late is not None:
                self.outcome.happened("webhook_late")
                delay += int(late * 1000)
        if self.in_outage():
            more = draw(weather.webhook_late_in_outage, rng)
            if more:
                self.outcome.happened("webhook_late_in_outage")
            delay += more
        self.time.after(delay, self._deliver, report)
        if weather.webhook_duplicated and rng.random() < weather.webhook_duplicated:
            self.outcome.happened("webhook_duplicated")
            self.time.after(delay + draw(weather.webhook_delay, rng), self._deliver, report)

    def report(self, job: TrueJob) -> JobReport:
        """Return what the forge says of a job now; an assignment does not show (github.md 13)."""
        shown = job.status in ("in_progress", "completed")
        return JobReport(
            key=job.key,
            status=STATUS[job.status],
            labels=job.labels,
            name=f"job {job.key.id}",
            attempt=job.attempt,
            runner_name=job.runner if shown else None,
            runner_id=job.registration if shown else None,
            conclusion=job.conclusion,
        )

    def in_outage(self) -> bool:
        return self.time.now < self.outage_until

    def register(self, scope: Scope, name: str, labels: tuple[str, ...]) -> TrueRegistration | None:
        """Register a runner; None where the name is taken."""
        if name in self.by_name:
            return None
        self._next_id += 1
        lag = draw(self.weather.busy_flag_lag, self.rng)
        made = TrueRegistration(self._next_id, name, scope, labels, self.time.now, lag=lag)
        self.registrations[made.id] = self.by_name[name] = made
        self.outcome.runners += 1
        return made

    def connect(self, registration: TrueRegistration) -> None:
        """The listener is online: it may be given a job."""
        if registration.id in self.registrations:
            registration.online = registration.connected = True
            self.idle[registration.id] = registration
            self.wake()

    def disconnect(self, registration: TrueRegistration) -> None:
        """The listener is gone; the registration stays."""
        registration.online = False
        self.idle.pop(registration.id, None)

    def forget(self, registration: TrueRegistration) -> None:
        """The registration is gone, by whatever cause."""
        self.registrations.pop(registration.id, None)
        self.by_name.pop(registration.name, None)
        self.disconnect(registration)

    def busy(self, registration: TrueRegistration) -> bool:
        """Return the busy flag as REST shows it: late by the weather's lag, and at times wrong in mid-job."""
        if registration.held() is None:
            return False
        if self.time.now - registration.assigned < registration.lag:
            self.outcome.happened("busy_flag_lag")
            return False
        if self.weather.busy_flag_wrong and self.rng.random() < self.weather.busy_flag_wrong:
            self.outcome.happened("busy_flag_wrong")
            return False
        return True

    def deregister(self, registration_id: int) -> str:
        """Answer a deregistration: accepted, refused or not_found.

        A job that was acquired goes on by its own token (github.md section 4 [unv]); one that was only
        assigned goes back to the queue at once, and what its listener still asks for is answered 404.
        """
        registration = self.registrations.get(registration_id)
        if registration is None:
            return "not_found"
        job = registration.held()
        if job is not None:
            self.outcome.fence_calls_while_held += 1
            mistaken = self.rng.random() < self.weather.delete_accepted_while_held
            if (registration.acquired or self.weather.refuses_from == "assignment") and not mistaken:
                return "refused"
            self.outcome.fences_accepted_while_held += 1
            registration.taken_by_mistake = mistaken
            self.outcome.happened("delete_accepted_while_held" if mistaken else "refuses_from")
            if not registration.acquired:
                registration.revoked = True
                self.disturbed(job, registration, delay=0)
        self.forget(registration)
        return "accepted"

    def wake(self) -> None:
        """Something changed that could let a job be assigned."""
        if not self._assigning and self.queued and self.idle:
            self._assigning = True
            self.time.after(0, self._assign)

    def _assign(self) -> None:
        """Hand queued jobs to idle runners in a random permutation, drawn only as far as runners last."""
        self._assigning = False
        fits = self._idle_by_fit()
        jobs = [job for job in self.queued.values() if fits[job.key.repository, job.labels]]
        left = len(jobs)
        reach = {r.id: None for fitting in fits.values() for r in fitting}
        while left and reach:
            drawn = int(self.rng.random() * left)
            left -= 1
            job, jobs[drawn] = jobs[drawn], jobs[left]
            if job.matrix is not None and job.matrix.full():
                continue
            fitting = fits[job.key.repository, job.labels]
            while fitting:
                registration = fitting.pop()
                if registration.id in self.idle:
                    reach.pop(registration.id)
                    self._pick(job, registration)
                    break

    def _idle_by_fit(self) -> dict[tuple[str, tuple[str, ...]], list[TrueRegistration]]:
        """Return for each kind of queued job the idle runners that can be given it, in a random order."""
        fits: dict[tuple[str, tuple[str, ...]], list[TrueRegistration]] = {}
        for job in self.queued.values():
            fit = (job.key.repository, job.labels)
            if fit not in fits:
                fits[fit] = [
                    r
                    for r in self.idle.values()
                    if r.scope.serves(job.key) and satisfies(r.labels, job.labels)
                ]
                self.rng.shuffle(fits[fit])
        return fits

    def held_back(self, job: TrueJob) -> bool:
        """Say whether the forge itself keeps the job waiting (max-parallel)."""
        return job.matrix is not None and job.matrix.full()

    def _pick(self, job: TrueJob, registration: TrueRegistration) -> None:
        del self.queued[job.key.id]
        del self.idle[registration.id]
        if job.matrix is not None:
            job.matrix.active += 1
        whole = draw(self.weather.assign, self.rng)
        hold = int(self.rng.random() * whole)
        self.time.after(hold, self._hand_over, job, registration, whole - hold)

    def _hand_over(self, job: TrueJob, registration: TrueRegistration, travels: int) -> None:
        """The assignment takes hold, unless either is no longer there; the listener hears of it `travels`
        ms later, and till then nothing on the machine shows it."""
        if job.status != "queued" or job.trick:
            if job.trick and job.status == "queued":
                self._trick(job, registration)
            if registration.id in self.registrations and registration.online:
                self.idle[registration.id] = registration
                self.wake()
            return
        if registration.id not in self.registrations:
            self._free(job)
            self.queued[job.key.id] = job
            self.wake()
            return
        registration.holds, registration.assigned = job, self.time.now
        job.held_by, job.assigned = registration.name, self.time.now
        job.offers += 1
        self.served[job.key.repository, job.labels] = self.time.now
        if self.rng.random() < self.weather.registration_404_on_assignment:
            self.outcome.happened("registration_404_on_assignment")
            self.forget(registration)
        self.time.after(travels, self._tell, registration, job)

    def _tell(self, registration: TrueRegistration, job: TrueJob) -> None:
        if registration.holds is job:
            self.offer(registration, job)

    def _trick(self, job: TrueJob, registration: TrueRegistration) -> None:
        """Start and cancelled end of a job in one batch; the runner it names then takes another job
        (actions/runner#3010)."""
        self.outcome.happened("completed_cancelled_then_other_job")
        self.outcome.cancelled += 1
        job.fate = "cancelled"
        self.start(job, registration.name, registration.id)
        self.finish(job, "cancelled")

    def disturbed(self, job: TrueJob, registration: TrueRegistration, *, delay: int) -> None:
        """A job that was assigned and not acquired lost its runner to somebody's doing."""
        self.outcome.disturbed += 1
        job.returned = self.time.now
        self.give_back(job, registration, delay=delay)

    def give_back(self, job: TrueJob, registration: TrueRegistration, *, delay: int = REQUEUE) -> None:
        """A job that was assigned and not acquired goes back to the queue."""
        registration.holds = None
        job.held_by = None
        self._free(job)
        self.time.after(delay, self._requeue, job)

    def _free(self, job: TrueJob) -> None:
        if job.matrix is not None:
            job.matrix.active -= 1

    def _requeue(self, job: TrueJob) -> None:
        if job.status == "queued" and job.held_by is None:
            self.queued[job.key.id] = job
            self.wake()

    def start(self, job: TrueJob, name: str, registration: int | None) -> None:
        """The worker reported its start."""
        if job.status == "queued":
            self.queued.pop(job.key.id, None)
            job.status, job.runner, job.registration, job.started = (
                "in_progress",
                name,
                registration,
                self.time.now,
            )
            self.tell(job)

    def finish(self, job: TrueJob, conclusion: str) -> None:
        """The job has ended."""
        if job.status == "completed":
            return
        if self.queued.pop(job.key.id, None) is None and job.fate != "foreign":
            self._free(job)
        self.open.pop(job.key.id, None)
        job.status, job.conclusion, job.ended = "completed", conclusion, self.time.now
        self.tell(job)
        self.wake()
