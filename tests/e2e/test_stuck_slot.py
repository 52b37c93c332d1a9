"""`197-stuck-slot-28h`, end to end: boots that wedge and ignore every stop, and the slot serves somebody else.

Real processes under the real process runtime, the real adapter against the look-alike, minutes scaled to seconds.
A process that no signal ends is hard to have: state D is the kernel's to give. Where the machine has the freezer of
control groups version 1, the listener is frozen in it: the kernel keeps even a SIGKILL pending until it is thawed,
as it does for one in state D. Elsewhere (version 2 kills what is frozen) signals to it are swallowed on their way,
in the one place through which the runtime sends them: they seem sent, and nothing comes of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ephemerd.adapters.forges.github import make_forge
from ephemerd.adapters.runtimes.process import ProcessOptions, ProcessRuntime
from ephemerd.adapters.runtimes.process.identity import ProcessId
from ephemerd.adapters.runtimes.process.linux import Linux
from ephemerd.adapters.system.clock import ShellClock
from ephemerd.app.daemon import Daemon, Ports
from ephemerd.core.health import assess
from ephemerd.domain.ids import JobKey
from ephemerd.domain.job import JobStatus
from ephemerd.domain.pool import Policy
from ephemerd.domain.runner import Runner, RunnerState
from ephemerd.testing.fake_runner.folder import write_folder
from ephemerd.testing.forge_sim.main import ForgeSim, Options, running
from ephemerd.testing.weather import Uniform, load
from tests.unit.app.fakes import FakeMeter, FakeStore, setup

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240), pytest.mark.platform("linux")]
S = RunnerState
FREEZER = Path("/sys/fs/cgroup/freezer")
PROMPT = replace(load("calm"), rest_delay=Uniform(), boot=Uniform(), assign=Uniform())
SCALED = Policy(
    provision_limit=6_000,
    settle=200,
    nominate_every=500,
    reconcile_every=1_000,
    look_again=1_000,
    veto_backoff=100,
    veto_backoff_max=500,
    retiring_limit=60_000,
    stuck_after=2_000,
)
WEDGES = """#!/bin/sh
for place in 1 2; do
  if mkdir "{folder}/wedged-$place" 2>/dev/null; then
    trap '' INT TERM HUP QUIT
    echo $$ > "{folder}/wedged-$place/pid.new" && mv "{folder}/wedged-$place/pid.new" "{folder}/wedged-$place/pid"
    while :; do read -r never < "{folder}/never"; done
  fi
done
exec "$(dirname "$0")/Runner.Listener.real" "$@"
"""


class Deaf(Linux):
    """A machine on which chosen processes take every signal and mind none."""

    def __init__(self) -> None:
        super().__init__()
        self.deaf: set[int] = set()

    def signal(self, target: ProcessId, number: int) -> bool:
        return True if target.pid in self.deaf else super().signal(target, number)


class Undying:
    """Makes processes immune to every stop, and lets them go again."""

    def __init__(self, machine: Deaf) -> None:
        self.machine = machine
        self.group = FREEZER / f"undying-{uuid.uuid4().hex}"
        self.pids: list[int] = []
        with contextlib.suppress(OSError):
            self.group.mkdir()
        self.freezes = os.access(self.group / "freezer.state", os.W_OK)

    def add(self, pid: int) -> None:
        self.pids.append(pid)
        if self.freezes:
            (self.group / "cgroup.procs").write_text(str(pid))
            (self.group / "freezer.state").write_text("FROZEN")
        else:
            self.machine.deaf.add(pid)

    def let_go(self) -> None:
        """They can be ended from now on; a signal that is pending takes effect."""
        if self.freezes:
            (self.group / "freezer.state").write_text("THAWED")
        self.machine.deaf.clear()
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        self.pids.clear()

    def close(self) -> None:
        self.let_go()
        with contextlib.suppress(OSError):
            self.group.rmdir()


class Site:
    """Everything in one process but the runners."""

    def __init__(self, folder: Path, sim: ForgeSim, daemon: Daemon, undying: Undying) -> None:
        self.folder, self.sim, self.daemon, self.undying = folder, sim, daemon, undying

    async def until(self, condition: Callable[[], Any], seconds: float = 90.0) -> Any:
        """Look after each commit until the condition holds; fail after a deadline."""
        changed = asyncio.Event()
        ends = self.daemon.watch(lambda _: changed.set())
        try:
            async with asyncio.timeout(seconds):
                while not (value := condition()):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(
                            0.1
                        ):  # what is no commit of ours is looked at now and then
                            await changed.wait()
                    changed.clear()
        finally:
            ends()
        return value

    def runners(self, state: RunnerState) -> list[Runner]:
        return [row for row in self.daemon.core.state.runners.values() if row.state is state]

    def reasons(self) -> str:
        return "\n".join(assess(self.daemon.core.state, self.daemon.ports.clock.now()).reasons)

    def finished(self, job: int) -> bool:
        row = self.daemon.core.state.jobs.get(JobKey("github", "acme/app", job))
        return row is not None and row.status is JobStatus.DONE

    async def admin(self, method: str, path: str, **body: Any) -> Any:
        async with httpx2.AsyncClient(trust_env=False, timeout=30) as client:
            answer = await client.request(method, f"{self.sim.url}/_admin/{path}", json=body or None)
        return answer.json()

    async def wedge(self, number: int) -> Runner:
        """Wait for the n-th wedged boot, make it undying, and wait until it is abandoned."""
        pid = self.folder / f"wedged-{number}" / "pid"
        await self.until(pid.exists)
        self.undying.add(int(pid.read_text()))
        await self.until(lambda: len(self.runners(S.ABANDONED)) == number)
        return self.runners(S.ABANDONED)[-1]


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    folder = Path(tempfile.mkdtemp(prefix="eph-wedge-"))
    folder.chmod(0o755)
    application = write_folder(folder / "application")
    listener = application / "bin" / "Runner.Listener"
    listener.rename(listener.with_name("Runner.Listener.real"))
    listener.write_text(WEDGES.format(folder=folder))
    listener.chmod(0o755)
    os.mkfifo(folder / "never")
    token = folder / "token"
    token.write_text("ghp_of_the_look_alike\n")
    machine = Deaf()
    undying = Undying(machine)
    try:
        async with running(Options(repository="acme/app", token_file=token, weather=PROMPT)) as sim:
            clock = ShellClock()
            lives: list[Daemon] = []
            options = ProcessOptions(
                application=application,
                work_dir=folder / "work",
                logs_dir=folder / "logs",
                allow_root=True,
                stop_wait=0.3,
                kill_wait=0.5,
            )
            runtime = ProcessRuntime(
                {"linux": options}, now=clock.now, epoch=lambda: lives[0].pulse.epoch, machine=machine
            )
            forge = make_forge("github", url=sim.url, token_file=token)
            ports = Ports(FakeStore(), {"github": forge}, {"linux": runtime}, clock, FakeMeter())
            lives.append(Daemon(ports, setup(SCALED, max_concurrent=1)))
            await lives[0].open()
            life = asyncio.create_task(lives[0].run())
            try:
                yield Site(folder, sim, lives[0], undying)
            finally:
                undying.let_go()
                await lives[0].stop(bound=10)
                await life
    finally:
        undying.close()
        shutil.rmtree(folder, ignore_errors=True)


async def test_fp_56_boots_that_ignore_every_stop_give_their_slot_back_and_two_of_them_stop_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ephemerd.adapters.runtimes.process.cgroup.make", lambda runner: None)
    async with site() as here:
        (job,) = (await here.admin("POST", "jobs", labels=["linux"], duration_s=0.3))["jobs"]

        first = await here.wedge(1)
        assert "would not die" in first.stuck
        assert (
            here.daemon.core.state.slots_held("local") <= 1
        )  # its own slot is back: only a successor holds one
        second = await here.wedge(2)
        assert {first.id, second.id} == {row.id for row in here.runners(S.ABANDONED)}

        await here.until(lambda: "2 environments would not die" in here.reasons())
        assert "End them by hand" in here.reasons()
        assert assess(here.daemon.core.state, here.daemon.ports.clock.now()).status == "stuck"
        assert here.daemon.core.state.slots_held("local") == 0
        assert here.daemon.core.state.counters["abandoned_total|host=local"] == 2
        made = here.daemon.core.state.counters["dispatches_total|pool=linux"]
        assert made == 2  # the host takes no new work, although the job waits and the slot is free

        here.undying.let_go()
        await here.until(lambda: not here.runners(S.ABANDONED))
        await here.until(lambda: here.daemon.core.state.slots_held("local") == 0 and here.finished(job))
        assert here.daemon.core.state.counters["dispatches_total|pool=linux"] == 3
        outcomes = await here.admin("GET", "outcomes")
        assert (outcomes["completed"], outcomes["killed"], outcomes["lost"]) == (1, 0, 0)
        await here.until(lambda: not any((here.folder / "work").iterdir()))
        assert assess(here.daemon.core.state, here.daemon.ports.clock.now()).status == "ok"
