"""What the dashboard is made of and for whom it is rendered."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ephemerd.app.history import History
from ephemerd.app.logs import Logs
from ephemerd.app.operator import Operator
from ephemerd.app.present import Present
from ephemerd.app.queries import Queries
from ephemerd.app.timeline import Timeline
from ephemerd.web.dashboard.forges import Figure

Figures = Callable[[], Iterable[Figure]]
"""Reads all metrics of the daemon."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where pages read, and to whom orders go. Without `logs` a runner's page has none."""

    queries: Queries
    operator: Operator
    present: Present
    timeline: Timeline
    history: History
    figures: Figures
    logs: Logs | None = None


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks: orders are shown only to who `operates`; `csrf` is what a form of theirs must bring along.

    signs_out   has a session that can be ended
    """

    name: str = ""
    operates: bool = False
    csrf: str = ""
    signs_out: bool = False
