"""Short lives of the daemon: a process that has everything imported forks one after the other."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.context import ForkServerProcess
from pathlib import Path


def live(config: Path, log: Path) -> None:
    """Be the daemon, from its configuration to its end; what it says is added to ``log``."""
    from ephemerd import serving
    from ephemerd.config.effective import examine

    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    found = examine(config, {}, {})
    if found.effective is None:
        sys.exit(f"{config} cannot be used: {found.findings}")
    sys.exit(serving.serve(found.effective, serving.Wishes(log_format="json")))


class Lives:
    """Begins lives with one configuration."""

    def __init__(self, config: Path, log: Path) -> None:
        self._config = config
        self._log = log
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["ephemerd.serving", "ephemerd.config.effective", __name__])

    def begin(self) -> ForkServerProcess:
        """Begin a life; ``kill()`` is what ends it."""
        process = self._context.Process(target=live, args=(self._config, self._log), daemon=True)
        process.start()
        return process
