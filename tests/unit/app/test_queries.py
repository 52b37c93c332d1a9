"""The views: true to the state, paged, and complete in what they name."""

from __future__ import annotations

import pytest

from ephemerd.app import records
from ephemerd.app.operator import Operator
from ephemerd.app.queries import SILENT_AFTER, BadCursor, Queries
from ephemerd.app.records import MOST, clamp
from ephemerd.core import codec
from ephemerd.core.machine import RULES
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import ForgeStatus, JobStatus
from ephemerd.domain.runner import Decision, RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.app.fakes import STORE, T0, idle_report, until
from tests.unit.app.test_daemon import House
from tests.unit.app.test_operator import listening


@pytest.fixture
async def house():
    async with House() as made:
        yield made


@pytest.fixture
def queries(house):
    return Queries(house.daemon, "1.2.3")


async def test_status_of_an_idle_daemon(house, queries):
    await until(lambda: house.daemon.settled)
    status = queries.status()
    assert (status.version, status.store, status.epoch) == ("1.2.3", STORE, house.daemon.pulse.epoch)
    assert status.health.status == "ok"
    assert status.ready
    assert not status.draining
    assert not status.stopping
    assert status.jobs == {status.value: 0 for status in JobStatus}
    assert status.runners == {state.value: 0 for state in RunnerState}
    assert (status.slots, status.slots_held, status.slot_accounting_difference) == (4, 0, 0)
    assert status.now == status.started == status.heartbeat == T0
    assert status.reconciled == {"github/repo:acme/app": T0}
    assert [(rate.forge, rate.remaining) for rate in status.rates] == [("github", 4990)]


async def test_status_counts_jobs_runners_and_slots(house, queries):
    await listening(house)
    await house.report(ForgeStatus.COMPLETED, 2, conclusion="success")
    status = queries.status()
    assert (status.jobs["queued"], status.jobs["done"]) == (1, 1)
    assert status.runners["listening"] == 1
    assert (status.slots_held, status.slot_accounting_difference) == (1, 0)
    (pool,) = queries.pools()
    assert (pool.name, pool.forge, pool.scope) == ("linux", "github", "github/repo:acme/app")
    assert (pool.held, pool.queued, pool.runners["listening"]) == (1, 1, 1)
    assert pool.orphan_grace_s == 600.0
    assert pool.job_timeout_s is None
    (host,) = queries.hosts()
    assert (host.slots, host.held, host.free, host.abandoned, host.cordoned) == (4, 1, 3, 0, False)


async def test_a_runner_as_it_is(house, queries):
    name = await listening(house)
    house.pass_time(2_000)
    view = queries.runner(name)
    assert (view.id, view.pool, view.state, view.bound) == (name, "linux", "listening", "")
    assert view.intent == "github/acme/app/1"
    assert view.since_s == 2.0
    house.runtime.tell(name, Sign.OFFERED)
    await house.runner(RunnerState.ASSIGNED)
    assert queries.runner(name).bound == "soft"
    house.runtime.tell(name, Sign.ANNOUNCED)
    await house.runner(RunnerState.RUNNING)
    assert queries.runner(name).bound == "hard"
    assert queries.runner("nobody") is None


async def test_a_job_as_it_is(house, queries):
    await house.report()
    house.pass_time(3_000)
    view = queries.job("github/acme/app/1")
    assert (view.status, view.waited_s, view.labels, view.number) == ("queued", 3.0, ("linux",), 1)
    assert view.why
    await house.report(ForgeStatus.IN_PROGRESS, runner_name="somebody-else")
    view = queries.job("github/acme/app/1")
    assert (view.status, view.runner, view.ours, view.why) == ("running", "somebody-else", False, "")
    assert queries.job("github/acme/app/2") is None
    assert queries.job("nonsense") is None


async def test_jobs_are_paged_newest_first(house, queries):
    for number in range(1, 6):
        await house.report(number=number)
    first = queries.jobs(limit=2)
    assert [job.number for job in first.items] == [5, 4]
    second = queries.jobs(limit=2, after=first.next)
    assert [job.number for job in second.items] == [3, 2]
    third = queries.jobs(limit=2, after=second.next)
    assert [job.number for job in third.items] == [1]
    assert third.next is None


async def test_jobs_by_status(house, queries):
    await house.report(number=1)
    await house.report(ForgeStatus.COMPLETED, 2, conclusion="success")
    assert [job.number for job in queries.jobs(status="done").items] == [2]
    assert [job.number for job in queries.jobs(status="active").items] == [1]
    assert [job.number for job in queries.jobs().items] == [2, 1]


async def test_runners_by_pool_and_state(house, queries):
    name = await listening(house)
    assert [row.id for row in queries.runners(pool="linux", state="listening").items] == [name]
    assert queries.runners(pool="mac").items == ()
    assert queries.runners(state="gone").items == ()
    (only,) = house.daemon.core.state.runners.values()
    assert queries.runners(limit=1).next is None
    assert queries.runners(limit=1, after=str(only.order)).items == ()
    assert queries.runners(host="local").items != queries.runners(host="elsewhere").items == ()


async def vetoed(house: House) -> RunnerId:
    """Bring about one decision: a probe that vetoes."""
    name = await listening(house)
    house.runtime.answers["probe"] = idle_report(workers=1)
    house.pass_time(house.daemon.setup.pools[0].orphan_grace + 1_000)
    await until(lambda: house.store.made)
    return RunnerId(name)


async def test_decisions_and_the_story_that_holds_them(house, queries):
    name = await vetoed(house)
    (decision,) = (await queries.decisions(runner=name)).items
    assert (decision.outcome, decision.verdict, decision.runner) == ("vetoed", "busy", name)
    assert decision.evidence[0].verdict == "busy"
    assert (await queries.decisions(outcome="reaped")).items == ()
    story = await queries.story(name)
    assert story.kind == "runner"
    assert story.runner.id == name
    kinds = [line.kind for line in story.lines]
    assert "Registered" in kinds
    assert "Decision" in kinds
    assert [line.at for line in story.lines] == sorted(line.at for line in story.lines)
    assert await queries.story("nobody") is None


async def test_the_story_of_a_job(house, queries):
    await house.report()
    story = await queries.story("github/acme/app/1")
    assert (story.kind, story.job.status) == ("job", "queued")
    assert story.lines[0].kind == "JobReported"


async def test_a_record_that_cannot_be_read_is_a_line_of_its_own(house, queries):
    await house.report()
    entry = next(entry for entry in house.store.entries if entry.event["kind"] == "JobReported")
    entry.event["kind"] = "Unheard"
    story = await queries.story("github/acme/app/1")
    assert "this version cannot read" in story.lines[0].text


async def test_the_journal_is_paged(house, queries):
    for number in range(3):
        await house.report(number=number)
    page = await queries.journal(limit=2)
    assert [entry.seq for entry in page.items] == [1, 2]
    page = await queries.journal(after=int(page.next), limit=1000)
    assert page.items[0].seq == 3
    assert page.next is None


async def test_a_segment_is_shown_with_the_rows_it_starts_from(house, queries):
    first = await queries.segment()
    assert first == await queries.segment(first.number)
    assert (first.rules, first.first_seq, first.rows) == (RULES, 1, {}), "a new store starts from nothing"
    await listening(house)
    await house.daemon.stop(bound=1)
    async with House(house.store) as second:
        queries = Queries(second.daemon, "1.2.3")
        newest = await queries.segment()
        assert newest.number > first.number
        assert set(newest.rows) >= {"runner", "job", "counter"}
        assert await queries.segment(newest.number + 1) is None


async def test_near_finds_the_gone_and_the_living(house, queries):
    name = await listening(house)
    assert name in await queries.near(name[4:])
    assert "github/acme/app/1" in await queries.near("acme/app")
    assert await queries.near("") == ()


async def test_health_knows_what_the_shell_knows(house, queries):
    assert queries.health().status == "ok"
    house.daemon.pulse.quarantined = 2
    health = queries.health()
    assert health.status == "degraded"
    assert "2 events" in health.reasons[0]
    house.daemon.pulse.error = "NotStored: no space left"
    health = queries.health()
    assert health.status == "stuck"
    assert "no space left" in health.reasons[0]
    house.daemon.pulse.error = ""


async def test_a_loop_that_does_not_turn_is_stuck(house, queries):
    house.clock.ms += SILENT_AFTER + 1
    assert queries.health().status == "stuck"
    assert "main loop" in queries.health().reasons[-1]
    house.daemon.inbox.nudge()
    await until(lambda: queries.health().status == "ok")


async def test_the_snapshot_holds_the_cores_counters(house, queries):
    await vetoed(house)
    counters = queries.snapshot().counters
    assert counters["orphan_reap_decisions_total|outcome=vetoed|verdict=busy"] == 1


def test_pages_are_bounded():
    assert (clamp(0), clamp(5), clamp(10**9)) == (1, 5, MOST)


async def test_who_cordoned_and_for_how_long(house, queries):
    operator = Operator(house.daemon)
    await operator.cordon("ann", "all", "", "new disk")
    house.clock.ms += 90_000
    (pool,), (host,) = queries.pools(), queries.hosts()
    assert (pool.cordoned, pool.cordoned_by, pool.cordoned_s) == (True, "ann: new disk", 90.0)
    assert (host.cordoned, host.cordoned_by, host.cordoned_s) == (False, "", None)
    await operator.drain("bob", "host", "local")
    (pool,), (host,) = queries.pools(), queries.hosts()
    assert (pool.cordoned_by, host.cordoned_by, host.cordoned_s) == ("bob", "bob", 0.0)
    await operator.uncordon("bob", "host", "local")
    await operator.uncordon("ann", "all")
    (pool,) = queries.pools()
    assert (pool.cordoned, pool.cordoned_by, pool.cordoned_s) == (False, "", None)


def made(number: int, verdict: str = "busy", rule: str = "expired") -> dict[str, object]:
    """A decision as the store keeps it."""
    runner = RunnerId("eph-s0000001-abcd-1")
    decision = Decision(
        number, T0, runner, "linux", 1, rule, "vetoed", verdict, "probe", "it works", 1, 2, ()
    )
    return codec.encode_decision(decision)


@pytest.mark.parametrize("newest", [False, True])
async def test_decisions_by_what_the_store_has_no_index_of(house, queries, monkeypatch, newest):
    """However many are looked through at a time, each that is wanted comes once, in order."""
    house.store.made = [made(number, "unknown" if number % 3 == 0 else "busy") for number in range(1, 31)]
    wanted = [number for number in range(1, 31) if number % 3 == 0]
    wanted = wanted[::-1] if newest else wanted
    for at_once, through, limit in ((7, 7, 2), (1, 1, 1), (4, 100, 3), (100, 100, 100), (10, 20, 10)):
        monkeypatch.setattr(records, "LOOKED_AT_ONCE", at_once)
        monkeypatch.setattr(records, "LOOKED_THROUGH", through)
        found, after = [], 0
        while True:
            page = await queries.decisions(
                after=after,
                limit=limit,
                newest=newest,
                only={"verdict": "unknown", "rule": "", "via": "probe"},
            )
            assert len(page.items) <= limit
            found += [view.id for view in page.items]
            if page.next is None:
                break
            after = int(page.next)
        assert found == wanted, (at_once, through, limit)
    monkeypatch.setattr(records, "LOOKED_THROUGH", 100)
    nothing = await queries.decisions(only={"rule": "leaked"})
    assert (nothing.items, nothing.next) == ((), None)


async def test_a_full_last_page_has_no_next(house, queries):
    house.store.made = [made(number) for number in range(1, 5)]
    assert (await queries.decisions(limit=4)).next is None
    assert (await queries.decisions(limit=3)).next == "3"
    for number in range(1, 4):
        await house.report(number=number)
    await until(lambda: house.daemon.settled)
    count = len(house.store.entries)
    assert (await queries.journal(limit=count)).next is None
    assert (await queries.journal(limit=count - 1)).next == str(count - 1)


async def test_pools_and_hosts_are_paged_by_name(house, queries):
    for page, name in ((queries.pool_page, "linux"), (queries.host_page, "local")):
        assert [view.name for view in page().items] == [name]
        assert page(limit=1).next is None
        assert page(after=name).items == ()
        with pytest.raises(BadCursor, match="begin without"):
            page(after="gone")


async def test_jobs_by_repository(house, queries):
    await house.report()
    assert [job.number for job in queries.jobs(repository="ACME/app").items] == [1]
    assert queries.jobs(repository="acme/other").items == ()
