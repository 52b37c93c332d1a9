"""The small parents of runners, one each, and the nursery that they are forked from; imports nothing of ephemerd.

Started as `python -I -S parent.py (ROOM)`, once for many runners: the nursery does nothing but wait for orders, so
that a start costs a fork and not the start of an interpreter. An order is one end of a stream that comes through the
socket at its input, and with it the runner's cgroup where there is one; when the daemon is gone the socket ends, and
the nursery with it.

A parent is born into the runner's cgroup, or goes there while the daemon still makes the folder. It leaves daemon and
nursery (own session, adopted by init), reads from its stream where it belongs, and then the order, starts the listener
as the jobs' user in a process group of its own, answers, and stays until the last of its descendants is gone. Where
the stream ends before the order was whole, it ends too, and nothing was started. What goes through the stream is
`marshal`led: both ends are the same interpreter. `json`, `pathlib` and `typing`, `signal` with its enumerations and
`os` with its mappings are not imported: every parent would hold them in memory. In the state folder it writes, as JSON,

    parent   its own identity, before anything else
    pid      the listener's identity, its own, cgroup and boot; before the listener may run
    exit     the listener's exit code, 128+n for a signal

each whole or not at all. The credential is in the order, thus in no argument list, and from here only in
the listener's environment; the nursery never reads it. Orphans of the job become its children where the system can
do that, so that they are found by descent even after they left session, group and environment variables behind.
Where the system lets it, the state folder stands in a parent's argument list, in the ROOM that was left for it there.
"""

from __future__ import annotations

import _io as io
import _socket
import marshal
import posix as os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from typing import Any
else:
    import _signal as signal

NULL = "/dev/null"

SLOW_START = 60_000_000  # µs that may pass from the fork to here
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
DESCRIPTOR = 4  # bytes of one, as it travels through a socket
CLONE3 = 435  # the number of this system call on every machine
INTO_CGROUP = 0x2_0000_0000  # CLONE_INTO_CGROUP


def start_ticks(pid: int) -> int | None:
    """Return a process's start time in clock ticks, None where there is no /proc."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            return int(os.read(descriptor, 4096).rpartition(b")")[2].split()[19])
        finally:
            os.close(descriptor)
    except (OSError, ValueError, IndexError):
        return None


def record(pid: int, after: int, before: int) -> str:
    """Return, as JSON, what tells a process from a later one with its pid.

    Without /proc the start time is not to be had from here; whoever looks it up later takes it for ours
    only if it lies between `after` and `before` (µs since 1970).
    """
    start = start_ticks(pid)
    known = "null" if start is None else str(start)
    return f'{{"pid": {pid}, "start": {known}, "after": {after}, "before": {before}}}'


def micros() -> int:
    return time.time_ns() // 1000


def write(folder: str, name: str, content: str) -> None:
    """Write a state file so that a reader finds it whole or not at all.

    Not flushed to the disk: after a power cut none of the processes it tells of is left either.
    """
    temporary = f"{folder}/.{name}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(descriptor, content.encode())
    finally:
        os.close(descriptor)
    os.rename(temporary, f"{folder}/{name}")


def orphanage() -> Callable[[], object]:
    """Return what makes the caller the parent of descendants whose own parent dies, where a system can do that."""
    numbers = (SUBREAPER, 1, 0, 0, 0)
    if not sys.platform.startswith("linux"):
        return lambda: None
    try:
        import _ctypes  # the core of `ctypes`, which would bring half the library with it

        prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type] # the program itself
        return lambda: _ctypes.call_function(prctl, numbers)
    except (ImportError, OSError, AttributeError, TypeError):
        pass
    try:
        import ctypes

        library = ctypes.CDLL(None)
        return lambda: library.prctl(*numbers)
    except (ImportError, OSError, AttributeError):
        return lambda: None


def cloner() -> Callable[[int], int]:
    """Return what forks into a cgroup (of version 2, an open folder): the child's pid, 0 in the child, -1 where that
    cannot be.

    Born there a process need not wait, as one that moves has to, until no other of the whole machine is being forked.
    Nothing of the interpreter or the C library knows of this fork: the child does nothing but fork in the usual way.
    """
    if not sys.platform.startswith("linux"):
        return lambda group: -1
    try:
        import _ctypes

        syscall = _ctypes.dlsym(_ctypes.dlopen(None, 0), "syscall")  # type: ignore[arg-type] # the program itself
    except (ImportError, OSError, AttributeError, TypeError):
        return lambda group: -1

    def clone(group: int) -> int:
        words = (INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, group)
        arguments = b"".join(int(word).to_bytes(8, sys.byteorder) for word in words)
        try:
            return int(_ctypes.call_function(syscall, (CLONE3, arguments, len(arguments))))
        except (AttributeError, TypeError):
            return -1

    return clone


def room() -> tuple[int, int]:
    """Return where the last argument lies in memory, and its length; (0, 0) where the system does not say."""
    try:
        descriptor = os.open("/proc/self/stat", os.O_RDONLY)
        try:
            end = int(os.read(descriptor, 4096).rpartition(b")")[2].split()[46])  # arg_end
        finally:
            os.close(descriptor)
    except (OSError, ValueError, IndexError):
        return 0, 0
    length = len(sys.argv[-1].encode())
    return (end - 1 - length, length) if end else (0, 0)


def show(text: str, place: tuple[int, int]) -> None:
    """Let the argument list tell what this process is; silently not, where that is not possible."""
    address, length = place
    content = text.encode()
    if not address or len(content) > length:
        return
    try:
        descriptor = os.open("/proc/self/mem", os.O_WRONLY)
        try:
            os.pwrite(descriptor, content.ljust(length), address)
        finally:
            os.close(descriptor)
    except OSError:
        pass


def join(cgroup: str | None) -> bool:
    """Move into the cgroup, so that everything started from here is in it; say whether that was done.

    This process has one thread. Where a thread can move alone (version 1), it need not wait, as a process has to,
    until no other of the whole machine is being forked.
    """
    if cgroup is None:
        return False
    for name in ("tasks", "cgroup.procs"):
        try:
            descriptor = os.open(f"{cgroup}/{name}", os.O_WRONLY)
            try:
                os.write(descriptor, b"0")
            finally:
                os.close(descriptor)
        except OSError:
            continue
        return True
    return False


def become(order: dict[str, Any], go: int, log: int, failed: int) -> None:
    """In the child: wait for leave, drop everything of the parent, and be the listener."""
    step = "start"
    try:
        os.setpgid(0, 0)
        if os.read(go, 1) != b"g":
            os._exit(127)
        for number in signal.valid_signals():
            if number not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.umask(0o022)
        null = os.open(NULL, os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.closerange(3, failed)
        os.closerange(failed + 1, 65536)
        step = "change to the jobs' user"
        if order["switch"]:
            os.setgroups(order["groups"])
            os.setgid(order["gid"])
            os.setuid(order["uid"])
        step = f"enter {order['cwd']}"
        os.chdir(order["cwd"])
        step = f"execute {order['argv'][0]}"
        os.execve(order["argv"][0], order["argv"], order["env"])
    except BaseException as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else repr(error)
        os.write(failed, f"cannot {step}: {reason}".encode())
    os._exit(127)


def launch(state: str, own: str, group: str, order: dict[str, Any]) -> tuple[int, str]:
    """Fork the listener, write the pid file, let it run; return its pid and what failed, if anything."""
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o640)
    go_read, go_write = os.pipe()
    failed_read, failed_write = os.pipe()
    after = micros()
    child = os.fork()
    if child == 0:
        os.close(go_write)
        become(order, go_read, log, failed_write)
    order["env"] = None
    for descriptor in (go_read, failed_write, log):
        os.close(descriptor)
    listener = record(child, after, micros())
    boot = order["boot_json"]
    write(state, "pid", f'{{"listener": {listener}, "parent": {own}, "cgroup": {group}, "boot": {boot}}}')
    os.write(go_write, b"g")
    os.close(go_write)
    error = os.read(failed_read, 4096)
    os.close(failed_read)
    return child, error.decode(errors="replace")


def reap(state: str, listener: int) -> None:
    """Wait for every descendant; write the exit file when the listener is the one that went."""
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return
        if pid == listener:
            code = os.waitstatus_to_exitcode(status)
            try:
                write(state, "exit", f'{{"code": {code if code >= 0 else 128 - code}}}')
            except OSError:
                continue  # no folder, or a full disk: the exit is proven by identity, without a code


def answer(descriptor: int, error: str) -> None:
    """Tell the daemon, which may be gone by now."""
    try:
        os.write(descriptor, marshal.dumps({"error": error}))
        os.close(descriptor)
    except OSError:
        pass


def parent(stream: int, inside: bool, own_orphans: Callable[[], object], place: tuple[int, int]) -> None:
    """Leave the nursery, start the listener, wait. `inside`: it is in its cgroup already."""
    if os.fork():
        return
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    null = os.open(NULL, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    child, failure, state = 0, "", ""
    try:
        with io.open(stream, "rb", closefd=False) as said:
            home = marshal.load(said)  # noqa: S302
            state = home["state"]
            own = record(os.getpid(), micros() - SLOW_START, micros())
            write(state, "parent", own)
            show(state, place)
            own_orphans()
            group = home["cgroup_json"] if inside or join(home["cgroup"]) else "null"
            order = marshal.load(said)  # noqa: S302
        child, failure = launch(state, own, group, order)
        del order
    except (ValueError, EOFError, TypeError):
        failure = "the order did not arrive whole"
    except OSError as error:
        failure = f"the runner's parent failed: {error}"
    answer(stream, failure)
    if child:
        reap(state, child)


def received(told: list[tuple[int, int, bytes]]) -> list[int]:
    """Return the descriptors that came through a socket."""
    return [
        int.from_bytes(content[start : start + DESCRIPTOR], sys.byteorder)
        for level, kind, content in told
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS)
        for start in range(0, len(content), DESCRIPTOR)
    ]


def nursery() -> None:
    """Fork a parent for each order; return when the daemon is gone."""
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGPIPE,
        signal.SIGCHLD,
    ):
        signal.signal(number, signal.SIG_IGN)  # of SIGCHLD: whoever leaves is not waited for
    own_orphans, clone, place = orphanage(), cloner(), room()
    daemon = _socket.socket(fileno=0)
    while True:
        said, told, _, _ = daemon.recvmsg(1, _socket.CMSG_SPACE(2 * DESCRIPTOR))
        if not said:
            return
        descriptors = received(told)
        if not descriptors:
            continue
        stream = descriptors[0]
        try:
            child = clone(descriptors[1]) if len(descriptors) > 1 else -1
            inside = child >= 0
            if not inside:
                child = os.fork()
        except OSError as error:
            answer(stream, f"the runner's parent could not be made: {error}")
            descriptors.remove(stream)
        else:
            if child == 0:
                try:
                    parent(stream, inside, own_orphans, place)
                finally:
                    os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


if __name__ == "__main__":
    nursery()
