"""What the tests of the process runtime share: folders, a clock, permits, runners that are ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ephemerd.adapters.runtimes.process import ProcessOptions, ProcessRuntime
from ephemerd.adapters.runtimes.process.identity import place_of
from ephemerd.adapters.runtimes.process.linux import Linux
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.permit import Permit, Warrant
from ephemerd.domain.verdict import Verdict
from tests.e2e.stand_in import StandIn, write_application

POOL, BROKEN = "linux", "broken"
EPOCH = "b1"
SECRET = "blob-that-nobody-may-see"


def running(runner: str) -> list[int]:
    """Every live process whose environment names a runner, or whose argument list names its folder."""
    machine = Linux()
    found = []
    for process in machine.snapshot().processes.values():
        if process.exited or process.pid == os.getpid():
            continue
        argv = b""
        with contextlib.suppress(OSError):
            argv = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        if machine.marker(process) == runner or f"/{runner}/".encode() in argv:
            found.append(process.pid)
    return found


def named(runner: str, comm: str) -> list[int]:
    """Those of them that bear a kernel name."""
    machine = Linux()
    found = ((pid, machine.find(pid)) for pid in running(runner))
    return [pid for pid, process in found if process is not None and process.comm == comm]


def groups_of(runners: set[str]) -> list[Path]:
    """The control groups of runners, wherever they are; other groups may come and go meanwhile."""
    wanted = {f"ephemerd-{runner}" for runner in runners}
    tree = os.walk("/sys/fs/cgroup")
    return [Path(folder) / name for folder, below, _ in tree for name in sorted(wanted.intersection(below))]


@dataclass
class Lab:
    """A machine to test on. Everything below one folder that any user may pass through."""

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="eph-e2e-")))
    stand_ins: dict[str, StandIn] = field(default_factory=dict)
    runtimes: list[ProcessRuntime] = field(default_factory=list)
    clock: int = 1_000_000

    pool = POOL
    broken_pool = BROKEN

    def __post_init__(self) -> None:
        self.folder.chmod(0o755)
        write_application(self.folder / "app")
        self.options = ProcessOptions(
            application=self.folder / "app",
            work_dir=self.folder / "work",
            logs_dir=self.folder / "logs",
            allow_root=True,
            stop_wait=10.0,
            kill_wait=10.0,
        )

    def now(self) -> int:
        self.clock += 1
        return self.clock

    def runtime(self, **changes: Any) -> ProcessRuntime:
        options = replace(self.options, **changes)
        broken = replace(options, application=self.folder / "nowhere")
        made = ProcessRuntime({POOL: options, BROKEN: broken}, now=self.now, epoch=lambda: EPOCH)
        self.runtimes.append(made)
        return made

    def permit(
        self,
        runner: RunnerId,
        environment: str,
        warrant: Warrant,
        *,
        polite: bool = False,
        expired: bool = False,
        other_life: bool = False,
    ) -> Permit:
        made = self.now() - (20_000 if expired else 0)
        return Permit(
            runner=runner,
            environment=environment,
            warrant=warrant,
            rule="expired",
            verdict=Verdict.IDLE,
            made=made,
            expires=made + 10_000,
            epoch="b0" if other_life else EPOCH,
            fence="accepted",
            proofs=(made, made),
            evidence=(),
            polite=polite,
        )

    def root(self, runner: str) -> Path:
        return place_of(runner, self.options.work_dir, self.options.logs_dir).root

    def log(self, runner: str) -> Path:
        return self.options.logs_dir / f"{runner}.log"

    def inside(self, runner: str) -> StandIn:
        return self.stand_ins.setdefault(runner, StandIn(self.root(runner)))

    async def tell(self, runner: str, *commands: str) -> None:
        await asyncio.to_thread(self.inside(runner).send, *commands)

    async def begin_job(self, runner: RunnerId) -> None:
        await asyncio.to_thread(self.inside(runner).begin)

    async def end_job(self, runner: RunnerId) -> None:
        await self.tell(runner, "end build (arm64, release)")

    async def leave(self, runner: RunnerId, code: int) -> None:
        await self.tell(runner, f"leave {code}")

    def remains(self, runner: RunnerId) -> list[str]:
        folders = self.options.work_dir.glob(f"*{runner}*") if self.options.work_dir.exists() else ()
        groups = groups_of({runner})
        return [*(str(path) for path in (*folders, *groups)), *(f"pid {pid}" for pid in running(runner))]

    async def close(self) -> None:
        """End what a test left, each process as the one that it is, and remove the folder."""
        for runtime in self.runtimes:
            await runtime.close()
        work = self.options.work_dir
        names = [path.name for path in work.iterdir()] if work.exists() else []
        machine = Linux()
        for name in names:
            for pid in running(name):
                found = machine.find(pid)
                if found is not None:
                    machine.signal(found.id, signal.SIGKILL)
        for group in groups_of(set(names)):
            for _ in range(500):
                try:
                    group.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    await asyncio.sleep(0.01)
        shutil.rmtree(self.folder, ignore_errors=True)
