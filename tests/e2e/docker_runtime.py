"""What the tests of containers share: runtimes over one engine, a clock, permits, stand-ins inside."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ephemerd.adapters.runtimes.docker import DockerOptions, DockerRuntime, EngineOptions
from ephemerd.adapters.runtimes.docker.reference import parse_reference
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.permit import Permit, Warrant
from ephemerd.domain.verdict import Verdict
from tests.e2e.engine import IMAGE, TestEngine, remove_left
from tests.e2e.stand_in import StandIn, until

POOL, BROKEN = "linux", "broken"
EPOCH = "b1"
SECRET = "blob-that-nobody-may-see"
ROOT = "/runner"


@dataclass
class Lab:
    """One test's view of an engine."""

    engine: TestEngine
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="eph-e2e-")))
    stand_ins: dict[str, StandIn] = field(default_factory=dict)
    runtimes: list[DockerRuntime] = field(default_factory=list)
    clock: int = 1_000_000

    pool = POOL
    broken_pool = BROKEN

    def __post_init__(self) -> None:
        self.options = DockerOptions(
            image=IMAGE,
            runner_root=ROOT,
            logs_dir=self.folder / "logs",
            files_dir=self.folder / "containers",
            pull="never",
            network="none",
            stop_wait=10.0,
            kill_wait=10.0,
        )
        self.reach = EngineOptions(url=self.engine.url, nft=(*self.engine.enter, "nft"), reserve=0)

    def now(self) -> int:
        self.clock += 1
        return self.clock

    def runtime(self, *, reach: EngineOptions | None = None, **changes: Any) -> DockerRuntime:
        options = replace(self.options, **changes)
        broken = replace(options, image="ephemerd-test/nowhere:1")
        made = DockerRuntime(
            reach or self.reach, {POOL: options, BROKEN: broken}, now=self.now, epoch=lambda: EPOCH
        )
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
        """The runner's root, reached through its container's first process."""
        pid = until(lambda: self.engine.inspect(runner)["State"]["Pid"])
        return Path(f"/proc/{pid}/root{ROOT}")

    def log(self, runner: str) -> Path:
        return self.options.logs_dir / f"{runner}.log"

    def inside(self, runner: str) -> StandIn:
        known = self.stand_ins.get(runner)
        if known is None or not known.root.parent.exists():
            known = self.stand_ins[runner] = StandIn(self.root(runner))
        return known

    async def tell(self, runner: str, *commands: str) -> None:
        await asyncio.to_thread(lambda: self.inside(runner).send(*commands))

    async def begin_job(self, runner: RunnerId) -> None:
        await asyncio.to_thread(lambda: self.inside(runner).begin())

    async def end_job(self, runner: RunnerId) -> None:
        await self.tell(runner, "end build (arm64, release)")

    async def leave(self, runner: RunnerId, code: int) -> None:
        await self.tell(runner, f"leave {code}")

    def remains(self, runner: RunnerId) -> list[str]:
        """What is left of a runner; a network's holder bears its name, the others its label."""
        mark = f"ephemerd.runner={runner}"
        containers = self.engine.api.labelled("containers", mark)
        containers += [each for each in self.holders() if each["Names"] == [f"/{runner}-net"]]
        networks = self.engine.api.labelled("networks", mark)
        folders = self.options.files_dir.glob(f"*{runner}*")
        return [
            *(f"container {each['Names']}" for each in containers),
            *(f"network {each['Name']}" for each in networks),
            *(f"volume {each['Name']}" for each in self.engine.api.labelled("volumes", mark)),
            *(str(path) for path in folders),
        ]

    def holders(self) -> list[dict[str, Any]]:
        """Containers that hold a network, ready or taken."""
        return self.engine.api.labelled("containers", "ephemerd.role=network")

    def networks(self) -> list[dict[str, Any]]:
        """Networks of any store."""
        return self.engine.api.labelled("networks", "ephemerd.store")

    async def close(self) -> None:
        """End what a test left on the engine, and remove the folder."""
        for runtime in self.runtimes:
            await runtime.close()
        await asyncio.to_thread(self._clear)

    def _clear(self) -> None:
        for container in self.engine.call("GET", "/containers/json?all=1"):
            self.engine.call("DELETE", f"/containers/{container['Id']}?force=1&v=1", fine=(404, 409))
        for network in self.engine.call("GET", "/networks"):
            if network.get("Labels", {}).get("ephemerd.store"):
                self.engine.call("DELETE", f"/networks/{network['Id']}", fine=(404,))
        for volume in self.engine.api.labelled("volumes", "ephemerd.store"):
            self.engine.call("DELETE", f"/volumes/{volume['Name']}", fine=(404,))
        remove_left(self.folder)


def container_of(environment: str) -> str:
    """The container's id in a reference."""
    reference = parse_reference(environment)
    assert reference is not None
    return reference.container
