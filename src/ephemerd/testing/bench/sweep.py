"""`sweep`: nominations and decisions where 10,000 runners live and one in a hundred is left over."""

from __future__ import annotations

from collections.abc import Sequence

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.domain.job import ForgeStatus, Told
from ephemerd.domain.runner import FenceAnswer
from ephemerd.testing.bench.figures import RUNS, Figure, figure
from ephemerd.testing.bench.scene import IDLE, Scene, report

RUNNERS = 10_000
NOMINATED = RUNNERS // 100
MOST_MS = 50.0
GRACE = 30_000


def sweep() -> Sequence[Figure]:
    """The nominations of one sweep; and every gate run that follows, to the order to destroy."""
    nominations, decisions = [], []
    for _ in range(RUNS):
        scene = _crowd()
        nominations.append(1e3 * _nominated(scene))
        decisions.append(1e3 * scene.took)
    return [
        figure("sweep.nominate", "ms", nominations),
        figure(
            "sweep",
            "ms",
            decisions,
            target=MOST_MS,
            note=f"{NOMINATED} nominations, their probes, fences, second probes and orders to destroy",
        ),
    ]


def _crowd() -> Scene:
    scene = Scene(slots=RUNNERS, surplus_grace=GRACE)
    for number in range(1, RUNNERS + 1):
        (runner,) = scene.queue(number)
        scene.listen(runner)
        if number > NOMINATED:
            scene.work(runner, number)
    for number in range(1, NOMINATED + 1):
        told = report(number, ForgeStatus.COMPLETED, conclusion="cancelled")
        scene.feed(ev.JobReported(told, Told.WEBHOOK))
    return scene


def _nominated(scene: Scene) -> float:
    """Let the grace pass, answer everything that is asked; return the seconds until the nominations were made."""
    scene.now += GRACE
    scene.reset()
    sent = list(scene.feed(ev.Woke()).commands)
    nominated = scene.took
    destroyed = 0
    while destroyed < NOMINATED:
        if not sent:
            wake = scene.core.next_wake()
            assert wake is not None, "the gate waits for something"
            scene.now = max(scene.now, wake)
            sent = list(scene.feed(ev.Woke()).commands)
            continue
        command = sent.pop(0)
        if isinstance(command, cm.ProbeRunner):
            sent += scene.feed(ev.Probed(command.runner, command.token, IDLE)).commands
        elif isinstance(command, cm.Deregister):
            intent, answer = command.intent, FenceAnswer.ACCEPTED
            told = ev.FenceAnswered(intent.runner, intent.registration, command.token, answer)
            sent += scene.feed(told).commands
        elif isinstance(command, cm.Destroy):
            destroyed += 1
    return nominated
