"""The scripted act: the shape of a real incident, over the real wire, with real processes.

Four same-label jobs get four runners. One of the jobs is cancelled: the one whose runner was up first. The
other three are handed out so that no runner gets the job it was made for, and the forge is slow to show that
the job which went to the youngest runner is in progress. The daemon does not read these runners' logs. So all
it has is events: a job that still waits, the oldest idle runner to match it with, and a younger one left over
whose own job runs elsewhere. That left-over one is at work.
"""

from __future__ import annotations

from typing import Any

from ephemerd.testing.demo.clients import Json, until
from ephemerd.testing.demo.narrator import Narrator
from ephemerd.testing.demo.options import DemoError
from ephemerd.testing.demo.settings import ACT_LABELS
from ephemerd.testing.demo.stage import Stage

JOBS = 4
WORK_S = 12.0
"""The act's jobs last so long, real time: the nomination has to find them at work on a slow machine too."""
LISTEN_WITHIN_S = 60.0
DECIDE_WITHIN_S = 45.0


class Act:
    """Plays the act. ``executing`` and ``spare`` are the two runners it is about."""

    def __init__(self, stage: Stage, narrator: Narrator) -> None:
        self.forge, self.daemon = stage.forge, stage.daemon
        self.tell = narrator
        self.executing = ""
        self.spare = ""
        self.held_job = 0
        self.jobs: list[int] = []
        self.failures: list[str] = []

    async def play_to_the_veto(self) -> None:
        """Set the scene, let the wrong runner be nominated, and show why it lives."""
        tell = self.tell
        tell.title("Act: the job that nobody could see")
        await self.forge.admin(
            "/spare", spare=True
        )  # a script cannot do with a runner that the weather broke
        await self.forge.admin("/assignment", paused=True)
        self.jobs = await self.forge.queue(
            ACT_LABELS, JOBS, duration_s=WORK_S, prompt=True, tag="act", one_run=True
        )
        tell.say(f"four jobs are queued, all with the labels {', '.join(ACT_LABELS)}")
        runners = await self._four_listening()
        await self.forge.admin("/spare", spare=False)
        tell.say("the daemon made a runner for each of them:")
        tell.detail(f"{name}  made for job {job}" for name, job in runners)
        await self._cast(runners)
        await self.forge.admin("/assignment", paused=False)
        await self.forge.wait("jobs_started", 60, jobs=str(self.held_job))
        tell.say(f"{self.executing} now executes job {self.held_job}; its in_progress is held back", "act")
        tell.detail(
            [
                f"to the daemon job {self.held_job} still waits, and {self.spare}, the oldest, is there for it;",
                f"{self.executing} looks left over: its own job runs elsewhere, nobody needs it",
            ]
        )
        veto = await self._decision(self.executing, "vetoed")
        if veto is None:
            await self._reveal()
            return
        tell.say(f"rule {veto['rule']} nominates {self.executing}, so the gate looks before anything is done")
        tell.say(f"VETO: the verdict is {veto['verdict']}, by {veto['via']}", "good")
        tell.detail([*_evidence(veto), await self._confirmed()])
        await self._reveal()

    async def play_to_the_end(self) -> None:
        """Let the hidden job be seen and finish, and the genuinely idle spare go."""
        tell = self.tell
        reaped = await self._decision(self.spare, "reaped")
        if reaped is not None:
            tell.say(f"{self.spare} really is idle: the forge let it go (fence), then it was reaped", "good")
            tell.detail([f"rule {reaped['rule']}: {reaped['reason']}", *_evidence(reaped)])
        await self.forge.wait("jobs_ended", 60, jobs=str(self.held_job))
        state = await self.forge.state()
        [job] = [job for job in state["jobs"] if job["id"] == self.held_job]
        style = "good" if job["conclusion"] == "success" else "bad"
        tell.say(f"job {self.held_job} ended on {self.executing} with {job['conclusion']}", style)

    async def _four_listening(self) -> list[tuple[str, int]]:
        """The act's runners with the job that each was made for, the one that listened first in front."""

        async def listening() -> list[Json]:
            items: list[Json] = await self.daemon.items("runners", pool="act")
            up = [item for item in items if item["state"] == "listening" and item["listening"]]
            return up if len(up) >= JOBS else []

        found: list[Json] | None = await until(listening, LISTEN_WITHIN_S)
        if found is None:
            raise DemoError("the act's four runners did not get ready", "see daemon.log in the folder")
        found.sort(key=lambda item: int(item["listening"]))
        return [(item["id"], int(str(item["intent"]).rpartition("/")[2])) for item in found]

    async def _cast(self, runners: list[tuple[str, int]]) -> None:
        """Cancel the first runner's job, and hand the others out so that nobody gets its own."""
        (self.spare, cancelled), *others = runners
        self.executing = others[-1][0]
        answer = await self.forge.admin("/permute", made_for=dict(others))
        pinned: dict[str, Any] = answer["pinned"]
        self.held_job = int(pinned[self.executing])
        await self.forge.admin(f"/jobs/{self.held_job}/hide")
        await self.forge.admin(f"/jobs/{cancelled}/cancel")
        self.tell.say(f"job {cancelled} is cancelled; {self.spare}, which was up first, has nothing to do")
        self.tell.say("the forge hands out the other three, to no runner the job it was made for:")
        self.tell.detail(f"{name}  gets job {job}" for name, job in pinned.items())

    async def _reveal(self) -> None:
        await self.forge.admin(f"/jobs/{self.held_job}/reveal")
        self.tell.say("now the held in_progress is delivered: the daemon learns which job that is")

    async def _confirmed(self) -> str:
        """What the look-alike says about the job and its worker."""
        [job] = [job for job in (await self.forge.state())["jobs"] if job["id"] == self.held_job]
        alive = "alive" if job["worker_alive"] else "gone"
        return (
            f"the forge's own books: job {job['id']} on {job['runner']}, worker {job['worker_pid']} {alive}"
        )

    async def _decision(self, runner: str, outcome: str) -> Json | None:
        """Wait for a decision about a runner; without one the act has failed, and the demo goes on."""

        async def made() -> Json | None:
            found: list[Json] = await self.daemon.items("decisions", runner=runner, outcome=outcome)
            return found[0] if found else None

        decision: Json | None = await until(made, DECIDE_WITHIN_S)
        if decision is None:
            self.failures.append(f"in the act {runner} was not {outcome} within {DECIDE_WITHIN_S:g} s")
            self.tell.say(self.failures[-1], "bad")
        return decision


def _evidence(decision: Json) -> list[str]:
    return [
        f"{look['via']}: {look['verdict']}" + (f" – {look['detail']}" if look["detail"] else "")
        for look in decision["evidence"]
    ]
