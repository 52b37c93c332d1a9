"""The shell clock over two clocks that a test sets."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerd.adapters.system.clock import STEP, ShellClock, awake_ms, monotonic_ms, wall_ms
from ephemerd.ports.system import Clock


@dataclass
class Machine:
    wall: int = 1_700_000_000_000
    monotonic: int = 50_000
    boot: str = "boot-a"
    asleep: int = 0

    def clock(self) -> ShellClock:
        return ShellClock(
            wall=lambda: self.wall,
            monotonic=lambda: self.monotonic,
            awake=lambda: self.monotonic - self.asleep,
            boot=lambda: self.boot,
        )

    def sleeps(self, ms: int) -> None:
        self.passes(ms)
        self.asleep += ms

    def passes(self, ms: int) -> None:
        self.wall += ms
        self.monotonic += ms


def test_it_is_a_clock_of_the_port():
    clock: Clock = ShellClock()
    assert clock.start(None) is False
    assert clock.now() > 1_700_000_000_000


def test_the_first_start_is_at_the_wall_clock():
    machine = Machine()
    clock = machine.clock()
    assert clock.start(None) is False
    assert clock.now() == machine.wall
    assert clock.mark() == (machine.wall, "boot-a", machine.monotonic)
    machine.passes(1500)
    assert clock.now() == machine.wall


def test_it_says_nothing_before_it_was_started():
    with pytest.raises(RuntimeError, match="not started"):
        Machine().clock().now()


@pytest.mark.parametrize("step", [-10 * 365 * 86_400_000, -1, 1, 3_600_000])
def test_a_step_of_the_wall_clock_is_not_in_it(step):
    machine = Machine()
    clock = machine.clock()
    clock.start(None)
    before = clock.now()
    machine.wall += step
    assert clock.now() == before
    machine.passes(10)
    assert clock.now() == before + 10


def test_a_sleep_counts_as_time_is_no_step_and_is_told_once():
    machine = Machine(asleep=7_000)
    clock = machine.clock()
    clock.start(None)
    before = clock.now()
    assert clock.slept() == 0
    machine.passes(60_000)
    assert clock.slept() == 0
    machine.sleeps(8 * 3_600_000)
    assert clock.now() == before + 60_000 + 8 * 3_600_000
    assert (clock.stepped(), clock.slept(), clock.slept()) == (0, 8 * 3_600_000, 0)
    machine.sleeps(STEP)
    assert clock.slept() == 0  # hiccups add up
    machine.sleeps(STEP)
    assert clock.slept() == 2 * STEP


def test_the_clocks_of_this_machine_agree_while_it_is_awake():
    clock = ShellClock()
    clock.start(None)
    assert clock.slept() == 0
    assert awake_ms() <= monotonic_ms()


def test_a_restart_on_the_same_boot_goes_on_by_the_monotonic_difference():
    machine = Machine()
    first = machine.clock()
    first.start(None)
    mark = first.mark()
    machine.passes(60_000)
    machine.wall -= 86_400_000
    second = machine.clock()
    assert second.start(mark) is True
    assert second.now() == mark[0] + 60_000


@pytest.mark.parametrize(("moved", "expected"), [(5_000_000, 5_000_000), (-5_000_000, 0)])
def test_a_reboot_reads_the_wall_clock_and_never_goes_back(moved, expected):
    machine = Machine()
    first = machine.clock()
    first.start(None)
    mark = first.mark()
    machine.boot, machine.monotonic, machine.wall = "boot-b", 7, machine.wall + moved
    second = machine.clock()
    assert second.start(mark) is False
    assert second.now() == mark[0] + expected


def test_a_monotonic_clock_that_fell_back_on_the_same_boot_stands_still():
    machine = Machine()
    first = machine.clock()
    first.start(None)
    mark = first.mark()
    machine.monotonic -= 20_000
    second = machine.clock()
    assert second.start(mark) is True
    assert second.now() == mark[0]


def test_a_machine_that_cannot_name_its_boot_has_a_new_one_each_time():
    def unknown() -> str:
        raise OSError("no such value")

    machine = Machine()
    first = ShellClock(wall=lambda: machine.wall, monotonic=lambda: machine.monotonic, boot=unknown)
    first.start(None)
    mark = first.mark()
    machine.passes(1000)
    second = ShellClock(wall=lambda: machine.wall, monotonic=lambda: machine.monotonic, boot=unknown)
    assert second.start(mark) is False
    assert second.now() == mark[0] + 1000


@pytest.mark.parametrize("step", [STEP + 1, -STEP - 1, 86_400_000])
def test_a_step_is_told_once(step):
    machine = Machine()
    clock = machine.clock()
    clock.start(None)
    assert clock.stepped() == 0
    machine.passes(500)
    machine.wall += step
    assert clock.stepped() == step
    assert clock.stepped() == 0


def test_a_drift_adds_up_until_it_is_a_step():
    machine = Machine()
    clock = machine.clock()
    clock.start(None)
    told = []
    for _ in range(7):
        machine.passes(60_000)
        machine.wall += 500
        told.append(clock.stepped())
    assert told == [0, 0, 0, 0, 2500, 0, 0]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10_000),
            st.integers(-(10**9), 10**9),
            st.sampled_from(["look", "restart", "reboot"]),
        )
    )
)
def test_whatever_happens_it_never_goes_back(history):
    machine = Machine()
    clock = machine.clock()
    clock.start(None)
    last = clock.now()
    for passed, step, what in history:
        machine.passes(passed)
        machine.wall += step
        if what != "look":
            mark = clock.mark()
            if what == "reboot":
                machine.boot, machine.monotonic = machine.boot + "'", 0
            clock = machine.clock()
            clock.start(mark)
        now = clock.now()
        assert now >= last
        if what != "reboot":
            assert now - last <= passed
        last = now


def test_many_threads_read_one_order():
    clock = ShellClock()
    clock.start(None)
    seen: list[list[int]] = [[] for _ in range(4)]

    def read(into: list[int]) -> None:
        into.extend(clock.now() for _ in range(2000))

    threads = [threading.Thread(target=read, args=(into,)) for into in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(into == sorted(into) for into in seen)


def test_the_machines_clocks_are_in_ms():
    assert abs(wall_ms() - time.time() * 1000) < 5000
    before = monotonic_ms()
    assert 0 <= monotonic_ms() - before < 5000
