"""Pools, hosts and the policy: what a person configured, in the words of the domain. Durations are ms."""

from __future__ import annotations

from ephemerd.domain.access import Access
from ephemerd.domain.ids import Scope
from ephemerd.domain.value import Value, Word

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


class FenceKind(Word):
    """How a forge can be made unable to give a runner a job.

    REFUSES  deregistering, which the forge refuses while a job is held (GitHub)
    NONE     there is none; deregistering would kill the job (Gitea, Forgejo) and is never a fence
    """

    REFUSES = "refuses"
    NONE = "none"


class Pool(Value, frozen=True):
    """A configured kind of runner. `labels` are normalised; `probes` says whether the runtime can look
    inside; `observed` whether silence about a start may be read as "nothing started" in this scope: of all pools
    of one scope it says the same. `suffix` ends the names of its runners; `exact` registers each with the labels
    of the job that it is made for, and not with all of the pool's."""

    name: str
    scope: Scope
    labels: tuple[str, ...]
    host: str
    runtime: str
    max_concurrent: int = 4
    min_idle: int = 0
    orphan_grace: int = 10 * MINUTE
    surplus_grace: int = 30 * SECOND
    job_timeout: int | None = None
    probes: bool = True
    fence: FenceKind = FenceKind.REFUSES
    observed: bool = True
    unlabelled: bool = False
    suffix: str = ""
    exact: bool = False


class Host(Value, frozen=True):
    name: str
    slots: int


class Policy(Value, frozen=True):
    """The numbers of DOMAIN.md, named in its words; the defaults are its defaults. ms unless said."""

    provision_limit: int = 5 * MINUTE
    exit_grace: int = 60 * SECOND
    confirm_after: int = 60 * SECOND
    confirm_wait: int = 15 * SECOND
    settle: int = 5 * SECOND
    nominate_every: int = 60 * SECOND
    reconcile_every: int = 5 * MINUTE
    poll_every: int = 10 * SECOND
    poll_idle: int = 1 * MINUTE
    max_idle_age: int = 6 * HOUR
    stuck_after: int = 10 * MINUTE
    probe_timeout: int = 10 * SECOND
    unknown_bound: str = "auto"
    planned_limit: int = 30 * SECOND
    registering_limit: int = 60 * SECOND
    assigned_stuck: int = 2 * MINUTE
    soft_sign_life: int = 15 * MINUTE
    no_worker_stuck: int = 15 * MINUTE
    retiring_limit: int = 70 * SECOND
    displaced_after: int = 60 * SECOND
    hold_after: int = 30 * SECOND
    nameless_soft: int = 2 * MINUTE
    look_again: int = 60 * SECOND
    remake_every: int = 1 * HOUR
    overdue_grace: int = 5 * MINUTE
    bound_extra: int = 30 * MINUTE
    job_bound: int = 6 * HOUR
    long_job_bound: int = 5 * DAY
    permit_life: int = 10 * SECOND
    veto_backoff: int = 2 * SECOND
    veto_backoff_max: int = 60 * SECOND
    backoff: tuple[int, ...] = (30 * SECOND, 1 * MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE)
    jitter: float = 0.2
    denied_retry: int = 10 * MINUTE
    refused_retry: int = 10 * MINUTE
    try_silent_every: int = 1 * MINUTE
    write_burst: int = 30
    write_per_second: float = 3.0
    write_per_second_limited: float = 1.0
    alarm_after_exits: int = 5
    abandoned_limit: int = 2
    finished_kept: int = 8 * DAY
    finished_most: int = 200_000
    gone_kept: int = 1 * HOUR
    orphan_sweep: bool = True


class Setup(Value, frozen=True):
    """Everything a person configured that the core needs, as one value (it travels in an event).

    `access` by forge; a forge that is not in it serves everybody.
    """

    pools: tuple[Pool, ...]
    hosts: tuple[Host, ...]
    policy: Policy
    access: tuple[Access, ...] = ()
