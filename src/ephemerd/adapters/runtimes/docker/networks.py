"""Networks of runners: how one is made, and whether the packet filter here guards it."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping

from ephemerd.adapters.runtimes.docker import specification
from ephemerd.adapters.runtimes.docker.engine import About, Engine
from ephemerd.adapters.runtimes.docker.firewall import bridge_is_here
from ephemerd.adapters.runtimes.docker.options import DockerOptions
from ephemerd.adapters.runtimes.docker.reference import bridge_name
from ephemerd.adapters.runtimes.docker.subnets import free_subnets
from ephemerd.ports.errors import Broken, PortError, RetryLater

SUBNET_TRIES = 8


async def make(
    engine: Engine, name: str, store: str, marks: Mapping[str, str], options: DockerOptions
) -> str:
    """Make a network out of the range that a pool has for them; return its id.

    marks   its labels
    """
    if options.subnets is None:
        try:
            return await engine.create_network(specification.network(name, store, marks, None))
        except PortError as error:
            if "pool" in error.detail:
                raise Broken(
                    f"the engine has no address range left for a runner's network ({error.detail}): set subnets in the "
                    "pool's container table, or default-address-pools of the engine"
                ) from None
            raise
    taken = [
        str(config["Subnet"])
        for network in await engine.networks(None)
        for config in (network.get("IPAM") or {}).get("Config") or ()
        if config.get("Subnet")
    ]
    reason = "every part of it is taken"
    for subnet in itertools.islice(free_subnets(options.subnets, taken, name), SUBNET_TRIES):
        try:
            return await engine.create_network(specification.network(name, store, marks, subnet))
        except PortError as error:
            if "overlap" not in error.detail.lower():
                raise
            reason = error.detail
    raise Broken(
        f"no network can be carved out of {options.subnets} ({reason}): choose another range (subnets)"
    )


def check_isolation(engine: Engine, about: About) -> None:
    """Refuse isolation where the packet filter would be another machine's."""
    todo = 'write network = "bridge" in the pool\'s container table, or run the daemon where the engine is'
    if not engine.on_this_machine or (not sys.platform.startswith("linux")):
        raise Broken(f"runners of an engine on another machine cannot be isolated from here: {todo}")
    if "rootless" in about.root:
        raise Broken(f"a rootless engine's networks cannot be filtered from here: {todo}")


def check_bridge(engine: Engine, store: str, name: str) -> None:
    """Refuse isolation where the bridge of a network of that name is none of this machine's."""
    bridge = bridge_name(store, name)
    if engine.options.nft == ("nft",) and not bridge_is_here(bridge):
        raise RetryLater(
            f"the engine made a network whose bridge {bridge} is not on this machine, so that no packet filter here "
            'guards it: write network = "bridge" in the pool\'s container table'
        )
