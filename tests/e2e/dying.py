"""The program `ephemerd`, made to die by SIGKILL at one instant: `python dying.py INSTANT serve --config …`.

The instants lie between the steps of a runner's life: before a port does something, after it did and before anybody was
told, or in the middle of it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from ephemerd.adapters.forges.github.client import GitHubForge
from ephemerd.adapters.runtimes.process import ProcessRuntime, launch, removal
from ephemerd.adapters.runtimes.process.follow import Follower
from ephemerd.cli.main import main
from ephemerd.domain.permit import Permit


def die(*_: object, **__: object) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def before(owner: Any, name: str) -> None:
    setattr(owner, name, die)


def after(owner: Any, name: str) -> None:
    call = getattr(owner, name)

    async def and_die(*given: Any, **named: Any) -> Any:
        await call(*given, **named)
        die()

    setattr(owner, name, and_die)


def at_a_real_destroy(*, late: bool) -> None:
    """Ends that were decided, not the tidying up after a runner that left by itself."""
    call = ProcessRuntime.destroy

    async def destroy(self: ProcessRuntime, environment: str, permit: Permit) -> None:
        if late:
            await call(self, environment, permit)
        die()

    ProcessRuntime.destroy = destroy  # type: ignore[method-assign]


def exit_not_told() -> None:
    make = Follower.__init__

    def init(self: Follower, *given: Any, **named: Any) -> None:
        make(self, *given, **{**named, "exited": die})

    Follower.__init__ = init  # type: ignore[method-assign]


INSTANTS: dict[str, Callable[[], None]] = {
    "planned": lambda: before(GitHubForge, "register"),
    "registered, not told": lambda: after(GitHubForge, "register"),
    "registered, not started": lambda: before(ProcessRuntime, "start"),
    "folder half made": lambda: before(launch, "write_tag"),
    "folder made, nothing started": lambda: before(launch, "_hand_over"),
    "started, not recorded": lambda: after(ProcessRuntime, "start"),
    "asked to fence, not fenced": lambda: before(GitHubForge, "deregister"),
    "fenced, not told": lambda: after(GitHubForge, "deregister"),
    "fenced, not destroyed": lambda: at_a_real_destroy(late=False),
    "killed, not removed": lambda: before(removal, "put_aside"),
    "half removed": lambda: before(removal, "remove_tree"),
    "destroyed, not recorded": lambda: at_a_real_destroy(late=True),
    "exited, not told": exit_not_told,
}

if __name__ == "__main__":
    INSTANTS[sys.argv.pop(1)]()
    main()
