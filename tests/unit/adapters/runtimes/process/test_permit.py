"""What a permit that says "ended" lets happen where the processes cannot be seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from ephemerd.adapters.runtimes.process import ProcessOptions, ProcessRuntime
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.permit import Permit, Warrant
from ephemerd.domain.verdict import Verdict
from ephemerd.ports.errors import Broken, Refused
from tests.unit.adapters.runtimes.process.machine import LISTENER, REFERENCE, FakeMachine

ENVIRONMENT = str(REFERENCE)
PERMIT = Permit(
    RunnerId(REFERENCE.runner),
    ENVIRONMENT,
    Warrant.ENDED,
    "ended",
    Verdict.IDLE,
    0,
    10_000,
    "e1",
    "",
    (0, 0),
    (),
)


def runtime_on(machine: FakeMachine, tmp_path: Path) -> ProcessRuntime:
    options = ProcessOptions(
        tmp_path / "app", tmp_path / "work", tmp_path / "logs", stop_wait=0.0, kill_wait=0.0
    )
    return ProcessRuntime({"linux": options}, now=lambda: 1, epoch=lambda: "e1", machine=machine)


@pytest.mark.parametrize("trouble", ["no list", "partial list", "unreadable"])
async def test_ended_is_not_believed_without_a_whole_list(tmp_path, trouble):
    machine = FakeMachine().idle()
    if trouble == "no list":
        machine.broken = True
    else:
        machine.processes.pop(LISTENER.pid)
        machine.add(200, "dotnet", parent=100, session=100)
        machine.complete = trouble == "unreadable"
        machine.unreadable = {200} if trouble == "unreadable" else set()
    runtime = runtime_on(machine, tmp_path)
    with pytest.raises(Broken, match="nothing proves"):
        await runtime.destroy(ENVIRONMENT, PERMIT)
    assert machine.signals == []
    await runtime.close()


async def test_ended_is_refused_while_the_listener_lives(tmp_path):
    machine = FakeMachine().idle()
    runtime = runtime_on(machine, tmp_path)
    with pytest.raises(Refused, match="they are not"):
        await runtime.destroy(ENVIRONMENT, PERMIT)
    assert machine.signals == []
    await runtime.close()
