"""Stretches of time for the field problems: everything that the core asks is answered as the case says.

    field = Field(world)
    field.probes[name] = seen(workers=1)
    field.run(10 * MINUTE)
    field.at("Register")      # when such commands were sent since the field was made, in ms of its clock

Without a word of the case: probes see a quiet listener, the forge shows runners as not busy, jobs as
they stand in the rows and accepts every deregistration, and what is destroyed is gone.
"""

from __future__ import annotations

from typing import Any

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.domain.errors import Fault
from ephemerd.domain.ids import JobKey, RunnerId
from ephemerd.domain.job import ForgeStatus, JobReport, JobStatus
from ephemerd.domain.runner import FenceAnswer
from ephemerd.domain.verdict import ProbeReport
from tests.unit.core.world import SECOND, World, seen

STATUS = {
    JobStatus.QUEUED: ForgeStatus.QUEUED,
    JobStatus.WAITING: ForgeStatus.WAITING,
    JobStatus.RUNNING: ForgeStatus.IN_PROGRESS,
    JobStatus.DONE: ForgeStatus.COMPLETED,
}


class Field:
    """One world and what its ports answer.

    probes   by runner; None is a probe that gets no answer
    flags    by runner: arguments of `RunnerLookedUp`
    fences   by runner
    jobs     by number: what the forge says of a job; None where it does not know it
    dies     whether what is destroyed dies
    away     the fault with which every call of the forge ends, where one is given
    """

    def __init__(self, world: World) -> None:
        self.world, self.began = world, world.now
        self.probes: dict[RunnerId, ProbeReport | None] = {}
        self.flags: dict[RunnerId, dict[str, Any]] = {}
        self.fences: dict[RunnerId, FenceAnswer] = {}
        self.jobs: dict[int, ForgeStatus | None] = {}
        self.dies = True
        self._away: Fault | None = None
        self.log: list[tuple[int, cm.Command]] = []
        self._read = len(world.sent)

    @property
    def away(self) -> Fault | None:
        return self._away

    @away.setter
    def away(self, fault: Fault | None) -> None:
        self._away, self.world.lists = fault, fault is None

    def run(self, ms: int, step: int = SECOND) -> None:
        """Let time pass, answering at the end of each step."""
        end = self.world.now + ms
        self.settle()
        while self.world.now < end:
            self.world.wait(min(step, end - self.world.now))
            self.settle()

    def settle(self) -> None:
        """Answer whatever was sent and not answered yet."""
        while self._read < len(self.world.sent):
            command = self.world.sent[self._read]
            self._read += 1
            self.log.append((self.world.now - self.began, command))
            self._answer(command)

    def at(self, kind: type[cm.Command], runner: RunnerId | None = None) -> list[int]:
        """When commands of a kind were sent (ms since the field began), of one runner where it is named."""
        return [at for at, command in self.log if isinstance(command, kind) and about(command, runner)]

    def _answer(self, command: cm.Command) -> None:
        world = self.world
        if isinstance(command, cm.ProbeRunner):
            found = self.probes.get(command.runner, seen())
            if found is not None:
                world.probed(command, found)
        elif isinstance(command, cm.Destroy):
            if self.dies and not command.permit.polite:
                world.destroyed(command)
        elif isinstance(command, cm.LookUpRunner):
            said = {"fault": self.away} if self.away else self.flags.get(command.runner, {"busy": False})
            world.feed(ev.RunnerLookedUp(command.runner, command.token, connected=True, **said))
        elif isinstance(command, cm.Deregister):
            answer = self.fences.get(command.intent.runner, FenceAnswer.ACCEPTED)
            world.deregistered(command, FenceAnswer.NO_ANSWER if self.away else answer)
        elif isinstance(command, cm.LookUpJob):
            self._job(command)
        elif self.away and isinstance(command, cm.ListEnvironments):
            listed = tuple(world.environments.values())
            world.feed(ev.EnvironmentsListed(command.host, listed, complete=True))
        elif self.away and isinstance(command, cm.Register):
            world.feed(ev.RegistrationFailed(command.runner, self.away))
        elif self.away and isinstance(command, cm.LookUpName):
            world.feed(ev.NameLookedUp(command.runner, None, self.away))
        elif self.away and isinstance(command, cm.ListJobs):
            world.feed(ev.JobsListed(command.scope, 0, self.away))
        elif self.away and isinstance(command, cm.ListRegistrations):
            world.feed(ev.RegistrationsListed(command.scope, (), self.away))

    def _job(self, command: cm.LookUpJob) -> None:
        if self.away:
            self.world.job_fault(command, self.away)
            return
        key: JobKey = command.job
        status = self.jobs.get(key.id, STATUS[self.world.core.state.jobs[key].status])
        if status is None:
            self.world.job_answer(command, None)
        else:
            self.world.feed(ev.JobLookedUp(key, command.token, JobReport(key, status, ("linux",))))


def about(command: cm.Command, runner: RunnerId | None) -> bool:
    held: Any = getattr(command, "intent", None) or getattr(command, "permit", None) or command
    return runner is None or getattr(held, "runner", None) == runner
