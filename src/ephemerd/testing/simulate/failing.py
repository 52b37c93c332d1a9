"""What to show of a run that broke a promise: fewer jobs, the shortest story, a line that shows it again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ephemerd.core import events as ev
from ephemerd.core.step import Step
from ephemerd.core.story import Entry, Line, tell
from ephemerd.domain.runner import Decision
from ephemerd.testing.simulate.fleet import Order
from ephemerd.testing.simulate.measure import broken_promises
from ephemerd.testing.simulate.run import Result, Simulation
from ephemerd.testing.simulate.truth import Finding
from ephemerd.testing.weather import load

MOST_LINES = 60
MOST_TRIES = 24
WORST_FIRST = ("killed", "escaped", "lost", "leaked", "disturbed")
"""Which finding is told where a run has several; then the broken invariants, each kind by time."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A broken promise, made small: what does not hold, whose story tells of it, and how to see it again."""

    order: Order
    broken: tuple[str, ...]
    finding: Finding | None
    story: tuple[Line, ...]

    @property
    def command(self) -> str:
        """The command line that reproduces it."""
        order = self.order
        return (
            f"ephemerd simulate --policy {order.policy} --weather {order.weather} --seed {order.seed} "
            f"--jobs {order.jobs}"
        )


def same(result: Result, kind: str) -> bool:
    """Say whether a run fails in the same way: with a finding of that kind, or with any broken promise."""
    if kind:
        return any(finding.kind == kind for finding in result.findings)
    return bool(broken_promises([result], load(result.weather)))


def shrink(order: Order, fails: Callable[[int], bool]) -> int:
    """Return the fewest jobs with which the run still fails, as bisection finds them.

    The history up to the failing moment does not depend on the jobs that come after it, so that fewer jobs
    give the same history for long.
    """
    known, low = order.jobs, 0
    for _ in range(MOST_TRIES):
        if known - low <= 1:
            break
        middle = (low + known) // 2
        if fails(middle):
            known = middle
        else:
            low = middle
    return known


def explain(order: Order, *, smaller: bool = True) -> Failure | None:
    """Run an order again, with fewer jobs where that fails alike, and tell the story; None where it holds."""

    def run(jobs: int) -> Result:
        return Simulation(load(order.weather), order.seed, jobs, policy=order.policy).run()

    result = run(order.jobs)
    if not same(result, "") and not result.findings:
        return None
    kind = _worst(result)
    if smaller:
        jobs = shrink(order, lambda count: same(run(count), kind))
        order = Order(order.policy, order.weather, order.seed, jobs)
        result = run(jobs)
    finding = next((finding for finding in result.findings if finding.kind == kind), None)
    broken = tuple(broken_promises([result], load(order.weather))) or (str(finding),)
    return Failure(order, broken, finding, tuple(story(order, finding)) if finding is not None else ())


def _worst(result: Result) -> str:
    """Return the kind of the finding to tell, "" where there is none."""
    kinds = [finding.kind for finding in result.findings]
    return next((kind for kind in (*WORST_FIRST, *kinds) if kind in kinds), "")


def story(order: Order, finding: Finding) -> list[Line]:
    """Tell what the daemon knew of the finding's subject up to its moment, the last lines where it is long."""
    entries: list[Entry] = []
    decisions: list[Decision] = []

    def watch(event: ev.Event, step: Step, now: int) -> None:
        if now > finding.at:
            return
        if finding.subject in step.subjects:
            entries.append(Entry(len(entries) + 1, now, event))
        decisions.extend(decision for decision in step.decisions if decision.runner == finding.subject)

    Simulation(load(order.weather), order.seed, order.jobs, policy=order.policy, watch=watch).run()
    return tell(entries, decisions, finding.subject)[-MOST_LINES:]
