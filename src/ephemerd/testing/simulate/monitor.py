"""Trace invariants of one run, judged from the truth and from what the daemon knew (DOMAIN.md section 8).

I1  no runner that holds a job is destroyed, signalled or deregistered, except by an escape, an order, or
    where the forge itself is wrong
I5  a registration is asked for only while demand that is confirmed, or let through, exceeds supply
I6  nothing is repeated blindly; while a scope gives no answer one call a minute tries it; while a limit
    lasts none does
"""

from __future__ import annotations

from collections.abc import Mapping

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.index import variety_of
from ephemerd.core.state import State
from ephemerd.core.step import Step
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import Scope
from ephemerd.domain.permit import Permit, Warrant
from ephemerd.domain.runner import Runner
from ephemerd.testing.simulate.runtime import ModelRuntime
from ephemerd.testing.simulate.truth import Outcome, TrueEnvironment

ORDERED = frozenset({Warrant.OVERDUE, Warrant.FORCED})
ON_SCOPE = (
    *(cm.Register, cm.LookUpName, cm.LookUpRunner, cm.LookUpJob, cm.LookUpRun),
    *(cm.ListRegistrations, cm.ListJobs),
)
TRY_EVERY = 60_000


def most(demand: Mapping[str, int], supply: Mapping[str, int], edges: Mapping[str, tuple[str, ...]]) -> int:
    """Return how many units of demand can be served at once, as the smallest cut between the two sides.

    demand  class -> units; supply  pool -> units; edges  class -> the pools that serve it. The work doubles
    with each pool: it is meant for the handful that a simulation has.
    """
    pools = sorted(pool for pool, units in supply.items() if units)
    served = [(units, edges[name]) for name, units in sorted(demand.items())]
    best: int | None = None
    for choice in range(1 << len(pools)):
        cut = [pool for number, pool in enumerate(pools) if choice >> number & 1]
        cost = sum(supply[pool] for pool in cut)
        cost += sum(units for units, fits in served if any(p in pools and p not in cut for p in fits))
        best = cost if best is None else min(best, cost)
    return best or 0


class _Line:
    """What is known of one scope's line: since when it is silent or limited, and the last call on it."""

    __slots__ = ("called", "limited", "silent")

    def __init__(self) -> None:
        self.silent = False
        self.limited = 0
        self.called: int | None = None


class Monitor:
    """Watches one daemon; what it finds goes to the outcome. Times are ms."""

    def __init__(self, outcome: Outcome, runtime: ModelRuntime) -> None:
        self.outcome, self.runtime = outcome, runtime
        self.escapes = 0
        self.escapes_in_job = 0
        self._asked: dict[str, bool] = {}
        self._lines: dict[Scope, _Line] = {}
        self._gates: dict[str, int] = {}

    def booted(self) -> None:
        """A process life begins: it knows nothing of how the scopes answered the one before."""
        self._lines.clear()

    def stepped(self, event: ev.Event, step: Step, state: State, now: int) -> None:
        """Look at one committed step."""
        for kind, name, row in step.changed:
            if kind == "runner" and row is not None and row.gate is not None:
                self._gate(name, row)
        if isinstance(event, ev.NameLookedUp) and event.fault is None:
            self._asked[event.runner] = False
        registers = []
        for command in step.commands:
            if isinstance(command, cm.Register):
                registers.append(command)
                self._register(command, now)
            if isinstance(command, ON_SCOPE):
                self._call(command.scope, type(command).__name__, now)
            elif isinstance(command, cm.Deregister):
                self._call(command.intent.scope, "Deregister", now)
        if registers:
            self._provisioned(registers, state, now)

    def _gate(self, name: str, row: Runner) -> None:
        """Count gate runs, and those that were begun while the runner held a job."""
        assert row.gate is not None
        if self._gates.get(name) == row.gate.nomination:
            return
        self._gates[name] = row.gate.nomination
        self.outcome.gate_runs += 1
        env = self.runtime.environments.get(name)
        if env is not None and env.holding():
            self.outcome.gate_runs_holding_job += 1

    # I6

    def _register(self, command: cm.Register, now: int) -> None:
        if self._asked.get(command.runner, False):
            text = f"{command.runner} is registered again without a look whether it is there"
            self.outcome.found("repeated", command.runner, now, text)
        self._asked[command.runner] = True

    def _call(self, scope: Scope, name: str, now: int) -> None:
        line = self._lines.get(scope)
        if line is None:
            line = self._lines[scope] = _Line()
        if line.silent and line.called is not None and now - line.called < TRY_EVERY:
            pause = (now - line.called) / 1000
            text = f"{name} on {scope} {pause:.1f} s after the last call, while it gives no answer"
            self.outcome.found("impatient", "", now, text)
        if now < line.limited:
            text = f"{name} on {scope} {(line.limited - now) / 1000:.1f} s before its limit ends"
            self.outcome.found("impatient", "", now, text)
        line.called = now

    def answered(self, scope: Scope, fault: Fault | None, now: int) -> None:
        """A call on a scope ended, and the daemon is about to hear how."""
        line = self._lines.setdefault(scope, _Line())
        if fault is None or fault.remedy is Remedy.REFUSED:
            line.silent = False
        elif fault.remedy is Remedy.RETRY:
            line.silent = True
        elif fault.remedy is Remedy.LIMITED:
            line.limited = max(line.limited, now + (fault.after_ms or 0))

    # I5

    def _provisioned(self, registers: list[cm.Register], state: State, now: int) -> None:
        """Each new runner must serve demand that no other supply serves, and whose word is fresh."""
        fresh: dict[str, int] = {}
        for command in registers:
            row = state.runners.get(command.runner)
            if row is None or row.created != now:
                continue  # an older one, whose name was looked up and was not there
            variety = variety_of(row)
            fresh[variety] = fresh.get(variety, 0) + 1
            if row.intent is None and state.pools[row.pool].pool.min_idle:
                continue  # a spare, which nobody has to confirm; whether it is one too many is asked below
            job = state.jobs.get(row.intent) if row.intent is not None else None
            if job is None or (now - job.confirmed > state.policy.confirm_after and job.unconfirmed != now):
                text = f"{row.id} is made for {row.intent}, which nobody confirmed lately"
                self.outcome.found("unconfirmed", row.id, now, text)
        if fresh and not _needed(fresh, state):
            names = ", ".join(command.runner for command in registers)
            text = f"{names}: more runners than demand that nothing else serves"
            self.outcome.found("oversupply", registers[0].runner, now, text)

    # I1

    def job_ended(self, permit: Permit, env: TrueEnvironment, now: int) -> None:
        """A job that had been acquired and was not over ended because its runner was."""
        job = env.job
        assert job is not None
        if permit.warrant in ORDERED:
            job.fate = "ordered"
            self.outcome.ordered += 1
            return
        job.fate = "killed"
        self.outcome.killed += 1
        text = f"{env.name} is destroyed as {permit.rule} while it executes {job.key}"
        self.outcome.found("killed", env.name, now, text)

    def job_disturbed(self, permit: Permit, env: TrueEnvironment, now: int) -> None:
        """A job that was assigned and not acquired lost its runner."""
        if permit.warrant in ORDERED:
            return
        text = f"{env.name} is destroyed as {permit.rule} while a job is assigned to it"
        self.outcome.found("disturbed", env.name, now, text)

    def escaped(self, env: TrueEnvironment, over: bool, now: int) -> None:
        """A runner was ended past its bound. `over`: by the truth no job was bound to it any more."""
        self.escapes += 1
        if not over:
            self.escapes_in_job += 1
            self.outcome.found("escaped", env.name, now, f"{env.name} escaped with a job that is not over")


def _needed(fresh: Mapping[str, int], state: State) -> bool:
    """Say whether every fresh runner serves demand that the rest of the supply leaves open."""
    index = state.index
    demand = {name: len(group.queued) for name, group in index.groups.items() if group.queued}
    edges = {name: group.varieties for name, group in index.groups.items()}
    for name, row in state.pools.items():
        if row.pool.min_idle:
            demand[f"idle {name}"] = row.pool.min_idle
            edges[f"idle {name}"] = (name,)
    supply = {
        variety: len(index.supply.get(variety, ())) + len(index.consuming.get(variety, ()))
        for variety in (*state.pools, *index.odd)
    }
    before = {variety: units - fresh.get(variety, 0) for variety, units in supply.items()}
    return most(demand, supply, edges) - most(demand, before, edges) == sum(fresh.values())
