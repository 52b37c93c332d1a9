"""/proc, pidfd and what stands in for it."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerd.adapters.runtimes.process.identity import ProcessId
from ephemerd.adapters.runtimes.process.linux import Linux, parse_stat, split_zeros
from ephemerd.adapters.runtimes.process.processes import PollingHandle, Process, Unreadable, Vanished

REST = "S 10 20 30 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 {threads} 0 4242 1 2 3 4 5"


def stat_line(comm: bytes, state: str = "S", threads: int = 1) -> bytes:
    rest = REST.format(threads=threads).replace("S ", f"{state} ", 1)
    return b"77 (" + comm + b") " + rest.encode() + b"\n"


@pytest.mark.parametrize(
    "comm",
    [b"Runner.Worker", b"a) S 1 2 3", b"((", b"x) (y", b"tab\there", b"", b"Runner.Listener", b"\xff\xfe"],
)
def test_a_stat_line_with_any_name(comm):
    found = parse_stat(stat_line(comm))
    assert found == Process(77, 10, 20, 30, 4242, comm.decode(errors="replace"), False)


@given(st.binary(max_size=15).filter(lambda name: b"\0" not in name))
def test_no_name_can_forge_the_numbers(comm):
    assert parse_stat(stat_line(comm)).id == ProcessId(77, 4242)


@pytest.mark.parametrize(
    ("state", "threads", "exited"),
    [("R", 1, False), ("D", 9, False), ("T", 1, False), ("Z", 1, True), ("Z", 3, False), ("X", 0, True)],
)
def test_a_zombie_counts_as_exited_unless_its_threads_go_on(state, threads, exited):
    assert parse_stat(stat_line(b"x", state, threads)).exited is exited


@pytest.mark.parametrize(
    "text", [b"", b"77", b"77 (x", b"77 (x) S 1 2", b"x (y) " + REST.encode(), b"77 x) S"]
)
def test_what_is_no_stat_line(text):
    with pytest.raises(ValueError, match=r".*"):
        parse_stat(text)


@pytest.mark.parametrize(
    ("text", "parts"), [(b"", ()), (b"a\0", ("a",)), (b"a\0\0b\0", ("a", "", "b")), (b"a b", ("a b",))]
)
def test_zeros(text, parts):
    assert split_zeros(text) == parts


# A /proc of files


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    for pid, comm in ((77, b"Runner.Worker"), (78, b"sh")):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "stat").write_bytes(stat_line(comm).replace(b"77", str(pid).encode(), 1))
        (folder / "cmdline").write_bytes(b"/r/bin/Runner.Worker\0spawnclient\0")
        (folder / "environ").write_bytes(b"A=1\0EPHEMERD_RUNNER=eph-s-b-1\0XEPHEMERD_RUNNER=no\0")
    (tmp_path / "self").mkdir()
    (tmp_path / "79").mkdir()
    return tmp_path


def test_a_snapshot_skips_what_vanished(proc):
    snapshot = Linux(proc).snapshot()
    assert sorted(snapshot.processes) == [77, 78]
    assert snapshot.complete


def test_a_snapshot_with_an_unreadable_process_of_ours_is_not_complete(proc):
    (proc / "78" / "stat").unlink()
    (proc / "78" / "stat").mkdir()
    snapshot = Linux(proc).snapshot()
    assert sorted(snapshot.processes) == [77]
    assert not snapshot.complete


def test_other_users_hidden_processes_are_not_ours(proc, monkeypatch):
    (proc / "78" / "stat").unlink()
    (proc / "78" / "stat").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: (proc / "78").stat().st_uid + 1000)
    assert Linux(proc).snapshot().complete


def test_no_proc_is_an_error(tmp_path):
    with pytest.raises(OSError, match="nowhere"):
        Linux(tmp_path / "nowhere").snapshot()


def test_program_and_marker(proc):
    machine = Linux(proc)
    found = machine.find(77)
    assert found is not None
    assert machine.program(found).argv == ("/r/bin/Runner.Worker", "spawnclient")
    assert machine.marker(found) == "eph-s-b-1"
    (proc / "77" / "environ").write_bytes(b"XEPHEMERD_RUNNER=eph-s-b-1\0")
    assert machine.marker(found) is None
    (proc / "77" / "environ").unlink()
    assert machine.marker(found) is None
    (proc / "77" / "cmdline").unlink()
    with pytest.raises(Vanished):
        machine.program(found)
    (proc / "77" / "cmdline").mkdir()
    with pytest.raises(Unreadable, match="pid 77"):
        machine.program(found)
    assert machine.find(99) is None


# Real processes

real = pytest.mark.platform("linux")


@pytest.fixture
def child():
    started = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    yield started
    started.kill()
    started.wait()


@real
def test_this_process_is_found():
    machine = Linux()
    mine = machine.snapshot().processes[os.getpid()]
    assert machine.find(os.getpid()) == mine
    assert (mine.parent, mine.group, mine.session) == (os.getppid(), os.getpgid(0), os.getsid(0))
    assert os.fsdecode(machine.program(mine).exe) == str(Path(sys.executable).resolve())


@real
@pytest.mark.parametrize("pidfd", [True, False])
def test_only_the_process_that_is_meant_is_signalled(child, monkeypatch, pidfd):
    machine = Linux()
    if not pidfd:
        monkeypatch.setattr(os, "pidfd_open", no_pidfd)
    found = machine.find(child.pid)
    assert found is not None
    assert machine.signal(ProcessId(child.pid, found.start + 1), signal.SIGKILL) is False
    assert child.poll() is None
    assert machine.signal(found.id, signal.SIGKILL) is True
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert machine.signal(found.id, signal.SIGKILL) is False  # a zombie
    assert machine.handle(found.id) is None
    child.wait()
    assert machine.signal(found.id, signal.SIGKILL) is False
    assert machine.handle(found.id) is None


def no_pidfd(pid: int) -> int:
    raise OSError(errno.ENOSYS, "no such call")


@real
@pytest.mark.parametrize("pidfd", [True, False])
async def test_a_handle_waits_for_the_exit(child, monkeypatch, pidfd):
    machine = Linux()
    if not pidfd:
        monkeypatch.setattr(os, "pidfd_open", no_pidfd)
    found = machine.find(child.pid)
    assert found is not None
    assert machine.handle(ProcessId(child.pid, found.start + 1)) is None
    handle = machine.handle(found.id)
    assert handle is not None
    assert isinstance(handle, PollingHandle) is not pidfd
    assert await handle.wait(0.01) is False
    assert await handle.wait(-1) is False
    waiting = asyncio.create_task(handle.wait(20))
    child.kill()
    assert await waiting is True
    assert await handle.wait(0) is True
    handle.close()
