"""The benchmarks measure what they say, at sizes that take no time; nobody looks at the figures here."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import subprocess
import sys

import psutil
import pytest

from ephemerd.serving import GARBAGE_AFTER
from ephemerd.testing.bench import core, machine, recover, run, sweep
from ephemerd.testing.bench.figures import Figure, figure
from ephemerd.testing.bench.scene import Scene, ended
from ephemerd.testing.bench.sender import SIZE, prepared


def test_the_median_is_taken_and_held_against_the_baseline_of_the_same_run():
    found = figure(
        "webhooks", "1/s", [300.0, 100.0, 200.0], baseline=[400.0, 500.0, 100.0], target=0.6, of="ratio"
    )
    assert (found.value, found.baseline, found.ratio, found.met) == (200.0, 400.0, 0.5, True)
    assert found.plain()["runs"] == [300.0, 100.0, 200.0]


@pytest.mark.parametrize(
    ("fields", "met"),
    [
        ({"target": 1.0}, False),
        ({"target": 2.0}, True),
        ({"target": 2.0, "least": True}, True),
        ({"target": 2.1, "least": True}, False),
        ({"target": 0.4, "of": "ratio"}, None),
        ({"target": 0.4, "of": "ratio", "baseline": 4.0}, False),
        ({"target": 0.5, "of": "ratio", "baseline": 4.0}, True),
        ({}, None),
    ],
)
def test_a_bound_is_of_the_value_or_of_the_ratio_the_least_or_the_most(fields, met):
    assert Figure("x", 2.0, "s", (2.0,), **fields).met is met


def _looked() -> list[Figure]:
    return [figure("looked", "objects", [gc.get_threshold()[0], gc.get_freeze_count(), os.getpid()])]


def test_a_part_of_the_daemon_is_measured_in_a_process_of_its_own_which_looks_for_garbage_as_the_daemon(
    monkeypatch,
):
    monkeypatch.setattr(run, "BENCHMARKS", {"core": _looked, "soak": _looked, "webhooks": _looked})
    core, soak, hooks = (figure.runs for figure in run.run(["core", "soak", "webhooks"], lambda name: None))
    assert (core[0], soak[0], hooks[0]) == (GARBAGE_AFTER, GARBAGE_AFTER, gc.get_threshold()[0])
    assert core[1] > 0 < soak[1]
    assert len({core[2], soak[2], hooks[2]}) == 3
    assert hooks[2] == os.getpid(), "what drives other programs drives them from here"


def _says_who_it_is_and_stays() -> list[Figure]:
    print(os.getpid(), flush=True)
    signal.pause()
    return []


def test_a_process_does_not_outlive_who_waits_for_it():
    """Nobody can end it any more where that one was killed."""
    script = f"""
from ephemerd.testing.bench import run
from {__name__} import _says_who_it_is_and_stays as stays
if __name__ == "__main__":
    run._apart("core", stays)
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent, parent.stdout:
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    _, alive = psutil.wait_procs([child], timeout=10)
    assert not alive


def _dies() -> list[Figure]:
    os._exit(3)


def _raises() -> list[Figure]:
    raise OSError("no room")


def _interrupts_who_waits() -> list[Figure]:
    os.kill(os.getppid(), signal.SIGINT)
    signal.pause()
    return []


def test_a_process_ends_with_who_waits_for_it(monkeypatch):
    monkeypatch.setattr(run, "BENCHMARKS", {"core": _interrupts_who_waits})
    with pytest.raises(KeyboardInterrupt):
        [*run.run(["core"], lambda name: None)]
    assert multiprocessing.active_children() == []


def test_a_process_that_fails_is_told_and_stops_nothing(monkeypatch):
    monkeypatch.setattr(run, "BENCHMARKS", {"core": _dies, "sweep": _raises, "soak": _looked})
    core, sweep, soak = run.run(["core", "sweep", "soak"], lambda name: None)
    assert [(found.broken, found.met) for found in (core, sweep)] == [(True, False)] * 2
    assert core.note == "failed: its process ended with code 3"
    assert sweep.note == "failed: OSError: no room"
    assert soak.value is not None


def test_the_machines_speed_is_no_figure_that_is_judged(monkeypatch):
    monkeypatch.setattr(machine, "ROWS", 5)
    (found,) = machine.machine()
    assert found.value is not None
    assert found.value > 0
    assert found.met is None


def test_every_event_of_a_life_is_taken_and_nothing_of_it_is_left():
    scene = Scene(slots=2, rows=ended(20))
    scene.live(range(21, 31))
    state = scene.core.state
    assert scene.events == 10 * 11
    assert state.slots_held("local") == 0
    assert len(state.jobs) == 30
    assert {job.conclusion for job in state.jobs.values()} == {"success"}
    assert scene.took > 0


def test_the_core_is_measured_over_ledgers_a_burst_and_classes(monkeypatch):
    monkeypatch.setattr(core, "LEDGERS", (5, 20))
    monkeypatch.setattr(core, "LIVES", 10)
    monkeypatch.setattr(core, "BURST", 30)
    monkeypatch.setattr(core, "CLASSES", 30)
    names = [one.name for one in core.core()]
    assert names == ["core.ledger_5", "core.ledger_20", "core.flat", "core.burst", "core.classes"]


def test_the_sweep_ends_with_an_order_for_each_that_was_left_over(monkeypatch):
    monkeypatch.setattr(sweep, "RUNNERS", 40)
    monkeypatch.setattr(sweep, "NOMINATED", 4)
    nominate, decide = sweep.sweep()
    assert nominate.value
    assert decide.value
    assert 0 < nominate.value <= decide.value


def test_a_restart_reads_what_was_written(monkeypatch, tmp_path):
    monkeypatch.setattr(recover, "RUNNERS", 3)
    monkeypatch.setattr(recover, "JOBS", 30)
    setup = asyncio.run(recover._fill(tmp_path / "state.db"))
    assert len(setup.pools) == 1
    [found] = recover.recover()
    assert found.baseline
    assert found.value


def test_deliveries_are_of_the_size_that_is_stated_and_none_is_like_another():
    requests = prepared(0, 6)
    bodies = [request.partition(b"\r\n\r\n")[2] for request in requests]
    assert {len(body) for body in bodies} == {SIZE}
    assert len(set(bodies)) == 6
