"""What the pages of one runner or job say: the story by days, and why a runner was ended. Pure but for `told`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ephemerd.app.queries import Queries
from ephemerd.ports.views import DecisionView, EvidenceView, RunnerView, StoryLine, StoryView
from ephemerd.web.dashboard import words

DECISION = "Decision"
FENCES = {
    "accepted": "accepted: the forge deregistered it, and it can be given no job any more",
    "refused": "refused: the forge says that it holds a job",
    "missing": "the forge did not know the registration",
    "sent": "asked, no answer yet",
    "": "not asked",
}
NAMES = {
    "probe": "probe",
    "log": "log",
    "fence": "fence said",
    "forge": "forge said",
    "exit": "exit",
    "sign": "sign",
}


@dataclass(frozen=True, slots=True)
class Day:
    """The lines of one day (UTC) of a story."""

    day: str
    lines: tuple[StoryLine, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """One piece of evidence under the name of what looked."""

    name: str
    at: int
    verdict: str
    detail: str


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a runner was ended: the decision, what it rests on, the fence's answer, and when it was gone (ms)."""

    outcome: str
    at: int
    rule: str
    reason: str
    verdict: str
    via: str
    age_s: float
    bound_s: float
    looks: tuple[Look, ...]
    fence: str
    fence_at: int | None
    gone: int | None


def days(lines: Sequence[StoryLine]) -> tuple[Day, ...]:
    """Put the lines of a story under their days."""
    return tuple(Day(day, tuple(group)) for day, group in groupby(lines, lambda line: words.day(line.at)))


def ending(
    decisions: Sequence[DecisionView], row: RunnerView | None, lines: Sequence[StoryLine]
) -> Ending | None:
    """Return why the runner was ended, from the last decision that let it go; None where there is none.

    decisions  of this runner, in any order
    lines      its story, which tells what the forge said to the fence and when it was destroyed
    """
    made = max(
        (one for one in decisions if one.outcome in {"reaped", "escaped"}),
        key=lambda one: one.id,
        default=None,
    )
    if made is None:
        return None
    fence, fence_at = _fence(made, row, lines)
    gone = row.since if row is not None and row.state == "gone" else None
    destroyed = [line.at for line in lines if line.kind in {"EnvironmentDestroyed", "EnvironmentExited"}]
    if gone is None and row is None and destroyed:
        gone = destroyed[-1]
    return Ending(
        outcome=made.outcome,
        at=made.at,
        rule=made.rule,
        reason=made.reason,
        verdict=made.verdict,
        via=made.via,
        age_s=made.age_s,
        bound_s=made.bound_s,
        looks=tuple(_look(one) for one in made.evidence),
        fence=fence,
        fence_at=fence_at,
        gone=gone,
    )


def _look(look: EvidenceView) -> Look:
    return Look(NAMES.get(look.via, look.via), look.at, look.verdict, look.detail)


def _fence(made: DecisionView, row: RunnerView | None, lines: Sequence[StoryLine]) -> tuple[str, int | None]:
    """Return what the forge said to the fence and when: the answer in the story, else what the row remembers."""
    answered = [line for line in lines if line.kind == "FenceAnswered" and line.at <= made.at]
    if answered:
        return answered[-1].text, answered[-1].at
    looks = [look for look in made.evidence if look.via == "fence"]
    if looks:
        return looks[-1].detail, looks[-1].at
    return FENCES.get(row.fence if row is not None else "", "not asked"), None


async def told(queries: Queries, subject: str) -> StoryView | None:
    """Return the story of a runner or job; a job's with that of our runner which had it, in order of time.

    Of the runner's lines those about other jobs are left out.
    """
    story = await queries.story(subject)
    if story is None or story.job is None or not story.job.ours or story.job.runner is None:
        return story
    name = story.job.runner
    runner = await queries.story(name)
    if runner is None:
        return story
    known = {(line.kind, line.seq) for line in story.lines}
    added = [
        line
        for line in runner.lines
        if line.subject in {"", name, subject} and (line.kind, line.seq) not in known
    ]
    lines = sorted([*story.lines, *added], key=lambda line: (line.at, line.kind == DECISION, line.seq))
    return replace(story, lines=tuple(lines))
