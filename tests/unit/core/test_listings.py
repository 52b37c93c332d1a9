"""What really runs, against the rows: a restart follows again what it finds."""

from __future__ import annotations

import pytest

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.domain.verdict import Sign
from tests.unit.core.world import World, of, seen


@pytest.mark.parametrize("probe_first", [True, False])
def test_every_runner_is_followed_again_after_a_restart_whichever_answer_comes_first(
    probe_first: bool,
) -> None:
    """Simulator, hostile, seed 1: the probe answered before the listing, and nobody waited for its end."""
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.ANNOUNCED, "build")
    world.lists = False
    (probe,) = of(world.restart().commands, cm.ProbeRunner)
    looked = ev.Probed(name, probe.token, seen(workers=1))
    listed = ev.EnvironmentsListed("here", tuple(world.environments.values()), complete=True)
    answers = [looked, listed] if probe_first else [listed, looked]
    first = len(world.sent)
    for answer in answers:
        world.feed(answer)
    assert [command.runner for command in of(world.sent[first:], cm.WatchRunner)] == [name]


def test_a_later_listing_follows_nobody_twice() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.ANNOUNCED, "build")
    (probe,) = of(world.restart().commands, cm.ProbeRunner)
    world.feed(ev.Probed(name, probe.token, seen(workers=1)))
    first = len(world.sent)
    world.feed(ev.EnvironmentsListed("here", tuple(world.environments.values()), complete=True))
    assert of(world.sent[first:], cm.WatchRunner) == []
