"""Docker inside jobs: an engine of its own beside each runner, with a real engine in a real container."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from ephemerd.adapters.runtimes.docker import DockerRuntime
from ephemerd.adapters.runtimes.docker.rules import table_name
from ephemerd.adapters.runtimes.docker.sidecar import SOCKETS
from ephemerd.domain.permit import Warrant
from ephemerd.domain.verdict import Sign
from ephemerd.ports.errors import Broken, PortError
from ephemerd.ports.runtime import StartOrder
from ephemerd.testing.contracts.runtime import FIRST, SECOND, STORE, Sink
from ephemerd.testing.engines.api import EngineApi
from ephemerd.testing.engines.own import why_not
from tests.e2e.docker_runtime import POOL, SECRET, Lab
from tests.e2e.engine import (
    ENGINE_PROGRAMS,
    PUBLIC,
    WITH_ENGINE,
    TestEngine,
    busybox_image,
    image_with_engine,
)
from tests.e2e.listening import listening

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.platform("linux"),
    pytest.mark.account("root"),
    pytest.mark.timeout(300),
]

INNER = "job:1"


@pytest.fixture(scope="module")
def with_engine(docker_engine: TestEngine) -> TestEngine:
    if reason := why_not((*ENGINE_PROGRAMS, "iptables")):
        pytest.skip(f"{reason} (make system installs it as root on Debian)")
    docker_engine.api.import_image(WITH_ENGINE, image_with_engine(), "WORKDIR /runner")
    return docker_engine


@pytest.fixture
async def lab(with_engine: TestEngine):
    made = Lab(with_engine)
    yield made
    await made.close()
    table = [*with_engine.enter, "nft", "delete", "table", "inet", table_name(STORE)]
    await asyncio.to_thread(subprocess.run, table, capture_output=True, timeout=60)


def runtime_of(lab: Lab, **changes) -> tuple[DockerRuntime, Sink]:
    chosen = {"image": WITH_ENGINE, "docker_image": WITH_ENGINE, "user": "runner", "network": "isolated"}
    rights = {"docker": "sidecar", "docker_rights": "capabilities"}
    runtime, sink = lab.runtime(**{**chosen, **rights, **changes}), Sink()
    runtime.attach(sink)
    return runtime, sink


async def begun(lab: Lab, **changes) -> tuple[DockerRuntime, Sink, str]:
    runtime, sink = runtime_of(lab, **changes)
    await runtime.list(STORE)
    await runtime.stock.filled()
    environment = await runtime.start(StartOrder(FIRST, POOL, STORE, SECRET))
    await sink.until_sign(FIRST, Sign.LISTENING)
    return runtime, sink, environment


def inner(lab: Lab) -> EngineApi:
    """The runner's own engine, reached through its container."""
    pid = lab.engine.inspect(f"{FIRST}-docker")["State"]["Pid"]
    return EngineApi(f"unix:///proc/{pid}/root{SOCKETS}/docker.sock")


async def in_job(lab: Lab, command: str) -> str:
    """What a job's command prints; it runs as a child of the listener."""
    out = lab.root(FIRST) / "out"
    await lab.tell(FIRST, f"run {{ {command}; }} > $root/out 2>&1")
    return await asyncio.to_thread(Path(out).read_text)


async def test_a_job_runs_containers_by_an_engine_of_its_own(lab: Lab):
    runtime, _, environment = await begun(lab, ready_networks=1)
    own = inner(lab)
    archive = await asyncio.to_thread(busybox_image, "inner")
    await asyncio.to_thread(own.import_image, INNER, archive)
    names = await in_job(lab, "docker ps --all --quiet | wc -l")
    assert names.strip() == "0", "another engine than the machine's, which runs this container"
    shared = "mkdir -p $root/_work/a; echo from the job > $root/_work/a/in"
    await in_job(lab, shared)
    text = await in_job(lab, f"docker run --rm -v $root/_work/a:/a {INNER} sh -c 'cat /a/in; hostname'")
    assert text.splitlines()[0] == "from the job", text
    serving = f"docker run -d -p 8080:80 {INNER} sh -c 'while :; do echo served | nc -l -p 80; done'"
    assert len((await in_job(lab, serving)).split()[-1]) == 64
    asked = (
        "for i in $(seq 100); do nc -w 2 127.0.0.1 8080 </dev/null | grep served && break; sleep 0.1; done"
    )
    assert "served" in await in_job(lab, asked), "a published port is on the job's own loopback"
    with listening(lab.engine.beyond) as port:
        reach = f"docker run --rm {INNER} sh -c 'nc -w 5 {{}} {port} </dev/null 2>/dev/null && echo in || echo out'"
        assert (await in_job(lab, reach.format(PUBLIC))).split()[-1] == "in"
        assert (await in_job(lab, reach.format("10.9.8.7"))).split()[-1] == "out", "isolated as the job is"
    made = lab.engine.inspect(f"{FIRST}-docker")
    assert not made["HostConfig"]["Privileged"]
    assert "docker.sock" not in str([m["Source"] for m in made["Mounts"] if m["Type"] == "bind"])
    await runtime.destroy(environment, lab.permit(FIRST, environment, Warrant.FORCED))
    assert lab.remains(FIRST) == []


async def test_an_engine_goes_with_its_runner_and_not_before(lab: Lab):
    """Over a restart of the daemon; and where somebody removed the runner, its engine is found and removed."""
    before, _, environment = await begun(lab, memory=512 * 1024**2, pids=500)
    host = lab.engine.inspect(f"{FIRST}-docker")["HostConfig"]
    assert (host["Memory"], host["PidsLimit"]) == (512 * 1024**2, 500)
    await before.close()
    after, sink = runtime_of(lab)
    (found,) = await after.list(STORE)
    assert (found.runner, found.environment) == (FIRST, environment)
    await after.watch(FIRST, POOL, environment)
    assert lab.engine.inspect(f"{FIRST}-docker")["State"]["Running"]
    assert (await after.start(StartOrder(FIRST, POOL, STORE, SECRET))) == environment
    await after.close()
    lab.engine.call("DELETE", f"/containers/{FIRST}?force=1&v=1")
    later, _ = runtime_of(lab)
    assert await later.list(STORE) == []
    assert [left for left in lab.remains(FIRST) if not left.startswith("/")] == [], "copies of files stay"
    assert sink.exits == []


async def test_an_engine_that_does_not_come_up_leaves_nothing(lab: Lab):
    archive = await asyncio.to_thread(busybox_image, "broken")
    change = 'ENTRYPOINT ["sh", "-c", "echo no room for an engine; exit 3"]'
    await asyncio.to_thread(lab.engine.api.import_image, "ephemerd-test/broken:1", archive, change)
    runtime, _ = runtime_of(lab, docker_image="ephemerd-test/broken:1")
    with pytest.raises(PortError):
        await runtime.start(StartOrder(FIRST, POOL, STORE, SECRET))
    assert lab.remains(FIRST) == []


async def test_it_is_refused_unless_the_pool_grants_what_it_needs(lab: Lab):
    for changes, words in (
        ({"docker_rights": "refused"}, "docker_rights"),
        ({"network": "host"}, "network of the runner's own"),
    ):
        runtime, _ = runtime_of(lab, **changes)
        with pytest.raises(Broken, match=words):
            await runtime.start(StartOrder(SECOND, POOL, STORE, SECRET))
        assert any(one.level == "error" for one in await runtime.diagnose())
        assert lab.remains(SECOND) == []
