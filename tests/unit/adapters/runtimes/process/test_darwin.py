"""macOS, against a system that answers as psutil does there."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from typing import Any

import psutil
import pytest

from ephemerd.adapters.runtimes.process.darwin import ATTRIBUTES, Darwin, clone_file
from ephemerd.adapters.runtimes.process.identity import ProcessId
from ephemerd.adapters.runtimes.process.processes import Process, Unreadable, Vanished
from ephemerd.adapters.runtimes.process.tree import look
from ephemerd.domain.verdict import Listing
from tests.unit.adapters.runtimes.process.machine import REFERENCE

BORN = 1_700_000_000.25


@dataclass
class Mac:
    """A process as psutil shows it on macOS: what belongs to others answers `AccessDenied`."""

    pid: int
    name: str = "Runner.Listener"
    ppid: int = 1
    status: str = psutil.STATUS_RUNNING
    create_time: float | None = BORN
    argv: list[str] | Exception = field(default_factory=list)
    path: str | Exception = ""
    env: dict[str, str] | Exception = field(default_factory=dict)

    @property
    def info(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ATTRIBUTES}

    def as_dict(self, attributes: list[str]) -> dict[str, Any]:
        assert attributes == ATTRIBUTES
        return self.info

    def cmdline(self) -> Any:
        return self._say(self.argv)

    def exe(self) -> Any:
        return self._say(self.path)

    def environ(self) -> Any:
        return self._say(self.env)

    @staticmethod
    def _say(answer: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer


def darwin(*processes: Mac, **changes: Any) -> tuple[Darwin, list[tuple[int, int]]]:
    table, sent = {each.pid: each for each in processes}, []

    def process(pid: int) -> Mac:
        if pid not in table:
            raise psutil.NoSuchProcess(pid)
        return table[pid]

    def number(pid: int) -> int:
        if pid == 0:
            raise PermissionError
        return 101

    machine = Darwin(
        listing=lambda attributes: list(table.values()),
        process=process,
        group=number,
        session=number,
        kill=lambda pid, number: sent.append((pid, number)),
        boot=lambda: "5B1A",
        **changes,
    )
    return machine, sent


def test_a_snapshot():
    machine, _ = darwin(Mac(101), Mac(0, "kernel_task"), Mac(9, "dead", status=psutil.STATUS_ZOMBIE))
    snapshot = machine.snapshot()
    assert snapshot.complete
    start = 1_700_000_000_250_000
    assert snapshot.processes[101] == Process(101, 1, 101, 101, start, "Runner.Listener", False)
    assert (snapshot.processes[0].group, snapshot.processes[0].session) == (-1, -1)
    assert snapshot.processes[9].exited


def test_one_without_a_start_time_is_a_hole():
    machine, _ = darwin(Mac(101), Mac(102, create_time=None))
    assert not machine.snapshot().complete
    assert machine.find(102) is None
    assert machine.find(103) is None


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (psutil.AccessDenied(101), Unreadable),
        (OSError(5, "sysctl"), Unreadable),
        (psutil.NoSuchProcess(101), Vanished),
    ],
)
def test_what_a_program_does_not_say(answer, error):
    machine, _ = darwin(Mac(101, argv=answer))
    found = machine.find(101)
    assert found is not None
    with pytest.raises(error):
        machine.program(found)


def test_programs():
    machine, _ = darwin(
        Mac(101, argv=["/r/bin/Runner.Worker", "spawnclient"], path=psutil.AccessDenied(101)),
        Mac(102, argv=psutil.ZombieProcess(102)),
        Mac(103, argv=["a"], path="/bin/a"),
    )
    programs = [machine.program(machine.snapshot().processes[pid]) for pid in (101, 102, 103)]
    assert [(each.argv, each.exe) for each in programs] == [
        (("/r/bin/Runner.Worker", "spawnclient"), ""),
        ((), ""),
        (("a",), "/bin/a"),
    ]


def test_markers():
    machine, _ = darwin(
        Mac(101, env={"EPHEMERD_RUNNER": "r"}), Mac(102), Mac(103, env=psutil.AccessDenied(103))
    )
    processes = machine.snapshot().processes
    assert [machine.marker(processes[pid]) for pid in (101, 102, 103)] == ["r", None, None]


def test_only_the_process_that_is_meant_is_signalled():
    machine, sent = darwin(Mac(101), Mac(9, status=psutil.STATUS_ZOMBIE))
    found = machine.find(101)
    assert found is not None
    assert machine.signal(ProcessId(101, found.start + 1), signal.SIGINT) is False
    assert machine.signal(ProcessId(9, found.start), signal.SIGINT) is False
    assert machine.signal(ProcessId(404, 1), signal.SIGINT) is False
    assert sent == []
    assert machine.signal(found.id, signal.SIGINT) is True
    assert sent == [(101, signal.SIGINT)]
    assert machine.handle(found.id) is not None
    assert machine.handle(ProcessId(101, 1)) is None


async def test_an_exit_is_noticed_by_looking():
    mac = Mac(101)
    machine, _ = darwin(mac)
    found = machine.find(101)
    assert found is not None
    handle = machine.handle(found.id)
    assert handle is not None
    assert await handle.wait(0.01) is False
    mac.status = psutil.STATUS_ZOMBIE
    assert await handle.wait(5) is True
    handle.close()


def test_the_boot_is_asked_once_and_has_a_name_in_any_case():
    asked = []

    def refuses() -> str:
        asked.append(1)
        raise OSError("no such value")

    machine = Darwin(boot=refuses)
    assert machine.boot().startswith("boot-")
    assert machine.boot() == machine.boot()
    assert len(asked) == 1
    assert darwin()[0].boot() == "5B1A"


def test_a_tree_of_a_mac_is_judged_as_any():
    start = round(BORN * 1_000_000)
    listener, worker = Mac(101), Mac(200, "Runner.Worker", ppid=101, argv=["/r/bin/Runner.Worker"])
    machine, _ = darwin(listener, worker)
    reference = REFERENCE.__class__("r", "p", "s", "5B1A", None, ProcessId(101, start))
    found = look(machine, reference, ())
    assert (found.listing, found.listener, len(found.workers)) == (Listing.COMPLETE, True, 1)
    worker.argv, worker.name = psutil.AccessDenied(200), "dotnet"
    assert look(machine, reference, ()).listing is Listing.PARTIAL


def test_psutil_itself_answers_as_the_fake_does():
    """On any system that psutil knows: the same attributes, the same form."""
    machine = Darwin(boot=lambda: "b")
    environment = {"EPHEMERD_RUNNER": "eph-x", "PATH": os.environ["PATH"]}
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True, env=environment)
    try:
        found = machine.find(child.pid)
        assert found is not None
        assert found == machine.snapshot().processes[child.pid]
        assert (found.parent, found.group, found.session) == (os.getpid(), child.pid, child.pid)
        assert abs(found.start / 1_000_000 - time.time()) < 60
        assert machine.program(found).argv == ("sleep", "1000")
        assert machine.marker(found) == "eph-x"
        assert machine.signal(found.id, signal.SIGKILL) is True
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert machine.signal(found.id, signal.SIGKILL) is False
    finally:
        child.kill()
        child.wait()


@pytest.mark.platform("linux")
def test_where_there_is_no_clonefile_nothing_is_cloned(tmp_path):
    (tmp_path / "a").write_text("x")
    with (tmp_path / "a").open() as source, (tmp_path / "b").open("w") as target:
        assert clone_file(source.fileno(), target.fileno()) is False
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
