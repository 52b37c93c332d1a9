"""Replay of incident journals in `demand` mode: the daemon makes its own runners for the journal's jobs.

Fed are the lines that are neither truth nor legacy: jobs as they were queued, ends of jobs that no runner here
ran, and what foreign runners did; the forge answers with the state that these lines imply. `work_s` is hidden
from the scheduler. Environments named in `faults` behave as it says. Where the slots are taken at first
(`slots_free_from`), runners of the daemon's own work in them on jobs from outside the journal until then. Then
the journal's checks are computed from what really happened.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.step import Step
from ephemerd.core.validate import slot_difference, validate
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.labels import normalise
from ephemerd.domain.pool import DAY, HOUR, Host, Policy, Pool, Setup
from ephemerd.domain.runner import FINAL
from ephemerd.testing.simulate.driver import ModelDaemon
from ephemerd.testing.simulate.forge import draw
from ephemerd.testing.simulate.heap import VirtualTime
from ephemerd.testing.simulate.incidents import REPOSITORY, Line, Report, moment, read
from ephemerd.testing.simulate.measure import quantile
from ephemerd.testing.simulate.runtime import ModelRuntime
from ephemerd.testing.simulate.scheduler import Factory, Gate
from ephemerd.testing.simulate.truth import Outcome, TrueEnvironment, TrueJob, TrueRegistration
from ephemerd.testing.weather import Uniform, Weather

OUTSIDE = "outside/the-journal"
LEAD_MS = 300_000
"""How long before the first line the daemon starts, so that it has looked around."""


@dataclass(frozen=True, slots=True)
class DemandVariant:
    """How a replay departs from the journal.

    tell_ends       whether ends of jobs are delivered (the forge knows of them all the same)
    tell_late_s     deliveries of starts and ends come so much later
    job_reads_fail  every GET of a job is answered 502
    restart_at      the daemon dies and starts again at this moment
    stop_after_s    a call that ends a wedged environment returns after all, so much later
    every_wedged    every environment is wedged, not only those that the journal names
    worker_wedged   the wedged environments listen, take a job and never end it
    seed            which waiting job of a class the forge hands out, and all else that is drawn
    """

    tell_ends: bool = True
    tell_late_s: float = 0.0
    job_reads_fail: bool = False
    restart_at: str | None = None
    stop_after_s: float | None = None
    every_wedged: bool = False
    worker_wedged: bool = False
    seed: int = 1


class FaultyRuntime(ModelRuntime):
    """Environments of which some are wedged: they never listen, and no call that would end them returns."""

    wedged: frozenset[int] = frozenset()
    variant = DemandVariant()
    made_for: list[TrueEnvironment]

    def start(self, name: str, pool: str, registration: TrueRegistration) -> TrueEnvironment:
        env = super().start(name, pool, registration)
        self.made_for.append(env)
        if self.variant.every_wedged or len(self.made_for) in self.wedged:
            env.fault = "wedged"
        return env

    def _boot(self, env: TrueEnvironment) -> None:
        if env.fault != "wedged" or self.variant.worker_wedged:
            super()._boot(env)

    def _over(self, env: TrueEnvironment, job: TrueJob) -> None:
        if env.fault != "wedged":
            super()._over(env, job)

    def stop(self, env: TrueEnvironment) -> bool:
        return env.fault != "wedged" and super().stop(env)

    def destroy(self, env: TrueEnvironment) -> tuple[bool, int]:
        if env.fault != "wedged":
            return super().destroy(env)
        ended = env.executing()
        env.stopping = True
        if self.variant.stop_after_s is not None:
            self.time.after(int(self.variant.stop_after_s * 1000), self._gone, env)
        return ended, 0


def _weather(policy: Line) -> Weather:
    """The journals' own delays, all of them fixed (see the lines of the old daemon in them)."""

    def just(seconds: float) -> Uniform:
        return Uniform(seconds, seconds)

    return Weather(
        name="incident",
        burst=(1, 1),
        gap=just(1),
        job=just(1),
        webhook_delay=just(0.3),
        rest_delay=just(0.3),
        assign=just(0.6),
        acknowledge=just(0.1),
        acquire=just(0.2),
        spawn=just(0.2),
        report=just(1.0),
        boot=just(float(policy.get("boot_s", 37))),
        wind_down=just(1.1),
        stop=just(1.0),
        slots=int(policy.get("slots", 1)),
        refuses_from="assignment",
    )


@dataclass(slots=True)
class Seen:
    """What was noted while it ran, for the checks. Times are ms.

    registered  when, which runner, and the job that it was meant for
    destroyed   when, and which live environment
    back        environment -> whether its slot was in other use when it was due back
    """

    registered: list[tuple[int, str, int | None]] = field(default_factory=list)
    destroyed: list[tuple[int, str]] = field(default_factory=list)
    back: dict[int, bool] = field(default_factory=dict)


class Demand:
    """One replay."""

    def __init__(
        self,
        path: Path,
        variant: DemandVariant | None = None,
        lines: Iterable[Line] | None = None,
        policy: Factory = Gate,
    ) -> None:
        self.note, recorded = read(path)
        self.lines = list(lines) if lines is not None else recorded
        self.variant = variant or DemandVariant()
        self.fed = [line for line in self.lines if not line.get("legacy") and not line.get("truth")]
        self.policy = self.note["policy"]
        self.report = Report(path.name)
        self.real = policy is Gate
        self.jobs: dict[int, TrueJob] = {}
        self.seen = Seen()
        self.outcome = Outcome()
        self.made: list[TrueEnvironment] = []
        start = min(self.fed[0]["ms"], self.note["ms"]) - LEAD_MS
        self.time = VirtualTime(start)
        self.setup = self._setup()
        self.daemon = self._daemon(policy)

    def _setup(self) -> Setup:
        policy = self.policy
        queued = [line for line in self.fed if line["kind"] == "job_queued"]
        repositories = sorted({line.get("repo", REPOSITORY) for line in queued})
        self.labels = normalise(queued[0]["labels"])
        timeout = policy.get("job_timeout_s")
        slots = int(policy.get("slots", 1))
        pools = [
            Pool(
                name=f"pool-{number}",
                scope=Scope("github", f"repo:{repository}"),
                labels=self.labels,
                host="host",
                runtime="process",
                max_concurrent=slots,
                orphan_grace=int(policy.get("grace_s", 600) * 1000),
                surplus_grace=int(policy.get("surplus_grace_s", 30) * 1000),
                job_timeout=int(timeout * 1000) if timeout else None,
            )
            for number, repository in enumerate(repositories)
        ]
        if "slots_free_from" in policy:
            scope = Scope("github", f"repo:{OUTSIDE}")
            outside = Pool("outside", scope, self.labels, "host", "process", max_concurrent=slots)
            pools.append(replace(outside, job_timeout=30 * DAY))
        limit = int(policy.get("provision_limit_s", 300) * 1000)
        return Setup(tuple(pools), (Host("host", slots),), Policy(provision_limit=limit))

    def _daemon(self, policy: Factory) -> ModelDaemon:
        daemon = ModelDaemon(
            self.time,
            _weather(self.policy),
            random.Random(self.variant.seed),
            self.outcome,
            self.setup,
            watch=self._watched,
            policy=policy,
            runtime=FaultyRuntime,
            keep_rows=self.variant.restart_at is not None,
        )
        runtime = daemon.runtime
        assert isinstance(runtime, FaultyRuntime)
        runtime.wedged = frozenset(int(fault["environment"]) for fault in self.note.get("faults", ()))
        runtime.variant = self.variant
        runtime.made_for = self.made
        if self.variant.job_reads_fail:
            daemon.calls.failing["job"] = Fault(Remedy.RETRY, "502")
        daemon.forge.late = int(self.variant.tell_late_s * 1000)
        return daemon

    def run(self) -> Report:
        """Feed the journal, let everything come to rest, and check."""
        self.daemon.boot()
        if "slots_free_from" in self.policy:
            self._take_slots(moment(self.policy["slots_free_from"]))
        for line in self.fed:
            self.time.at(line["ms"], self._line, line)
        if self.variant.restart_at is not None:
            self.time.at(moment(self.variant.restart_at), self._restart)
        for entry in self.note["expect"]:
            self._arm(entry)
        grace = int(self.policy.get("grace_s", 600) * 1000)
        last = max(line["ms"] for line in self.lines)
        self._until(last)
        while self._open() and self.time.now < last + 40 * HOUR and self.time.step():
            pass
        self._until(max(self.time.now, last) + grace + 300_000)
        return self._finish()

    def _until(self, end: int) -> None:
        while (due := self.time.next()) is not None and due <= end:
            self.time.step()

    def _open(self) -> bool:
        return any(job.status != "completed" for job in self.jobs.values())

    def _finish(self) -> Report:
        report, state = self.report, self.daemon.core.state
        report.events = self.daemon.handled
        report.destroyed = self.seen.destroyed
        if self.real:
            report.problems.extend(validate(state))
            report.problems.extend(str(found) for found in self.outcome.findings if found.kind != "killed")
            if slot_difference(state):
                report.problems.append("slots differ at the end")
        report.expectations = [(entry["text"], self.check(entry)) for entry in self.note["expect"]]
        return report

    # What is fed

    def _take_slots(self, until: int) -> None:
        """Runners of ours work in every slot on jobs from outside the journal until then."""
        weather, rng = self.daemon.weather, random.Random(0)
        steps = [weather.webhook_delay, weather.rest_delay, weather.boot, weather.assign, weather.acknowledge]
        steps += [weather.acquire, weather.spawn, weather.report, weather.wind_down]
        rest = until - self.time.now - sum(draw(step, rng) for step in steps)
        for number in range(self.setup.hosts[0].slots):
            self.daemon.forge.queue(JobKey("github", OUTSIDE, 1 + number), self.labels, rest, counted=False)

    def _restart(self) -> None:
        self.daemon.crash()

    def _line(self, line: Line) -> None:
        kind, forge = line["kind"], self.daemon.forge
        if kind == "job_queued":
            key = JobKey("github", line.get("repo", REPOSITORY), line["job"])
            work = int(line.get("work_s", 60) * 1000)
            self.jobs[line["job"]] = forge.queue(key, normalise(line["labels"]), work)
            return
        job = self.jobs.get(line.get("job", -1))
        if (
            job is None
            or job.status == "completed"
            or not (line.get("foreign") or line.get("runner") is None)
        ):
            return
        if kind == "job_in_progress":
            job.fate = "foreign"
            forge.start(job, line["runner"], 7)
        elif kind == "job_completed":
            job.fate = job.fate or "cancelled"
            forge.silent = not self.variant.tell_ends
            forge.finish(job, line["conclusion"])
            forge.silent = False

    # What is noted

    def _watched(self, event: ev.Event, step: Step, now: int) -> None:
        self.report.decisions.extend(step.decisions)
        for command in step.commands:
            if isinstance(command, cm.Register):
                row = self.daemon.core.state.runners.get(command.runner)
                intent = row.intent.id if row is not None and row.intent is not None else None
                self.seen.registered.append((now, command.runner, intent))
            elif isinstance(command, cm.Destroy) and not command.permit.polite:
                self._destroyed(command.permit.runner, now)

    def _destroyed(self, name: RunnerId, now: int) -> None:
        env = self.daemon.runtime.environments.get(name)
        if env is None or not env.alive or name in [known for _, known in self.seen.destroyed]:
            return
        self.seen.destroyed.append((now, name))
        job = env.job if env.executing() else env.registration.held()
        if job is not None:
            self.report.killed.append((now, name, job.key.id))

    def _arm(self, entry: Line) -> None:
        """Look at the moment at which a slot is to be back."""
        if entry["check"] == "slot_back_by":
            number = int(entry["environment"])
            self.time.at(self.time.now, self._watch_slot, number, int(entry["after_s"] * 1000))

    def _watch_slot(self, number: int, after: int) -> None:
        """Wait until the environment is there, then until its slot is due back."""
        if len(self.made) < number:
            self.time.after(1_000, self._watch_slot, number, after)
        else:
            due = self.made[number - 1].registration.made + after
            self.time.at(due, self._is_slot_back, number)

    def _is_slot_back(self, number: int) -> None:
        others = len(self.made) > number
        waiting = bool(self.daemon.forge.queued)
        free = self.daemon.core.state.slots_free("host") > 0
        self.seen.back[number] = others or (free and not waiting)

    # The checks

    def check(self, entry: Line) -> bool:
        """Compute one of the journal's checks; an unknown one is not held."""
        compute = getattr(self, f"_check_{entry['check']}", None)
        return bool(compute(entry)) if compute is not None else False

    def _check_no_kill(self, entry: Line) -> bool:
        return not self.report.killed and self.outcome.killed == 0

    def _check_nothing_left(self, entry: Line) -> bool:
        state = self.daemon.core.state
        left = [row for row in state.runners.values() if row.state not in FINAL]
        environments, registrations = self.daemon.runtime.environments, self.daemon.forge.registrations
        return not left and not environments and not registrations and not any(state.index.held.values())

    def _check_all_jobs_run(self, entry: Line) -> bool:
        wanted = entry.get("of", list(self.jobs))
        ran = [job for job in wanted if job in self.jobs and self.jobs[job].fate == "ran"]
        return len(ran) >= int(entry["jobs"])

    def _check_wasted_at_most(self, entry: Line) -> bool:
        return self.outcome.unused <= int(entry["runners"])

    def _check_wait_at_most(self, entry: Line) -> bool:
        waits = self.waits(entry.get("jobs"))
        ordered = sorted(wait for wait in waits if wait is not None)
        if not ordered or len(ordered) < len(waits):
            return False
        median, most = quantile(ordered, 0.5), float(entry["max_s"])
        return ordered[-1] <= most and (median or 0.0) <= float(entry.get("p50_s", most))

    def waits(self, jobs: list[int] | None = None) -> list[float | None]:
        """Return for each job how long (s) it waited for its worker, None where none came."""
        chosen = [self.jobs[job] for job in (jobs or self.jobs) if job in self.jobs]
        return [(job.worker - job.queued) / 1000 if job.worker is not None else None for job in chosen]

    def _check_idle_hold_at_most(self, entry: Line) -> bool:
        return self.longest_idle_hold() <= float(entry["s"])

    def longest_idle_hold(self) -> float:
        """Return how long (s) at most an idle runner held a slot while jobs that it cannot serve waited."""
        longest = 0
        for env in self.made:
            begin = env.booted_at
            if begin is None:
                continue
            end = min(x for x in (env.offered, env.left, self.time.now) if x is not None)
            longest = max(longest, self._longest_wait(begin, end, env))
        return longest / 1000

    def _longest_wait(self, begin: int, end: int, env: TrueEnvironment) -> int:
        """The longest piece of a stretch in which at least one job waited that the runner cannot serve."""
        spans = sorted(
            (max(begin, job.queued), min(end, job.assigned if job.assigned is not None else end))
            for job in self.jobs.values()
            if not env.registration.scope.serves(job.key)
        )
        longest = since = until = 0
        for left, right in spans:
            if right <= left:
                continue
            if left > until:
                since = left
            until = max(until, right)
            longest = max(longest, until - since)
        return longest

    def _check_no_runner_for(self, entry: Line) -> bool:
        begin = moment(entry["from"])
        return not any(at >= begin and job in entry["jobs"] for at, _, job in self.seen.registered)

    def _check_slot_back_by(self, entry: Line) -> bool:
        return self.seen.back.get(int(entry["environment"]), False)

    def _check_listed_as(self, entry: Line) -> bool:
        number = int(entry["environment"])
        if len(self.made) < number:
            return False
        row = self.daemon.core.state.runners.get(RunnerId(self.made[number - 1].name))
        return row is not None and row.state.value == entry["state"]

    def utilisation(self) -> float:
        """Return the share of the time for which slots were held in which they executed jobs."""
        return self.outcome.working / self.outcome.holding if self.outcome.holding else 0.0


def replay_demand(
    path: Path,
    variant: DemandVariant | None = None,
    lines: Iterable[Line] | None = None,
    policy: Factory = Gate,
) -> Report:
    """Replay a journal whose jobs the daemon is to serve, under a variant, with other lines where given."""
    return Demand(path, variant, lines, policy).run()
