"""Why a run of `hostile` cannot complete every job: a hung acquisition looks like a slow one.

The listener tries to acquire a job for up to about nine minutes, and the forge fails a job ten minutes after
its runner went silent (docs/facts/runner.md). Until then nothing that a daemon can hear tells the two apart:
whoever destroys the hung runner in time destroys the slow one too, whose job would have run.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import msgspec

from ephemerd.core import events as ev
from ephemerd.domain.verdict import HARD_SIGNS, Sign
from ephemerd.testing.simulate.run import Simulation
from ephemerd.testing.weather import Uniform, load

SLOW = 530
"""Seconds that the last try of an acquisition may succeed after, within the listener's nine minutes."""


def undated(event: ev.Event) -> ev.Event:
    """The event without the model's own remark, in which the milliseconds of its random delays stand."""
    return msgspec.structs.replace(event, detail="") if isinstance(event, ev.SignSeen) else event


def history(**changes: Any) -> tuple[list[tuple[int, ev.Event]], Any]:
    heard: list[tuple[int, ev.Event]] = []
    calm = load("calm")
    even = {f.name: getattr(calm, f.name) for f in fields(calm)}
    fixed = {name: Uniform(span.lo, span.lo) for name, span in even.items() if isinstance(span, Uniform)}
    weather = replace(calm, **{**fixed, "cancelled_queued": 0.0, "foreign_taken": 0.0, **changes})
    simulation = Simulation(weather, 7, 1, watch=lambda event, step, now: heard.append((now, undated(event))))
    return heard, simulation.run()


def test_hung_and_slow_acquisitions_tell_the_daemon_the_same_for_minutes():
    hung, failed = history(hang_after_acknowledge=1.0)
    slow, ran = history(acquire=Uniform(SLOW, SLOW))
    announced = next(now for now, event in slow if getattr(event, "sign", None) in HARD_SIGNS)
    offered = next(now for now, event in slow if getattr(event, "sign", None) is Sign.OFFERED)
    assert announced - offered > 500_000
    before = [event for now, event in slow if now < announced]
    assert before == [event for now, event in hung if now < announced]
    assert (failed.outcome.failed, failed.outcome.completed, failed.outcome.killed) == (1, 0, 0)
    assert (ran.outcome.failed, ran.outcome.completed, ran.outcome.killed) == (0, 1, 0)
