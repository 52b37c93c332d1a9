"""A stand-in for the runner application: shell scripts that do what a test tells them through a fifo.

It honours the start contract of INTERFACES.md and nothing of any wire. Scripts of `/bin/sh`, so that any
user can run them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

LISTENER = r"""#!/bin/sh
root=$(cd "$(dirname "$0")/.." && pwd)
stamp() { date -u '+%Y-%m-%d %H:%M:%SZ'; }
say() { echo "$(stamp): $*"; }
perf() { echo "$1:$(date -u '+%Y-%m-%dT%H:%M:%S.0000000Z')" >> "$RUNNER_PERFLOG/Runner.perf"; }
diag() { echo "[$(stamp) INFO Runner] $*" >> "$root/_diag/Runner_1-utc.log"; }
[ "$1" = run ] || exit 64
[ -n "$ACTIONS_RUNNER_INPUT_JITCONFIG" ] || exit 65
mkdir -p "$root/_diag"
(ls -l /proc/$$/fd > "$root/descriptors")
mkfifo "$root/control"
exec 3<>"$root/control"
trap 'echo Exiting...; exit 0' INT
env > "$root/environment"
id -u > "$root/uid"
perf RunnerProcessStarted
echo '√ Connected to GitHub'
perf SessionCreated
say 'Listening for Jobs'
unset ACTIONS_RUNNER_INPUT_JITCONFIG
done=0
while read -r command rest <&3; do
  case $command in
    offer) perf MessageReceived_RunnerJobRequest; diag "Acknowledging runner request '1'." ;;
    announce) say "Running job: $rest" ;;
    worker) perf StartingWorkerProcess; "$root/bin/Runner.Worker" spawnclient 1 2 3>&- & worker=$! ;;
    hidden) "$root/bin/Runner.Worker" spawnclient 1 2 3>&- & worker=$! ;;
    end) kill "$worker"; wait "$worker"; say "Job $rest completed with result: Succeeded" ;;
    skip) diag "Skipping message Job. Job message not found" ;;
    sleep) sleep 1000 3>&- & ;;
    daemon) setsid sleep 1000 3>&- & ;;
    lost) env -i setsid sleep 1000 3>&- & ;;
    deaf) trap '' INT ;;
    leave) exit "$rest" ;;
    die) kill -9 $$ ;;
    run) eval "$rest" ;;
  esac
  done=$((done + 1))
  echo "$done" > "$root/.done" && mv "$root/.done" "$root/done"
done
"""

WORKER = r"""#!/bin/sh
trap 'exit 100' TERM
while :; do sleep 1000 & wait $!; done
"""

T = TypeVar("T")


def write_application(folder: Path) -> Path:
    """Write the stand-in, laid out as the unpacked runner application is."""
    (folder / "bin").mkdir(parents=True)
    for name, text in (("Runner.Listener", LISTENER), ("Runner.Worker", WORKER)):
        script = folder / "bin" / name
        script.write_text(text)
        script.chmod(0o755)
    node = folder / "externals" / "node20"
    node.mkdir(parents=True)
    (node / "node").write_text("no node\n")
    (folder / "bin" / "lib.so").symlink_to("Runner.Worker")
    return folder


def until(ask: Callable[[], T], limit: float = 20.0) -> T:
    """Return the first answer that is true; fail after a bound."""
    end = time.monotonic() + limit
    while not (answer := ask()):
        assert time.monotonic() < end, f"not within {limit} s"
        time.sleep(0.01)
    return answer


def read_int(path: Path) -> int:
    """Return the number in a file, 0 where there is none."""
    try:
        return int(path.read_text() or 0)
    except FileNotFoundError:
        return 0


class StandIn:
    """Speaks to the listener of one runner."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sent = 0

    def send(self, *commands: str) -> None:
        """Tell it something and wait until it was done (not for what ends it)."""
        until((self.root / "control").exists)
        for command in commands:
            descriptor = os.open(self.root / "control", os.O_RDWR)
            try:
                os.write(descriptor, command.encode() + b"\n")
                self.sent += 1
                if command.split()[0] not in ("leave", "die"):
                    until(lambda: read_int(self.root / "done") >= self.sent)
            finally:
                os.close(descriptor)

    def begin(self, name: str = "build (arm64, release)") -> None:
        self.send("offer", f"announce {name}", "worker")
