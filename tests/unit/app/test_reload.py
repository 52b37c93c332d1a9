"""Reading the configuration again: refused without an effect, or committed and only then told to the ports."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from ephemerd.app.daemon import Daemon, Ports
from ephemerd.app.operator import NotTaken
from ephemerd.app.queries import Queries
from ephemerd.app.reload import Prepared, Reloader
from ephemerd.core.commands import ListEnvironments
from ephemerd.core.events import JobReported
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import ForgeStatus, JobReport, Told
from ephemerd.domain.pool import Host, Pool
from ephemerd.domain.verdict import Sign
from ephemerd.ports.views import ChangeView, FindingView
from tests.unit.app import fakes
from tests.unit.app.fakes import SCOPE, FakeClock, FakeForge, FakeMeter, FakeRuntime, FakeStore, until

FINDING = FindingView("error", 3, "pools.linux (config.toml:3)", "unknown key", "the nearest known key is x")
CHANGE = ChangeView("pools.linux.max_concurrent", "4", "9", True)
WAITS = ChangeView("server.store", '"a"', '"b"', False, "it stores where it began")


class Site:
    def __init__(self) -> None:
        self.store, self.forge, self.runtime = FakeStore(), FakeForge(), FakeRuntime()
        ports = Ports(self.store, {"github": self.forge}, {"linux": self.runtime}, FakeClock(), FakeMeter())
        self.setup = fakes.setup()
        self.daemon = Daemon(ports, self.setup)
        self.prepared = Prepared(self.setup)
        self.told: list[str] = []
        self.reloader = Reloader(
            self.daemon,
            lambda: self.prepared,
            begin=lambda: self.told.append("reloading"),
            end=lambda: self.told.append("ready"),
        )

    def prepare(self, *changes: ChangeView, **pool: object) -> None:
        setup = fakes.setup(**pool)  # type: ignore[arg-type]
        self.prepared = Prepared(setup, changes, apply=lambda: self.told.append("applied"))


@pytest.fixture
async def site():
    made = Site()
    await made.daemon.open()
    running = asyncio.create_task(made.daemon.run())
    await made.daemon.booted()
    yield made
    await made.daemon.stop()
    await running


async def test_a_change_is_committed_then_applied(site):
    site.prepare(CHANGE, WAITS, max_concurrent=9)
    answer = await site.reloader.reload("ann")
    assert (answer.outcome, answer.changes) == ("applied", (CHANGE, WAITS))
    assert answer.detail == "1 change applied; a restart is needed for server.store"
    assert site.told == ["reloading", "applied", "ready"]
    assert "Reconfigured" in site.store.kinds()
    assert site.daemon.core.state.pool("linux").max_concurrent == 9
    assert site.daemon.setup.pools[0].max_concurrent == 9
    assert Queries(site.daemon, "1").status().needs_restart == ("server.store",)


async def test_nothing_new(site):
    site.prepare()
    assert (await site.reloader.reload("ann")).outcome == "unchanged"


async def test_a_bad_file_changes_nothing_and_health_says_so_until_it_is_mended(site):
    site.prepared = Prepared(None, findings=(FINDING,))
    answer = await site.reloader.reload("ann")
    assert (answer.outcome, answer.findings) == ("refused", (FINDING,))
    assert "unknown key" in answer.detail
    assert "Reconfigured" not in site.store.kinds()
    assert site.told == ["reloading", "ready"]
    health = Queries(site.daemon, "1").health()
    assert health.status == "degraded"
    assert "unknown key" in health.reasons[0]
    site.prepare(CHANGE)
    await site.reloader.reload("ann")
    assert Queries(site.daemon, "1").health().status == "ok"


async def test_what_cannot_be_stored_is_not_applied(site):
    site.prepare(CHANGE, max_concurrent=9)
    await until(lambda: site.daemon.settled)
    site.store.fail = 1
    with pytest.raises(NotTaken):
        await site.reloader.reload("ann")
    assert site.told == ["reloading", "ready"]
    assert site.daemon.setup.pools[0].max_concurrent == 4
    assert (await site.reloader.reload("ann")).outcome == "applied"
    assert site.daemon.core.state.pool("linux").max_concurrent == 9


async def test_a_pool_that_comes_starts_runners_in_a_runtime_of_its_kind(site):
    gpu = Pool("gpu", SCOPE, ("gpu",), "local", "process")
    setup = replace(site.setup, pools=(*site.setup.pools, gpu), hosts=(Host("local", 8),))
    site.prepared = Prepared(setup, (CHANGE,))
    await site.reloader.reload("ann")
    site.daemon.inbox.tell(JobReported(JobReport(fakes.key(5), ForgeStatus.QUEUED, ("gpu",)), Told.WEBHOOK))
    await until(lambda: site.runtime.orders)
    (order,) = site.runtime.orders
    assert order.pool == "gpu"
    site.prepared = Prepared(site.setup, (CHANGE,))
    await site.reloader.reload("ann")
    site.runtime.tell(RunnerId(order.runner), Sign.LISTENING)
    site.runtime.tell(RunnerId(order.runner), Sign.ANNOUNCED)
    await until(lambda: site.daemon.core.state.runners[order.runner].hard is not None)
    assert not site.runtime.named("destroy"), "it works, so it stays although its pool is gone"
    shown = {pool.name: (pool.configured, pool.held) for pool in Queries(site.daemon, "1").pools()}
    assert shown == {"linux": (True, 0), "gpu": (False, 1)}, "it is listed until its last runner is gone"
    site.runtime.exit(RunnerId(order.runner))
    await until(lambda: len(Queries(site.daemon, "1").pools()) == 1)


async def test_a_host_of_which_no_runtime_is_known_is_not_listed_as_empty(site):
    """Otherwise everything that runs there would count as lost."""
    site.daemon.executor.submit((ListEnvironments("elsewhere"),))
    await site.daemon.executor.settled()
    await until(lambda: "EnvironmentsListed" in site.store.kinds())
    last = [entry.event for entry in site.store.entries if entry.event["kind"] == "EnvironmentsListed"][-1]
    assert last["complete"] is False


async def test_a_reload_while_it_stops_is_not_taken(site):
    site.prepare(CHANGE)
    site.daemon.inbox.close()
    with pytest.raises(NotTaken):
        await site.reloader.reload("ann")


async def test_what_is_committed_late_is_applied_although_nobody_waits_any_more(site, monkeypatch):
    """The core serves the new pools from the commit on, so the ports have to know them."""
    monkeypatch.setattr("ephemerd.app.reload.STORE_WAIT", 0)
    site.prepare(CHANGE, max_concurrent=9)
    site.store.gate = asyncio.Event()
    with pytest.raises(NotTaken, match="not committed in time"):
        await site.reloader.reload("ann")
    assert site.told == ["reloading", "ready"]
    site.store.gate.set()
    await until(lambda: site.daemon.setup.pools[0].max_concurrent == 9)
    assert site.told == ["reloading", "ready", "applied"]
