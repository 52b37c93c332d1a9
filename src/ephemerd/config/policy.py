"""The `[policy]` table: the numbers that decide, each a field of `domain.pool.Policy` of the same name.

`orphan_sweep`, `backoff` and `jitter` of the domain's policy are written under `[runner.orphan_sweep]` and
`[runner.claim_retry]`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ephemerd.config.types import Count, Duration, PositiveCount, PositiveDuration, Rate, Section
from ephemerd.domain.pool import Policy

_D = Policy()


class PolicySettings(Section):
    """When things are due and how long they may take. The defaults are meant to be left alone."""

    provision_limit: PositiveDuration = Field(
        _D.provision_limit,
        description="From the start of an environment to its listener being ready; then it is nominated as "
        "unborn. Long enough for a cold disk.",
    )
    exit_grace: Duration = Field(
        _D.exit_grace,
        description="How long a runner may take to leave by itself after its job is over. The forge says "
        "'completed' before the worker has ended.",
    )
    confirm_after: Duration = Field(
        _D.confirm_after,
        description="Demand that nobody confirmed for so long is asked about before a slot is spent on it. "
        "Keeps stale deliveries from starting runners.",
    )
    confirm_wait: PositiveDuration = Field(
        _D.confirm_wait,
        description="How long that question may hold the slot; without an answer a runner is made anyway.",
    )
    settle: Duration = Field(
        _D.settle,
        description="Pause between an accepted fence and the second look. An assignment that was under way "
        "shows itself in it.",
    )
    nominate_every: PositiveDuration = Field(
        _D.nominate_every,
        description="How often the nomination rules run when nothing else makes them run.",
    )
    reconcile_every: PositiveDuration = Field(
        _D.reconcile_every,
        description="How often jobs and registrations are read from the forge. Repairs lost deliveries.",
    )
    poll_every: PositiveDuration = Field(
        _D.poll_every,
        description='How often jobs are read where discovery is "poll" and something is queued or runs.',
    )
    poll_idle: PositiveDuration = Field(
        _D.poll_idle,
        description="Where nothing is, the pauses double up to this: so long can a job stay unseen there.",
    )
    max_idle_age: PositiveDuration = Field(
        _D.max_idle_age,
        description="Age at which a spare of min_idle is replaced.",
    )
    stuck_after: PositiveDuration = Field(
        _D.stuck_after,
        description="Demand that a slot would serve and that waits for so long makes health 'stuck'.",
    )
    probe_timeout: PositiveDuration = Field(
        _D.probe_timeout,
        description="Bound of one look into an environment; past it the verdict is unknown, never idle.",
    )
    unknown_bound: Literal["auto", "grace", "hard"] = Field(
        "auto",
        description="When an unknown verdict may be escaped. auto: at the hard bound where the runtime can "
        "probe (there unknown is a fault), at grace where it cannot.",
    )
    planned_limit: PositiveDuration = Field(
        _D.planned_limit, description="A planned runner is resumed or undone after this."
    )
    registering_limit: PositiveDuration = Field(
        _D.registering_limit,
        description="A registration without an answer is looked up by name after this; never sent again "
        "blindly.",
    )
    assigned_stuck: PositiveDuration = Field(
        _D.assigned_stuck,
        description="An assigned runner that executes nothing for so long is shown as stuck and looked up.",
    )
    soft_sign_life: PositiveDuration = Field(
        _D.soft_sign_life,
        description="An offer or acknowledgement that no announcement followed counts for so long.",
    )
    no_worker_stuck: PositiveDuration = Field(
        _D.no_worker_stuck,
        description="A running job whose worker nobody saw for so long is shown as stuck.",
    )
    retiring_limit: PositiveDuration = Field(
        _D.retiring_limit,
        description="An environment that has not died so long after its permit is abandoned and listed. "
        "30 s stop, kill, 30 s, and a margin.",
    )
    displaced_after: Duration = Field(
        _D.displaced_after,
        description="How long an idle runner listens before it may be nominated because demand it cannot "
        "serve waits for its slot.",
    )
    hold_after: PositiveDuration = Field(
        _D.hold_after,
        description="A listener that is not given its waiting job for so long shows that the forge holds "
        "back; no more runners of that class until one is taken.",
    )
    nameless_soft: Duration = Field(
        _D.nameless_soft,
        description="How long a runner with only a soft sign and no job name counts as serving one job.",
    )
    look_again: PositiveDuration = Field(
        _D.look_again,
        description="'Not found' counts only when it comes twice, so far apart.",
    )
    remake_every: PositiveDuration = Field(
        _D.remake_every,
        description="How often a runner is made anew for a job whose runner expired untaken.",
    )
    overdue_grace: Duration = Field(
        _D.overdue_grace,
        description="From the polite stop of a job past its job_timeout to the end of its environment.",
    )
    bound_extra: Duration = Field(
        _D.bound_extra, description="The hard bound is job_timeout and this much more."
    )
    job_bound: PositiveDuration = Field(
        _D.job_bound,
        description="Stands in for job_timeout in the hard bound where there is none and the forge says the "
        "job is over.",
    )
    long_job_bound: PositiveDuration = Field(
        _D.long_job_bound,
        description="Stands in for job_timeout while the forge does not say that the job is over. The "
        "forge's own limit of a self-hosted job.",
    )
    permit_life: PositiveDuration = Field(
        _D.permit_life, description="How long a permit to destroy is good, within one life of the process."
    )
    veto_backoff: PositiveDuration = Field(
        _D.veto_backoff, description="A vetoed runner is not looked at again before this; doubles each time."
    )
    veto_backoff_max: PositiveDuration = Field(_D.veto_backoff_max, description="Where that doubling ends.")
    denied_retry: PositiveDuration = Field(
        _D.denied_retry, description="How often a scope that refused the credential is tried again."
    )
    refused_retry: PositiveDuration = Field(
        _D.refused_retry,
        description="How often one runner of a pool finds out whether the forge still refuses the version of its "
        "runner application.",
    )
    try_silent_every: PositiveDuration = Field(
        _D.try_silent_every, description="While a scope gives no answer, one call so often tries it."
    )
    write_burst: PositiveCount = Field(
        _D.write_burst, description="Writes to a forge that may go out at once; the bucket's size."
    )
    write_per_second: Rate = Field(
        _D.write_per_second, description="How fast that bucket refills. Below the forge's secondary limits."
    )
    write_per_second_limited: Rate = Field(
        _D.write_per_second_limited, description="How fast it refills after a rate limit was hit."
    )
    alarm_after_exits: PositiveCount = Field(
        _D.alarm_after_exits, description="Runners in a row that ended without a job before health warns."
    )
    abandoned_limit: PositiveCount = Field(
        _D.abandoned_limit, description="Abandoned environments at which a host takes no new work."
    )
    finished_kept: PositiveDuration = Field(
        _D.finished_kept,
        description="How long a finished job is remembered, so that a late delivery starts nothing.",
    )
    finished_most: Count = Field(_D.finished_most, description="How many finished jobs are remembered.")
    gone_kept: Duration = Field(_D.gone_kept, description="How long a gone runner stays in the lists.")
