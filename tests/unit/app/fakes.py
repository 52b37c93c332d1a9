"""Small in-memory ports for the tests of the shell: they record what they are asked and answer as told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ephemerd.core.codec import Body
from ephemerd.core.events import FoundEnvironment
from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.job import ForgeStatus, JobReport, Origin
from ephemerd.domain.permit import FenceIntent, Permit
from ephemerd.domain.pool import Host, Policy, Pool, Setup
from ephemerd.domain.runner import FenceAnswer
from ephemerd.domain.verdict import Files, Listing, ProbeReport, Sign
from ephemerd.ports.errors import Gone, NotStored
from ephemerd.ports.forge import (
    Audit,
    Budget,
    CallRecord,
    ForgeRunner,
    Glance,
    JobsSeen,
    Look,
    Registration,
    RepositoriesSeen,
    RunSeen,
)
from ephemerd.ports.runtime import RuntimeSink, StartOrder
from ephemerd.ports.store import (
    Batch,
    DeliveryId,
    JournalEntry,
    Keep,
    Loaded,
    Plain,
    Pruned,
    Segment,
    SetAside,
    StoreSize,
)
from ephemerd.testing.memory.store import at_once

SCOPE = Scope("github", "repo:acme/app")
STORE = "s0000001"
T0 = 1_800_000_000_000


def _plain(body: Body) -> Plain:
    """What a store reads back."""
    plain: Plain = msgspec.json.decode(msgspec.json.encode(body))
    return plain


def key(number: int = 1) -> JobKey:
    return JobKey("github", "acme/app", number)


def report(number: int = 1, status: ForgeStatus = ForgeStatus.QUEUED, **more: Any) -> JobReport:
    return JobReport(key(number), status, ("linux",), **more)


def setup(policy: Policy | None = None, **pool: Any) -> Setup:
    made = Pool("linux", SCOPE, ("linux",), "local", "process", **pool)
    return Setup((made,), (Host("local", 4),), policy or Policy())


async def until(condition: Callable[[], Any], seconds: float = 5.0) -> Any:
    """Let the loop run until the condition holds; fail after a deadline."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not (value := condition()):
        assert asyncio.get_running_loop().time() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0)
    return value


class FakeClock:
    """A clock that moves only when told."""

    def __init__(self, now: int = T0) -> None:
        self.ms = now
        self.step = 0
        self.sleep = 0
        self.started_with: tuple[int, str, int] | None = None

    def start(self, last: tuple[int, str, int] | None) -> bool:
        self.started_with = last
        return last is not None

    def now(self) -> int:
        return self.ms

    def mark(self) -> tuple[int, str, int]:
        return (self.ms, "boot", self.ms)

    def stepped(self) -> int:
        step, self.step = self.step, 0
        return step

    def slept(self) -> int:
        sleep, self.sleep = self.sleep, 0
        return sleep


class FakeMeter:
    def __init__(self) -> None:
        self.counts: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self.seen: list[tuple[str, float, dict[str, str]]] = []

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        where = (name, tuple(sorted(labels.items())))
        self.counts[where] = self.counts.get(where, 0.0) + amount

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        self.seen.append((name, seconds, labels))

    def total(self, name: str, **labels: str) -> float:
        wanted = set(labels.items())
        return sum(n for (found, pairs), n in self.counts.items() if found == name and wanted <= set(pairs))


@dataclass
class FakeStore:
    """Keeps rows and journal as a real store does. `fail` next commits raise `error`; with `at_once` a commit that no
    gate holds up is done when it is asked for."""

    rows: dict[str, dict[str, Plain]] = field(default_factory=dict)
    entries: list[JournalEntry] = field(default_factory=list)
    subjects: list[tuple[str, ...]] = field(default_factory=list)
    made: list[Plain] = field(default_factory=list)
    known: set[DeliveryId] = field(default_factory=set)
    poison: list[tuple[str, str, bytes, str]] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    clock: tuple[int, str, int] | None = None
    fail: int = 0
    fail_load: int = 0
    error: type[Exception] = NotStored
    commits: list[Batch] = field(default_factory=list)
    loads: int = 0
    closed: bool = False
    gate: asyncio.Event | None = None
    at_once: bool = False
    pruned: list[tuple[int, Keep]] = field(default_factory=list)
    to_prune: list[Pruned] = field(default_factory=list)
    measured: StoreSize = field(default_factory=lambda: StoreSize(4096, 0, 10**12, None))

    async def open(self) -> None:
        self.closed = False

    async def load(self) -> Loaded:
        self.loads += 1
        if self.fail_load:
            self.fail_load -= 1
            raise NotStored("cannot read")
        rows = {
            kind: {name: json.dumps(row) for name, row in of_kind.items()}
            for kind, of_kind in self.rows.items()
        }
        return Loaded(STORE, rows, self.clock)

    async def open_segment(self, rules: str, checkpoint: Plain | None = None) -> int:
        if checkpoint is None:
            rows = {kind: dict(rows) for kind, rows in self.rows.items()}
            checkpoint = {"rules": rules, "at": 0, "rows": rows}
        self.segments.append(Segment(len(self.segments) + 1, rules, checkpoint, len(self.entries) + 1))
        return len(self.segments)

    def commit(self, batch: Batch, clock: tuple[int, str, int]) -> Awaitable[int]:
        if not self.at_once or self.gate is not None:
            return self._in_its_time(batch, clock)
        return at_once(lambda: self._commit(batch, clock))

    async def _in_its_time(self, batch: Batch, clock: tuple[int, str, int]) -> int:
        if self.gate is not None:
            await self.gate.wait()
        return self._commit(batch, clock)

    def _commit(self, batch: Batch, clock: tuple[int, str, int]) -> int:
        if self.fail:
            self.fail -= 1
            raise self.error("no space left on device")
        self.commits.append(batch)
        self.clock = clock
        self.known.update(batch.deliveries)
        for step in batch.steps:
            entry = JournalEntry(
                len(self.entries) + 1, len(self.segments), step.now, _plain(step.event), step.commands
            )
            self.entries.append(entry)
            self.subjects.append(step.subjects)
            self.made += step.decisions
            for kind, name, row in step.changed:
                of_kind = self.rows.setdefault(kind, {})
                if row is None:
                    of_kind.pop(name, None)
                else:
                    of_kind[name] = _plain(row)
        return len(self.entries)

    async def seen(self, deliveries: Iterable[DeliveryId]) -> set[DeliveryId]:
        return {one for one in deliveries if one in self.known}

    async def quarantine(self, now: int, forge: str, delivery: str, body: bytes, error: str) -> None:
        self.poison.append((forge, delivery, body, error))

    async def quarantined(self) -> int:
        return len(self.poison)

    async def set_aside(self, *, after: int = 0, limit: int = 100) -> list[SetAside]:
        found = [
            SetAside(seq, T0, forge, delivery, len(body), error)
            for seq, (forge, delivery, body, error) in enumerate(self.poison, 1)
        ]
        return [one for one in found if one.seq > after][:limit]

    async def clear_quarantine(self, upto: int) -> int:
        cleared = len(self.poison[:upto])
        self.poison = self.poison[upto:]
        return cleared

    async def prune(self, now: int, keep: Keep) -> Pruned:
        self.pruned.append((now, keep))
        return self.to_prune.pop(0) if self.to_prune else Pruned()

    async def size(self) -> StoreSize:
        return self.measured

    async def decisions(
        self, *, after: int = 0, limit: int = 100, runner: str = "", outcome: str = "", newest: bool = False
    ) -> list[Plain]:
        found = [
            one
            for one in self.made
            if (not runner or one["runner"] == runner) and (not outcome or one["outcome"] == outcome)
        ]
        found.sort(key=lambda one: one["id"], reverse=newest)
        if after:
            found = [one for one in found if (one["id"] < after if newest else one["id"] > after)]
        return found[:limit]

    async def journal(self, *, subject: str = "", after: int = 0, limit: int = 1000) -> list[JournalEntry]:
        pairs = zip(self.entries, self.subjects, strict=True)
        found = [entry for entry, about in pairs if not subject or subject in about]
        return [entry for entry in found if entry.seq > after][:limit]

    async def segment(self, number: int | None = None) -> Segment | None:
        wanted = len(self.segments) if number is None else number
        return self.segments[wanted - 1] if 0 < wanted <= len(self.segments) else None

    async def subjects_like(self, text: str, limit: int = 10) -> list[str]:
        every = [subject for about in reversed(self.subjects) for subject in about if text in subject]
        return list(dict.fromkeys(every))[:limit]

    async def close(self) -> None:
        self.closed = True

    def kinds(self) -> list[str]:
        """The names of the journalled events, in order."""
        return [entry.event["kind"] for entry in self.entries]


class FakeForge:
    """A forge whose answers are set by the test: `answers[call]` is a value, an exception or a function."""

    def __init__(self, name: str = "github") -> None:
        self.name = name
        self.calls: list[tuple[Any, ...]] = []
        self.answers: dict[str, Any] = {}
        self.hold: dict[str, asyncio.Event] = {}
        self.records: list[CallRecord] = []
        self.closed = False
        self.free: set[str] = set()
        self.again: list[frozenset[int]] = []
        self._next = 100

    async def _answer(self, call: str, default: Any, *arguments: Any) -> Any:
        self.calls.append((call, *arguments))
        self.records.append(CallRecord(call, 200, 0.01))
        if call in self.hold:
            await self.hold[call].wait()
        answer = self.answers.get(call, default)
        if callable(answer) and not isinstance(answer, type):
            answer = answer(*arguments)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def named(self, call: str) -> list[tuple[Any, ...]]:
        return [one for one in self.calls if one[0] == call]

    async def register(self, scope: Scope, name: RunnerId, labels: tuple[str, ...]) -> Registration:
        self._next += 1
        made = Registration(self._next, f"secret-of-{name}")
        answer: Registration = await self._answer("register", made, scope, name, labels)
        return answer

    async def deregister(self, scope: Scope, registration: int, intent: FenceIntent) -> FenceAnswer:
        answer: FenceAnswer = await self._answer("deregister", FenceAnswer.ACCEPTED, scope, registration)
        return answer

    async def runner(self, scope: Scope, registration: int) -> ForgeRunner:
        seen = ForgeRunner(registration, "", True, False, ("linux",), True)
        answer: ForgeRunner = await self._answer("runner", seen, scope, registration)
        return answer

    async def find(self, scope: Scope, name: RunnerId) -> ForgeRunner | None:
        answer: ForgeRunner | None = await self._answer("find", None, scope, name)
        return answer

    async def runners(self, scope: Scope) -> list[ForgeRunner]:
        answer: list[ForgeRunner] = await self._answer("runners", [], scope)
        return answer

    async def job(self, job: JobKey) -> JobReport:
        answer: JobReport = await self._answer("job", Gone("no such job"), job)
        return answer

    async def origin(self, repository: str, run: int) -> Origin:
        answer: Origin = await self._answer("origin", Gone("no such run"), repository, run)
        return answer

    async def active_jobs(
        self, repository: str, look: Look = Look.WHOLE, again: frozenset[int] = frozenset()
    ) -> JobsSeen:
        seen = JobsSeen((), look is Look.WHOLE)
        self.again.append(again)
        answer: JobsSeen = await self._answer("active_jobs", seen, repository, look)
        return answer

    async def audit(self, repository: str, explains: Callable[[RunSeen], bool]) -> Audit:
        answer: Audit = await self._answer("audit", Audit(True, asked=1, charged=1), repository, explains)
        return answer

    async def glance(self, repository: str) -> Glance:
        answer: Glance = await self._answer("glance", Glance(True), repository)
        return answer

    def glance_is_free(self, repository: str) -> bool:
        return repository in self.free

    def audit_is_free(self, repository: str) -> bool:
        return repository in self.free

    async def repositories(self, owner: str) -> RepositoriesSeen:
        answer: RepositoriesSeen = await self._answer("repositories", RepositoriesSeen(()), owner)
        return answer

    def budgets(self) -> tuple[Budget, ...]:
        return (Budget("core", 5000, 4990, T0 // 1000 + 60),)

    def take_calls(self) -> list[CallRecord]:
        taken, self.records = self.records, []
        return taken

    async def close(self) -> None:
        self.closed = True


def idle_report(**more: Any) -> ProbeReport:
    values: dict[str, Any] = {
        "listing": Listing.COMPLETE,
        "workers": 0,
        "strangers": 0,
        "listener_alive": True,
        "files": Files.HEALTHY,
        "listening": True,
        "offered_at": None,
        "announced_at": None,
        "ended_at": None,
        "probe": "fake",
        "detail": "no worker",
    }
    return ProbeReport(**{**values, **more})


class FakeRuntime:
    """Environments are names; signs and exits are told by the test through `sink`."""

    kind = "process"
    probes = True

    def __init__(self) -> None:
        self.sink: RuntimeSink | None = None
        self.attached = 0
        self.orders: list[StartOrder] = []
        self.calls: list[tuple[Any, ...]] = []
        self.answers: dict[str, Any] = {}
        self.hold: dict[str, asyncio.Event] = {}
        self.listed: list[FoundEnvironment] = []
        self.closed = False

    async def _answer(self, call: str, default: Any, *arguments: Any) -> Any:
        self.calls.append((call, *arguments))
        if call in self.hold:
            await self.hold[call].wait()
        answer = self.answers.get(call, default)
        if callable(answer):
            answer = answer(*arguments)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def named(self, call: str) -> list[tuple[Any, ...]]:
        return [one for one in self.calls if one[0] == call]

    def attach(self, sink: RuntimeSink) -> None:
        self.attached += 1
        self.sink = sink

    def tell(self, runner: RunnerId, sign: Sign) -> None:
        assert self.sink is not None
        self.sink.sign(runner, sign, "")

    def exit(self, runner: RunnerId, code: int | None = 0) -> None:
        assert self.sink is not None
        self.sink.exited(runner, code, 0)

    async def start(self, order: StartOrder) -> str:
        self.orders.append(order)
        answer: str = await self._answer("start", f"env-{order.runner}", order.runner)
        return answer

    async def watch(self, runner: RunnerId, pool: str, environment: str) -> None:
        await self._answer("watch", None, runner, pool, environment)

    async def probe(self, runner: RunnerId, environment: str) -> ProbeReport:
        answer: ProbeReport = await self._answer("probe", idle_report(), runner, environment)
        return answer

    async def destroy(self, environment: str, permit: Permit) -> None:
        await self._answer("destroy", None, environment, permit)

    async def list(self, store: str) -> list[FoundEnvironment]:
        answer: list[FoundEnvironment] = await self._answer("list", self.listed, store)
        return answer

    async def tidy(self) -> None:
        await self._answer("tidy", None)

    async def close(self) -> None:
        self.closed = True
