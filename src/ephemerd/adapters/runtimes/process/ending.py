"""End an environment: ask the listener, then kill what is left, each process by its identity."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable

from ephemerd.adapters.runtimes.process import cgroup
from ephemerd.adapters.runtimes.process.environment import Environment
from ephemerd.adapters.runtimes.process.identity import ProcessId
from ephemerd.adapters.runtimes.process.processes import Machine
from ephemerd.adapters.runtimes.process.tree import Look
from ephemerd.domain.verdict import Listing

ROUND = 0.5
PARENT_LEAVES = 2.0


def ask_to_stop(environment: Environment, machine: Machine) -> bool:
    """Send the listener, and nothing else, an interrupt; return whether it was there."""
    listener = environment.reference.listener
    if listener is None or machine.boot() != environment.reference.boot:
        return False
    return machine.signal(listener, signal.SIGINT)


async def gone(machine: Machine, identities: Iterable[ProcessId], limit: float) -> bool:
    """Wait until all of them have exited, at most `limit` seconds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + limit
    for identity in identities:
        handle = machine.handle(identity)
        if handle is None:
            continue
        try:
            if not await handle.wait(max(end - loop.time(), 0.0)):
                return False
        finally:
            handle.close()
    return True


async def kill(
    environment: Environment, machine: Machine, ask: Callable[[], Awaitable[Look]], limit: float
) -> tuple[ProcessId, ...]:
    """Kill everything of an environment; return what would not die within `limit` seconds.

    A listing that fails counts as something that would not die: nothing is proven then.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + limit
    reference = environment.reference
    rounds = 0
    while True:
        look = await ask()
        left = list(look.all)
        if look.listener and reference.listener is not None:
            left.append(reference.listener)
        if not left and look.listing is not Listing.FAILED:
            break
        if loop.time() >= end:
            return tuple(left) or (reference.listener or reference.parent or ProcessId(0, 0),)
        for identity in left:
            machine.signal(identity, signal.SIGKILL)
        if rounds:
            # Something forks faster than it is found. This takes the parent too, so that the exit code
            # may be lost; at first it had its chance to write it.
            cgroup.kill(environment.group)
        rounds += 1
        if left:
            await gone(machine, left, min(ROUND, end - loop.time()))
        else:
            await asyncio.sleep(ROUND)
    if (
        look.parent
        and reference.parent is not None
        and not await gone(machine, [reference.parent], PARENT_LEAVES)
    ):
        machine.signal(reference.parent, signal.SIGKILL)
        if not await gone(machine, [reference.parent], max(end - loop.time(), PARENT_LEAVES)):
            return (reference.parent,)
    return ()
