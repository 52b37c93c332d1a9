"""The reap decision: a pure function of verdict, age and bounds, and nothing else.

`tests/data/reap_matrix.json` states it row by row. Both bounds are inclusive. Bounds are time, never a
count of probes: the sweep runs on every completed job, so a count would be loosest in a burst.
"""

from __future__ import annotations

from ephemerd.domain.pool import Policy, Pool
from ephemerd.domain.runner import Runner
from ephemerd.domain.value import Value
from ephemerd.domain.verdict import Verdict


class Ruling(Value, frozen=True):
    """What the table says. `destroys` is leave by this rule alone; fence and re-check can still veto."""

    destroys: bool
    escape: bool
    outcome: str


REAP = Ruling(destroys=True, escape=False, outcome="reaped")
VETO = Ruling(destroys=False, escape=False, outcome="vetoed")
ESCAPE = Ruling(destroys=True, escape=True, outcome="escaped")


class Bounds(Value, frozen=True):
    """From which age (ms) on an unknown and a busy verdict no longer hold."""

    unknown: int
    hard: int


def decide(verdict: Verdict, age: int, bounds: Bounds) -> Ruling:
    """Rule on a nominated runner: `age` in ms, counted as `age_of` says."""
    if verdict is Verdict.IDLE:
        return REAP
    if age >= bounds.hard:
        return ESCAPE
    if verdict is not Verdict.BUSY and age >= bounds.unknown:
        return ESCAPE
    return VETO


def hard_bound(runner: Runner, pool: Pool, policy: Policy) -> int:
    """Return the age (ms) at which a busy verdict no longer holds.

    Without a `job_timeout` it is six hours and a half, moved to five days and a half hour (the forge's
    own limit for self-hosted jobs) while the runner's job is not known to be over at the forge.
    """
    if pool.job_timeout is not None:
        return pool.job_timeout + policy.bound_extra
    if runner.hard is not None and (runner.over is None or runner.over_via == "log"):
        return policy.long_job_bound + policy.bound_extra
    return policy.job_bound + policy.bound_extra


def bounds_of(runner: Runner, pool: Pool, policy: Policy) -> Bounds:
    """Return both bounds: unknown is normal without a probe (grace) and a fault with one (hard bound)."""
    hard = hard_bound(runner, pool, policy)
    lenient = policy.unknown_bound == "grace" or (policy.unknown_bound == "auto" and not pool.probes)
    return Bounds(unknown=min(pool.orphan_grace, hard) if lenient else hard, hard=hard)


def age_of(verdict: Verdict, runner: Runner, now: int) -> int:
    """Return the age (ms) that the decision uses.

    Busy counts from the first hard sign, without one from the first soft one; unknown from the last
    verdict that was not unknown, else from the start; for idle it does not matter.
    """
    if verdict is Verdict.IDLE:
        return 0
    if verdict is Verdict.BUSY:
        since = runner.hard if runner.hard is not None else runner.soft
        return now - since if since is not None else 0
    since = runner.known
    if since is None:
        since = runner.started if runner.started is not None else runner.created
    return now - since
