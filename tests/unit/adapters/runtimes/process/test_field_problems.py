"""Field problems that bite where processes are told apart. Numbers are those of docs/FIELD-PROBLEMS.md."""

from __future__ import annotations

import os
from dataclasses import replace

from ephemerd.adapters.runtimes.process.identity import ProcessId
from ephemerd.adapters.runtimes.process.keep import prune
from ephemerd.adapters.runtimes.process.roots import LISTENER as LISTENER_PROGRAM
from ephemerd.adapters.runtimes.process.tree import look
from ephemerd.domain.verdict import Listing
from tests.unit.adapters.runtimes.process.machine import REFERENCE, FakeMachine


def test_fp_01_a_worker_below_the_listener_is_seen_whoever_the_runner_was_made_for():
    machine = FakeMachine().idle()
    machine.add(200, "Runner.Worker", parent=101, group=101, session=100)
    found = look(machine, REFERENCE, ())
    assert [worker.pid for worker in found.workers] == [200]


def test_fp_07_a_saturated_host_gives_no_list_and_that_is_no_proof():
    machine = FakeMachine().idle()
    machine.broken = True
    assert look(machine, REFERENCE, ()).listing is Listing.FAILED


def test_fp_10_a_marker_that_begins_like_another_is_anothers():
    """`eph-s-b-1` is looked at; what bears `eph-s-b-11` is not its own."""
    machine = FakeMachine().idle()
    machine.add(300, "make", marker=REFERENCE.runner + "1")
    machine.add(301, "Runner.Worker", marker=REFERENCE.runner + "1")
    found = look(machine, REFERENCE, ())
    assert (found.workers, found.others) == ((), ())
    other = replace(REFERENCE, runner=REFERENCE.runner + "1", parent=None, listener=None)
    assert [worker.pid for worker in look(machine, other, ()).workers] == [301]


def test_fp_10_a_pid_that_was_given_again_is_not_signalled():
    """A process is its pid and its start time; the kernel's next owner of the number is another."""
    machine = FakeMachine().idle()
    listener = REFERENCE.listener
    assert listener is not None
    machine.add(listener.pid, "make", start=listener.start + 1)
    assert not machine.signal(ProcessId(listener.pid, listener.start), 15)


def test_fp_42_the_listener_is_started_itself_and_no_wrapper():
    """`run.sh` turns 5 into 0 and loops on 2; the program below `bin` tells its own code."""
    assert str(LISTENER_PROGRAM).endswith("Runner.Listener")


def test_fp_59_the_logs_of_the_living_are_spared_and_the_oldest_of_the_dead_go(tmp_path):
    for number in range(5):
        path = tmp_path / f"eph-s-b-{number}.log"
        path.touch()
        os.utime(path, (number + 1, number + 1))
    prune(tmp_path, 2, {"eph-s-b-0"})
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"eph-s-b-{n}.log" for n in (0, 3, 4)]
