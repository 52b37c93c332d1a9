"""What happens to a job between its assignment to a runner and the end of the worker.

Sources: github.md, section 13 (not picked up, dead machine, cancel), runner.md, sections 5, 7 and 13.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable

from ephemerd.testing.forge_sim.model import Fault, Job, JobStatus, Offer, Runner
from ephemerd.testing.forge_sim.world import Refused, World

PICK_UP_S = 60.0
"""An assignment that is not picked up in this time is queued again [doc]; scaled."""
LEASE_S = 600.0
"""A job whose lock was not renewed for so long fails as "lost communication" [field]; scaled."""
RENEW_EVERY_S = 60.0
"""The listener renews the lock this often [src]; scaled."""
CANCEL_S = 300.0
"""So long after a cancellation the server ends a job that did not end itself [doc]; scaled."""
REGISTRATION_AFTER_JOB_S = 30.0
"""The registration of a runner that does not leave goes so long after its job [field: tens of s]; scaled."""


class Offers:
    """The life of assignments. Every method is called by the broker, by the admin API, or by a timer."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.by_id: dict[str, Offer] = {}

    def get(self, offer_id: str) -> Offer:
        """Return an offer that can still be worked on, else refuse with 404."""
        offer = self.by_id.get(offer_id)
        if offer is None or offer.revoked:
            raise Refused(404, "JobRequestNotFound")
        return offer

    def assign(self, job: Job, runner: Runner) -> Offer:
        """Give ``job`` to ``runner``: from here the forge refuses to deregister it."""
        number = self.world.rng("offers").getrandbits(128)
        offer = Offer(str(uuid.UUID(int=number)), job, runner, time.time())
        self.by_id[offer.id] = offer
        job.offer = runner.offer = offer
        self.world.truth.add("job_assigned", job=job.id, runner=runner.name)
        runner.messages.put_nowait({"type": "RunnerJobRequest", "offer": offer.id})
        self._after(offer, "pick up", self.world.seconds(PICK_UP_S), self._check_pick_up)
        if Fault.REGISTRATION_404 in runner.faults:
            self.world.misbehaved(runner, Fault.REGISTRATION_404)
        return offer

    def acknowledge(self, offer: Offer) -> None:
        """The listener says that the offer arrived."""
        if not offer.acknowledged:
            offer.acknowledged = True
            self.world.truth.add("job_acknowledged", job=offer.job.id, runner=offer.runner.name)

    def acquire(self, offer: Offer) -> None:
        """The listener takes the job: its lease begins. A ghost loses it instead, with its registration."""
        runner = offer.runner
        if offer.acquired:
            raise Refused(409, "JobAlreadyAcquired")
        if Fault.GHOST in runner.faults:
            self.world.misbehaved(runner, Fault.GHOST)
            runner.spent = True
            self.requeue(offer, "ghost")
            self.world.drop_registration(runner, "ghost")
            raise Refused(404, "JobMessageNotFound")
        offer.acquired = True
        offer.job.had_runner = True
        self.world.truth.add("job_acquired", job=offer.job.id, runner=runner.name)
        self.renew(offer)

    def renew(self, offer: Offer) -> None:
        """Extend the lease."""
        if offer.job.ended:
            raise Refused(404, "JobNotFound")
        offer.renewed_mono = asyncio.get_running_loop().time()
        self._after(offer, "lease", self.world.seconds(LEASE_S), self._lease_lapsed)

    def worker_started(self, offer: Offer, pid: int) -> None:
        """A worker process exists."""
        offer.worker_pid = pid
        offer.worker_alive = True
        self.world.truth.add("worker_started", job=offer.job.id, runner=offer.runner.name, pid=pid)

    def in_progress(self, offer: Offer) -> None:
        """The worker reports its start: only now the job shows a runner, or when a hidden one is revealed."""
        job = offer.job
        if job.ended:
            raise Refused(404, "JobNotFound")
        if job.hidden:
            offer.start_to_show = True
            return
        job.status = JobStatus.IN_PROGRESS
        job.started_at = time.time()
        job.shown_runner = (offer.runner.id, offer.runner.name)
        self.world.truth.add("job_in_progress", job=job.id, runner=offer.runner.name)
        self.world.on_job(job, "in_progress", 0.0)
        self.world.on_change()

    def hide(self, job: Job) -> None:
        """Let the forge be slow to show that a job runs, on every way: deliveries, jobs, busy flags."""
        job.hidden = True
        self.world.truth.add("admin", what="hidden", job=job.id)

    def reveal(self, job: Job) -> None:
        """Show what was hidden."""
        job.hidden = False
        self.world.truth.add("admin", what="revealed", job=job.id)
        if job.offer is not None and job.offer.start_to_show and not job.ended:
            self.in_progress(job.offer)

    def complete(self, offer: Offer, conclusion: str, reason: str) -> None:
        """The job ends; what the worker does after this is no longer the forge's business."""
        offer.cancel_timers()
        offer.reported = True
        if offer.job.shown_runner is None and offer.acquired:
            offer.job.shown_runner = (offer.runner.id, offer.runner.name)
        self.world.finish(offer.job, conclusion, reason)
        offer.runner.spent = True
        seconds = self.world.seconds(REGISTRATION_AFTER_JOB_S)
        self.world.later(seconds, lambda: self.world.drop_registration(offer.runner, "expired"))

    def worker_gone(self, offer: Offer) -> None:
        """The worker process ended. A job that it did not report stays bound until the lease lapses."""
        if not offer.worker_alive:
            return
        offer.worker_alive = False
        self.world.truth.add(
            "worker_exited",
            job=offer.job.id,
            runner=offer.runner.name,
            pid=offer.worker_pid,
            clean=offer.reported,
        )

    def listener_gone(self, runner: Runner) -> None:
        """The listener process ended, told by its open connection; the forge itself does not know yet."""
        if not runner.listener_alive:
            return
        runner.listener_alive = False
        runner.polling = False
        self.world.truth.add(
            "listener_exited", runner=runner.name, pid=runner.pid, clean=runner.ended_session
        )

    def session_ended(self, runner: Runner) -> None:
        """The listener closed its session: an ephemeral runner that had its job is removed with it."""
        runner.ended_session = True
        runner.session = None
        self.world.truth.add("runner_offline", runner=runner.name)
        if runner.offer is not None and runner.offer.job.ended:
            self.world.drop_registration(runner, "self")

    def requeue(self, offer: Offer, cause: str) -> None:
        """Take the job back into the queue. What the runner still sends about it is answered 404."""
        offer.revoked = True
        offer.cancel_timers()
        job, runner = offer.job, offer.runner
        job.offer = None
        runner.offer = None
        runner.last_poll_mono = None  # it does not count as online until it polls again
        while not runner.messages.empty():
            runner.messages.get_nowait()
        self.world.truth.add("job_requeued", job=job.id, runner=runner.name, cause=cause)
        self.world.on_change()

    def deregister(self, runner: Runner) -> None:
        """Remove a registration on request. A job that was not acquired goes back to the queue; one that was
        goes on, since the worker uses the job's own token (github.md, section 4 [unv])."""
        offer = runner.offer
        if offer is not None and offer.holds and not offer.acquired:
            self.requeue(offer, "deregistered")
        self.world.drop_registration(runner, "api")

    def cancel(self, job: Job) -> None:
        """Cancel a job: at once if nobody acquired it, else by a message to its listener."""
        if job.ended:
            raise Refused(409, "Cannot cancel a job that is completed.")
        offer = job.offer
        if offer is None or not offer.acquired:
            self.world.truth.add("job_cancelled_queued", job=job.id)
            self.world.finish(job, "cancelled", "cancelled")
            if offer is not None:
                offer.revoked = True
                offer.cancel_timers()
                offer.runner.offer = None
                offer.runner.spent = offer.acknowledged
            return
        job.cancel_asked = True
        offer.runner.messages.put_nowait({"type": "JobCancellation", "offer": offer.id})
        self._after(offer, "cancel", self.world.seconds(CANCEL_S), self._cancel_overdue)

    def _cancel_overdue(self, offer: Offer) -> None:
        self.complete(offer, "cancelled", "cancelled")

    def _after(self, offer: Offer, what: str, seconds: float, call: Callable[[Offer], None]) -> None:
        """Arm the deadline ``what`` of an offer anew."""
        old = offer.timers.pop(what, None)
        if old is not None:
            old.cancel()
        offer.timers[what] = self.world.later(seconds, lambda: call(offer))

    def _check_pick_up(self, offer: Offer) -> None:
        if offer.revoked or offer.acquired:
            return
        if not offer.runner.listener_alive:
            self.requeue(offer, "runner_lost")
        elif offer.acknowledged:
            rest = self.world.seconds(LEASE_S) - self.world.seconds(PICK_UP_S)
            self._after(offer, "pick up", rest, self._never_acquired)
        else:
            self.requeue(offer, "not_picked_up")

    def _never_acquired(self, offer: Offer) -> None:
        """It acknowledged and then nothing (actions/runner#4668): the job fails, unless the runner died."""
        if offer.revoked or offer.acquired:
            return
        if offer.runner.listener_alive:
            self._lease_lapsed(offer)
        else:
            self.requeue(offer, "runner_lost")

    def _lease_lapsed(self, offer: Offer) -> None:
        if offer.job.ended:
            return
        self.world.truth.add("runner_lost", runner=offer.runner.name, job=offer.job.id)
        self.complete(offer, "failure", "lost_communication")
        self.world.drop_registration(offer.runner, "lost")
