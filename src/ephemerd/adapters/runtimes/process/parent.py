"""The small parent of one runner: a script of its own that imports nothing of ephemerd.

Started as `python -I -S parent.py STATE_FOLDER`. It leaves the daemon (own session, adopted by init), reads
the order from its input to the end, starts the listener as the jobs' user in a process group of its own,
answers, and stays until the last of its descendants is gone. Order and answer are `marshal`led: both ends
are the same interpreter, and importing `json` (or `pathlib`, or `typing`) would double the time that a start
takes. So would `signal` with its enumerations and `os` with its mappings, without which the built-in modules
under them do. In the state folder it writes, as JSON,

    parent   its own identity, before anything else
    pid      the listener's identity, its own, cgroup and boot; before the listener may run
    exit     the listener's exit code, 128+n for a signal

each whole or not at all. The credential is in the order, thus in no argument list, and from here only in
the listener's environment. Orphans of the job become its children where the system can do that, so that
they are found by descent even after they left session, group and environment variables behind.
"""

from __future__ import annotations

import marshal
import posix as os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any
else:
    import _signal as signal

NULL = "/dev/null"

ORDER_LIMIT = 4 * 1024 * 1024
SLOW_START = 60_000_000  # µs that starting this interpreter may take
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


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


def read_all(descriptor: int) -> bytes:
    """Read to the end, at most so much as an order can be long."""
    parts, left = [], ORDER_LIMIT
    while left > 0 and (part := os.read(descriptor, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def own_orphans() -> None:
    """Become the parent of descendants whose own parent dies; silently not, where that does not exist."""
    if not sys.platform.startswith("linux"):
        return
    numbers = (SUBREAPER, 1, 0, 0, 0)
    try:
        try:
            import _ctypes  # the core of `ctypes`, whose own import would take half as long as all the rest

            library = _ctypes.dlopen(None, 0)  # type: ignore[arg-type] # the program itself
            _ctypes.call_function(_ctypes.dlsym(library, "prctl"), numbers)
        except (ImportError, AttributeError, TypeError):
            import ctypes

            ctypes.CDLL(None).prctl(*numbers)
    except (ImportError, OSError, AttributeError):
        pass


def join(cgroup: str | None) -> str | None:
    """Move into the cgroup, so that everything started from here is in it; None where that fails."""
    if cgroup is None:
        return None
    try:
        descriptor = os.open(f"{cgroup}/cgroup.procs", os.O_WRONLY)
        try:
            os.write(descriptor, b"0")
        finally:
            os.close(descriptor)
    except OSError:
        return None
    return cgroup


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


def launch(state: str, own: str, order: dict[str, Any]) -> tuple[int, str]:
    """Fork the listener, write the pid file, let it run; return its pid and what failed, if anything."""
    cgroup = join(order["cgroup"])
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
    group = "null" if cgroup is None else order["cgroup_json"]
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


def main() -> int:
    """Leave the daemon, start the listener, wait."""
    if os.fork():
        os._exit(0)
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    state = sys.argv[1]
    reply = os.dup(1)
    child, failure = 0, ""
    try:
        own = record(os.getpid(), micros() - SLOW_START, micros())
        write(state, "parent", own)
        order = marshal.loads(read_all(0))  # noqa: S302
        null = os.open(NULL, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        os.chdir("/")
        own_orphans()
        child, failure = launch(state, own, order)
        del order
    except (ValueError, EOFError, TypeError):
        failure = "the order did not arrive whole"
    except OSError as error:
        failure = f"the runner's parent failed: {error}"
    answer(reply, failure)
    if child:
        reap(state, child)
    return 0


if __name__ == "__main__":
    sys.exit(main())
