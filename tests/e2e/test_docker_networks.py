"""Networks that are ready before a runner needs one: isolated like any, for one runner each, gone with it."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from ephemerd.adapters.runtimes.docker import DockerRuntime
from ephemerd.adapters.runtimes.docker.rules import table_name
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.permit import Warrant
from ephemerd.domain.verdict import Sign
from ephemerd.ports.runtime import StartOrder
from ephemerd.testing.contracts.runtime import FIRST, SECOND, STORE, Sink, quiet, until_report
from tests.e2e.docker_runtime import POOL, SECRET, Lab, container_of
from tests.e2e.engine import PRIVATE, PUBLIC, UPLINK, TestEngine
from tests.e2e.listening import listening
from tests.e2e.stand_in import until

pytestmark = [pytest.mark.e2e, pytest.mark.platform("linux"), pytest.mark.account("root")]


@pytest.fixture
async def lab(docker_engine: TestEngine):
    made = Lab(docker_engine)
    yield made
    await made.close()
    table = [*docker_engine.enter, "nft", "delete", "table", "inet", table_name(STORE)]
    await asyncio.to_thread(subprocess.run, table, capture_output=True, timeout=60)


async def stocked(lab: Lab, number: int = 1, **changes) -> tuple[DockerRuntime, Sink]:
    """A runtime with so many networks ready."""
    runtime, sink = lab.runtime(network="isolated", ready_networks=number, **changes), Sink()
    runtime.attach(sink)
    await runtime.list(STORE)
    await runtime.stock.filled()
    assert runtime.stock.ready == number
    return runtime, sink


async def start(runtime: DockerRuntime, sink: Sink, runner: RunnerId) -> str:
    environment = await runtime.start(StartOrder(runner, POOL, STORE, SECRET))
    await sink.until_sign(runner, Sign.LISTENING)
    return environment


async def reaches(lab: Lab, runner: str, address: str, port: int) -> bool:
    command = f"nc -w 5 {address} {port} </dev/null"
    return await asyncio.to_thread(lab.engine.execute, runner, "sh", "-c", command) == 0


def joined(lab: Lab, environment: str) -> str:
    """The container whose network a runner is in."""
    mode = lab.engine.inspect(container_of(environment))["HostConfig"]["NetworkMode"]
    assert mode.startswith("container:"), mode
    return str(mode.removeprefix("container:"))


async def test_a_ready_network_isolates_and_is_nobody_elses_before_or_after(lab: Lab):
    runtime, sink = await stocked(lab, 2)
    ready = {each["Id"] for each in lab.holders()}
    first, second = await asyncio.gather(*(start(runtime, sink, each) for each in (FIRST, SECOND)))
    assert {joined(lab, first), joined(lab, second)} == ready
    neighbour = lab.engine.inspect(joined(lab, second))["NetworkSettings"]["Networks"]
    (address,) = (network["IPAddress"] for network in neighbour.values())
    with listening(lab.engine.beyond) as port, listening(lab.engine.enter) as here:
        assert await reaches(lab, FIRST, PUBLIC, port)
        for private in PRIVATE:
            assert not await reaches(lab, FIRST, private, port), private
        assert not await reaches(lab, FIRST, UPLINK, here)
    pid = lab.engine.inspect(SECOND)["State"]["Pid"]
    with listening(("nsenter", f"--net=/proc/{pid}/ns/net")) as port:
        assert await reaches(lab, SECOND, address, port)
        assert not await reaches(lab, FIRST, address, port)
    await until_report(lambda: runtime.probe(FIRST, first), quiet)
    await runtime.destroy(first, lab.permit(FIRST, first, Warrant.IDLE))
    assert lab.remains(FIRST) == []
    await runtime.stock.filled()
    assert not {each["Id"] for each in lab.holders()} & ready - {joined(lab, second)}
    assert lab.engine.inspect(SECOND)["State"]["Running"]


async def test_what_is_ready_is_taken_over_and_what_was_used_is_not(lab: Lab):
    """After a death: an unused network, one in use, and one whose runner somebody removed."""
    before, sink = await stocked(lab, 1)
    first = await start(before, sink, FIRST)
    await before.stock.filled()
    second = await start(before, sink, SECOND)
    await before.stock.filled()
    in_use, used = joined(lab, first), joined(lab, second)
    (unused,) = {each["Id"] for each in lab.holders()} - {in_use, used}
    await before.close()  # with runners that live, which leaves all as a death does
    lab.engine.call("DELETE", f"/containers/{SECOND}?force=1&v=1")
    after = lab.runtime(network="isolated", ready_networks=1)
    after.attach(Sink())
    (found,) = await after.list(STORE)
    await after.stock.filled()
    assert found.runner == FIRST
    assert {each["Id"] for each in lab.holders()} == {in_use, unused}
    assert len(lab.networks()) == 2
    await after.watch(FIRST, POOL, found.environment)
    third = await after.start(StartOrder(SECOND, POOL, STORE, SECRET))
    assert joined(lab, third) == unused
    for runner, environment in ((FIRST, first), (SECOND, third)):
        await after.destroy(environment, lab.permit(runner, environment, Warrant.FORCED))
    await after.close()
    assert (lab.holders(), lab.networks()) == ([], []), "an orderly end without runners leaves nothing"


async def test_a_start_does_without_where_a_ready_one_is_no_good(lab: Lab):
    """Its holder was ended, and an earlier try of the same runner left one that bears the name."""
    runtime, sink = await stocked(lab, 1)
    (holder,) = lab.holders()
    lab.engine.call("POST", f"/containers/{holder['Id']}/kill")
    until(lambda: not lab.engine.inspect(holder["Id"])["State"]["Running"])
    environment = await start(runtime, sink, FIRST)
    mode = lab.engine.inspect(container_of(environment))["HostConfig"]["NetworkMode"]
    assert not mode.startswith("container:")
    await runtime.stock.filled()
    assert holder["Id"] not in {each["Id"] for each in lab.holders()}
    marks = {"ephemerd.store": STORE, "ephemerd.role": "network"}
    left = {"Image": lab.options.image, "Cmd": ["true"], "Labels": marks}
    lab.engine.call("POST", f"/containers/create?name={SECOND}-net", left)
    joined(lab, await start(runtime, sink, SECOND))


async def test_networks_that_no_pool_wants_any_more_go(lab: Lab):
    first, _ = await stocked(lab, 2)
    first.stock._fresh.clear()  # as a death leaves them
    await first.close()
    assert len(lab.holders()) == 2
    after = lab.runtime(network="isolated", ready_networks=1, dns=("203.0.113.53",))
    after.attach(Sink())
    await after.list(STORE)
    await after.stock.filled()
    assert [each["Labels"]["ephemerd.kind"] for each in lab.holders()] == [
        each.kind for each in after.stock._fresh.values()
    ]
    assert len(lab.networks()) == 1
