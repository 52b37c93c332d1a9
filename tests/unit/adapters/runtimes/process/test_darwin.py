"""macOS, against a system that answers as psutil does there."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from ephemerd.adapters.runtimes.process.darwin import ATTRIBUTES, Darwin, clone_file, start_of
from ephemerd.adapters.runtimes.process.identity import ProcessId
from ephemerd.adapters.runtimes.process.kqueue import KqueueHandle, watch_exit
from ephemerd.adapters.runtimes.process.processes import PollingHandle, Process, Unreadable, Vanished
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
    born: float | None = BORN
    shift: float = 0.0
    argv: list[str] | Exception = field(default_factory=list)
    path: str | Exception = ""
    env: dict[str, str] | Exception = field(default_factory=dict)

    @property
    def info(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ATTRIBUTES}

    def as_dict(self, attributes: list[str]) -> dict[str, Any]:
        assert attributes == ATTRIBUTES
        return self.info

    @property
    def _proc(self) -> Mac:
        return self

    def create_time(self, monotonic: bool = False) -> float | None:
        """As psutil 7: what the kernel noted, and without `monotonic` moved by every step of the wall clock."""
        if self.born is None:
            return None
        return self.born if monotonic else self.born + self.shift

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


class Queue:
    """A kqueue with one process in it: a pipe that becomes readable when the process exits."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._events: list[str] = []
        self.closed = False

    def fileno(self) -> int:
        return self._read

    def control(self, changes: Any, most: int, timeout: float | None = None, /) -> list[Any]:
        assert (changes, most, timeout) == (None, 1, 0)
        told, self._events = self._events[:most], self._events[most:]
        if told:
            os.read(self._read, 1)
        return told

    def exits(self) -> None:
        self._events.append("NOTE_EXIT")
        os.write(self._write, b"x")

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)
        self.closed = True


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
        **{"watch": no_queue, **changes},
    )
    return machine, sent


def no_queue(pid: int) -> Queue:
    raise OSError(24, "too many open files")


def test_a_snapshot():
    machine, _ = darwin(Mac(101), Mac(0, "kernel_task"), Mac(9, "dead", status=psutil.STATUS_ZOMBIE))
    snapshot = machine.snapshot()
    assert snapshot.complete
    start = 1_700_000_000_250_000
    assert snapshot.processes[101] == Process(101, 1, 101, 101, start, "Runner.Listener", False)
    assert (snapshot.processes[0].group, snapshot.processes[0].session) == (-1, -1)
    assert snapshot.processes[9].exited


def test_one_without_a_start_time_is_a_hole():
    machine, _ = darwin(Mac(101), Mac(102, born=None))
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


def test_a_step_of_the_wall_clock_makes_no_process_another():
    """psutil moves `create_time()` along with the clock; an identity that moved would read as the end of all."""
    mac = Mac(101)
    machine, sent = darwin(mac)
    found = machine.find(101)
    assert found is not None
    mac.shift = 7200.0
    assert machine.find(101) == found
    assert machine.snapshot().processes[101].id == found.id
    assert machine.signal(found.id, signal.SIGINT) is True
    assert sent == [(101, signal.SIGINT)]


def test_what_goes_while_it_is_listed_is_no_hole():
    class Going(Mac):
        def create_time(self, monotonic: bool = False) -> float | None:
            raise psutil.NoSuchProcess(self.pid)

    machine, _ = darwin(Mac(101), Going(102))
    snapshot = machine.snapshot()
    assert (snapshot.complete, list(snapshot.processes)) == (True, [101])
    assert machine.find(102) is None


def test_a_psutil_without_the_inner_form_gives_the_outer_one():
    assert start_of(SimpleNamespace(create_time=lambda: 7.5)) == 7.5


async def test_an_exit_is_told_by_the_kernel():
    queues: dict[int, Queue] = {}

    def watch(pid: int) -> Queue:
        return queues.setdefault(pid, Queue())

    machine, _ = darwin(Mac(101), watch=watch)
    found = machine.find(101)
    assert found is not None
    handle = machine.handle(found.id)
    assert isinstance(handle, KqueueHandle)
    assert await handle.wait(0.01) is False
    waiting = asyncio.create_task(handle.wait(30))
    await asyncio.sleep(0)
    queues[101].exits()
    assert await waiting is True
    assert await handle.wait(0) is True  # the kernel tells once, the handle remembers
    handle.close()
    assert queues[101].closed


def test_only_the_process_that_is_meant_is_watched():
    queue = Queue()

    def nobody(pid: int) -> Queue:
        raise ProcessLookupError

    machine, _ = darwin(Mac(101), watch=lambda pid: queue)
    found = machine.find(101)
    assert found is not None
    assert machine.handle(ProcessId(101, found.start + 1)) is None
    assert queue.closed
    gone, _ = darwin(Mac(101), watch=nobody)
    assert gone.handle(found.id) is None
    polled, _ = darwin(Mac(101))
    assert isinstance(polled.handle(found.id), PollingHandle)


def test_the_kernel_is_asked_for_one_exit():
    """What is handed to `select.kqueue`, word by word."""
    seen: list[Any] = []

    class Kernel(Queue):
        def control(self, changes: Any, most: int, timeout: float | None = None, /) -> list[Any]:
            seen.append((changes, most, timeout))
            if changes[0]["pid"] == 404:
                raise ProcessLookupError
            return []

    made: list[Kernel] = []

    def kqueue() -> Kernel:
        made.append(Kernel())
        return made[-1]

    module = SimpleNamespace(
        kqueue=kqueue,
        kevent=lambda pid, **fields: {"pid": pid, **fields},
        KQ_FILTER_PROC=-5,
        KQ_EV_ADD=1,
        KQ_EV_ONESHOT=16,
        KQ_NOTE_EXIT=0x80000000,
    )
    queue = watch_exit(101, module)
    assert seen == [([{"pid": 101, "filter": -5, "flags": 17, "fflags": 0x80000000}], 0, 0)]
    queue.close()
    with pytest.raises(ProcessLookupError):
        watch_exit(404, module)
    assert made[-1].closed


async def test_without_a_queue_an_exit_is_noticed_by_looking():
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
    """On any system that psutil knows: the same attributes, the same form.

    The inner start time, too, which no interface of psutil promises: a version that drops it is noticed here.
    """
    machine = Darwin(boot=lambda: "b", watch=no_queue)
    inner: Any = psutil.Process()
    assert inner._proc.create_time(monotonic=True) == start_of(psutil.Process())
    environment = {"EPHEMERD_RUNNER": "eph-x", "PATH": os.environ["PATH"]}
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True, env=environment)
    try:
        found = machine.find(child.pid)
        assert found is not None
        assert found == machine.snapshot().processes[child.pid]
        assert (found.parent, found.group, found.session) == (os.getpid(), child.pid, child.pid)
        ours = machine.find(os.getpid())
        assert ours is not None
        assert ours.start < found.start
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
