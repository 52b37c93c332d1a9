"""Runners: states, nomination rules, and the row that we keep."""

from __future__ import annotations

from typing import Final

from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.value import Value, Word
from ephemerd.domain.verdict import Evidence, Verdict


class RunnerState(Word):
    PLANNED = "planned"
    REGISTERING = "registering"
    STARTING = "starting"
    LISTENING = "listening"
    ASSIGNED = "assigned"
    RUNNING = "running"
    FINISHING = "finishing"
    RETIRING = "retiring"
    STUCK = "stuck"
    ABANDONED = "abandoned"
    GONE = "gone"


class S:
    """The members of `RunnerState` as plain attributes, for code that runs with every event: Python 3.11 finds a
    member through a function of Enum's metaclass, which costs as much as a call."""

    PLANNED: Final = RunnerState.PLANNED
    REGISTERING: Final = RunnerState.REGISTERING
    STARTING: Final = RunnerState.STARTING
    LISTENING: Final = RunnerState.LISTENING
    ASSIGNED: Final = RunnerState.ASSIGNED
    RUNNING: Final = RunnerState.RUNNING
    FINISHING: Final = RunnerState.FINISHING
    RETIRING: Final = RunnerState.RETIRING
    STUCK: Final = RunnerState.STUCK
    ABANDONED: Final = RunnerState.ABANDONED
    GONE: Final = RunnerState.GONE


FINAL = frozenset({RunnerState.GONE, RunnerState.ABANDONED})
LIVE = frozenset(RunnerState) - FINAL
UNBOUND = frozenset(
    {RunnerState.PLANNED, RunnerState.REGISTERING, RunnerState.STARTING, RunnerState.LISTENING}
)
HOLDS_SLOT = LIVE


class Rule(Word):
    """Who nominates. A nomination has no authority (DOMAIN.md section 5)."""

    EXPIRED = "expired"
    SURPLUS = "surplus"
    DISPLACED = "displaced"
    UNBORN = "unborn"
    FINISHED = "finished"
    SPENT = "spent"
    LEAKED = "leaked"
    OVERDUE = "overdue"
    OPERATOR = "operator"
    CORDONED = "cordoned"
    ENDED = "ended"


class GatePhase(Word):
    """Where a gate run stands (DOMAIN.md section 6)."""

    PROBING = "probing"
    ASKING = "asking"
    FENCING = "fencing"
    SETTLING = "settling"
    REPROBING = "reprobing"
    DESTROYING = "destroying"


class FenceAnswer(Word):
    """What the forge said to a request to deregister."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    NOT_FOUND = "not_found"
    NO_ANSWER = "no_answer"


class Fence(Value, frozen=True):
    """What is remembered of the fence of one runner; times are ms, None where it did not happen.

    missing   when "not found" was first answered while the scope itself answered; `missing_again` when
              it was so once more, 60 s or later
    retry     not to be asked before
    tries     requests without a usable answer in a row
    """

    sent: int | None = None
    accepted: int | None = None
    refused: int | None = None
    missing: int | None = None
    missing_again: int | None = None
    retry: int = 0
    tries: int = 0


class GateRun(Value, frozen=True):
    """One pass of a nominated runner through the gate.

    nomination   number of the nomination (persisted counter)
    generation   the runner's count of signs when the pass began
    token        number of the question that is out; answers to older ones are stale
    first        the verdict that let the pass go on to the fence
    escape       the decision said escape
    flag_idle    the forge's flag says "not busy", which reads as idle together with an accepted fence only
    ended        the first probe read the end line of the runner's job in the listener's log
    """

    nomination: int
    rule: Rule
    reason: str
    phase: GatePhase
    began: int
    generation: int
    token: int
    deadline: int
    first: Verdict = Verdict.UNKNOWN
    first_at: int = 0
    escape: bool = False
    flag_idle: bool = False
    ended: bool = False
    fence: str = "none"
    evidence: tuple[Evidence, ...] = ()


class Order(Value, frozen=True):
    """An operator's order to end a runner."""

    who: str
    reason: str
    even_if_busy: bool
    at: int


class Runner(Value, frozen=True):
    """A runner's row: one registration plus one environment, for one job only. Times are ms.

    order        creation number, the persisted key of every order
    intent       the job whose demand caused it; it explains and has no authority
    labels       those that it was registered with, where they are not its pool's own; () where they are
    registration the forge's id; None until known
    environment  the runtime's own reference; None until started
    signs        how many signs of a job were seen: the generation of DOMAIN.md section 6, step 1
    soft, hard   first soft and hard sign (latched); soft_last, hard_last the latest
    job          the job that the forge says it has or had; None while its name is not known
    over         when its one job was known to be over (log end line, event or read); over_via by what
    worker       when a worker was last seen
    announced    the listener's last announcement, word for word: another one is another job
    known        when a verdict was last something else than unknown
    untaken      when a look-up last found the registration alive while nobody gave it a job
    lost         when a look-up first missed the registration; `lost_again` once more 60 s later
    surplus_since since when the last matching leaves it over
    vetoed_until no new nomination before; `vetoes` in a row
    offered      its own files told of an offer or acknowledgement: once that sign lapses without a job, it
                 is a hung one and no supply any more
    late         it did not listen within the provision limit: no supply from then on
    stopping     when its listener was asked to stop because the job is overdue
    consumes     bound, and its job has no name yet: it stands for one unit of demand
    asked        when a question about the registration went out (`token` numbers it); None otherwise
    unregister   the environment is gone and the registration is still to be removed
    cleanup      the environment's remains are still to be removed
    leak         when it was first seen without a row (environment) or without an environment
                 (registration); `leak_again` once more 60 s later
    absent       when a complete listing first missed its environment
    shown_ended  when a listing first showed it ended although nobody in this process life had followed it
    """

    id: RunnerId
    pool: str
    host: str
    scope: Scope
    order: int
    state: RunnerState
    since: int
    created: int
    intent: JobKey | None = None
    registration: int | None = None
    environment: str | None = None
    started: int | None = None
    listening: int | None = None
    signs: int = 0
    soft: int | None = None
    soft_last: int | None = None
    hard: int | None = None
    hard_last: int | None = None
    worker: int | None = None
    announced: str = ""
    job: JobKey | None = None
    over: int | None = None
    over_via: str = ""
    known: int | None = None
    untaken: int | None = None
    lost: int | None = None
    lost_again: int | None = None
    surplus_since: int | None = None
    fence: Fence = Fence()
    gate: GateRun | None = None
    vetoed_until: int = 0
    vetoes: int = 0
    nominations: int = 0
    order_given: Order | None = None
    offered: bool = False
    late: bool = False
    stopping: int | None = None
    stuck: str = ""
    consumes: bool = False
    asked: int | None = None
    token: int = 0
    unregister: bool = False
    cleanup: bool = False
    exit_code: int | None = None
    ending: str = ""
    adopted: bool = False
    seen_after_start: bool = True
    leak: int | None = None
    leak_again: int | None = None
    absent: int | None = None
    shown_ended: int | None = None
    labels: tuple[str, ...] = ()


class Decision(Value, frozen=True):
    """What the gate decided once, with the evidence it rests on; journalled and counted.

    outcome is `reaped`, `vetoed` or `escaped`; `holding` words such as "held: no answer" are vetoes whose
    reason says so. `age` is the age that the decision used, `bound` the bound it was held against (ms).
    """

    id: int
    at: int
    runner: RunnerId
    pool: str
    nomination: int
    rule: str
    outcome: str
    verdict: str
    via: str
    reason: str
    age: int
    bound: int
    evidence: tuple[Evidence, ...]
