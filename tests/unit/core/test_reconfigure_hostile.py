"""A hostile world in which the configuration changes all the time: pools and hosts come, go, grow and shrink.

Everything that `test_machine_hostile` demands holds besides; slots are never exceeded as they are configured
at the moment, and what was left out of the configuration is planned nowhere.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule
from msgspec.structs import replace

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.domain.access import Access
from ephemerd.domain.pool import Host, Setup
from tests.unit.core.hostile import SETUP
from tests.unit.core.test_machine_hostile import Hostile
from tests.unit.core.world import LABELS, MINUTE, SECOND

NAMES = [pool.name for pool in SETUP.pools]


ACCESS = (
    (),
    (Access("github"),),
    (Access("github", repositories=("acme/app",), forks=("*",), branches=("main",), most=1),),
)


LABEL_SETS = (LABELS, ("gpu",), ("gpu", "linux", "self-hosted", "x64"))


class Reconfigured(Hostile):
    """Adds one rule. A crash begins again with whatever was configured last."""

    setup: Setup = SETUP

    def boot(self, same: bool) -> None:
        self.epoch += 1
        self.feed(ev.Booted("s", f"e{self.epoch}", self.setup, same))

    def check(self, command: cm.Command) -> None:
        if isinstance(command, cm.Register):
            state = self.core.state
            row = state.runners[command.runner]
            pool, host = state.pools[row.pool], state.hosts[row.host]
            assert pool.configured
            assert host.configured
            assert state.slots_held(row.host) + state.index.reserved.get(row.host, 0) <= host.slots
            assert len(state.index.live[row.pool]) <= pool.pool.max_concurrent
            self.names.append(command.runner)
            return
        super().check(command)

    @rule(
        pools=st.sets(st.sampled_from(NAMES), min_size=1),
        most=st.integers(1, 3),
        slots=st.tuples(st.integers(0, 3), st.integers(0, 2)),
        sweep=st.sampled_from([SECOND, MINUTE, 10 * MINUTE]),
        moves=st.booleans(),
        drops=st.booleans(),
        access=st.sampled_from(ACCESS),
        exact=st.booleans(),
        relabelled=st.none() | st.sampled_from(LABEL_SETS),
    )
    def the_configuration_changes(
        self,
        pools: set[str],
        most: int,
        slots: tuple[int, int],
        sweep: int,
        moves: bool,
        drops: bool,
        access: tuple[Access, ...],
        exact: bool,
        relabelled: tuple[str, ...] | None,
    ) -> None:
        kept = tuple(
            replace(
                pool,
                max_concurrent=most,
                host="there" if moves else pool.host,
                exact=exact,
                labels=relabelled if relabelled is not None and pool.name == "gpu" else pool.labels,
            )
            for pool in SETUP.pools
            if pool.name in pools
        )
        hosts = (Host("here", slots[0]), Host("there", slots[1]))
        policy = replace(SETUP.policy, nominate_every=sweep, reconcile_every=max(sweep, MINUTE))
        self.feed(ev.Reconfigured("me", Setup(kept, hosts[1:] if drops else hosts, policy, access)))
        self.setup = self.core.state.setup
        for name, row in self.core.state.pools.items():
            assert row.configured == (name in pools)

    def teardown(self) -> None:
        """Whoever lives in a pool that is configured no more has to find the way out by itself."""
        if self.epoch:
            hosts = tuple(Host(name, 3) for name in ("here", "there"))
            self.setup = replace(self.core.state.setup, hosts=hosts, policy=SETUP.policy)
            self.feed(ev.Reconfigured("me", self.setup))
        super().teardown()


pytestmark = pytest.mark.timeout(600)  # drawn histories, measured, on a machine that may be busy
TestReconfigured = Reconfigured.TestCase
TestReconfigured.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
