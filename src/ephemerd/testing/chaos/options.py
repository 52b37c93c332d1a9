"""What chaos can be asked for, and what it reports."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ephemerd.testing.demo.options import TIME_SCALE

READY_MS = 2_000.0
ADOPTED_MS = 5_000.0
"""Budgets of a restart, from the start of the program: deliveries are taken; every live runner is adopted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosOptions:
    """How to play.

    jobs          random jobs that are counted; those that the weather adds come on top
    kills         how often the daemon is killed (SIGKILL) and started again
    burst         most same-label jobs at one instant
    commit_kills  how often the daemon is killed in the middle of group commits; 0 leaves that out
    runners       live runners that a restart has to adopt, for the measurement; 0 leaves that out
    folder        where everything is kept; a temporary one if None
    runtime       what runners live in: process or docker
    engine_kills  how often the engine of the containers is ended and started again, by turns politely and not; it is
                  then one of our own
    """

    jobs: int = 300
    kills: int = 60
    burst: int = 8
    seed: int = 1
    weather: str = "hostile"
    time_scale: float = TIME_SCALE
    commit_kills: int = 200
    runners: int = 200
    folder: Path | None = None
    runtime: str = "process"
    engine_kills: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliveries:
    """The forge's list of deliveries against the daemon's books.

    acknowledged  distinct deliveries of jobs that were answered as stored
    missing       acknowledged ones that the store does not know
    processed     deliveries in the store, acknowledged or not (the answer dies with the daemon)
    twice         how many more of them the journal holds than the store
    never         how many fewer
    """

    acknowledged: int
    missing: int
    processed: int
    twice: int
    never: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """The daemon killed ``kills`` times in its group commits. ``lost``: deliveries of the sender's list of
    acknowledged ones that are not in the store; ``twice`` and ``never`` as in :class:`Deliveries`."""

    kills: int
    acknowledged: int
    lost: int
    twice: int
    never: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """A restart with ``runners`` live ones. Times are ms from the start of the program; ``cpu_ms`` is what the daemon
    used of the processor until then, which a busy machine does not change much."""

    runners: int
    adopted: int
    destroyed: int
    ready_ms: float
    adopted_ms: float
    cpu_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosReport:
    """The JSON of chaos. Outcomes are counted by the forge's side alone.

    broken_by_weather  counted jobs whose runner the weather itself broke, each with its proof in ``broken``
    slot_error         the greatest difference ever shown between slots held and runners that hold one
    restarts           how often the daemon was killed and started again
    engine_restarts    how often the engine of the containers was; ``_at_work``: while a job was at work
    wedged             runners whose worker never ends by the weather's will: they alone may be ended unproven
    """

    jobs: int
    completed: int
    killed: int
    disturbed: int
    lost: int
    leaked: int
    escaped: int
    slot_error: int
    restarts: int
    engine_restarts: int
    engine_restarts_at_work: int
    time_scale: float
    wall_s: float
    weather: str
    seed: int
    broken_by_weather: int
    wedged: int
    wasted: int
    dispatches: int
    vetoed: int
    reaped: int
    fence_breaches: int
    outages: int
    deliveries: Deliveries
    commits: Commits | None
    adoption: Adoption | None
    broken: list[dict[str, Any]] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    broken_promises: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The report as one JSON object."""
        return dataclasses.asdict(self)

    @property
    def exit_code(self) -> int:
        """0, or 8 if a promise did not hold."""
        return 8 if self.broken_promises else 0


def broken_promises(report: ChaosReport) -> list[str]:
    """What was promised of the storm and did not hold, as sentences; none is the aim."""
    found = []
    if report.completed + report.broken_by_weather != report.jobs:
        found.append(
            f"{report.completed} of {report.jobs} jobs were completed, {report.broken_by_weather} broken by weather"
        )
    for name, what in (
        ("killed", "jobs were killed at work"),
        ("lost", "jobs were never run"),
        ("leaked", "processes, folders or registrations are left"),
        ("slot_error", "slots differ from the runners that hold them"),
    ):
        if getattr(report, name):
            found.append(f"{getattr(report, name)} {what}")
    if report.escaped > report.wedged:
        found.append(f"{report.escaped} runners were ended without proof, {report.wedged} of them wedged")
    return [*found, *_of_deliveries(report.deliveries)]


def broken_besides(report: ChaosReport) -> list[str]:
    """The same of what was played beside the storm."""
    return [*_of_commits(report), *_of_adoption(report)]


def _of_deliveries(told: Deliveries) -> list[str]:
    counts = {
        "acknowledged deliveries are not in the store": told.missing,
        "deliveries were processed twice": told.twice,
        "deliveries in the store were never processed": told.never,
    }
    return [f"{count} {what}" for what, count in counts.items() if count]


def _of_commits(report: ChaosReport) -> list[str]:
    told = report.commits
    if told is None or not (told.lost or told.twice or told.never):
        return []
    return [f"killed in commits: {told.lost} lost, {told.twice} processed twice, {told.never} never"]


def _of_adoption(report: ChaosReport) -> list[str]:
    told = report.adoption
    if told is None:
        return []
    found = []
    if told.adopted != told.runners or told.destroyed:
        found.append(f"{told.adopted} of {told.runners} runners were adopted, {told.destroyed} destroyed")
    if told.ready_ms > READY_MS:
        found.append(f"deliveries were taken {told.ready_ms:.0f} ms after the start")
    if told.adopted_ms > ADOPTED_MS:
        found.append(f"all runners were adopted {told.adopted_ms:.0f} ms after the start")
    return found
