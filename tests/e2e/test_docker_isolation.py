"""What a runner in a container can reach, and what it can do to others: with a real engine and a real packet filter.

The engine's machine and everything beyond it are network namespaces of the tests (`engine.py`); addresses are
stand-ins. Each refusal has its counterpart that gets through, so that no test can pass because nothing works.
"""

from __future__ import annotations

import asyncio
import secrets
import subprocess
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ephemerd.adapters.runtimes.docker.reference import bridge_name, bridge_prefix
from ephemerd.adapters.runtimes.docker.rules import Exceptions, render, table_name
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.verdict import Sign
from ephemerd.ports.errors import Broken, RetryLater
from ephemerd.ports.runtime import StartOrder
from ephemerd.testing.contracts.runtime import FIRST, SECOND, STORE, Sink
from tests.e2e.docker_runtime import POOL, SECRET, Lab
from tests.e2e.engine import FAR_SIDE, PRIVATE, PUBLIC, UPLINK, TestEngine
from tests.e2e.listening import listening

pytestmark = [pytest.mark.e2e, pytest.mark.platform("linux"), pytest.mark.account("root")]


@pytest.fixture
async def lab(docker_engine: TestEngine):
    made = Lab(docker_engine)
    yield made
    await made.close()
    nft(*docker_engine.enter, change=("delete", "table", *TABLE))


TABLE = ("inet", table_name(STORE))


def nft(*enter: str, change: Sequence[str]) -> int:
    """Change the packet filter behind a command that enters a network; return the exit code."""
    return subprocess.run([*enter, "nft", *change], capture_output=True, timeout=60).returncode


async def begun(lab: Lab, *runners, **changes):
    """Start runners of one runtime, and wait until they listen."""
    runtime, sink = lab.runtime(**{"network": "isolated", **changes}), Sink()
    runtime.attach(sink)
    for runner in runners or (FIRST,):
        await runtime.start(StartOrder(runner, POOL, STORE, SECRET))
        await sink.until_sign(runner, Sign.LISTENING)
    return runtime


async def reaches(lab: Lab, runner: str, address: str, port: int) -> bool:
    """Whether a runner gets a connection."""
    command = ("nc", "-w", "5", address, str(port))
    return (
        await asyncio.to_thread(lab.engine.execute, runner, "sh", "-c", f"{' '.join(command)} </dev/null")
        == 0
    )


def address_of(lab: Lab, runner: str) -> tuple[str, str]:
    """A runner's address and that of its gateway."""
    network = lab.engine.inspect(runner)["NetworkSettings"]["Networks"][runner]
    return network["IPAddress"], network["Gateway"]


async def test_the_internet_is_reached_and_nothing_private_is(lab: Lab):
    await begun(lab)
    with listening(lab.engine.beyond) as port:
        assert await reaches(lab, FIRST, PUBLIC, port)
        for address in PRIVATE:
            assert not await reaches(lab, FIRST, address, port), address


async def test_without_our_rules_all_of_that_is_open(lab: Lab):
    """The counterpart, and what `network = "bridge"` means."""
    await begun(lab, network="bridge")
    _, gateway = address_of(lab, FIRST)
    with listening(lab.engine.beyond) as port, listening(lab.engine.enter) as here:
        for address in (PUBLIC, *PRIVATE):
            assert await reaches(lab, FIRST, address, port), address
        assert await reaches(lab, FIRST, gateway, here)


async def test_the_machine_itself_is_not_reached(lab: Lab):
    """Neither by the runner's gateway, nor by the machine's address outside, whatever listens there."""
    await begun(lab)
    _, gateway = address_of(lab, FIRST)
    with listening(lab.engine.enter) as port:
        for address in (gateway, UPLINK):
            assert not await reaches(lab, FIRST, address, port), address


async def test_runners_do_not_reach_each_other_nor_are_they_reached(lab: Lab):
    await begun(lab, FIRST, SECOND)
    first, _ = address_of(lab, FIRST)
    second, _ = address_of(lab, SECOND)
    pid = lab.engine.inspect(SECOND)["State"]["Pid"]
    with listening(("nsenter", f"--net=/proc/{pid}/ns/net")) as port:
        assert await reaches(lab, SECOND, second, port)
        assert not await reaches(lab, FIRST, second, port)
        outside = [*lab.engine.beyond, "busybox", "nc", "-w", "2", second, str(port)]
        tried = await asyncio.to_thread(
            subprocess.run, outside, stdin=subprocess.DEVNULL, capture_output=True, timeout=60
        )
        assert tried.returncode != 0
    assert first != second


async def test_a_runner_has_no_way_around_by_ipv6(lab: Lab):
    await begun(lab)
    code, text = await asyncio.to_thread(lab.engine.output, FIRST, "cat", "/proc/net/if_inet6")
    assert (code, text.strip()) in ((0, ""), (1, text.strip()))
    assert "eth0" not in text


async def test_what_is_allowed_by_name_is_reached_and_no_more(lab: Lab):
    await begun(lab, allow=("10.9.8.7", "198.51.100.2/32"))
    with listening(lab.engine.beyond) as port:
        assert await reaches(lab, FIRST, "10.9.8.7", port)
        assert await reaches(lab, FIRST, FAR_SIDE, port)
        assert not await reaches(lab, FIRST, "192.168.77.7", port)


async def test_a_changed_configuration_changes_the_exceptions_for_the_next_runner(lab: Lab):
    runtime = await begun(lab, FIRST)
    runtime.reconfigure({POOL: replace(lab.options, network="isolated", allow=("10.9.8.7",))})
    await runtime.start(StartOrder(SECOND, POOL, STORE, SECRET))
    with listening(lab.engine.beyond) as port:
        assert await reaches(lab, SECOND, "10.9.8.7", port)
        assert not await reaches(lab, SECOND, "192.168.77.7", port)


async def test_rules_that_somebody_removed_are_put_back(lab: Lab):
    runtime = await begun(lab)
    for change in (("delete", "table", *TABLE), ("flush", "chain", *TABLE, "passing")):
        assert nft(*lab.engine.enter, change=change) == 0
        await runtime.firewall.ready(STORE)
        with listening(lab.engine.beyond) as port:
            assert not await reaches(lab, FIRST, "10.9.8.7", port), change
            assert await reaches(lab, FIRST, PUBLIC, port), change


async def test_without_rules_no_runner_starts_and_nothing_stays(lab: Lab):
    for nft in (("no-such-program",), ("false",)):
        runtime = lab.runtime(reach=replace(lab.reach, nft=nft), network="isolated")
        runtime.attach(Sink())
        with pytest.raises(Broken, match=r'network = "bridge"'):
            await runtime.start(StartOrder(FIRST, POOL, STORE, SECRET))
        assert lab.remains(FIRST) == []


async def test_a_network_of_an_engine_elsewhere_is_refused(lab: Lab):
    """The engine's machine is another namespace here, and this one is asked for the packet filter."""
    store = f"elsewhere-{secrets.token_hex(4)}"  # the table is in this machine's own network for a moment
    runtime = lab.runtime(reach=replace(lab.reach, nft=("nft",)), network="isolated")
    runtime.attach(Sink())
    try:
        with pytest.raises(RetryLater, match="not on this machine"):
            await runtime.start(StartOrder(FIRST, POOL, store, SECRET))
    finally:
        nft(change=("delete", "table", "inet", table_name(store)))
    assert lab.remains(FIRST) == []


async def test_networks_are_carved_out_of_a_range(lab: Lab):
    await begun(lab, FIRST, SECOND, subnets="10.201.0.0/28")
    found = {address_of(lab, runner)[0] for runner in (FIRST, SECOND)}
    assert len(found) == 2
    assert all(address.startswith("10.201.0.") for address in found)
    third = lab.runtimes[0].start(StartOrder(RunnerId("eph-contract-third"), POOL, STORE, SECRET))
    with pytest.raises(Broken, match="subnets"):
        await third


def test_two_stores_have_tables_and_bridges_of_their_own():
    assert table_name("a") != table_name("b")
    assert bridge_prefix("a") != bridge_prefix("b")
    assert bridge_name("a", "eph-1").startswith(bridge_prefix("a"))
    assert len(bridge_name("a", "eph-1")) <= 15


def test_nft_takes_what_is_rendered(docker_engine: TestEngine):
    rules = render("any", Exceptions(("10.1.0.0/16", "fd00::5"), ("192.168.1.1", "fd00::53")))
    checked = subprocess.run(
        [*docker_engine.enter, "nft", "-c", "-f", "-"], input=rules, text=True, capture_output=True
    )
    assert checked.returncode == 0, checked.stderr
