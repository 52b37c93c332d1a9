"""What a benchmark says: a value, what it is held against, and whether it is what it should be."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

RUNS = 3
"""So many runs a figure, unless it says otherwise; the median is taken."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure.

    value     the median of the runs, in `unit`; None where it could not be measured here, and the note says why
    baseline  what was measured beside it in the same run, in the same unit; None where there is nothing to compare
    ratio     value / baseline; None without a baseline
    target    the bound; of the ratio where `of` is "ratio", of the value where it is "value"; None: only watched
    least     the bound is the least that is wanted, else the most
    runs      the value of each run
    note      what a reader has to know
    broken    the measuring itself failed, and the note says how
    """

    name: str
    value: float | None
    unit: str
    runs: tuple[float, ...]
    baseline: float | None = None
    target: float | None = None
    of: str = "value"
    least: bool = False
    note: str = ""
    broken: bool = False

    @property
    def ratio(self) -> float | None:
        return self.value / self.baseline if self.baseline and self.value is not None else None

    @property
    def met(self) -> bool | None:
        """Whether the bound is kept; None where there is none. What failed kept none."""
        if self.broken:
            return False
        judged = self.ratio if self.of == "ratio" else self.value
        if self.target is None or judged is None:
            return None
        return judged >= self.target if self.least else judged <= self.target

    def plain(self) -> dict[str, Any]:
        """Return it as `bench --json` prints it, rounded to four digits."""
        fields = asdict(self) | {"ratio": self.ratio, "met": self.met, "runs": list(self.runs)}
        return {name: _short(value) for name, value in fields.items()}


Benchmark = Callable[[], Sequence[Figure]]


def figure(name: str, unit: str, runs: Sequence[float], **fields: Any) -> Figure:
    """Make a figure of the median of its runs; `baseline` may be the runs of the baseline."""
    base = fields.pop("baseline", None)
    if isinstance(base, list | tuple):
        base = statistics.median(base)
    return Figure(name, statistics.median(runs), unit, tuple(runs), baseline=base, **fields)


def skipped(name: str, unit: str, why: str) -> Figure:
    """Make a figure that could not be measured on this machine."""
    return Figure(name, None, unit, (), note=f"skipped: {why}")


def broken(name: str, how: str) -> Figure:
    """Make the figure of a benchmark that failed."""
    return Figure(name, None, "", (), note=f"failed: {how}", broken=True)


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    return [_short(one) for one in value] if isinstance(value, list) else value
