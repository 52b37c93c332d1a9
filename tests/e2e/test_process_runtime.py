"""The process runtime with real processes: ends, leftovers, restarts, other users, secrets."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from ephemerd.adapters.runtimes.process import cgroup
from ephemerd.adapters.runtimes.process.identity import ProcessId, parse_reference, place_of
from ephemerd.adapters.runtimes.process.linux import Linux
from ephemerd.adapters.runtimes.process.nursery import Nursery
from ephemerd.adapters.runtimes.process.roots import make_folder
from ephemerd.adapters.runtimes.process.state import Tag, read_parent, write_tag
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.permit import Warrant
from ephemerd.domain.verdict import Files, Listing, Sign
from ephemerd.ports.errors import Broken, Refused, RetryLater
from ephemerd.ports.runtime import StartOrder
from ephemerd.testing.contracts.runtime import FIRST, SECOND, STORE, Sink, quiet, until_report
from tests.e2e.process_runtime import POOL, SECRET, Lab, named, running
from tests.e2e.stand_in import until

pytestmark = [pytest.mark.e2e, pytest.mark.platform("linux")]


@pytest.fixture
async def lab():
    made = Lab()
    yield made
    await made.close()


async def begun(lab: Lab, runner: RunnerId = FIRST, **changes):
    """Start a runner of a fresh runtime and wait until it listens."""
    runtime, sink = lab.runtime(**changes), Sink()
    runtime.attach(sink)
    environment = await runtime.start(StartOrder(runner, POOL, STORE, SECRET))
    await sink.until_sign(runner, Sign.LISTENING)
    reference = parse_reference(environment)
    assert reference is not None
    return runtime, sink, environment, reference


def alive(identity: ProcessId | None) -> bool:
    assert identity is not None
    found = Linux().find(identity.pid)
    return found is not None and found.id == identity and not found.exited


# A folder that somebody removes


async def test_a_runner_whose_folder_was_removed_under_it_keeps_its_place_in_the_listing(lab: Lab):
    """An over-eager clean-up takes the folders of the living: nothing is taken for gone while it runs."""
    runtime, sink, environment, reference = await begun(lab)
    await lab.tell(FIRST, "announce build", "hidden")
    await asyncio.to_thread(until, lambda: named(FIRST, "Runner.Worker"))
    shutil.rmtree(lab.options.work_dir)
    (found,) = await runtime.list(STORE)
    assert (found.runner, found.environment, found.ended, found.pool) == (FIRST, environment, False, POOL)
    report = await runtime.probe(FIRST, environment)
    assert report.workers >= 1
    assert (report.listener_alive, report.files) == (True, Files.UNREADABLE)
    os.kill(named(FIRST, "Runner.Worker")[0], signal.SIGKILL)
    os.kill(reference.listener.pid, signal.SIGKILL)
    await sink.until_exit(FIRST)
    ((_, code, _),) = sink.exits
    assert code is None  # its parent had nowhere to write it
    await runtime.destroy(environment, lab.permit(FIRST, environment, Warrant.ENDED))
    assert await runtime.list(STORE) == []
    assert lab.remains(FIRST) == []


async def test_an_idle_one_without_a_folder_is_never_proven_idle_and_can_be_ended(lab: Lab):
    runtime, _, environment, _ = await begun(lab)
    shutil.rmtree(lab.root(FIRST).parent)
    report = await runtime.probe(FIRST, environment)
    assert (report.workers, report.listener_alive, report.files) == (0, True, Files.UNREADABLE)
    await runtime.destroy(environment, lab.permit(FIRST, environment, Warrant.FORCED))
    assert running(FIRST) == []
    assert await runtime.list(STORE) == []


async def test_after_a_restart_a_runner_without_a_folder_is_listed_once_it_was_looked_for(lab: Lab):
    """The daemon knows it by its row alone; the probe of a start finds it by pid and start time."""
    first, _, environment, _ = await begun(lab)
    await first.close()
    shutil.rmtree(lab.options.work_dir)
    second = lab.runtime()
    second.attach(Sink())
    assert await second.list(STORE) == []
    assert (await second.probe(FIRST, environment)).listener_alive
    assert [found.runner for found in await second.list(STORE)] == [FIRST]
    assert await second.list("another") == []
    await second.destroy(environment, lab.permit(FIRST, environment, Warrant.FORCED))


# Starting


async def test_the_listener_gets_what_was_promised_and_no_more(lab: Lab, monkeypatch):
    monkeypatch.setenv("DAEMON_SECRET", "not for jobs")
    monkeypatch.setenv("https_proxy", "http://proxy.test:3128")
    await begun(lab, extra_env={"TOOLS": "/opt/tools"})
    root = lab.root(FIRST)
    told = dict(line.split("=", 1) for line in (root / "environment").read_text().splitlines() if "=" in line)
    assert told["ACTIONS_RUNNER_INPUT_JITCONFIG"] == SECRET
    assert told["ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE"] == "1"
    assert told["RUNNER_PERFLOG"] == str(root / "_perf")
    assert told["EPHEMERD_RUNNER"] == FIRST
    assert told["TOOLS"] == "/opt/tools"
    assert told["https_proxy"] == "http://proxy.test:3128"
    assert "DAEMON_SECRET" not in told
    assert set(told) <= {
        *("ACTIONS_RUNNER_INPUT_JITCONFIG", "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE", "HOME"),
        *("EPHEMERD_RUNNER", "LANG", "LC_ALL", "LOGNAME", "OLDPWD", "PATH", "PWD", "RUNNER_PERFLOG", "SHLVL"),
        *("TOOLS", "TZ", "USER", "_", "https_proxy", "http_proxy", "no_proxy", "all_proxy"),
        *("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "ALL_PROXY"),
    }
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert (root / "bin").is_dir()
    assert not (root / "bin").is_symlink()
    assert (root / "bin" / "lib.so").readlink() == Path("Runner.Worker")
    assert (root / "externals" / "node20" / "node").read_text() == "no node\n"


async def test_the_parent_leads_a_session_apart_from_the_daemon(lab: Lab):
    _, _, _, reference = await begun(lab)
    machine = Linux()
    parent, listener = machine.find(reference.parent.pid), machine.find(reference.listener.pid)
    assert parent is not None
    assert listener is not None
    assert parent.session == parent.pid != os.getsid(0)
    assert parent.parent != os.getpid()
    assert listener.parent == parent.pid
    assert (listener.session, listener.group) == (parent.pid, listener.pid)
    lines = (lab.root(FIRST) / "descriptors").read_text().splitlines()[1:]
    links = [line.split()[-3::2] for line in lines]
    assert {number: target for number, target in links if "Runner.Listener" not in target} == {
        "0": "/dev/null",
        "1": str(lab.log(FIRST)),
        "2": str(lab.log(FIRST)),
    }


async def test_signals_that_the_daemon_ignores_reach_the_listener(lab: Lab):
    """A daemon started in the background ignores SIGINT; a listener that did too could never be stopped."""
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _, _, _, reference = await begun(lab)
    finally:
        signal.signal(signal.SIGINT, previous)
    text = Path(f"/proc/{reference.listener.pid}/status").read_text()
    masks = dict(line.split(":\t", 1) for line in text.splitlines() if line.startswith("Sig"))
    reserved = 1 << 31 | 1 << 32  # signals 32 and 33 are the C library's own; no program can set them
    assert int(masks["SigIgn"], 16) & ~reserved == 0
    assert int(masks["SigBlk"], 16) & ~reserved == 0


async def test_no_secret_is_in_any_argument_list_file_or_message(lab: Lab):
    await begun(lab)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            text = (process / "cmdline").read_bytes()
        except OSError:
            continue
        assert SECRET.encode() not in text
    (parent,) = [pid for pid in running(FIRST) if b"parent.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert SECRET.encode() not in Path(f"/proc/{parent}/environ").read_bytes()
    (lab.root(FIRST) / "environment").unlink()  # the stand-in's own
    held = [path for path in lab.folder.rglob("*") if path.is_file() and SECRET in path.read_text()]
    assert held == []
    assert SECRET not in repr(StartOrder(FIRST, POOL, STORE, SECRET))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda app: (app / "bin" / "Runner.Listener").unlink(), "unpack the runner application"),
        (lambda app: (app / "bin" / "Runner.Worker").unlink(), "unpack the runner application"),
        (lambda app: (app / "bin" / "Runner.Listener").chmod(0o644), "not executable"),
        (lambda app: (app / "bin" / "Runner.Listener").write_text("#!/nowhere/sh\n"), "cannot execute"),
        (
            lambda app: (app / "bin" / "Runner.Listener").write_bytes(b"\x7fELF of no machine"),
            "Exec format error",
        ),
        (lambda app: (app / "bin" / "Runner.Listener").write_bytes(b""), "Exec format error"),
        (shutil.rmtree, "unpack the runner application"),
    ],
)
async def test_a_broken_application_is_said_and_leaves_nothing(lab: Lab, damage, words):
    damage(lab.folder / "app")
    runtime = lab.runtime()
    runtime.attach(Sink())
    with pytest.raises(Broken, match=words) as failure:
        await runtime.start(StartOrder(FIRST, POOL, STORE, SECRET))
    assert SECRET not in str(failure.value)
    assert lab.remains(FIRST) == []
    assert not lab.log(FIRST).exists()
    assert await runtime.list(STORE) == []


async def test_an_unknown_user_is_said(lab: Lab):
    runtime = lab.runtime(user="no-such-user-here")
    with pytest.raises(Broken, match="no user 'no-such-user-here'"):
        await runtime.start(StartOrder(FIRST, POOL, STORE, SECRET))
    assert lab.remains(FIRST) == []


@pytest.mark.account("root")
async def test_root_without_a_jobs_user_is_refused(lab: Lab):
    for user in (None, "root"):
        with pytest.raises(Broken, match="allow_root"):
            await lab.runtime(allow_root=False, user=user).start(StartOrder(FIRST, POOL, STORE, SECRET))


@pytest.mark.account("user")
async def test_only_root_can_start_as_another(lab: Lab):
    with pytest.raises(Broken, match="only root"):
        await lab.runtime(user="root", allow_root=True).start(StartOrder(FIRST, POOL, STORE, SECRET))


@pytest.mark.parametrize("name", ["../escape", "a/b", "", "UPPER", "a" * 64, ".hidden", "eph\n"])
async def test_a_name_that_could_leave_the_folder_is_refused(lab: Lab, name):
    with pytest.raises(Refused):
        await lab.runtime().start(StartOrder(RunnerId(name), POOL, STORE, SECRET))


async def test_a_folder_that_is_not_ours_is_left_alone(lab: Lab):
    runtime = lab.runtime()
    theirs = lab.options.work_dir / FIRST
    theirs.mkdir(parents=True)
    (theirs / "precious").touch()
    with pytest.raises(Broken, match="bears no tag"):
        await runtime.start(StartOrder(FIRST, POOL, STORE, SECRET))
    assert await runtime.list(STORE) == []
    assert (theirs / "precious").exists()


async def test_a_half_made_start_is_made_anew(lab: Lab):
    """A daemon that died between tag and parent left a folder in which nothing ever ran."""
    half = lab.options.work_dir / FIRST / ".ephemerd"
    half.mkdir(parents=True)
    (half / "runner.json").write_text(
        f'{{"version": 1, "store": "{STORE}", "runner": "{FIRST}", "pool": "{POOL}", "made": 1}}'
    )
    before = lab.runtime()
    (found,) = await before.list(STORE)
    assert not found.ended  # so young that a parent may be about to begin
    os.utime(half / "runner.json", (1, 1))
    (found,) = await before.list(STORE)
    assert (found.ended, found.code) == (True, None)
    _, _, environment, _ = await begun(lab)
    assert environment != found.environment


async def test_parent_and_listener_are_in_the_runners_control_group(lab: Lab):
    _, _, _, reference = await begun(lab)
    group = cgroup.existing(FIRST)
    if group is None:
        pytest.skip("no control group can be made here")
    assert cgroup.pids(group) >= {reference.parent.pid, reference.listener.pid}


# The nursery


def nurseries() -> list[ProcessId]:
    """Our children that parents are forked from."""
    machine = Linux()
    ours = [found for found in machine.snapshot().processes.values() if found.parent == os.getpid()]
    return [
        child.id
        for child in ours
        if not child.exited and any(word.endswith("/parent.py") for word in machine.program(child).argv)
    ]


async def test_one_nursery_serves_many_starts_and_ends_with_the_daemon(lab: Lab):
    runtime, sink, _, _ = await begun(lab)
    (nursery,) = nurseries()
    await runtime.start(StartOrder(SECOND, POOL, STORE, SECRET))
    await sink.until_sign(SECOND, Sign.LISTENING)
    assert nurseries() == [nursery]
    await runtime.close()
    assert nurseries() == []
    assert len(named(FIRST, "Runner.Listener")) == len(named(SECOND, "Runner.Listener")) == 1


async def test_a_nursery_that_died_is_replaced_and_what_it_made_lives_on(lab: Lab):
    runtime, sink, _, first = await begun(lab)
    (nursery,) = nurseries()
    os.kill(nursery.pid, signal.SIGKILL)
    await asyncio.to_thread(until, lambda: not alive(nursery))
    await runtime.start(StartOrder(SECOND, POOL, STORE, SECRET))
    await sink.until_sign(SECOND, Sign.LISTENING)
    assert alive(first.parent)
    assert alive(first.listener)
    await lab.leave(FIRST, 5)
    assert await sink.until_exit(FIRST) == 5


async def test_a_nursery_that_hangs_fails_one_start_and_is_replaced(lab: Lab):
    runtime, sink, _, first = await begun(lab)
    (nursery,) = nurseries()
    os.kill(nursery.pid, signal.SIGSTOP)
    runtime.reconfigure({POOL: replace(lab.options, start_wait=1.0)})
    with pytest.raises(Broken, match="did not start within 1 s"):
        await runtime.start(StartOrder(SECOND, POOL, STORE, SECRET))
    assert not alive(nursery)
    assert lab.remains(SECOND) == []
    runtime.reconfigure({POOL: lab.options})
    await runtime.start(StartOrder(SECOND, POOL, STORE, SECRET))
    await sink.until_sign(SECOND, Sign.LISTENING)
    assert alive(first.listener)


async def test_a_start_that_fails_half_way_leaves_no_parent(lab: Lab, monkeypatch):
    """The parent waits for its order while the folder is made, which comes to nothing."""
    monkeypatch.setattr(
        "ephemerd.adapters.runtimes.process.launch.build", lambda *_, **__: Path("/nowhere/at-all").touch()
    )
    with pytest.raises(Broken, match="could not be made"):
        await lab.runtime().start(StartOrder(FIRST, POOL, STORE, SECRET))
    await asyncio.to_thread(until, lambda: lab.remains(FIRST) == [])


async def test_a_parent_whose_daemon_dies_before_the_order_starts_nothing(lab: Lab):
    """It has written down who it is and waits in its control group; the next life finds an end."""
    place = place_of(FIRST, lab.options.work_dir, lab.options.logs_dir)
    make_folder(place)
    write_tag(place, Tag(STORE, FIRST, POOL, 1))
    nursery = Nursery()
    with nursery.parent(None, time.monotonic() + 20) as line:
        line.say({"state": str(place.state), "cgroup": None, "cgroup_json": "null"})
        await asyncio.to_thread(until, lambda: read_parent(Linux(), place))
    parent = read_parent(Linux(), place)
    nursery.close()
    await asyncio.to_thread(until, lambda: not alive(parent))
    (found,) = await lab.runtime().list(STORE)
    assert (found.runner, found.ended, found.code) == (FIRST, True, None)
    assert running(FIRST) == []


# Ends


async def test_the_exit_of_a_killed_listener_is_its_signal(lab: Lab):
    _, sink, _, reference = await begun(lab)
    os.kill(reference.listener.pid, signal.SIGKILL)
    assert await sink.until_exit(FIRST) == 128 + signal.SIGKILL
    assert sink.exits == [(FIRST, 137, 0)]


async def test_without_a_parent_the_exit_is_known_and_the_code_is_not(lab: Lab):
    _, sink, _, reference = await begun(lab)
    os.kill(reference.parent.pid, signal.SIGKILL)
    await lab.leave(FIRST, 3)
    assert await sink.until_exit(FIRST) is None


async def test_an_idle_listener_is_asked_and_leaves_by_itself(lab: Lab):
    runtime, sink, environment, _ = await begun(lab)
    await runtime.destroy(environment, lab.permit(FIRST, environment, Warrant.IDLE))
    assert sink.exits == [(FIRST, 0, 0)]
    assert lab.remains(FIRST) == []
    assert "Exiting..." in lab.log(FIRST).read_text()
    assert (lab.options.logs_dir / f"{FIRST}.diag").exists() is False  # it wrote no diagnostics


async def test_one_that_ignores_the_stop_is_killed_after_the_wait(lab: Lab):
    runtime, sink, environment, _ = await begun(lab, stop_wait=0.3)
    await lab.tell(FIRST, "deaf")
    await runtime.destroy(environment, lab.permit(FIRST, environment, Warrant.IDLE))
    assert sink.exits == [(FIRST, 137, 0)]
    assert lab.remains(FIRST) == []


async def test_what_would_not_die_is_said_and_nothing_is_removed(lab: Lab, monkeypatch):
    runtime, sink, environment, reference = await begun(lab, stop_wait=0.1, kill_wait=0.3)
    real = Linux.signal
    with monkeypatch.context() as patch:
        patch.setattr(Linux, "signal", lambda self, target, number: True)
        with pytest.raises(Broken, match=f"would not die.*{reference.listener.pid}"):
            await runtime.destroy(environment, lab.permit(FIRST, environment, Warrant.IDLE))
    assert Linux.signal is real
    assert alive(reference.listener)
    assert lab.root(FIRST).exists()
    assert sink.exits == []


@pytest.mark.parametrize("command", ["sleep", "daemon", "lost"])
async def test_what_a_job_left_running_is_counted_and_ended(lab: Lab, command):
    """`lost` left session, group and environment variables: descent (or its cgroup) still finds it."""
    runtime, sink, environment, _ = await begun(lab)
    await lab.tell(FIRST, command)
    await until_report(lambda: runtime.probe(FIRST, environment), lambda report: report.strangers == 1)
    await lab.leave(FIRST, 0)
    assert await sink.until_exit(FIRST) == 0
    assert sink.exits == [(FIRST, 0, 1)]
    (found,) = await runtime.list(STORE)
    assert (found.ended, found.leftovers) == (True, 1)
    await runtime.destroy(environment, lab.permit(FIRST, environment, Warrant.ENDED))
    assert lab.remains(FIRST) == []
    assert len(sink.exits) == 1


async def test_a_daemon_is_found_by_its_marker_when_all_else_is_gone(lab: Lab, monkeypatch):
    monkeypatch.setattr("ephemerd.adapters.runtimes.process.cgroup.make", lambda runner: None)
    runtime, sink, environment, reference = await begun(lab)
    await lab.tell(FIRST, "daemon")
    os.kill(reference.parent.pid, signal.SIGKILL)
    await lab.leave(FIRST, 0)
    await sink.until_exit(FIRST)
    assert sink.exits == [(FIRST, None, 1)]
    await runtime.destroy(environment, lab.permit(FIRST, environment, Warrant.ENDED))
    assert lab.remains(FIRST) == []


async def test_a_dead_listener_with_a_live_worker_is_busy(lab: Lab):
    runtime, sink, environment, reference = await begun(lab)
    await lab.begin_job(FIRST)
    await sink.until_sign(FIRST, Sign.WORKER)
    os.kill(reference.listener.pid, signal.SIGKILL)
    report = await until_report(
        lambda: runtime.probe(FIRST, environment), lambda report: not report.listener_alive
    )
    assert (report.workers, report.listing) == (1, Listing.COMPLETE)
    (found,) = await runtime.list(STORE)
    assert not found.ended
    with pytest.raises(Refused, match="and they are not"):
        await runtime.destroy(environment, lab.permit(FIRST, environment, Warrant.ENDED))
    assert sink.exits == []
    (worker,) = named(FIRST, "Runner.Worker")
    os.kill(worker, signal.SIGKILL)
    assert await sink.until_exit(FIRST) == 137
    assert sink.exits == [(FIRST, 137, 1)]  # what the worker had begun


async def test_the_log_stays_and_diagnostics_beside_it(lab: Lab):
    runtime, _, environment, _ = await begun(lab)
    await lab.begin_job(FIRST)
    await lab.end_job(FIRST)
    await runtime.destroy(environment, lab.permit(FIRST, environment, Warrant.IDLE))
    assert "Running job: build (arm64, release)" in lab.log(FIRST).read_text()
    kept = lab.options.logs_dir / f"{FIRST}.diag"
    assert "Acknowledging runner request" in (kept / "Runner_1-utc.log").read_text()
    assert not (lab.options.work_dir / FIRST).exists()


async def test_only_so_many_logs_are_kept(lab: Lab):
    runtime, _, first, _ = await begun(lab, logs_keep=2)
    for number in range(4):
        (lab.options.logs_dir / f"old-{number}.log").touch()
        os.utime(lab.options.logs_dir / f"old-{number}.log", (number + 1, number + 1))
    await runtime.destroy(first, lab.permit(FIRST, first, Warrant.IDLE))
    assert sorted(path.name for path in lab.options.logs_dir.iterdir()) == [f"{FIRST}.log", "old-3.log"]


async def test_a_folder_full_of_obstacles_is_removed_and_nothing_beyond(lab: Lab):
    outside = lab.folder / "outside"
    outside.mkdir()
    (outside / "precious").write_text("stays")
    runtime, _, environment, _ = await begun(lab)
    root = lab.root(FIRST)
    (root / "link").symlink_to(outside)
    closed = root / "closed" / "deeper"
    closed.mkdir(parents=True)
    (closed / "file").touch()
    closed.chmod(0)
    closed.parent.chmod(0o500)
    deep = root
    for _ in range(200):
        deep = deep / "d"
        deep.mkdir()
    await runtime.destroy(environment, lab.permit(FIRST, environment, Warrant.IDLE))
    assert lab.remains(FIRST) == []
    assert (outside / "precious").read_text() == "stays"


async def test_a_removal_that_was_cut_off_is_finished_by_the_next_listing(lab: Lab):
    runtime, _, _, _ = await begun(lab)
    await lab.leave(FIRST, 0)
    await runtime.close()
    work = lab.options.work_dir
    (work / FIRST).rename(work / f".removing-{FIRST}-0")
    (work / f".removing-{FIRST}-1").mkdir()  # the tag had gone already
    (work / f".making-{FIRST}").mkdir()  # a start was cut off before there was a tag
    cut_off = [work / f".removing-{FIRST}-0", work / f".removing-{FIRST}-1", work / f".making-{FIRST}"]
    (work / ".removing-foreign-0").mkdir()
    again = lab.runtime()
    assert await again.list("another") == []
    assert all(folder.exists() for folder in cut_off)
    assert await again.list(STORE) == []
    await asyncio.to_thread(until, lambda: not any(folder.exists() for folder in cut_off))
    assert (work / ".removing-foreign-0").exists()


async def test_the_group_of_a_runner_that_is_no_more_goes_with_the_next_listing(lab: Lab, monkeypatch):
    """A daemon died between making it and starting anything in it."""
    runtime, _, _, _ = await begun(lab)
    groups = lab.folder / "groups"
    monkeypatch.setattr(cgroup, "_places", lambda: [groups])
    mine, forgotten = groups / f"ephemerd-{FIRST}", groups / f"ephemerd-eph-{STORE}-gone-1"
    foreign = groups / "ephemerd-eph-foreign-gone-1"
    for folder in (mine, forgotten, foreign):
        folder.mkdir(parents=True)
    await runtime.list(STORE)
    assert (mine.exists(), forgotten.exists(), foreign.exists()) == (True, False, True)


# Signs and files


async def test_signs_are_told_in_order_and_once(lab: Lab):
    _, sink, _, _ = await begun(lab)
    await lab.tell(FIRST, "offer")
    await sink.until_sign(FIRST, Sign.ACKNOWLEDGED)
    await lab.tell(FIRST, "announce x completed with result: Succeeded")
    await sink.until_sign(FIRST, Sign.ANNOUNCED)
    await lab.tell(FIRST, "worker")
    await sink.until_sign(FIRST, Sign.WORKER)
    await lab.tell(FIRST, "end x completed with result: Succeeded")
    await sink.until_sign(FIRST, Sign.ENDED)
    await lab.leave(FIRST, 0)
    await sink.until_exit(FIRST)
    assert [sign for _, sign in sink.signs] == [
        Sign.LISTENING,
        Sign.OFFERED,
        Sign.ACKNOWLEDGED,
        Sign.ANNOUNCED,
        Sign.WORKER,
        Sign.ENDED,
    ]


async def test_a_worker_that_no_file_tells_of_is_seen_among_the_processes(lab: Lab):
    _, sink, _, _ = await begun(lab)
    await lab.tell(FIRST, "announce silent", "hidden")
    await sink.until_sign(FIRST, Sign.WORKER)


async def test_a_pool_that_only_listens_is_told_no_more_and_the_probe_sees_all(lab: Lab):
    runtime, sink, environment, _ = await begun(lab, follow="listening")
    await lab.begin_job(FIRST)
    report = await runtime.probe(FIRST, environment)
    assert report.workers >= 1
    assert None not in (report.offered_at, report.announced_at)
    await lab.leave(FIRST, 0)
    assert {sign for _, sign in sink.signs} == {Sign.LISTENING}


@pytest.mark.parametrize("victim", ["_perf/Runner.perf", "log"])
async def test_a_file_that_was_cut_never_proves_idleness_again(lab: Lab, victim):
    runtime, _, environment, _ = await begun(lab)
    await until_report(lambda: runtime.probe(FIRST, environment), quiet)
    path = lab.log(FIRST) if victim == "log" else lab.root(FIRST) / victim
    whole = path.read_bytes()
    os.truncate(path, 5)
    assert (await runtime.probe(FIRST, environment)).files is Files.UNREADABLE
    path.write_bytes(whole * 2)
    report = await runtime.probe(FIRST, environment)
    assert report.files is Files.UNREADABLE
    assert "shrank" in report.detail


async def test_what_was_seen_stays_seen_when_the_files_are_wiped(lab: Lab):
    runtime, sink, environment, _ = await begun(lab)
    await lab.begin_job(FIRST)
    await sink.until_sign(FIRST, Sign.ANNOUNCED)
    for path in (lab.log(FIRST), lab.root(FIRST) / "_perf" / "Runner.perf"):
        os.truncate(path, 0)
    report = await runtime.probe(FIRST, environment)
    assert None not in (report.offered_at, report.announced_at)
    assert report.ended_at is None


async def test_a_link_in_place_of_the_performance_file_is_not_followed(lab: Lab):
    runtime, _, environment, _ = await begun(lab)
    perf = lab.root(FIRST) / "_perf" / "Runner.perf"
    perf.rename(perf.with_name("moved"))
    perf.symlink_to(perf.with_name("moved"))
    assert (await runtime.probe(FIRST, environment)).files is Files.UNREADABLE


async def test_a_probe_that_takes_too_long_says_so(lab: Lab, monkeypatch):
    runtime, _, environment, _ = await begun(lab)
    hold = asyncio.Event()
    loop = asyncio.get_running_loop()
    real = Linux.snapshot

    def slow(self):
        asyncio.run_coroutine_threadsafe(hold.wait(), loop).result(20)
        return real(self)

    with monkeypatch.context() as patch:
        patch.setattr(Linux, "snapshot", slow)
        runtime.reconfigure({POOL: replace(lab.options, probe_timeout=0.05)})
        with pytest.raises(RetryLater, match=r"within 0\.05 s"):
            await runtime.probe(FIRST, environment)
        hold.set()
    runtime.reconfigure({POOL: lab.options})
    assert (await until_report(lambda: runtime.probe(FIRST, environment), quiet)).listener_alive


# Restarts and identity


async def test_a_runner_outlives_the_whole_daemon(lab: Lab):
    """Another process starts it and ends; it is adopted here, by pid and start time."""
    script = f"""
import asyncio
from tests.e2e.process_runtime import Lab, POOL
from ephemerd.ports.runtime import StartOrder
from ephemerd.testing.contracts.runtime import Sink
from dataclasses import replace
from pathlib import Path
import sys
async def main():
    lab = Lab()
    import shutil; shutil.rmtree(lab.folder)
    folder = Path({str(lab.folder)!r})
    lab.options = replace(lab.options, application=folder / "app", work_dir=folder / "work",
                          logs_dir=folder / "logs")
    runtime = lab.runtime(); runtime.attach(Sink())
    print(await runtime.start(StartOrder("{FIRST}", POOL, "{STORE}", "blob")))
asyncio.run(main())
"""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    environment = done.stdout.strip()
    runtime, sink = lab.runtime(), Sink()
    runtime.attach(sink)
    (found,) = await runtime.list(STORE)
    assert (found.environment, found.ended) == (environment, False)
    await runtime.watch(FIRST, POOL, environment)
    await sink.until_sign(FIRST, Sign.LISTENING)
    await lab.leave(FIRST, 9)
    assert await sink.until_exit(FIRST) == 9


async def test_watching_again_tells_all_signs_anew_and_the_exit_once(lab: Lab):
    runtime, sink, environment, _ = await begun(lab)
    await lab.begin_job(FIRST)
    await sink.until_sign(FIRST, Sign.WORKER)
    told = list(sink.signs)
    sink.signs.clear()
    await runtime.watch(FIRST, POOL, environment)
    assert sink.signs == told
    await lab.leave(FIRST, 0)
    os.kill(named(FIRST, "Runner.Worker")[0], signal.SIGKILL)
    await sink.until_exit(FIRST)
    assert len(sink.exits) == 1


async def test_a_reused_pid_is_never_taken_for_ours(lab: Lab):
    """The reference names a pid that a stranger has by now: seen as gone, and the stranger is not touched."""
    stranger = await asyncio.to_thread(subprocess.Popen, ["sleep", "1000"], start_new_session=True)
    try:
        _, sink, environment, reference = await begun(lab)
        forged = environment.replace(str(reference.listener), f"{stranger.pid}.1").replace(
            str(reference.parent), f"{stranger.pid}.2"
        )
        other = lab.runtime()
        told = Sink()
        other.attach(told)
        real = Linux().find(stranger.pid)
        assert real is not None
        await lab.leave(FIRST, 0)
        await sink.until_exit(FIRST)
        await until_report(lambda: other.probe(FIRST, forged), lambda each: each.listing is Listing.EMPTY)
        await other.watch(FIRST, POOL, forged)
        await told.until_exit(FIRST)
        await other.destroy(forged, lab.permit(FIRST, forged, Warrant.FORCED))
        assert alive(real.id)
    finally:
        stranger.kill()
        await asyncio.to_thread(stranger.wait)


async def test_an_environment_of_another_boot_is_gone(lab: Lab):
    _, _, environment, reference = await begun(lab)
    before = environment.replace(reference.boot, "an-earlier-boot")
    other, told = lab.runtime(), Sink()
    other.attach(told)
    report = await other.probe(FIRST, before)
    assert (report.listing, report.listener_alive) == (Listing.EMPTY, False)
    await other.watch(FIRST, POOL, before)
    await told.until_exit(FIRST)
    assert alive(reference.listener)


async def test_nothing_of_a_destroyed_neighbour_touches_another(lab: Lab):
    runtime, sink, first, _ = await begun(lab)
    second = await runtime.start(StartOrder(SECOND, POOL, STORE, SECRET))
    await sink.until_sign(SECOND, Sign.LISTENING)
    await lab.begin_job(SECOND)
    await runtime.destroy(first, lab.permit(FIRST, first, Warrant.IDLE))
    assert (await runtime.probe(SECOND, second)).workers == 1
    assert [runner for runner, _, _ in sink.exits] == [FIRST]


# Users, leftovers of our own


@pytest.mark.account("root")
async def test_a_runner_as_another_user(lab: Lab):
    """Owned by the user: its root and nothing above; shared with the template: what it cannot write."""
    nobody = pwd.getpwnam("nobody")
    runtime, _, environment, reference = await begun(lab, user="nobody", allow_root=False)
    root, folder = lab.root(FIRST), lab.options.work_dir / FIRST
    assert (root / "uid").read_text().strip() == str(nobody.pw_uid)
    assert (root.stat().st_uid, root.stat().st_gid) == (nobody.pw_uid, nobody.pw_gid)
    assert Path(f"/proc/{reference.parent.pid}").stat().st_uid == 0
    assert (folder.stat().st_uid, (folder / ".ephemerd").stat().st_uid) == (0, 0)
    assert stat.S_IMODE((folder / ".ephemerd").stat().st_mode) == 0o700
    for name in ("Runner.Listener", "Runner.Worker"):
        assert (root / "bin" / name).stat().st_ino == (lab.folder / "app" / "bin" / name).stat().st_ino
        assert (root / "bin" / name).stat().st_uid == 0
    assert (root / "externals").is_symlink()
    text = Path(f"/proc/{reference.listener.pid}/status").read_text()
    assert "Uid:\t" + "\t".join([str(nobody.pw_uid)] * 4) in text
    assert f"Groups:\t{nobody.pw_gid}" in text
    await until_report(lambda: runtime.probe(FIRST, environment), quiet)
    await lab.begin_job(FIRST)
    assert (await runtime.probe(FIRST, environment)).workers >= 1  # a fork of it bears its name for a moment
    await runtime.destroy(environment, lab.permit(FIRST, environment, Warrant.FORCED))
    assert lab.remains(FIRST) == []
    assert (lab.folder / "app" / "externals" / "node20" / "node").exists()


@pytest.mark.account("root")
async def test_a_template_that_the_user_could_write_is_copied(lab: Lab):
    nobody = pwd.getpwnam("nobody")
    (lab.folder / "app" / "bin" / "Runner.Worker").chmod(0o777)
    os.chown(lab.folder / "app" / "externals" / "node20" / "node", nobody.pw_uid, -1)
    await begun(lab, user="nobody", allow_root=False)
    root, app = lab.root(FIRST), lab.folder / "app"
    assert (root / "bin" / "Runner.Worker").stat().st_ino != (app / "bin" / "Runner.Worker").stat().st_ino
    assert (root / "bin" / "Runner.Worker").stat().st_uid == nobody.pw_uid
    assert not (root / "externals").is_symlink()
    assert (app / "bin" / "Runner.Worker").stat().st_uid == 0


@pytest.mark.account("root")
async def test_a_folder_that_the_user_cannot_reach_is_said(lab: Lab):
    lab.folder.chmod(0o700)
    with pytest.raises(Broken, match=r"cannot enter .*user nobody must be able to reach"):
        await lab.runtime(user="nobody", allow_root=False).start(StartOrder(FIRST, POOL, STORE, SECRET))
    assert lab.remains(FIRST) == []


async def test_no_zombie_and_no_warning_is_left(lab: Lab):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runtime, _, environment, _ = await begun(lab)
        await runtime.destroy(environment, lab.permit(FIRST, environment, Warrant.IDLE))
        await runtime.close()
    children = [p for p in Linux().snapshot().processes.values() if p.parent == os.getpid()]
    assert [child for child in children if child.exited] == []
