"""Containers with a real engine: what they may do, what is written about them, restarts of engine and daemon."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from ephemerd.adapters.runtimes.docker import DockerRuntime, EngineOptions, local
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.permit import Warrant
from ephemerd.domain.verdict import Files, Listing, ProbeReport, Sign
from ephemerd.ports.errors import Broken, Gone, PortError, Refused, RetryLater
from ephemerd.ports.runtime import StartOrder
from ephemerd.testing.contracts.runtime import FIRST, SECOND, STORE, Sink, quiet, until_report
from tests.e2e.docker_runtime import POOL, SECRET, Lab, container_of
from tests.e2e.engine import TestEngine, busybox_image
from tests.e2e.stand_in import until

pytestmark = [pytest.mark.e2e, pytest.mark.platform("linux"), pytest.mark.account("root")]


@pytest.fixture
async def lab(docker_engine: TestEngine):
    made = Lab(docker_engine)
    yield made
    await made.close()


async def begun(lab: Lab, runner: RunnerId = FIRST, **changes):
    """Start a runner of a fresh runtime and wait until it listens."""
    runtime, sink = lab.runtime(**changes), Sink()
    runtime.attach(sink)
    environment = await runtime.start(StartOrder(runner, POOL, STORE, SECRET))
    await sink.until_sign(runner, Sign.LISTENING)
    return runtime, sink, environment


async def inside(lab: Lab, runner: str, command: str) -> tuple[int, str]:
    return await asyncio.to_thread(lab.engine.output, runner, "sh", "-c", command)


# What it is made as


async def test_the_credential_is_in_nothing_that_can_be_inspected(lab: Lab):
    _, _, environment = await begun(lab)
    told = await asyncio.to_thread(lab.engine.inspect, container_of(environment))
    assert SECRET not in json.dumps(told)
    listed = await asyncio.to_thread(lab.engine.call, "GET", "/containers/json?all=1")
    assert SECRET not in json.dumps(listed)
    code, text = await inside(lab, FIRST, "ls -A /.ephemerd; cat /runner/environment")
    assert code == 0
    assert f"ACTIONS_RUNNER_INPUT_JITCONFIG={SECRET}" in text
    assert "jit" not in text.split("ACTIONS", 1)[0].split()
    assert SECRET not in lab.log(FIRST).read_text()
    changed = await asyncio.to_thread(
        lab.engine.call, "GET", f"/containers/{container_of(environment)}/changes"
    )
    assert not [each for each in changed if each["Path"].endswith("/jit")]


async def test_it_has_few_rights_and_no_engine(lab: Lab):
    _, _, environment = await begun(lab, memory=64 * 1024**2, cpus=0.5, pids=128)
    host = lab.engine.inspect(container_of(environment))["HostConfig"]
    assert (host["Privileged"], host["CapDrop"], host["CapAdd"]) == (False, ["ALL"], None) or host[
        "CapAdd"
    ] == []
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["RestartPolicy"]["Name"] == "no"
    assert (host["Memory"], host["MemorySwap"], host["NanoCpus"], host["PidsLimit"]) == (
        64 * 1024**2,
        64 * 1024**2,
        500_000_000,
        128,
    )
    code, text = await inside(
        lab, FIRST, "id -u; grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status"
    )
    assert code == 0
    assert text.split() == [
        *("1001", "CapEff:", "0000000000000000", "CapBnd:", "0000000000000000"),
        *("NoNewPrivs:", "1", "Seccomp:", "2"),
    ]
    assert (await inside(lab, FIRST, "ls /var/run/docker.sock /run/docker.sock"))[0] != 0
    assert (await inside(lab, FIRST, "mount -t tmpfs none /tmp"))[0] != 0


async def test_jobs_as_root_are_refused_unless_allowed(lab: Lab):
    with pytest.raises(Broken, match="allow_root"):
        await begun(lab, user="root")
    assert lab.remains(FIRST) == []
    runtime, _, environment = await begun(lab, user="0:0", allow_root=True, capabilities=("DAC_OVERRIDE",))
    await until_report(lambda: runtime.probe(FIRST, environment), quiet)


async def test_a_user_that_the_image_does_not_have_is_said(lab: Lab):
    with pytest.raises(Broken, match="no user 'nobody-here'"):
        await begun(lab, user="nobody-here")
    assert lab.remains(FIRST) == []


async def test_the_application_and_the_tools_are_mounted_read_only(lab: Lab):
    from tests.e2e.stand_in import write_application

    lab.folder.chmod(0o755)
    application = write_application(lab.folder / "application")
    tools = lab.folder / "tools"
    tools.mkdir()
    (tools / "hammer").write_text("x")
    await begun(lab, application=application, tool_cache=tools)
    assert (await inside(lab, FIRST, "cat /opt/hostedtoolcache/hammer"))[1].strip() == "x"
    for path in ("/runner/bin/x", "/runner/externals/x", "/opt/hostedtoolcache/x"):
        assert (await inside(lab, FIRST, f"touch {path}"))[0] != 0


async def test_a_work_folder_in_memory_is_full_at_its_size(lab: Lab):
    """A disk filler ends at the limit; the machine's disk and its neighbours never see it."""
    await begun(lab, work_tmpfs=4 * 1024**2)
    code, text = await inside(
        lab, FIRST, "dd if=/dev/zero of=/runner/_work/fill bs=1M count=64; df -m /runner/_work"
    )
    assert "No space left" in text, (code, text)


async def test_a_fork_bomb_stays_inside_and_its_neighbour_works(lab: Lab):
    runtime, _, environment = await begun(lab, pids=64)
    await runtime.start(StartOrder(SECOND, POOL, STORE, SECRET))
    _, text = await inside(lab, FIRST, "trap '' HUP; for i in $(seq 500); do sleep 1000 & done")
    assert "fork" in text
    pid = lab.engine.inspect(FIRST)["State"]["Pid"]
    group = local.group_of(pid, container_of(environment))
    assert group is not None
    assert len(local.pids_in(group)) <= 64
    await lab.begin_job(SECOND)
    second = lab.engine.inspect(SECOND)["State"]
    assert second["Running"]
    await runtime.destroy(environment, lab.permit(FIRST, environment, Warrant.FORCED))
    assert lab.remains(FIRST) == []


async def test_fp_44_a_memory_hog_ends_alone_and_the_cause_is_told(lab: Lab):
    _, sink, _ = await begun(lab, memory=16 * 1024**2)
    control = lab.root(FIRST) / "control"
    with capture_logs() as logs:
        await asyncio.to_thread(control.write_text, "run exec tail /dev/zero\n")
        assert await sink.until_exit(FIRST) == 137
    assert "a runner ran out of its memory limit" in [line["event"] for line in logs]
    assert lab.engine.inspect(FIRST)["State"]["OOMKilled"]


# What ends, and what does not


async def test_fp_23_what_has_ended_is_never_started_again_with_its_configuration(lab: Lab):
    runtime, sink, environment = await begun(lab)
    await lab.leave(FIRST, 0)
    await sink.until_exit(FIRST)
    assert await runtime.start(StartOrder(FIRST, POOL, STORE, SECRET)) == environment
    assert not lab.engine.inspect(FIRST)["State"]["Running"]
    # Whoever starts it by hand gets a listener without a configuration, hence none at all.
    lab.engine.call("POST", f"/containers/{FIRST}/start")
    until(lambda: not lab.engine.inspect(FIRST)["State"]["Running"])
    assert lab.engine.inspect(FIRST)["State"]["ExitCode"] == 125


async def test_a_dead_listener_with_a_live_worker_is_busy(lab: Lab):
    runtime, sink, environment = await begun(lab)
    await lab.begin_job(FIRST)
    await lab.tell(FIRST, "die")
    report = await until_report(
        lambda: runtime.probe(FIRST, environment), lambda each: not each.listener_alive
    )
    assert report.workers == 1
    assert sink.exits == []
    with pytest.raises(Refused):
        await runtime.destroy(environment, lab.permit(FIRST, environment, Warrant.ENDED))


async def test_a_listener_that_ignores_the_stop_is_killed_after_its_time(lab: Lab):
    runtime, _, environment = await begun(lab, stop_wait=0.5)
    await lab.tell(FIRST, "deaf")
    await runtime.destroy(environment, lab.permit(FIRST, environment, Warrant.IDLE))
    assert lab.remains(FIRST) == []


async def test_a_paused_container_is_seen_and_can_be_ended(lab: Lab):
    runtime, _, environment = await begun(lab)
    await lab.begin_job(FIRST)
    lab.engine.call("POST", f"/containers/{FIRST}/pause")
    report = await runtime.probe(FIRST, environment)
    assert (report.workers, report.listing) == (1, Listing.COMPLETE)
    await runtime.destroy(environment, lab.permit(FIRST, environment, Warrant.FORCED))
    assert lab.remains(FIRST) == []


async def test_logs_and_diagnostics_stay_after_the_end(lab: Lab):
    runtime, sink, environment = await begun(lab)
    await lab.begin_job(FIRST)
    await lab.end_job(FIRST)
    await sink.until_sign(FIRST, Sign.ENDED)
    await runtime.destroy(environment, lab.permit(FIRST, environment, Warrant.IDLE))
    assert "Running job: build" in lab.log(FIRST).read_text()
    output, *diagnostics = await runtime.log_files(FIRST)
    assert output.name == "output"
    assert b"Running job" in await runtime.read_log(FIRST, "output", 0, 4096)
    assert b"Acknowledging" in await runtime.read_log(FIRST, diagnostics[0].name, 0, 4096)
    with pytest.raises(Gone):
        await runtime.log_files(SECOND)
    kept = lab.log(FIRST).with_suffix(".diag")
    assert "Acknowledging" in "".join(path.read_text() for path in kept.iterdir())


async def test_what_somebody_removed_is_told_as_an_exit_without_a_code(lab: Lab):
    runtime, sink, environment = await begun(lab)
    lab.engine.call("DELETE", f"/containers/{FIRST}?force=1&v=1")
    assert await sink.until_exit(FIRST) in (None, 137)
    with pytest.raises(Gone):
        await runtime.probe(FIRST, environment)
    await runtime.destroy(environment, lab.permit(FIRST, environment, Warrant.ENDED))
    assert lab.remains(FIRST) == []


async def test_fp_10_a_container_of_that_name_that_is_not_ours_is_left_alone(lab: Lab):
    made = {"Image": lab.options.image, "Cmd": ["sleep", "1000"]}
    lab.engine.call("POST", f"/containers/create?name={FIRST}", made)
    with pytest.raises(Broken, match="not of this pool and store"):
        await begun(lab)
    assert lab.engine.inspect(FIRST)["State"]["Status"] == "created"


async def test_remains_of_a_half_made_start_are_found_and_cleared(lab: Lab):
    """As a daemon leaves them that dies between two steps: a network alone, a container that never ran."""
    marks = {"ephemerd.store": STORE, "ephemerd.runner": FIRST, "ephemerd.pool": POOL}
    lab.engine.call("POST", "/networks/create", {"Name": FIRST, "Labels": marks})
    lab.engine.call(
        "POST", f"/containers/create?name={SECOND}", _created({**marks, "ephemerd.runner": SECOND})
    )
    runtime = lab.runtime()
    (found,) = await runtime.list(STORE)
    assert (found.runner, found.ended, found.code) == (SECOND, True, None)
    assert lab.remains(FIRST) == []
    await runtime.destroy(found.environment, lab.permit(SECOND, found.environment, Warrant.ENDED))
    assert lab.remains(SECOND) == []


def _created(marks: dict[str, str]) -> dict[str, object]:
    return {"Image": "ephemerd-test/stand-in:1", "Cmd": ["true"], "Labels": marks}


async def test_a_half_made_container_is_made_anew_by_the_next_start(lab: Lab):
    marks = {"ephemerd.store": STORE, "ephemerd.runner": FIRST, "ephemerd.pool": POOL}
    lab.engine.call("POST", f"/containers/create?name={FIRST}", _created(marks))
    runtime, _, environment = await begun(lab)
    assert len(await runtime.list(STORE)) == 1
    await until_report(lambda: runtime.probe(FIRST, environment), quiet)


# By which means it is seen


async def test_the_engines_own_listing_says_the_same(lab: Lab, monkeypatch):
    """As with an engine on another machine, whose processes and files are not to be had directly."""
    monkeypatch.setattr("ephemerd.adapters.runtimes.docker.engine.Engine.on_this_machine", False)
    runtime, sink, environment = await begun(lab)
    report = await until_report(lambda: runtime.probe(FIRST, environment), quiet)
    assert "by the engine" in report.detail
    await lab.begin_job(FIRST)
    report = await until_report(lambda: runtime.probe(FIRST, environment), lambda each: each.workers == 1)
    assert report.offered_at is not None
    await sink.until_sign(FIRST, Sign.ANNOUNCED)
    await runtime.destroy(environment, lab.permit(FIRST, environment, Warrant.FORCED))
    assert lab.remains(FIRST) == []


async def test_both_means_agree_on_a_file_that_is_followed_by_both(lab: Lab, monkeypatch):
    runtime, _, environment = await begun(lab)
    await lab.tell(FIRST, "offer")
    first = await until_report(
        lambda: runtime.probe(FIRST, environment), lambda each: each.offered_at is not None
    )
    monkeypatch.setattr("ephemerd.adapters.runtimes.docker.engine.Engine.on_this_machine", False)
    far = await runtime.probe(FIRST, environment)
    monkeypatch.undo()
    near = await runtime.probe(FIRST, environment)
    assert first.offered_at == far.offered_at == near.offered_at
    assert ("by the control group" in near.detail, "by the engine" in far.detail) == (True, True)
    assert near.files is far.files is Files.HEALTHY


async def test_files_that_a_job_cut_prove_nothing(lab: Lab):
    runtime, _, environment = await begun(lab)
    await until_report(lambda: runtime.probe(FIRST, environment), quiet)
    for command in (
        "run : > _perf/Runner.perf",
        "run rm _perf/Runner.perf",
        "run rm -r _perf; ln -s /etc _perf",
    ):
        await lab.tell(FIRST, command.replace("_perf", "$root/_perf"))
        report = await until_report(
            lambda: runtime.probe(FIRST, environment), lambda each: each.files is Files.UNREADABLE
        )
        assert report.files is Files.UNREADABLE


# Restarts


async def test_a_restart_of_the_engine_ends_no_runner_and_no_exit_is_told(lab: Lab):
    runtime, sink, environment = await begun(lab)
    await lab.begin_job(FIRST)
    for number in (signal.SIGTERM, signal.SIGKILL):
        await asyncio.to_thread(lab.engine.stop_engine, number)
        assert (await runtime.probe(FIRST, environment)).workers == 1, "seen without the engine"
        await asyncio.to_thread(lab.engine.start_engine)
        report = await until_report(lambda: _patiently(runtime, environment), lambda each: each.workers == 1)
        assert report.workers == 1
    assert sink.exits == []
    await lab.end_job(FIRST)
    await lab.leave(FIRST, 4)
    assert await sink.until_exit(FIRST) == 4


async def test_what_ended_while_the_engine_was_away_is_told_with_its_code(lab: Lab):
    _, sink, _ = await begun(lab)
    known = lab.inside(FIRST)
    await asyncio.to_thread(lab.engine.stop_engine)
    await asyncio.to_thread(known.send, "leave 6")
    until(lambda: not known.root.exists())
    assert sink.exits == []
    await asyncio.to_thread(lab.engine.start_engine)
    assert await sink.until_exit(FIRST) == 6
    assert len(sink.exits) == 1


async def _patiently(runtime: DockerRuntime, environment: str) -> ProbeReport:
    """Probe until there is an answer."""
    while True:
        try:
            return await runtime.probe(FIRST, environment)
        except PortError:
            await asyncio.sleep(0.05)


async def test_an_engine_that_is_away_is_no_empty_list_and_proves_nobody_idle(lab: Lab):
    runtime = lab.runtime()
    begun_by, _, environment = await begun(lab)
    await until_report(lambda: begun_by.probe(FIRST, environment), quiet)
    await asyncio.to_thread(lab.engine.stop_engine)
    try:
        with pytest.raises(RetryLater):
            await runtime.list(STORE)
        with pytest.raises(RetryLater):
            await runtime.probe(FIRST, environment)
        report = await until_report(
            lambda: begun_by.probe(FIRST, environment), lambda each: each.files is Files.UNREADABLE
        )
        assert "not followed" in report.detail
    finally:
        await asyncio.to_thread(lab.engine.start_engine)


async def test_a_reference_of_another_engine_is_not_taken_for_gone(lab: Lab):
    runtime, _, environment = await begun(lab)
    parts = environment.split(":")
    elsewhere = ":".join((*parts[:5], "another-engine", parts[6]))
    for call in (
        lambda: runtime.probe(FIRST, elsewhere),
        lambda: runtime.watch(FIRST, POOL, elsewhere),
        lambda: runtime.destroy(elsewhere, lab.permit(FIRST, elsewhere, Warrant.FORCED)),
    ):
        with pytest.raises(RetryLater, match="another engine"):
            await call()
    assert lab.engine.inspect(FIRST)["State"]["Running"]


async def test_twenty_at_once(lab: Lab):
    """Each with a network of its own; none fails, none is left. `benchmarks/containers.py` does it with fifty."""
    runtime, sink = lab.runtime(network="isolated", subnets="10.202.0.0/16"), Sink()
    runtime.attach(sink)
    names = [RunnerId(f"{FIRST}-{number}") for number in range(20)]
    gate = asyncio.Semaphore(8)

    async def one(name: RunnerId) -> str:
        async with gate:
            return await runtime.start(StartOrder(name, POOL, STORE, SECRET))

    environments = await asyncio.gather(*(one(name) for name in names))
    await sink.until(lambda: {(name, Sign.LISTENING) for name in names} <= set(sink.signs), 90)
    assert len(set(environments)) == 20
    assert len(await runtime.list(STORE)) == 20
    reports = await asyncio.gather(*map(runtime.probe, names, environments))
    assert all(report.listing is Listing.COMPLETE for report in reports)

    async def end(name: RunnerId, environment: str) -> None:
        async with gate:
            await runtime.destroy(environment, lab.permit(name, environment, Warrant.IDLE))

    lab.clock = 1_000_000
    await asyncio.gather(*map(end, names, environments))
    assert [left for name in names for left in lab.remains(name)] == []


async def test_fp_59_images_that_nobody_uses_go_and_those_in_use_stay(lab: Lab):
    """Three images that runners used: a living one's, the pool's own, and one that may go."""
    other, third = "ephemerd-test/other:1", "ephemerd-test/third:1"
    for name in (other, third):
        archive = await asyncio.to_thread(busybox_image, name)
        await asyncio.to_thread(lab.engine.api.import_image, name, archive, "USER runner")
    reach = replace(lab.reach, images_size=0)
    _, _, _ = await begun(lab, image=other, reach=reach)
    runtime, _, environment = await begun(lab, SECOND, image=third, reach=reach)
    await runtime.destroy(environment, lab.permit(SECOND, environment, Warrant.IDLE))
    keeper = lab.runtime(reach=reach)
    found = await keeper.collect_images(really=False)
    assert [removal.image.name for removal in found] == [third]
    assert lab.engine.call("GET", f"/images/{third}/json")
    found = await keeper.collect_images()
    assert [removal.image.name for removal in found] == [third]
    names = [name for image in lab.engine.call("GET", "/images/json") for name in image["RepoTags"] or ()]
    assert third not in names
    assert {other, lab.options.image} <= set(names)
    lab.engine.call("DELETE", f"/containers/{FIRST}?force=1&v=1")
    lab.engine.call("DELETE", f"/images/{other}")


async def test_a_full_disk_is_said_before_anything_is_made(lab: Lab):
    with pytest.raises(Broken, match="MiB left"):
        await begun(lab, reach=replace(lab.reach, reserve=1 << 60))
    assert lab.remains(FIRST) == []


async def test_an_image_that_cannot_be_fetched_is_said(lab: Lab):
    """No registry is reachable from the engine's machine; whoever waits is told, and the next start tries again."""
    with pytest.raises(PortError, match="nowhere"):
        await begun(lab, image="127.0.0.1:1/nowhere:1", pull="missing")
    assert lab.remains(FIRST) == []


# Looking at an engine before anybody needs it


async def diagnosed(lab: Lab, **changes) -> list[tuple[str, str]]:
    runtime = lab.runtime(**changes)
    return [(one.level, f"{one.about}: {one.what}") for one in await runtime.diagnose()]


async def test_a_healthy_engine_has_nothing_to_mend(lab: Lab):
    found = await diagnosed(lab, network="isolated", subnets="10.203.0.0/16")
    lacking = [text for level, text in found if level != "ok"]
    assert lacking == ["broken: the engine has no image ephemerd-test/nowhere:1"], "which the lab wants so"
    assert any("Docker Engine 2" in text for _, text in found)
    assert any("packet filter" in text for _, text in found)
    listed = [*lab.engine.enter, "nft", "list", "tables"]
    assert (
        "check" not in (await asyncio.to_thread(subprocess.run, listed, capture_output=True)).stdout.decode()
    )


@pytest.mark.parametrize(
    ("changes", "level", "what"),
    [
        ({"user": "root"}, "error", "linux: jobs would run as root"),
        ({"disk": 1 << 30}, "warning", "linux: a limit of the disk"),
        (
            {"image": "nowhere:2", "pull": "missing"},
            "warning",
            "linux: the engine has no image nowhere:2 yet",
        ),
        ({"network": "bridge", "most": 40}, "warning", ": there may be more runners"),
        ({"reach": EngineOptions(url="unix:///nowhere.sock")}, "error", ": no engine answers"),
    ],
)
async def test_what_would_not_work_is_said_beforehand(lab: Lab, changes, level, what):
    assert [
        text for found, text in await diagnosed(lab, **changes) if found == level and text.startswith(what)
    ]


async def test_a_packet_filter_that_cannot_be_is_said_beforehand(lab: Lab):
    reach = replace(lab.reach, nft=("false",))
    found = await diagnosed(lab, reach=reach, network="isolated")
    assert any(level == "error" and "packet filter" in text for level, text in found)
