"""The runtime, in the words of the domain: start, watch, probe, destroy, list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from ephemerd.core.events import FoundEnvironment
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.permit import Permit
from ephemerd.domain.verdict import ProbeReport, Sign


@dataclass(frozen=True, slots=True)
class StartOrder:
    """What to start. The credential is in no repr; it is handed over once and kept nowhere."""

    runner: RunnerId
    pool: str
    store: str
    credential: str = field(repr=False)


class RuntimeSink(Protocol):
    """Where a runtime tells what it hears without being asked. Calls never block and never raise."""

    def sign(self, runner: RunnerId, sign: Sign, detail: str) -> None:
        """A followed file or the process table told something."""
        ...

    def exited(self, runner: RunnerId, code: int | None, leftovers: int) -> None:
        """Listener and worker are both proven gone; told once."""
        ...


class Runtime(Protocol):
    """One kind of environment on one host. Raises only `PortError`s.

    An environment's reference is a text that finds it again after a restart of the daemon. It begins with the
    runtime's `kind` and a colon, and is opaque otherwise; it holds enough identity (pid with start time, engine id)
    that another thing is never taken for it.
    """

    kind: str
    probes: bool

    def attach(self, sink: RuntimeSink) -> None:
        """Say where to tell signs and exits; called once before anything else."""
        ...

    async def start(self, order: StartOrder) -> str:
        """Start the environment and follow it; return its reference. Idempotent by runner id."""
        ...

    async def watch(self, runner: RunnerId, pool: str, environment: str) -> None:
        """Follow an environment that already exists; its signs so far and its exit are told anew."""
        ...

    async def probe(self, runner: RunnerId, environment: str) -> ProbeReport:
        """Look inside once, within the probe's deadline."""
        ...

    async def destroy(self, environment: str, permit: Permit) -> None:
        """End the environment and remove its remains: stop, wait 30 s, kill, wait 30 s.

        Returns only when nothing of it runs any more; raises `Broken` where it would not die. Refuses
        (`Refused`) a permit that is expired or names another environment. `permit.polite` asks the
        listener to stop and returns at once.
        """
        ...

    async def list(self, store: str) -> list[FoundEnvironment]:
        """List every environment that bears this store's id, ended ones included."""
        ...

    async def tidy(self) -> None:
        """Remove what is kept of ended runners (logs, diagnostics) beyond its configured age and size."""
        ...

    async def close(self) -> None:
        """Stop following; end nothing."""
        ...


@dataclass(frozen=True, slots=True)
class LogFile:
    """One log of a runner: `output` is what the listener prints, the others are its diagnostics."""

    name: str
    size: int


@runtime_checkable
class KeepsLogs(Protocol):
    """A runtime whose runners leave logs that can be read, also after they are gone."""

    async def log_files(self, runner: RunnerId) -> Sequence[LogFile]:
        """List what there is, `output` first, then the newest diagnostics; raises `Gone` where nothing is."""
        ...

    async def read_log(self, runner: RunnerId, name: str, start: int, most: int) -> bytes:
        """Read up to `most` bytes from `start` on, nothing beyond the end; raises `Gone`."""
        ...
