"""What the outside reads: frozen snapshots that queries make and API, metrics and command line show.

The field names are the JSON keys of the API, a contract: add freely, rename or drop only with a note in
`CHANGELOG.md`. Times are ms since the epoch on the shell clock, None where it did not happen; `…_s` are
durations in seconds at the moment of reading. A job's id is `forge/owner/repo/number`, a runner's its name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HealthView:
    """`status` is `ok`, `degraded` or `stuck`; each reason is a sentence that says what to do."""

    status: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadyView:
    """Whether deliveries are taken and stored."""

    ready: bool


@dataclass(frozen=True, slots=True)
class RateView:
    """A forge's rate limit as last told; `reset` in ms since the epoch.

    account   whose limit it is where the forge has several (installations of an App), else ""
    reserve   at so many remaining, what only reads waits for the reset
    """

    forge: str
    resource: str
    limit: int
    remaining: int
    reset: int
    account: str = ""
    reserve: int = 0


@dataclass(frozen=True, slots=True)
class HostView:
    """A host with its slots: `held` from `planned` until the environment is gone or abandoned. `applications` are
    the versions of the downloaded runner application that its pools use."""

    name: str
    slots: int
    held: int
    free: int
    abandoned: int
    cordoned: bool
    cordoned_by: str = ""
    cordoned_s: float | None = None
    applications: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool as configured, with its runners by state (every state present) and the queued jobs that it
    could serve. Not `configured`: it was removed, and is listed until its last runner is gone.
    `cordoned_by` says who cordoned it, its host or everything, and why; `cordoned_s` how long ago."""

    name: str
    forge: str
    scope: str
    labels: tuple[str, ...]
    host: str
    runtime: str
    max_concurrent: int
    min_idle: int
    orphan_grace_s: float
    surplus_grace_s: float
    job_timeout_s: float | None
    probes: bool
    cordoned: bool
    held: int
    queued: int
    runners: dict[str, int]
    configured: bool = True
    cordoned_by: str = ""
    cordoned_s: float | None = None


@dataclass(frozen=True, slots=True)
class EvidenceView:
    """One look that a decision rests on: `verdict` `idle`, `busy` or `unknown`, `via` by which means."""

    verdict: str
    via: str
    at: int
    detail: str


@dataclass(frozen=True, slots=True)
class GateView:
    """Where a nominated runner stands in the gate."""

    nomination: int
    rule: str
    reason: str
    phase: str
    began: int
    evidence: tuple[EvidenceView, ...]


@dataclass(frozen=True, slots=True)
class RunnerView:
    """One runner. `bound` is `hard`, `soft` or empty: by which kind of sign it is known to hold a job.

    `intent` is the job whose demand caused it, `job` the one that the forge says it has or had.
    `fence` is empty, `sent`, `accepted`, `refused` or `missing`. `labels` are those that it was registered with, where
    they are not its pool's.
    """

    id: str
    pool: str
    host: str
    scope: str
    state: str
    since: int
    since_s: float
    created: int
    age_s: float
    started: int | None
    listening: int | None
    intent: str | None
    job: str | None
    bound: str
    worker: int | None
    over: int | None
    registration: int | None
    environment: str | None
    nominations: int
    vetoes: int
    vetoed_until: int | None
    fence: str
    gate: GateView | None
    stuck: str
    ending: str
    exit_code: int | None
    adopted: bool
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobView:
    """One job. `waited_s` runs until it started or ended; `why` says why a queued one has no runner yet."""

    id: str
    forge: str
    repository: str
    number: int
    name: str
    run_id: int
    attempt: int
    labels: tuple[str, ...]
    status: str
    since: int
    since_s: float
    first_seen: int
    waited_s: float
    started: int | None
    ended: int | None
    runner: str | None
    ours: bool
    conclusion: str | None
    why: str


@dataclass(frozen=True, slots=True)
class DecisionView:
    """One decision of the gate: `outcome` `reaped`, `vetoed` or `escaped`, with what it rests on."""

    id: int
    at: int
    runner: str
    pool: str
    nomination: int
    rule: str
    outcome: str
    verdict: str
    via: str
    reason: str
    age_s: float
    bound_s: float
    evidence: tuple[EvidenceView, ...]


@dataclass(frozen=True, slots=True)
class JournalView:
    """One journal record: the event as plain data and the hash of the commands that followed."""

    seq: int
    segment: int
    at: int
    event: dict[str, Any]
    commands: str


@dataclass(frozen=True, slots=True)
class SegmentView:
    """A journal segment's beginning: the version of the rules that wrote it, the rows it starts from (kind -> id
    -> row), and the number of its first entry. `stands_at` is the time (ms) at which a core stands up from the
    rows: 0 where a process life begins with them, so that whatever is overdue is due at once."""

    number: int
    rules: str
    first_seq: int
    rows: dict[str, Any]
    stands_at: int = 0


@dataclass(frozen=True, slots=True)
class StoryLine:
    """One line of a story: `kind` is the event's name or `Decision`, `subject` what it is about (empty where
    that is the daemon or a scope), `text` a sentence, `evidence` what it rests on. `seq` is the journal's
    number of an event and the decision's number of a decision."""

    at: int
    seq: int
    kind: str
    subject: str
    text: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoryView:
    """Everything that is known of one runner or job, in order. `kind` is `runner` or `job`; `runner` and
    `job` are its present rows, None where the state has forgotten them."""

    subject: str
    kind: str
    lines: tuple[StoryLine, ...]
    runner: RunnerView | None = None
    job: JobView | None = None


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list: give `next` as `after` to read on; None at the end."""

    items: tuple[T, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class ProblemView:
    """A refusal (RFC 9457): `title` is the status in words, `detail` a sentence; `near` is what was perhaps meant,
    there where something was not found."""

    type: str
    title: str
    status: int
    detail: str
    near: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class OrderView:
    """The answer to an operator's order: `outcome` is `accepted`, `vetoed` or `pending` (not decided within
    the wait), with one sentence and, where there is one, the decision."""

    outcome: str
    detail: str
    decision: DecisionView | None = None


@dataclass(frozen=True, slots=True)
class TokenView:
    """An API token without its secret: `role` is `read` or `operate`; `expires` None: never; `used` when it was
    used last since the daemon started."""

    name: str
    role: str
    created: int
    expires: int | None
    expired: bool
    used: int | None


@dataclass(frozen=True, slots=True)
class NewTokenView:
    """A token that was just made, the only time that it is shown."""

    token: str
    name: str
    role: str
    expires: int | None


@dataclass(frozen=True, slots=True)
class LoginView:
    """A login link: `path` with its one-time code, good until `until`; `listen` is `HOST:PORT` where the daemon
    serves browsers, `role` what the browser may do."""

    path: str
    until: int
    listen: str
    role: str


@dataclass(frozen=True, slots=True)
class LogFileView:
    """One log of a runner: `output` is what the listener prints, the others are its diagnostics."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class LogsView:
    """Which logs of a runner there are; `ended` when nothing is added any more."""

    runner: str
    ended: bool
    files: tuple[LogFileView, ...]


@dataclass(frozen=True, slots=True)
class LogPieceView:
    """Whole lines of a log from byte `start`, secrets hidden; read on from `next`. `end`: so far this is all."""

    runner: str
    name: str
    start: int
    next: int
    text: str
    end: bool
    ended: bool


@dataclass(frozen=True, slots=True)
class FindingView:
    """One thing that is wrong with a configuration: `level` is `error` or `warning`, `code` the exit code."""

    level: str
    code: int
    where: str
    what: str
    todo: str


@dataclass(frozen=True, slots=True)
class ChangeView:
    """One key that differs after a reload, values as TOML has them; not `applied` means: at the next start."""

    key: str
    before: str
    after: str
    applied: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class ReloadView:
    """The answer to a reload: `outcome` is `applied`, `unchanged` or `refused` (the old one stays in use)."""

    outcome: str
    detail: str
    changes: tuple[ChangeView, ...] = ()
    findings: tuple[FindingView, ...] = ()


@dataclass(frozen=True, slots=True)
class StorageView:
    """What the store takes as last measured, in bytes: in all, of that free for use again, left on its disk
    (None where unknown). `oldest` is when its oldest journal entry was made, None where there is none."""

    total: int
    reusable: int
    disk_free: int | None
    oldest: int | None


@dataclass(frozen=True, slots=True)
class ApplicationView:
    """The runner application of a scope whose pools have it downloaded. Times in ms since the epoch.

    version       in use for new runners, "" while there is none; `folder` is where, `age_s` since it was unpacked
    verified      whether its checksum was stated; None without a version
    listed        the version that the forge listed last, "" before that; `checked` is when
    refused_from  from when the version in use is, or will be, refused, where that is known
    problem       why it could not be renewed, "" where it could
    fetched       bytes that are there of one that is being fetched, and `fetching` of all; None where none is
    versions      all that are at hand
    """

    scope: str
    pools: tuple[str, ...]
    version: str
    folder: str
    verified: bool | None
    age_s: float | None
    listed: str
    checked: int | None
    refused_from: int | None = None
    problem: str = ""
    fetched: int | None = None
    fetching: int | None = None
    versions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QuarantineView:
    """One event that could not be handled: the delivery that brought it (empty for one of our own ports), the
    bytes that are kept, and why."""

    seq: int
    at: int
    forge: str
    delivery: str
    size: int
    error: str


@dataclass(frozen=True, slots=True)
class RecoveryView:
    """How the fetching of failed deliveries goes for one hook: `recovered` counts since the start, `looked` is when
    the forge's list was last followed to its end. `problem` says why it cannot be read, `failing` that nothing comes
    through, each with what to do; "" where all is well."""

    hook: str
    forge: str
    looked: int | None
    recovered: int
    problem: str = ""
    failing: str = ""


@dataclass(frozen=True, slots=True)
class StatusView:
    """The daemon at one moment. `jobs` and `runners` count by status and state, each value present.

    `needs_restart` holds the keys of the configuration file that hold only from the next start on. `storage` is
    None until it was measured.
    """

    version: str
    store: str
    epoch: str
    pid: int
    now: int
    started: int
    uptime_s: float
    ready: bool
    stopping: bool
    draining: bool
    cordoned: tuple[str, ...]
    health: HealthView
    jobs: dict[str, int]
    runners: dict[str, int]
    slots: int
    slots_held: int
    slot_accounting_difference: int
    inbox_depth: int
    inbox_lag_s: float
    quarantined: int
    commands_running: int
    reconciled: dict[str, int]
    heartbeat: int
    rates: tuple[RateView, ...]
    needs_restart: tuple[str, ...] = ()
    storage: StorageView | None = None
    recoveries: tuple[RecoveryView, ...] = ()
    applications: tuple[ApplicationView, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What metrics read in one go. `counters` are the core's own, keyed `name|label=value|…`."""

    status: StatusView
    pools: tuple[PoolView, ...]
    hosts: tuple[HostView, ...]
    counters: dict[str, int] = field(default_factory=dict)
