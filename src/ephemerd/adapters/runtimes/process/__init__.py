"""Runners as plain processes of this machine: one folder, one small parent, one listener each.

Parents are forked from one process that waits for them, the nursery, so that a start costs no start of an interpreter.
A process is meant by pid and start time, never by a bare pid. Nothing is ended but by `destroy` with a
permit. Linux and macOS differ only in `linux.py` and `darwin.py`.
"""

from ephemerd.adapters.runtimes.process.options import ProcessOptions
from ephemerd.adapters.runtimes.process.runtime import ProcessRuntime

__all__ = ["ProcessOptions", "ProcessRuntime"]
