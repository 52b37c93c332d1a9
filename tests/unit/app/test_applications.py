"""The runner application kept current: at the start, renewed, refused, retired, forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ephemerd.app.application_source import FETCHING
from ephemerd.app.applications import WHO, Applications
from ephemerd.app.queries import Queries
from ephemerd.core.events import ApplicationTold, FoundEnvironment
from ephemerd.domain.exits import REFUSED_VERSION
from ephemerd.domain.ids import RunnerId, Scope
from ephemerd.domain.job import ForgeStatus
from ephemerd.domain.pool import DAY, HOUR, MINUTE
from ephemerd.domain.runner import Runner, RunnerState
from ephemerd.domain.verdict import Sign
from ephemerd.ports.applications import Ends, Offered, Unpacked, Use
from ephemerd.ports.errors import Broken, RetryLater
from tests.unit.app.fakes import SCOPE, STORE, FakeStore, idle_report, until
from tests.unit.app.test_daemon import House

NOWHERE = Path("/nowhere")


def offer(version: str = "2.336.0", **changes: Any) -> Offered:
    made = Offered(
        "linux", "x64", version, "https://example.org/a", f"a-{version}.tar.gz", version[::-1] * 16
    )
    return replace(made, **changes)


class FakeCatalogue:
    def __init__(self) -> None:
        self.listed: list[Offered] | Exception = [offer(), offer(system="osx")]
        self.told: dict[str, Ends] | Exception = {}
        self.asked = 0

    async def offered(self, scope: Scope) -> list[Offered]:
        self.asked += 1
        if isinstance(self.listed, Exception):
            raise self.listed
        return self.listed

    async def ends(self, scope: Scope, version: str) -> Ends | None:
        if isinstance(self.told, Exception):
            raise self.told
        return self.told.get(version)


class FakeShelf:
    system, architecture = "linux", "x64"

    def __init__(self) -> None:
        self.found: dict[str, Unpacked] = {}
        self.kept: dict[str, list[Use]] = {}
        self.fetched: list[str] = []
        self.fails: dict[str, Exception] = {}
        self.gate: asyncio.Event | None = None
        self.opened = self.closed = 0

    def _maybe(self, what: str) -> None:
        if what in self.fails:
            raise self.fails[what]

    async def open(self) -> None:
        self._maybe("open")
        self.opened += 1

    async def unpacked(self) -> list[Unpacked]:
        return list(self.found.values())

    async def fetch(self, offered: Offered, progress: Callable[[int, int], None]) -> Unpacked:
        self._maybe("fetch")
        progress(10, 100)
        if self.gate is not None:
            await self.gate.wait()
        self.fetched.append(offered.version)
        made = Unpacked(offered.key, offered.version, Path("/versions") / offered.version, 0)
        self.found[offered.key] = made
        return made

    async def remove(self, key: str) -> None:
        self._maybe("remove")
        del self.found[key]

    async def uses(self) -> dict[str, list[Use]]:
        return self.kept

    async def keep_uses(self, uses: Any) -> None:
        self._maybe("keep")
        self.kept = {scope: list(of_scope) for scope, of_scope in uses.items()}

    async def close(self) -> None:
        self.closed += 1


class Site(House):
    """A daemon whose one pool has its application downloaded. Rounds are made by the test."""

    def __init__(self, shelf: FakeShelf | None = None, store: FakeStore | None = None) -> None:
        super().__init__(store)
        self.shelf, self.catalogue = shelf or FakeShelf(), FakeCatalogue()
        self.changes = 0
        self.applications = Applications(
            self.shelf,
            {"github": self.catalogue},
            {"linux": SCOPE},
            now=self.clock.now,
            nowhere=NOWHERE,
            changed=self._changed,
        )
        self.applications.attach(self.daemon)

    def _changed(self) -> None:
        self.changes += 1

    async def __aenter__(self) -> Site:
        await self.applications.open()
        await super().__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.applications.close()
        await super().__aexit__(*error)

    async def round(self) -> None:
        """Make everything due, do it, and let the core take in what it was told."""
        for source in self.applications._sources.values():
            source.due = 0.0
        await self.applications.round()
        await until(lambda: len(self.daemon.inbox) == 0)
        for _ in range(20):
            await asyncio.sleep(0)

    async def later(self, ms: int) -> None:
        self.clock.ms += ms
        await self.round()

    @property
    def folder(self) -> str:
        return self.applications.folder("linux").name

    @property
    def missing(self) -> str:
        return self.daemon.core.state.pools["linux"].missing

    async def listening(self, number: int = 1) -> Runner:
        self.report(number=number)
        row = await self.runner(RunnerState.STARTING)
        await until(lambda: any(order.runner == row.id for order in self.runtime.orders))
        self.runtime.tell(row.id, Sign.LISTENING)
        found: Runner = await until(lambda: self._in(row, RunnerState.LISTENING))
        return found

    def _in(self, row: Runner, state: RunnerState) -> Runner | None:
        found = self.daemon.core.state.runners[row.id]
        return found if found.state is state else None


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as made:
        yield made


# At the start


async def test_pools_wait_from_the_first_moment_and_begin_when_it_is_there(site):
    assert site.missing == FETCHING
    assert site.applications.folder("linux") == NOWHERE
    await site.report()
    assert not site.forge.named("register")
    await site.round()
    assert (site.folder, site.missing, site.changes) == ("2.336.0", "", 2)
    await until(lambda: site.forge.named("register"))


async def test_the_loop_is_not_held_up_by_a_fetch(site):
    site.shelf.gate = asyncio.Event()
    site.applications.begin()
    await until(lambda: site.applications.views()[0].fetched == 10)
    view = site.applications.views()[0]
    assert (view.fetching, view.version, view.listed, view.pools) == (100, "", "2.336.0", ("linux",))
    await site.report()
    assert site.missing == FETCHING
    site.shelf.gate.set()
    await until(lambda: site.forge.named("register"))
    assert site.applications.views()[0].fetched is None


async def test_what_is_at_hand_is_used_before_anything_is_asked():
    async with Site() as first:
        await first.round()
    async with Site(first.shelf, first.store) as second:
        assert (second.missing, second.folder, second.catalogue.asked) == ("", "2.336.0", 0)
        second.catalogue.listed = RetryLater("no answer")
        await second.round()
        assert (second.missing, second.folder) == ("", "2.336.0")
        assert second.applications.reasons() == []


async def test_a_failure_is_said_and_tried_again(site):
    site.catalogue.listed = RetryLater("no answer within 20 s.")
    await site.round()
    assert site.missing == (
        "its runner application could not be fetched (no answer within 20 s); it is tried again by itself"
    )
    assert "no answer" in site.daemon.core.state.pools["linux"].missing
    site.catalogue.listed = [offer()]
    await site.round()
    assert site.missing == ""


async def test_tries_are_spaced_out_and_a_forge_that_names_a_wait_is_believed(site):
    loop = asyncio.get_running_loop()
    site.shelf.fails["fetch"] = RetryLater("broken off")
    (source,) = site.applications._sources.values()
    waits = []
    for _ in range(6):
        await site.round()
        waits.append(round((source.due - loop.time()) / 10) * 10)
    assert waits == [30, 60, 120, 300, 600, 600]
    site.shelf.fails["fetch"] = RetryLater("limited", after_ms=3_600_000)
    await site.round()
    assert source.due - loop.time() > 3000
    asked = site.catalogue.asked
    await site.applications.round()
    assert site.catalogue.asked == asked, "nothing is due"


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        ([], "offers no runner application for linux x64"),
        ([offer(system="osx")], "offers no runner application"),
    ],
)
async def test_a_platform_that_the_forge_has_nothing_for_is_said(site, listed, why):
    site.catalogue.listed = listed
    await site.round()
    assert why in site.missing
    assert "runner.application" in site.missing


async def test_a_shelf_that_cannot_be_used_is_tried_again(site):
    async with Site() as other:
        pass
    broken = FakeShelf()
    broken.fails["open"] = Broken("another daemon has it")
    async with Site(broken, other.store) as house:
        assert "another daemon has it" in house.missing
        await house.round()
        assert house.catalogue.asked == 0
        del broken.fails["open"]
        await house.round()
        assert house.missing == ""


async def test_a_note_that_cannot_be_written_is_a_failure(site):
    site.shelf.fails["keep"] = Broken("disk full")
    await site.round()
    assert "disk full" in site.missing
    del site.shelf.fails["keep"]
    await site.round()
    assert site.missing == ""
    assert site.shelf.fetched == ["2.336.0"]


async def test_a_forge_that_is_not_connected_is_said(site):
    site.applications.reconfigure({"linux": Scope("other", "repo:acme/app")}, 60.0)
    await site.round()
    assert "restart the daemon" in site.missing


# Renewal


async def test_a_newer_version_is_used_by_new_runners_and_the_old_one_stays(site):
    await site.round()
    row = await site.listening()
    site.catalogue.listed = [offer("2.337.0")]
    await site.later(HOUR)
    assert site.folder == "2.337.0"
    assert site.daemon.core.state.runners[row.id].state is RunnerState.LISTENING
    assert [one.version for one in site.shelf.found.values()] == ["2.336.0", "2.337.0"]
    assert [use.key for use in site.shelf.kept[str(SCOPE)]] == [offer("2.337.0").key, offer().key]
    await site.round()
    assert len(site.shelf.kept[str(SCOPE)]) == 2, "nothing new, nothing written"


async def test_what_the_forge_lists_is_used_even_where_it_goes_back(site):
    site.catalogue.listed = [offer("2.337.0")]
    await site.round()
    site.catalogue.listed = [offer("2.336.0")]
    await site.later(HOUR)
    assert site.folder == "2.336.0"


async def test_that_it_cannot_be_renewed_for_a_day_is_said(site):
    await site.round()
    site.catalogue.listed = RetryLater("no answer")
    await site.round()
    assert site.applications.reasons() == []
    await site.later(DAY)
    (reason,) = site.applications.reasons()
    assert "could not be renewed for" in reason
    assert "2.336.0 is in use" in reason
    site.catalogue.listed = [offer()]
    await site.round()
    assert site.applications.reasons() == []


async def test_views_show_version_age_and_end(site):
    await site.round()
    (view,) = site.applications.views()
    assert (view.version, view.verified, view.listed, view.problem) == ("2.336.0", True, "2.336.0", "")
    assert (view.folder, view.versions, view.refused_from) == ("/versions/2.336.0", ("2.336.0",), None)
    assert view.age_s is not None
    site.catalogue.told = {"2.336.0": Ends(running=site.clock.ms + DAY)}
    await site.round()
    assert site.applications.views()[0].refused_from == site.clock.ms + DAY
    site.catalogue.told = RetryLater("no answer")
    await site.round()
    assert site.applications.views()[0].problem == ""


# A version that is refused


async def test_a_refused_version_is_renewed_at_once_and_the_pool_goes_on(site):
    await site.round()
    row = await site.listening()
    site.catalogue.listed = [offer("2.337.0")]
    site.applications.begin()
    await until(lambda: site.catalogue.asked == 1 and not site.applications._news.is_set())
    site.clock.ms += HOUR
    site.runtime.exit(row.id, REFUSED_VERSION)
    await until(lambda: site.folder == "2.337.0")
    await until(lambda: len(site.forge.named("register")) == 2)
    assert site.daemon.core.state.pools["linux"].refused is None
    assert site.store.kinds().count("ApplicationTold") == 2


async def test_without_a_newer_one_the_pool_rests_and_it_is_said_whose_fault_it_is(site):
    await site.round()
    row = await site.listening()
    site.clock.ms += MINUTE
    site.runtime.exit(row.id, REFUSED_VERSION)
    await until(lambda: site.daemon.core.state.pools["linux"].refused)
    await site.round()
    (source,) = site.applications._sources.values()
    assert source.due - asyncio.get_running_loop().time() < 601
    (reason,) = site.applications.reasons()
    assert "refuses runner application 2.336.0, which is the newest one that it lists" in reason
    assert len(site.forge.named("register")) == 1
    site.catalogue.listed = [offer("2.337.0")]
    await site.round()
    await until(lambda: len(site.forge.named("register")) == 2)
    assert site.applications.reasons() == []


async def test_a_refusal_that_was_taken_back_is_forgotten(site):
    await site.round()
    row = await site.listening()
    site.clock.ms += MINUTE
    site.runtime.exit(row.id, REFUSED_VERSION)
    await until(lambda: site.daemon.core.state.pools["linux"].refused)
    (source,) = site.applications._sources.values()
    await until(lambda: source.refused)
    site.daemon.inbox.tell(ApplicationTold("linux"))
    await until(lambda: not site.daemon.core.state.pools["linux"].refused)
    await site.round()
    assert not source.refused


async def test_an_old_runner_that_is_refused_stops_no_newer_ones(site):
    await site.round()
    row = await site.listening()
    site.catalogue.listed = [offer("2.337.0")]
    await site.later(HOUR)
    asked = site.catalogue.asked
    site.runtime.exit(row.id, REFUSED_VERSION)
    await until(lambda: len(site.forge.named("register")) == 2)
    assert site.catalogue.asked == asked
    assert site.daemon.core.state.pools["linux"].refused is None


async def test_other_exits_and_other_pools_are_nobody_elses_business(site):
    await site.round()
    row = await site.listening()
    (source,) = site.applications._sources.values()
    site.runtime.exit(row.id, 1)
    await until(lambda: site.daemon.core.state.runners[row.id].state is RunnerState.GONE)
    assert not source.refused
    site.applications.reconfigure({}, 60.0)
    second = await site.listening(2)
    site.runtime.exit(second.id, REFUSED_VERSION)
    await until(lambda: site.daemon.core.state.pools["linux"].refused)
    assert not source.refused


# Old runners


async def test_idle_runners_of_a_version_that_ends_soon_go_through_the_gate(site):
    await site.round()
    row = await site.listening()
    site.catalogue.listed = [offer("2.337.0")]
    site.catalogue.told = {"2.336.0": Ends(running=site.clock.ms + DAY + 3 * MINUTE)}
    await site.later(MINUTE)
    assert "KillOrdered" not in site.store.kinds()
    await site.later(MINUTE)
    assert site.daemon.core.state.runners[row.id].order_given is None
    await site.later(2 * MINUTE)
    order = site.daemon.core.state.runners[row.id].order_given
    assert order is not None
    assert (order.who, order.even_if_busy) == (WHO, False)
    assert "2.336.0" in order.reason
    assert "2.337.0" in order.reason
    before = site.store.kinds().count("KillOrdered")
    await site.round()
    assert site.store.kinds().count("KillOrdered") == before


async def test_a_runner_with_a_job_is_never_nominated(site):
    await site.round()
    row = await site.listening()
    await site.report(ForgeStatus.IN_PROGRESS, runner_name=row.id)
    await site.runner(RunnerState.RUNNING)
    site.catalogue.listed = [offer("2.337.0")]
    await site.later(HOUR)
    await site.later(40 * DAY)
    assert "KillOrdered" not in site.store.kinds()
    assert site.daemon.core.state.runners[row.id].order_given is None


# What is forgotten


async def test_old_versions_go_but_for_the_one_before_and_those_of_live_runners(site):
    await site.round()
    row = await site.listening()
    await site.report(ForgeStatus.IN_PROGRESS, runner_name=row.id)
    await site.runner(RunnerState.RUNNING)
    for number in range(337, 340):
        site.catalogue.listed = [offer(f"2.{number}.0")]
        await site.later(HOUR)
    assert site.applications.views()[0].versions == ("2.336.0", "2.338.0", "2.339.0")
    site.runtime.exit(row.id, 0)
    await until(lambda: site.daemon.core.state.runners[row.id].state is RunnerState.GONE)
    await until(lambda: not site.daemon.core.state.runners[row.id].cleanup)
    site.shelf.fails["remove"] = Broken("busy")
    await site.round()
    assert len(site.shelf.found) == 3
    del site.shelf.fails["remove"]
    await site.round()
    assert site.applications.views()[0].versions == ("2.338.0", "2.339.0")


async def test_without_a_memory_nothing_is_removed_while_runners_live(site):
    await site.round()
    await site.listening()
    site.clock.ms += HOUR
    site.shelf.kept = {}
    for version in ("2.100.0", "2.101.0", "2.102.0"):
        made = offer(version)
        site.shelf.found[made.key] = Unpacked(made.key, version, Path("/versions") / version, 0)
    other = Applications(
        site.shelf, {"github": site.catalogue}, {"linux": SCOPE}, now=site.clock.now, nowhere=NOWHERE
    )
    await other.open()
    other.attach(site.daemon)
    await other.round()
    assert len(site.shelf.found) == 4


async def test_nothing_is_removed_while_something_runs_that_nobody_remembers():
    house = Site()
    house.runtime.listed = [FoundEnvironment(RunnerId(f"eph-{STORE}-old-1"), "env-old", "linux", ended=False)]
    house.runtime.answers["probe"] = idle_report(workers=1)
    house.runtime.hold["list"] = asyncio.Event()
    async with house as site:
        await site.round()
        site.clock.ms += HOUR
        house.runtime.hold["list"].set()
        await until(lambda: any(row.leak is not None for row in site.runners()))
        for number in range(337, 341):
            site.catalogue.listed = [offer(f"2.{number}.0")]
            await site.later(HOUR)
        assert len(site.shelf.found) == 5


async def test_nothing_is_removed_before_what_runs_is_known():
    house = Site()
    house.runtime.hold["list"] = asyncio.Event()
    async with house as site:
        for number in range(336, 340):
            site.catalogue.listed = [offer(f"2.{number}.0")]
            await site.later(HOUR)
        assert len(site.shelf.found) == 4
        house.runtime.hold["list"].set()
        await until(lambda: site.daemon.core.state.hosts["local"].listed)
        await site.round()
        assert len(site.shelf.found) == 2


# The configuration changes


async def test_a_pool_that_does_without_waits_no_longer(site):
    site.catalogue.listed = RetryLater("no answer")
    await site.round()
    assert site.missing
    site.applications.reconfigure({}, 60.0)
    await site.round()
    assert site.missing == ""
    assert site.applications.views() == ()
    assert site.applications.held() == ()
    site.applications.reconfigure({"linux": SCOPE}, 60.0)
    site.catalogue.listed = [offer()]
    await site.round()
    assert site.folder == "2.336.0"


def test_what_a_configuration_to_come_would_hold_up(tmp_path):
    made = Applications(FakeShelf(), {}, {}, now=lambda: 0, nowhere=tmp_path)
    assert made.held({"new": SCOPE}) == (("new", FETCHING),)
    assert made.folder("new") == tmp_path


async def test_one_scope_that_fails_in_an_unforeseen_way_keeps_no_other_waiting(site, caplog):
    odd, catalogue = Scope("other", "org:acme"), FakeCatalogue()
    catalogue.listed = ValueError("odd")
    site.applications._catalogues = {"other": catalogue, "github": site.catalogue}
    site.applications.reconfigure({"first": odd, "linux": SCOPE}, 6 * 3600.0)
    await site.round()
    assert (site.missing, site.folder) == ("", "2.336.0")
    source = site.applications._sources[str(odd)]
    assert "unforeseen" in source.missing()
    assert source.due > asyncio.get_running_loop().time()
    assert "odd" in caplog.text


async def test_a_wait_that_is_named_is_believed_up_to_the_pause_between_two_looks(site):
    site.shelf.fails["fetch"] = RetryLater("limited", after_ms=10**15)
    await site.round()
    (source,) = site.applications._sources.values()
    assert source.due - asyncio.get_running_loop().time() <= 6 * 3600.0


async def test_a_round_that_fails_in_an_unforeseen_way_is_made_again(site, caplog):
    site.applications._open = False
    site.shelf.fails["open"] = ValueError("odd")
    site.applications.begin()
    await until(lambda: "looking after runner applications failed" in caplog.text)
    for _ in range(50):
        await asyncio.sleep(0)
    assert caplog.text.count("looking after runner applications failed") == 1, "not again and again"
    site.shelf.fails.clear()
    for source in site.applications._sources.values():
        source.due = 0.0
    site.applications._news.set()
    await until(lambda: site.folder == "2.336.0")


async def test_closing_lets_go_of_the_folder(site):
    site.applications.begin()
    await site.applications.close()
    assert site.shelf.closed == 1


async def test_status_health_and_hosts_show_it(site):
    queries = Queries(site.daemon, "1.2.3", site.applications)
    assert queries.status().applications == site.applications.views()
    assert queries.hosts()[0].applications == ()
    await site.round()
    assert queries.hosts()[0].applications == ("2.336.0",)
    site.catalogue.listed = RetryLater("no answer")
    await site.round()
    await site.later(2 * DAY)
    assert [reason for reason in queries.health().reasons if "could not be renewed" in reason]
    assert Queries(site.daemon, "1.2.3").status().applications == ()
