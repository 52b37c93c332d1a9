"""Where the shell stands: a scheduler, fed in virtual time, its commands answered by the models.

The scheduler is the real core or a foil. The driver commits what each turn changed (as rows, through the
codec where `save_and_load` asks for it), can die between any two turns, and starts again from what was
committed.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import Any

from ephemerd.core import codec
from ephemerd.core import events as ev
from ephemerd.core.step import Step
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import JobReport, Told
from ephemerd.domain.pool import Setup
from ephemerd.domain.verdict import Sign
from ephemerd.testing.simulate.calls import Calls
from ephemerd.testing.simulate.foils.forged import commands_hash
from ephemerd.testing.simulate.forge import ModelForge
from ephemerd.testing.simulate.heap import VirtualTime
from ephemerd.testing.simulate.journal import FROM_ROWS, Recorder
from ephemerd.testing.simulate.monitor import Monitor
from ephemerd.testing.simulate.runtime import ModelRuntime
from ephemerd.testing.simulate.scheduler import Factory, Gate, Scheduler
from ephemerd.testing.simulate.truth import Outcome, TrueEnvironment
from ephemerd.testing.weather import Weather

STORE = "sim00000"
NO_COMMANDS = codec.command_hash(())
Watcher = Callable[[ev.Event, Step, int], None]


class ModelDaemon:
    """One daemon over the models. `life` counts its process lives; answers to an earlier one are lost.

    watch          called after each event that was committed
    save_and_load  the scheduler stands up anew from encoded rows after each event; in a weather without late alarms,
                   since rows do not tell what is overdue
    recorder       keeps the journal, and replays it at each crash
    runtime        the class of environments
    keep_rows      keep what was committed, so that it can be made to crash in a weather without crashes
    """

    def __init__(
        self,
        time: VirtualTime,
        weather: Weather,
        rng: random.Random,
        outcome: Outcome,
        setup: Setup,
        *,
        watch: Watcher | None = None,
        save_and_load: bool = False,
        policy: Factory = Gate,
        recorder: Recorder | None = None,
        runtime: type[ModelRuntime] = ModelRuntime,
        keep_rows: bool = False,
    ) -> None:
        self.time, self.weather, self.rng, self.outcome, self.setup = time, weather, rng, outcome, setup
        self.forge = ModelForge(time, weather, rng, outcome, self.delivered)
        self.runtime = runtime(time, weather, rng, outcome, self.forge, self.signed, self.exited)
        self.monitor = Monitor(outcome, self.runtime)
        self.core: Scheduler = policy()
        self.up = False
        self.life = 0
        self.booted = 0
        self.crashes = 0
        self.handled = 0
        self.stored: dict[str, dict[str, Any]] = {}
        self.recorder = recorder
        self._digest = hashlib.blake2s()
        self._watch = watch
        self._save_and_load = save_and_load
        self._keeps = keep_rows or save_and_load or bool(weather.daemon_crash)
        self._woken_for: int | None = None
        self._waking: set[int] = set()
        self.calls = Calls(self)

    @property
    def command_hash(self) -> str:
        """One hash over all commands in their order."""
        return self._digest.hexdigest()

    def boot(self) -> None:
        """Begin a process life."""
        self.life += 1
        self.up = True
        self.booted = self.time.now
        self.calls.lost()
        self.monitor.booted()
        self._woken_for = None
        if self.recorder is not None:
            self.recorder.begin(self._rows())
        epoch = f"{self.rng.getrandbits(16):04x}"
        self.handle(ev.Booted(STORE, epoch, self.setup))

    def crash(self) -> None:
        """Die; start again some seconds later from what was committed."""
        self.up = False
        self.crashes += 1
        self.time.after(self.rng.randint(1_000, 30_000), self._stand_up)

    def _stand_up(self) -> None:
        self.core.reload(self._rows(), FROM_ROWS)
        self.boot()

    def verify(self) -> None:
        """Replay the journal's last segment; what differs is a broken promise."""
        if self.recorder is not None:
            for difference in self.recorder.verify(self.core.state):
                self.outcome.found("replay", "", self.time.now, difference)

    def _rows(self) -> dict[str, dict[str, Any]]:
        """Return the committed rows, decoded."""
        if not self._save_and_load:
            return self.stored
        return {
            kind: {name: codec.decode_row(kind, plain) for name, plain in found.items()}
            for kind, found in self.stored.items()
        }

    def handle(self, event: ev.Event) -> Step | None:
        """Feed one event, commit, and send the commands out; None while the daemon is down."""
        if not self.up:
            return None
        dies = bool(self.weather.daemon_crash) and self.rng.random() < self.weather.daemon_crash
        if dies and self.rng.random() < 0.5:
            self._die()  # before anything of this event was committed
            return None
        step = self._step(event)
        if dies:
            self._die()
            return step
        for command in step.commands:
            self.calls.send(command)
        if self._save_and_load:  # what is due by now was just looked at
            self.core.reload(self._rows(), self.time.now)
        self._sleep()
        if self.weather.clock_step.share and not isinstance(event, ev.ClockStepped):
            self._step_clock()
        return step

    def _step(self, event: ev.Event) -> Step:
        now = self.time.now
        step = self.core.handle(event, now)
        if not isinstance(event, ev.Woke):
            self.handled += 1
        self._commit(step)
        hashed = NO_COMMANDS
        if step.commands:
            hashed = commands_hash(step.commands)
            self._digest.update(hashed.encode("ascii"))
        if self.recorder is not None:
            self.recorder.add(event, now, hashed, self.core.state)
        self.monitor.stepped(event, step, self.core.state, now)
        if self._watch is not None:
            self._watch(event, step, now)
        return step

    def _die(self) -> None:
        self.outcome.happened("daemon_crash")
        self.verify()
        self.crash()

    def _step_clock(self) -> None:
        """The wall clock jumps; the shell's clock does not."""
        moved = self.weather.clock_step.draw(self.rng)
        if moved is not None:
            self.outcome.happened("clock_step")
            self.handle(ev.ClockStepped(int(moved * 1000)))

    def _commit(self, step: Step) -> None:
        if not self._keeps:
            return
        for kind, name, row in step.changed:
            rows = self.stored.setdefault(kind, {})
            if row is None:
                rows.pop(name, None)
            else:  # rows are immutable: what was committed stays as it was without a copy
                rows[name] = codec.encode_row(kind, row) if self._save_and_load else row

    def _sleep(self) -> None:
        """Set the alarm for what the scheduler waits for; an alarm that is set already is used again."""
        wake = self.core.next_wake()
        if wake is not None and (self._woken_for is None or wake < self._woken_for):
            self._woken_for = wake
            if wake not in self._waking:
                self._waking.add(wake)
                self.time.at(wake + self._late(), self._wake, wake)

    def _late(self) -> int:
        """How many ms after its moment an alarm is told of: a loop that is busy handles other events before."""
        late = self.weather.wake_late.draw(self.rng) if self.weather.wake_late.share else None
        if late is None:
            return 0
        self.outcome.happened("wake_late")
        return int(late * 1000)

    def _wake(self, wake: int) -> None:
        self._waking.discard(wake)
        if not self.up or self._woken_for != wake:
            return
        self._woken_for = None
        due = self.core.next_wake()
        if due is not None and due <= self.time.now:
            self.handle(ev.Woke())
        else:
            self._sleep()

    def delivered(self, report: JobReport) -> None:
        """A webhook arrives; while the daemon is down it fails and is lost."""
        self.handle(ev.JobReported(report, Told.WEBHOOK))

    def signed(self, env: TrueEnvironment, sign: Sign, detail: str) -> None:
        """A followed file told something."""
        if env.followed == self.life:
            self.handle(ev.SignSeen(RunnerId(env.name), sign, detail))

    def exited(self, env: TrueEnvironment) -> None:
        """An environment whose end is waited for ended by itself."""
        if env.removed or env.listed_ended or not self.up or env.followed != self.life:
            return
        env.listed_ended = True
        self.handle(ev.EnvironmentExited(RunnerId(env.name), env.code, 0))
