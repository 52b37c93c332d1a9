"""The forge may be holding back: a class with a listener that nobody takes gets no further runner.

Max-parallel, group access and concurrency groups leave jobs queued that no runner of ours will be given
(DOMAIN.md 4.4). Each runner that is taken doubles the allowance.
"""

from __future__ import annotations

from msgspec.structs import replace

from ephemerd.core.index import Group, variety_of
from ephemerd.core.rows import ClassRow
from ephemerd.core.turn import Turn
from ephemerd.domain.runner import Runner, S

MOST = 1_024


def taken(t: Turn, row: Runner) -> None:
    """A runner was given a job: its classes may have more, or are held no longer."""
    if not t.state.index.held_back:
        return
    variety = variety_of(row)
    for name in sorted(t.state.index.held_back):
        group, kept = t.state.index.groups.get(name), t.state.classes[name]
        if group is None or variety not in group.varieties:
            continue
        if not _someone_waits(t, group):
            t.put_class(name, replace(kept, held=False, credits=0, grant=1))
        else:
            grant = min(kept.grant * 2, MOST)
            t.put_class(name, replace(kept, credits=kept.credits + kept.grant, grant=grant))


def untaken(t: Turn, row: Runner) -> None:
    """A listener was not taken for `hold_after` although its jobs wait: hold their classes."""
    for name in sorted(name for _, name in t.state.index.takers.get(variety_of(row), ())):
        group = t.state.index.groups[name]
        if not group.queued or not _waited(t, group):
            continue
        kept = t.state.classes.get(name, ClassRow())
        if not kept.held:
            t.put_class(name, replace(kept, held=True, credits=0, grant=1))
            t.note("info", "the forge may be holding back", job_class=name, runner=row.id)


def review(t: Turn, group: Group) -> None:
    """Let go of a class for which no listener waits untaken any more."""
    kept = t.state.classes.get(group.name)
    if kept is not None and kept.held and not _someone_waits(t, group):
        t.put_class(group.name, replace(kept, held=False, credits=0, grant=1))


def allows(t: Turn, group: Group) -> bool:
    """Say whether another runner may be made for the class."""
    kept = t.state.classes.get(group.name)
    return kept is None or not kept.held or kept.credits > 0


def spend(t: Turn, group: Group) -> None:
    """A runner is made for the class: note the dispatch, and use up a credit where it is held."""
    kept = t.state.classes.get(group.name, ClassRow())
    left = kept.credits - 1 if kept.held else kept.credits
    t.put_class(group.name, replace(kept, served=t.draw("dispatch"), credits=left))


def _waited(t: Turn, group: Group) -> bool:
    oldest = group.queued.oldest()
    return oldest is not None and t.now - t.state.jobs[oldest].first_seen >= t.policy.hold_after


def _someone_waits(t: Turn, group: Group) -> bool:
    """Say whether a listener that satisfies the class has waited untaken for `hold_after`."""
    for variety in group.varieties:
        for name in t.state.index.supply.get(variety, ()):
            row = t.state.runners[name]
            waiting = row.state is S.LISTENING and row.listening is not None
            if waiting and t.now - (row.listening or 0) >= t.policy.hold_after:
                return True
    return False
