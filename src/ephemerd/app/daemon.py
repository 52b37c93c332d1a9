"""The loop: take what waits, let the writer commit it, hand the commands on, sleep until something happens.

One consumer, one writer. The loop sleeps until the inbox fills or `core.next_wake()` comes; nothing here
ticks faster than the heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from ephemerd.app.executor import Executor
from ephemerd.app.inbox import Inbox, Item
from ephemerd.app.measure import Measure
from ephemerd.app.recovery import Life, boot, recover
from ephemerd.app.upkeep import Upkeep
from ephemerd.app.writer import Group, Handled, Writer
from ephemerd.core.events import Booted, ClockStepped, Event, MachineSlept, Reconfigured, Woke
from ephemerd.core.machine import Core
from ephemerd.core.step import Note
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import Job
from ephemerd.domain.pool import SECOND, Pool, Setup
from ephemerd.domain.runner import FINAL, Runner
from ephemerd.ports.forge import Forge
from ephemerd.ports.runtime import Runtime
from ephemerd.ports.store import Keep, Store
from ephemerd.ports.system import Clock, Meter
from ephemerd.ports.views import RecoveryView

logger = logging.getLogger(__name__)
notes = logging.getLogger("ephemerd.core")

GROUP = 256
"""Events a commit: one fsync for a burst, and a failing commit throws little away."""
HEARTBEAT = 15.0
LEAST_NAP = 0.05
"""Seconds between two `Woke`s that changed nothing, so that a mistaken deadline cannot spin."""
LEAST_SLEEP = 10 * SECOND
"""A sleep below this (ms) is a hiccup of the machine, through which nothing was missed."""
LEAST_STEP = SECOND
"""Moves of the wall clock below this (ms) are slewing, no step."""
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0
"""Pauses in seconds after a commit failed; below the 10 s that a forge waits for an answer."""
LONGEST_WAKE_PAUSE = 60 * SECOND
STOP_BOUND = 25.0
HEEDED = frozenset({Booted, MachineSlept, Reconfigured})
"""Events that mean something for the shell itself."""

Watcher = Callable[[Handled], None]
P = TypeVar("P")


@dataclass(slots=True)
class Ports:
    """Everything outside that the daemon uses. `runtimes` by pool, `forges` by configured name."""

    store: Store
    forges: Mapping[str, Forge]
    runtimes: Mapping[str, Runtime]
    clock: Clock
    meter: Meter


@dataclass(slots=True)
class Pulse:
    """How the loop itself is doing. Times are ms of the shell clock.

    epoch        of the life in memory; a fresh one after each reload
    commits      how many there were in this process
    error        why the last commit failed; "" once one went through
    quarantined  events in quarantine
    reconciled   since when the active jobs of each scope (as text) are known completely: read, or vouched for by the
                 forge's list of deliveries
    refused      what is wrong with the configuration that the last reload refused; "" where none was
    needs_restart  keys that were changed in the file and hold only after a restart
    exhausted    when a connection last had to wait for a file descriptor; None where none had
    recoveries   how the fetching of failed deliveries goes, by the hook's name
    """

    started: int = 0
    heartbeat: int = 0
    epoch: str = ""
    commits: int = 0
    error: str = ""
    quarantined: int = 0
    reconciled: dict[str, int] = field(default_factory=dict)
    refused: str = ""
    needs_restart: tuple[str, ...] = ()
    exhausted: int | None = None
    recoveries: dict[str, RecoveryView] = field(default_factory=dict)


class Companion(Protocol):
    """Something that goes on beside the loop, from the first commit until the ports are closed."""

    def begin(self) -> None:
        """Begin, as a task of the running loop."""
        ...

    async def close(self) -> None:
        """End it. A second call does nothing."""
        ...


class Daemon:
    """One process life: `open`, then `run` until `stop`; ports are closed at the end, runners left running.

    held       names the pools that cannot start runners as a life begins, and why
    on_turn    called at each turn of the loop, which comes every `heartbeat` seconds at the latest
    """

    held: Callable[[], tuple[tuple[str, str], ...]]
    on_turn: Callable[[], None]
    heartbeat: float

    def __init__(
        self, ports: Ports, setup: Setup, *, inbox: Inbox | None = None, keep: Keep | None = None
    ) -> None:
        self.ports = ports
        self.setup = setup
        self.inbox = Inbox() if inbox is None else inbox
        self.pulse = Pulse()
        self.held = lambda: ()
        self.on_turn = lambda: None
        self.heartbeat = HEARTBEAT
        self.upkeep = Upkeep(
            ports.store, lambda: _each_once(*self.ports.runtimes.values()), ports.clock, keep or Keep()
        )
        self._places = {
            (pool.runtime, pool.host): ports.runtimes[pool.name]
            for pool in setup.pools
            if pool.name in ports.runtimes
        }
        self._life: Life | None = None
        self._writer: Writer | None = None
        self._executor: Executor | None = None
        self._measure = Measure(ports.meter, {pool.name: pool.runtime for pool in setup.pools})
        self._watchers: tuple[Watcher, ...] = ()
        self._companions: list[Companion] = [self.upkeep]
        self._booted = asyncio.Event()
        self._ended = asyncio.Event()
        self._stopping = False
        self._pause = 0.0
        self._one_by_one = False
        self._woke_for: int | None = None
        self._wake_pause = 0
        self._wake_after = 0

    @property
    def core(self) -> Core:
        """The core, at the last commit or a little ahead of it (a new object after a reload)."""
        return self.writer.core

    @property
    def writer(self) -> Writer:
        assert self._writer is not None, "open() comes first"
        return self._writer

    @property
    def life(self) -> Life:
        assert self._life is not None, "open() comes first"
        return self._life

    @property
    def executor(self) -> Executor:
        assert self._executor is not None, "open() comes first"
        return self._executor

    @property
    def ready(self) -> bool:
        """Whether the first event of this life is committed and commits go through."""
        booted = self._writer is not None and self._writer.booted
        return booted and not self._stopping and not self.pulse.error

    @property
    def settled(self) -> bool:
        """Whether nothing is under way; what waits while nothing can be stored does not count."""
        waits = len(self.inbox) and not self.pulse.error
        return self.executor.running == 0 and self.writer.idle and not waits

    @property
    def stopping(self) -> bool:
        return self._stopping

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` after each commit, event by event; returns what ends that."""
        self._watchers = (*self._watchers, watcher)

        def end() -> None:
            self._watchers = tuple(one for one in self._watchers if one is not watcher)

        return end

    def accompany(self, companion: Companion) -> None:
        """Have something go on beside the loop; to be said before `run`."""
        self._companions.append(companion)

    async def open(self) -> None:
        """Open the store, load, and make everything ready to take events; nothing is sent yet."""
        ports = self.ports
        life = self._life = await recover(ports.store, ports.clock)
        self._writer = Writer(
            life.core,
            ports.store,
            ports.clock,
            lambda again: boot(life, self.setup, again=again, held=self.held()),
        )
        self._writer.on_end = self.inbox.nudge
        self._executor = Executor(
            forges=ports.forges,
            runtimes=ports.runtimes,
            setup=self.setup,
            store=life.store,
            inbox=self.inbox,
            clock=ports.clock,
            meter=ports.meter,
        )
        self.pulse.quarantined = life.quarantined
        self.pulse.started = self.pulse.heartbeat = ports.clock.now()

    async def run(self) -> None:
        """Begin the life, handle events until `stop` was called and what was begun is finished, then close
        the ports. Raises `Unbootable` where the core cannot begin with this store."""
        try:
            await self._group([])
            for companion in self._companions:
                companion.begin()
            # Looked at just before each rest: whatever settles it later wakes the rest.
            while not (self._stopping and self.settled):
                await self._turn(await self._rest())
        finally:
            await self.close()

    async def booted(self) -> None:
        """Return when the first event of this life is committed."""
        await self._booted.wait()

    async def stop(self, bound: float = STOP_BOUND) -> None:
        """Take nothing more from outside, let commands under way finish within `bound` seconds, and return
        when the ports are closed. Runners are left running."""
        self._stopping = True
        self.inbox.close()
        self.inbox.nudge()
        self.executor.stop()
        try:
            async with asyncio.timeout(bound):
                await self._ended.wait()
        except TimeoutError:
            logger.warning("commands under way did not end in time; they are found again at the next start")
            await self.executor.close()
            self.inbox.nudge()
            await self._ended.wait()

    async def _turn(self, wake: int | None) -> None:
        """Handle what waits; `wake` is when the core's next deadline comes."""
        now, writer = self.ports.clock.now(), self.writer
        self.pulse.heartbeat = now
        self.on_turn()
        # That the machine slept comes before anything that is handled at the time of its waking.
        told = self._of_the_clock()
        items = self.inbox.take(1 if self._one_by_one else GROUP)
        due = wake is not None and wake <= now and not self._stopping
        if due:
            self._woke_for = wake
        if told or due:
            items = [*self._as_items(told), *items, *self._as_items([Woke()] if due else [])]
        if items or writer.news or not writer.booted:
            await self._group(items)

    async def _rest(self) -> int | None:
        """Sleep until something waits or is due, after a failed commit for a pause in any case; return when the core's
        next deadline comes."""
        writer = self.writer
        wake = writer.core.next_wake()
        if wake is not None and wake < self._wake_after:
            wake = self._wake_after
        if self._pause:
            await asyncio.sleep(self._pause)
        else:
            await self.inbox.wait(self._nap(wake))
            if writer.idle:
                await self.inbox.gather()
        return wake

    @staticmethod
    def _as_items(events: Sequence[Event]) -> list[Item]:
        return [Item(event, asyncio.get_running_loop().time()) for event in events]

    def _of_the_clock(self) -> list[Event]:
        """What the clock has to tell: a sleep of the machine, a step of the wall clock."""
        clock = self.ports.clock
        slept, stepped = clock.slept(), clock.stepped()
        events: list[Event] = []
        if slept >= LEAST_SLEEP:
            events.append(MachineSlept(slept))
        if abs(stepped) >= LEAST_STEP:
            events.append(ClockStepped(stepped))
        return events

    def _nap(self, wake: int | None) -> float:
        """Return how many seconds the loop may sleep."""
        if wake is None or self._stopping:
            return self.heartbeat
        seconds = (wake - self.ports.clock.now()) / SECOND
        least = LEAST_NAP if wake == self._woke_for else 0.0
        return min(max(seconds, least), self.heartbeat)

    async def _group(self, items: list[Item]) -> None:
        group = await self.writer.write(items, through=self._one_by_one)
        self._note_outcome(group)
        jobs: dict[str, Job] = {}
        for handled in group.handled:
            self._publish(handled, jobs)
        # A job's listings rest on the last of its rows: most of a burst are of the same jobs.
        for job in jobs.values():
            self.executor.notice(job)

    def _note_outcome(self, group: Group) -> None:
        pulse = self.pulse
        pulse.quarantined += len(group.quarantined)
        pulse.error = group.error
        pulse.commits += bool(group.handled)
        self._one_by_one = group.strange
        if group.quarantined or self._wake_pause:
            self._space_wakes(group)
        if group.unstored:
            self.inbox.put_back(group.unstored)
        self._pause = min(max(self._pause * 2, FIRST_PAUSE), LONGEST_PAUSE) if group.error else 0.0

    def _space_wakes(self, group: Group) -> None:
        """A `Woke` on which the core raises is due again at once: space its repetitions out."""
        if any(isinstance(event, Woke) for event in group.quarantined):
            self._wake_pause = min(max(self._wake_pause * 2, SECOND), LONGEST_WAKE_PAUSE)
            self._wake_after = self.ports.clock.now() + self._wake_pause
        elif any(isinstance(handled.item.event, Woke) for handled in group.handled):
            self._wake_pause = 0

    def _publish(self, handled: Handled, jobs: dict[str, Job]) -> None:
        """After the commit: log, measure, tell who watches, and only then begin the commands. `jobs` takes the rows of
        jobs that changed, by their keys."""
        step = handled.step
        if type(handled.item.event) in HEEDED:
            self._heed(handled.item.event)
        for note in step.notes:
            log_note(note)
        self._measure.take(handled, self.pulse.reconciled)
        for watcher in self._watchers:
            watcher(handled)
        for kind, key, row in step.changed:
            if kind == "job":
                if row is not None:
                    jobs[key] = row
            elif kind == "runner":
                final = row is None or row.state in FINAL
                if final:
                    self.executor.forget(RunnerId(key))
                if row is not None and (handled.now == row.over or (final and handled.now == row.since)):
                    self._freed(row)
        if step.commands:
            self.executor.submit(step.commands)

    def _heed(self, event: Event) -> None:
        """Do what a committed event means for the shell itself."""
        if isinstance(event, Booted):
            self.pulse.epoch = self.executor.epoch = event.epoch
            self._booted.set()
        elif isinstance(event, MachineSlept):
            self.executor.awoke()
        elif isinstance(event, Reconfigured):
            self._reconfigured(event.setup)

    def _freed(self, runner: Runner) -> None:
        """A runner is done: what follows its job may be queued now. Without a name it is rather the job that it was
        made for."""
        key = runner.job or runner.intent
        job = self.core.state.jobs.get(key) if key is not None else None
        if job is not None:
            self.executor.freed(job)

    def _reconfigured(self, setup: Setup) -> None:
        """A configuration is committed: from here on a life begins with it, and its pools are served."""
        self.setup = setup
        fresh = {pool.name: found for pool in setup.pools if (found := self._runtime_for(pool)) is not None}
        self.executor.reconfigure(setup, fresh)
        self._measure.reconfigure({pool.name: pool.runtime for pool in setup.pools})

    def _runtime_for(self, pool: Pool) -> Runtime | None:
        """Find the runtime of a new pool among those that are there: of its kind, and rather of its host."""
        state, found = self.core.state, None
        for name, runtime in self.ports.runtimes.items():
            if runtime.kind == pool.runtime:
                if state.host_of(name) == pool.host:
                    return runtime
                found = found or runtime
        return found

    async def close(self) -> None:
        """Close the ports without waiting for anything; `run` does it at its end. A second call does nothing."""
        if self._ended.is_set():
            return
        self._stopping = True
        self.inbox.close()
        for companion in reversed(self._companions):
            await companion.close()
        if self._executor is not None:
            await self._executor.close()
        if self._writer is not None:
            await self._writer.close()
        ports: list[Runtime | Forge | Store] = [*self.ports.runtimes.values(), *self.ports.forges.values()]
        for port in _each_once(*ports, self.ports.store):
            try:
                await port.close()
            except Exception:
                logger.exception("a port could not be closed")
        self._ended.set()


def _each_once(*ports: P) -> list[P]:
    once: list[P] = []
    for port in ports:
        if all(port is not other for other in once):
            once.append(port)
    return once


def log_note(note: Note) -> None:
    """Write one line of the core to the log, with its fields."""
    level = logging.WARNING if note.level == "warning" else logging.INFO
    if notes.isEnabledFor(level):
        notes.log(level, note.text, extra={"fields": dict(note.fields)})
