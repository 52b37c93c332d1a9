"""I7: a segment of the journal, replayed by a fresh core, gives the same commands and the same rows."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from ephemerd.core import codec
from ephemerd.core import events as ev
from ephemerd.domain.runner import RunnerState
from ephemerd.testing.simulate.journal import (
    SEGMENT,
    Recorder,
    Segment,
    differences,
    replay,
    rows_of,
    total_hash,
)
from ephemerd.testing.simulate.run import Simulation
from ephemerd.testing.weather import load
from tests.unit.simulate.build import calm


def recorded(*, whole: bool = False) -> Simulation:
    simulation = Simulation(load("bursty"), 3, 30, whole=whole)
    simulation.run()
    return simulation


def segment_of(simulation: Simulation) -> Segment:
    recorder = simulation.daemon.recorder
    assert recorder is not None
    assert recorder.segment is not None
    return recorder.segment


def test_the_whole_journal_gives_the_same_core():
    simulation = recorded(whole=True)
    segment = segment_of(simulation)
    assert len(segment.entries) > SEGMENT
    assert segment.rows == {}
    replayed = replay(segment, keep_steps=True)
    assert replayed.differences == []
    assert differences(simulation.daemon.core.state, replayed.core.state) == []
    assert len(replayed.steps) == len(segment.entries)


def test_a_segment_begins_in_the_middle_with_the_rows_of_then():
    simulation = recorded()
    segment = segment_of(simulation)
    assert 0 < len(segment.entries) < SEGMENT
    assert segment.rows["job"]
    assert simulation.daemon.recorder is not None
    assert simulation.daemon.recorder.verify(simulation.daemon.core.state) == []


def test_every_life_of_a_crashing_daemon_is_replayed():
    result = Simulation(replace(load("hostile"), daemon_crash=0.01), 2, 40, whole=True).run()
    assert result.crashes >= 10
    assert result.replays == result.crashes + 1
    assert result.problems == []


def test_an_event_left_out_is_found():
    simulation = recorded(whole=True)
    segment = segment_of(simulation)
    at = next(i for i, (event, _, _) in enumerate(segment.entries) if isinstance(event, ev.Registered))
    del segment.entries[at]
    replayed = replay(segment)
    assert replayed.differences or differences(simulation.daemon.core.state, replayed.core.state)


def test_another_hash_is_found_and_named():
    segment = segment_of(recorded(whole=True))
    event, now, _ = segment.entries[40]
    segment.entries[40] = (event, now, "0" * 32)
    (difference,) = replay(segment).differences
    assert difference == f"event 41 ({type(event).__name__} at {now} ms) gives other commands"


def test_other_rows_are_found_and_named():
    simulation = recorded(whole=True)
    state = simulation.daemon.core.state
    other = replay(segment_of(simulation)).core.state
    name, row = next(iter(other.runners.items()))
    other.runners[name] = msgspec.structs.replace(row, state=RunnerState.STUCK)
    other.meta["name"] = -1
    assert differences(state, other) == [f"runner rows differ: {name}", "meta rows differ: name"]
    del other.runners[name]
    assert f"runner rows differ: {name}" in differences(state, other)


def test_a_difference_is_a_finding_of_the_run():
    simulation = Simulation(calm(), 1, 5)
    simulation.daemon.boot()
    segment = segment_of(simulation)
    event, now, _ = segment.entries[0]
    segment.entries[0] = (event, now, "f" * 32)
    simulation.daemon.verify()
    (finding,) = simulation.outcome.findings
    assert finding.kind == "replay"


def test_a_recorder_that_was_never_begun_has_nothing_to_say():
    state = Simulation(calm(), 1, 1).daemon.core.state
    recorder = Recorder()
    recorder.add(ev.Woke(), 1, "", state)
    assert recorder.verify(state) == []
    assert recorder.replays == 0


def test_rows_hold_every_kind():
    state = recorded().daemon.core.state
    assert set(rows_of(state)) == set(codec.ROW_CLASSES)


@pytest.mark.parametrize("hashes", [["a", "b"], ["ab"], ["b", "a"]])
def test_the_total_hash_depends_on_each_hash_and_their_order(hashes):
    others = [["a", "b"], ["ab"], ["b", "a"], []]
    assert [total_hash(other) == total_hash(hashes) for other in others].count(True) == 1
