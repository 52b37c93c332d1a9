"""Lost deliveries come back: when they are looked for, which are fetched, and that each is handled once; in virtual
time."""

from __future__ import annotations

import asyncio
import itertools

import msgspec
import pytest

from ephemerd.app import trail, trust
from ephemerd.app.catchup import BARRED_FOR, SOON, CatchUp
from ephemerd.app.queries import Queries
from ephemerd.app.trail import HORIZON, MOST_PAGES, MOST_READS, Found
from ephemerd.app.trust import GRACE, Standing
from ephemerd.core.events import JobsRead, MachineSlept, ScopeAnswered
from ephemerd.domain.ids import JobKey
from ephemerd.domain.job import ForgeStatus, JobStatus, Origin, Told
from ephemerd.ports.errors import Denied, Gone, Limited, NotSent, Refused, RetryLater
from ephemerd.ports.store import DeliveryId
from ephemerd.ports.webhooks import Delivery
from tests.unit.app.fakes import SCOPE, key, report, until
from tests.unit.app.hooked import FakeLog, Hooked, virtual

EVERY, PAUSE = 300.0, 60.0
"""Seconds: `reconcile_every`, and `try_silent_every`, which lies between two passes at least."""
Q, P, C = ForgeStatus.QUEUED, ForgeStatus.IN_PROGRESS, ForgeStatus.COMPLETED


def now() -> float:
    return asyncio.get_running_loop().time()


def times(log: FakeLog) -> list[float]:
    """When the list was looked at, in seconds from the beginning."""
    return [round(at - 1000) for at in log.looked_at]


# When


@virtual
async def test_a_pass_at_the_start_and_then_at_every_reconcile():
    async with Hooked() as house:
        await asyncio.sleep(EVERY * 3 + 1)
        assert times(house.log) == [0, 300, 600, 900]
        assert house.log.calls == ["failed"] * 4, "one question each, while nothing failed"


@virtual
async def test_what_failed_while_we_were_away_is_there_right_after_the_start():
    house = Hooked()
    house.log.fail(1, ago=30)
    async with house:
        await asyncio.sleep(0.1)
        assert house.daemon.core.state.jobs[key(1)].status is JobStatus.QUEUED
        assert house.knows("1-queued")
        assert house.recovered() == 1
        assert house.runners(), "its runner is on the way"


@virtual
async def test_a_delivery_that_was_turned_away_is_fetched_soon_after():
    async with Hooked() as house:
        await asyncio.sleep(PAUSE + 1)
        house.store.fail = 1
        before = now()
        taken, _ = await house.intake.take("github", {}, b"{}")
        assert taken.value == "not_stored"
        house.log.fail(1, delivery="d1")
        await asyncio.sleep(SOON + 1)
        assert house.log.looked_at[-1] - before <= SOON + 1
        assert house.knows("d1")


@virtual
async def test_bodies_that_were_refused_for_our_sake_are_a_reason_and_a_strangers_are_none():
    async with Hooked() as house:
        await asyncio.sleep(PAUSE + 1)
        for result in ("bad_signature", "malformed", "wrong_type", "too_large"):
            house.intake.refused("github", result)
        await asyncio.sleep(SOON + 1)
        assert times(house.log) == [0]
        house.intake.refused("github", "overloaded")
        house.intake.refused("github", "too_slow")
        await asyncio.sleep(SOON + 1)
        assert len(house.log.looked_at) == 2
        house.intake.refused("elsewhere", "overloaded")
        await asyncio.sleep(PAUSE)
        assert len(house.log.looked_at) == 2, "another forge's trouble"


@virtual
async def test_a_job_that_a_listing_shows_first_is_a_reason_and_one_that_was_told_of_is_none():
    async with Hooked() as house:
        await asyncio.sleep(PAUSE + 1)
        await house.report(Q, 1)
        house.daemon.inbox.tell(JobsRead(SCOPE, (report(1), report(2, C))))
        await asyncio.sleep(SOON + 1)
        assert times(house.log) == [0], "an end that was missed needs no delivery"
        house.daemon.inbox.tell(JobsRead(SCOPE, (report(1), report(3))))
        await asyncio.sleep(SOON + 1)
        assert len(house.log.looked_at) == 2


@virtual
async def test_a_machine_that_slept_is_a_reason_and_many_reasons_make_one_pass_a_minute():
    async with Hooked() as house:
        house.daemon.inbox.tell(MachineSlept(3_600_000))
        await asyncio.sleep(PAUSE - 2)
        assert times(house.log) == [0], "not again within the least pause"
        for _ in range(50):
            house.intake.refused("github", "overloaded")
        await asyncio.sleep(EVERY - PAUSE)
        assert times(house.log) == [0, 60]


@virtual
async def test_a_reason_that_comes_during_a_pass_brings_another():
    house = Hooked()
    gate = asyncio.Event()
    read = house.log.failed

    async def slow(older: str = ""):
        found = await read(older)
        await gate.wait()
        return found

    house.log.failed = slow  # type: ignore[method-assign]
    async with house:
        await asyncio.sleep(1)
        house.catch_up.missed("github")
        house.log.fail(1)
        gate.set()
        await asyncio.sleep(PAUSE + 1)
        assert times(house.log) == [0, 60]
        assert house.knows("1-queued")


# Which


@virtual
async def test_each_delivery_is_handled_once_however_often_it_is_listed():
    house = Hooked()
    name = house.log.fail(1, ago=20)
    house.log.fail(1, ago=10, delivery=name)  # tried again, in vain
    async with house:
        await asyncio.sleep(EVERY * 3)
        assert len(house.told()) == 1
        assert house.log.reads() == [2], "one try of it was read, once"
        reply = house.daemon.inbox.offer(house.told()[0], delivery=DeliveryId("github", name))
        assert (await reply).fate.value == "duplicate"  # type: ignore[misc]


@virtual
async def test_what_came_through_by_itself_is_not_fetched_and_neither_is_what_is_not_used():
    house = Hooked()
    house.log.chooses = False
    house.log.fail(1, ago=30)
    house.log.fail(1, ago=20, good=True, outcome="OK", code=202)
    house.log.fail(2, ago=10, delivery="live")
    house.log.fail(3, delivery="push", used=False, event="push")
    house.log.fail(4, delivery="")
    house.store.known.add(DeliveryId("github", "live"))
    async with house:
        await asyncio.sleep(1)
        assert house.log.reads() == [5]
        await asyncio.sleep(EVERY)
        assert house.log.reads() == [5]


@virtual
async def test_after_a_restart_the_store_knows_what_was_fetched():
    house = Hooked()
    house.log.fail(1, ago=20)
    async with house:
        await asyncio.sleep(1)
    again = Hooked(store=house.store)
    again.logs[0].tries, again.logs[0].held = house.log.tries, house.log.held
    again.log.fail(2, ago=5)
    async with again:
        await asyncio.sleep(1)
        assert again.log.reads() == [2]


@virtual
async def test_the_newest_comes_first_so_that_a_job_that_is_over_gets_no_runner():
    house = Hooked()
    house.log.fail(1, Q, ago=50)
    house.log.fail(1, C, ago=40, told=report(1, C, conclusion="cancelled"))
    async with house:
        await asyncio.sleep(5)
        assert [event.report.status for event in house.told()] == [C, Q]
        assert house.daemon.core.state.jobs[key(1)].status is JobStatus.DONE
        assert not house.runners()


@virtual
async def test_an_old_word_that_a_job_is_queued_is_made_sure_of():
    house = Hooked()
    house.forge.answers["job"] = lambda asked: {
        1: report(1, C, conclusion="success"),
        2: report(2, Q, name="now"),
        3: Gone("deleted"),
        4: Denied("no leave to read jobs"),
    }[asked.id]
    for number in (1, 2, 3, 4):
        told = report(number, Q, origin=Origin(public=False, fork=False))
        house.log.fail(number, ago=3600 + number, told=told)
    house.log.fail(5, Q, ago=59)
    async with house:
        await asyncio.sleep(1)
        jobs = house.daemon.core.state.jobs
        assert jobs[key(1)].status is JobStatus.DONE
        assert (jobs[key(2)].status, jobs[key(2)].name) == (JobStatus.QUEUED, "now")
        assert (jobs[key(2)].public, jobs[key(2)].fork) == (False, False), "as the delivery told"
        assert key(3) not in jobs
        assert jobs[key(4)].status is JobStatus.QUEUED
        assert [event.told for event in house.told()] == [*[Told.WEBHOOK] * 2, *[Told.LOOKUP] * 2]
        asked = [call[1] for call in house.forge.named("job")]
        assert asked[:4] == [key(4), key(3), key(2), key(1)]
        assert house.recovered("unused") == 1
        await asyncio.sleep(EVERY)
        assert len(house.log.reads()) == 5, "what is gone is not read again"


@virtual
async def test_a_job_that_is_known_to_be_over_is_not_asked_about():
    async with Hooked() as house:
        await house.report(C, 1, conclusion="success")
        asked = len(house.forge.named("job"))
        house.log.fail(1, Q, ago=3600)
        await asyncio.sleep(EVERY + 1)
        assert house.knows("1-queued")
        assert len(house.forge.named("job")) == asked


@virtual
async def test_what_is_of_no_use_is_read_once():
    house = Hooked()
    house.log.fail(1, delivery="null")
    house.log.held[1] = Delivery("null", "workflow_job", None, "no job in the payload")
    other = msgspec.structs.replace(report(7), key=JobKey("github", "other/tool", 7))
    house.log.fail(7, delivery="far", told=other, repository=77)
    house.log.fail(8, delivery="far too", told=other, repository=77)
    house.log.fail(9, delivery="forgotten")
    del house.log.held[4]
    house.log.fail(10, delivery="no body")
    house.log.wrong["read:5"] = Refused("no payload")
    async with house:
        await asyncio.sleep(EVERY * 2)
        assert sorted(house.log.reads()) == [1, 2, 3, 4, 5]
        house.log.fail(11, delivery="far again", told=other, repository=77)
        await asyncio.sleep(EVERY)
        assert 6 not in house.log.reads(), "a repository that is nobody's here is known by its number"
        counted = {name: house.recovered(name) for name in ("unused", "foreign", "unreadable", "stored")}
        assert counted == {"unused": 1, "foreign": 2, "unreadable": 2, "stored": 0}
        assert house.told() == []


# How far


@virtual
async def test_pages_are_followed_to_what_the_pass_before_had_settled():
    house = Hooked()
    house.log.page = 2
    for number in range(1, 8):
        house.log.fail(number, C, ago=10_000 - number * 1000)
    async with house:
        await asyncio.sleep(1)
        assert house.log.calls.count("failed 6") == 1
        assert len(house.log.reads()) == 7
        house.log.calls.clear()
        house.log.fail(8, C)
        house.log.fail(9, C)
        house.log.fail(10, C)
        await asyncio.sleep(EVERY)
        assert [call for call in house.log.calls if call.startswith("failed")] == [
            "failed",
            "failed 2",
            "failed 4",
        ]
        assert house.knows("8-completed", "9-completed", "10-completed")


@virtual
async def test_what_is_older_than_three_days_is_left_and_pages_are_bounded():
    house = Hooked()
    house.log.page = 1
    house.log.fail(1, ago=HORIZON / 1000 + 60)
    house.log.fail(2, ago=HORIZON / 1000 + 30)
    house.log.fail(3, C)
    async with house:
        await asyncio.sleep(1)
        assert [call for call in house.log.calls if call.startswith("failed")] == ["failed", "failed 1"]
        for number in range(MOST_PAGES * 2):
            house.log.fail(number + 10, C, delivery="ping", used=False)
        house.log.calls.clear()
        await asyncio.sleep(EVERY)
        assert len(house.log.calls) == MOST_PAGES


@virtual
async def test_a_long_outage_is_fetched_in_pieces_and_nothing_is_read_twice():
    house = Hooked()
    for number in range(MOST_READS * 2 + 50):
        house.log.fail(number + 1, C, ago=4000 - number)
    async with house:
        await asyncio.sleep(1)
        assert len(house.log.reads()) == MOST_READS
        assert house.daemon.pulse.recoveries[str(SCOPE)].looked is None, "not through yet"
        await asyncio.sleep(PAUSE * 2)
        assert sorted(house.log.reads()) == list(range(1, MOST_READS * 2 + 51))
        assert sorted(set(times(house.log))) == [0, 60, 120]
        view = house.daemon.pulse.recoveries[str(SCOPE)]
        assert (view.recovered, view.looked is not None) == (MOST_READS * 2 + 50, True)


# What goes wrong


@virtual
async def test_an_outage_in_the_middle_of_a_listing_goes_on_where_it_was():
    house = Hooked()
    house.log.page = 2
    for number in range(1, 7):
        house.log.fail(number, C, ago=100 - number)
    house.log.wrong["read:3"] = RetryLater("no answer")
    async with house:
        await asyncio.sleep(1)
        assert house.log.reads() == [6, 5, 4, 3]
        del house.log.wrong["read:3"]
        await asyncio.sleep(PAUSE)
        assert house.log.reads() == [6, 5, 4, 3, 3, 2, 1]
        assert len(house.told()) == 6


@virtual
async def test_a_delivery_that_never_can_be_read_holds_nothing_up():
    house = Hooked()
    for number in (1, 2, 3):
        house.log.fail(number, C)
    house.log.wrong["read:2"] = RetryLater("too large")
    async with house:
        await asyncio.sleep(PAUSE + 1)
        assert house.log.reads() == [3, 2, 2, 1]
        assert house.recovered("unreadable") == 1
        await asyncio.sleep(EVERY)
        assert house.log.reads() == [3, 2, 2, 1]


@virtual
async def test_a_job_that_nobody_can_be_asked_about_is_believed_in_the_end():
    house = Hooked()
    house.forge.answers["job"] = RetryLater("no answer")
    house.log.fail(1, ago=3600)
    async with house:
        await asyncio.sleep(1)
        assert house.told() == []
        await asyncio.sleep(PAUSE * 2)
        assert [event.told for event in house.told()] == [Told.WEBHOOK]


@virtual
async def test_passes_that_get_no_answer_come_ever_more_rarely():
    house = Hooked()
    house.log.wrong["failed"] = RetryLater("503")
    async with house:
        await asyncio.sleep(1000)
        assert times(house.log) == [0, 60, 180, 420, 720]
        del house.log.wrong["failed"]
        await asyncio.sleep(EVERY)
        house.log.wrong["failed"] = RetryLater("503")
        await asyncio.sleep(EVERY + PAUSE + 10)
        assert times(house.log)[-3:] == [1320, 1380, 1500], "it begins anew"


@virtual
async def test_a_limit_and_a_spent_budget_are_waited_for():
    house = Hooked()
    house.log.wrong["failed"] = Limited("a limit", after_ms=1_800_000)
    async with house:
        await asyncio.sleep(1)
        house.catch_up.missed("github")
        house.log.wrong["failed"] = NotSent("kept for registrations", after_ms=90_000)
        await asyncio.sleep(1799)
        waited = times(house.log)
        assert all(b - a >= 60 for a, b in itertools.pairwise(waited))


@virtual
async def test_a_budget_that_runs_out_in_the_middle_is_no_failure_of_a_delivery():
    house = Hooked()
    for number in (1, 2):
        house.log.fail(number, C)
    house.log.fail(3, Q, ago=3600)
    house.log.wrong["read:2"] = NotSent("kept for registrations", after_ms=200_000)
    house.forge.answers["job"] = Limited("a limit", after_ms=100_000)
    async with house:
        await asyncio.sleep(99)
        assert (house.log.reads(), house.told()) == ([3], [])
        house.forge.answers["job"] = report(3)
        await asyncio.sleep(3)
        assert house.log.reads() == [3, 3, 2]
        for _ in range(3):
            await asyncio.sleep(200)
        del house.log.wrong["read:2"]
        await asyncio.sleep(200)
        assert house.knows("1-completed", "2-completed", "3-queued")
        assert house.recovered("unreadable") == 0


@virtual
async def test_a_stranger_without_a_number_is_known_by_the_delivery_and_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(trail, "REMEMBERED", 2)
    house = Hooked()
    other = msgspec.structs.replace(report(7), key=JobKey("github", "other/tool", 7))
    for number in (1, 2, 3):
        house.log.fail(number, delivery=f"far {number}", told=other, repository=None)
    async with house:
        await asyncio.sleep(1)
        assert house.log.reads() == [3, 2, 1]
        await asyncio.sleep(EVERY)
        assert house.log.reads()[3:] == [3], "the oldest was forgotten"
        assert house.recovered("foreign") == 4


@virtual
async def test_a_scope_that_gives_no_answer_is_not_asked_for_what_can_wait():
    async with Hooked() as house:
        await asyncio.sleep(1)
        house.daemon.inbox.tell(ScopeAnswered(SCOPE, limited_until=house.clock.now() + 600_000))
        await asyncio.sleep(599)
        assert times(house.log) == [0]
        await asyncio.sleep(PAUSE + 1)
        assert len(house.log.looked_at) == 2


@virtual
async def test_a_permission_that_is_missing_is_told_once_and_seldom_tried(caplog):
    house = Hooked()
    house.log.wrong["failed"] = Denied("the token may not do this; it needs repository_hooks=read")
    async with house:
        await asyncio.sleep(60)
        for _ in range(10):
            house.catch_up.missed("github")
        await asyncio.sleep(BARRED_FOR * 2)
        assert times(house.log) == [0, 3600, 7200]
        told = [
            one for one in caplog.records if one.levelname == "WARNING" and "failed deliveries" in one.message
        ]
        assert len(told) == 1
        assert "repository_hooks=read" in str(told[0].__dict__["fields"])
        (view,) = Queries(house.daemon, "1").status().recoveries
        assert "repository_hooks=read" in view.problem
        assert Queries(house.daemon, "1").health().status == "ok", "the reconcile goes on alone"
        del house.log.wrong["failed"]
        await asyncio.sleep(BARRED_FOR)
        (view,) = Queries(house.daemon, "1").status().recoveries
        assert view.problem == ""


@virtual
async def test_a_hook_that_is_made_after_the_start_is_found_when_it_delivers():
    house = Hooked()
    house.log.wrong["failed"] = Refused("no hook of repo:acme/app leads here")
    async with house:
        await asyncio.sleep(100)
        del house.log.wrong["failed"]
        await house.intake.take("github", {}, b"{}")
        await asyncio.sleep(SOON + 1)
        assert times(house.log) == [0, 102]
        assert house.daemon.pulse.recoveries[str(SCOPE)].problem == ""
        house.log.wrong["failed"] = Refused("no hook of repo:acme/app leads here")
        await asyncio.sleep(EVERY)
        for _ in range(20):
            await house.intake.take("github", {}, b"{}")
            await asyncio.sleep(60)
        assert times(house.log) == [0, 102, 402], (
            "another hook tells of the jobs: that is not asked again and again"
        )


@virtual
async def test_a_store_that_takes_nothing_ends_the_pass_and_what_is_left_comes_later(caplog):
    house = Hooked()
    for number in (1, 2, 3):
        house.log.fail(number, C)
    async with house:
        await until(house.log.reads)
        house.store.fail = 1
        await asyncio.sleep(PAUSE * 4)
        assert house.knows("1-completed", "2-completed", "3-completed")
        assert [event.report.key.id for event in house.told()].count(2) == 1


@virtual
async def test_a_mistake_in_an_adapter_is_logged_and_the_next_pass_comes(caplog):
    house = Hooked()
    house.log.wrong["failed"] = ValueError("odd")
    async with house:
        await asyncio.sleep(EVERY + 1)
        assert times(house.log) == [0, 300]
        assert "looking for failed deliveries failed" in caplog.text


@virtual
async def test_several_hooks_are_followed_one_after_the_other_and_can_be_replaced():
    house = Hooked(logs=("github/repo:acme/app", "github/app"))
    house.logs[1].fail(1, C)
    async with house:
        await asyncio.sleep(1)
        assert [len(log.looked_at) for log in house.logs] == [1, 1]
        other = FakeLog(house.loop_clock, "github/app")
        house.catch_up.replace([other])
        await asyncio.sleep(EVERY + 1)
        assert [len(log.looked_at) for log in (*house.logs, other)] == [1, 1, 2]
        (view,) = Queries(house.daemon, "1").status().recoveries
        assert (view.hook, view.recovered) == ("github/app", 1)
        house.catch_up.replace([])
        await asyncio.sleep(EVERY * 2)
        assert len(other.looked_at) == 2
        house.catch_up.begin()  # twice is once


@virtual
async def test_without_a_hook_nothing_is_asked():
    house = Hooked(logs=())
    async with house:
        house.catch_up.missed("github")
        await asyncio.sleep(EVERY)
        assert Queries(house.daemon, "1").status().recoveries == ()
    assert isinstance(house.catch_up, CatchUp)


# What a person is told


@virtual
async def test_a_pass_that_found_something_leaves_a_line(caplog):
    caplog.set_level("INFO")
    house = Hooked()
    house.log.fail(1)
    async with house:
        await asyncio.sleep(EVERY * 2)
        lines = [
            one for one in caplog.records if one.message == "failed deliveries were fetched from the forge"
        ]
        assert len(lines) == 1
        assert lines[0].__dict__["fields"] == {"hook": str(SCOPE), "stored": 1, "pages": 1, "more": False}


@virtual
async def test_health_says_when_nothing_comes_through_and_stops_when_something_does():
    async with Hooked() as house:
        queries = Queries(house.daemon, "1")
        await asyncio.sleep(EVERY * 2)
        house.log.fail(1, C, delivery="a")
        house.log.fail(2, C, delivery="b")
        await asyncio.sleep(EVERY * 3)
        assert queries.health().status == "ok", "two are no rule"
        house.log.fail(3, C, delivery="c", code=401, outcome="Invalid HTTP Response: 401")
        await asyncio.sleep(EVERY)
        (view,) = queries.status().recoveries
        assert "Invalid HTTP Response: 401" in view.failing
        assert "webhook install" in view.failing
        assert queries.health().status == "degraded"
        assert view.failing in queries.health().reasons
        await house.intake.take("github", {}, b"{}")
        assert queries.health().status == "ok"


@virtual
async def test_health_is_silent_about_failures_of_the_time_before_the_start_and_of_long_ago():
    house = Hooked()
    for number in (1, 2, 3, 4):
        house.log.fail(number, C, ago=3000 - number)
    async with house:
        queries = Queries(house.daemon, "1")
        await asyncio.sleep(EVERY * 4)
        assert queries.health().status == "ok"
        for number in (5, 6, 7):
            house.log.fail(number, C, outcome="", code=502)
        await asyncio.sleep(EVERY * 3)
        assert "proxy" in queries.status().recoveries[0].failing
        await asyncio.sleep(EVERY * 3)
        assert queries.health().status == "ok", "nothing was sent for a long time: nobody knows"


@virtual
async def test_what_to_do_depends_on_how_it_was_answered():
    for status, word in ((0, "certificate"), (404, "leads elsewhere"), (401, "secret"), (502, "proxy")):
        async with Hooked() as house:
            await asyncio.sleep(60)
            for number in (1, 2, 3):
                house.log.fail(number, C, delivery=f"{status}-{number}", code=status)
            await asyncio.sleep(EVERY * 3)
            assert word in house.daemon.pulse.recoveries[str(SCOPE)].failing


# What a pass vouches for


def test_a_pass_is_whole_where_nothing_was_given_up_or_left():
    assert Found().whole
    assert not Found(more=True).whole
    assert not Found(pages=MOST_PAGES).whole
    found = Found()
    found.results["unreadable"] += 1
    assert not found.whole


@pytest.fixture
def believed(monkeypatch):
    """A scope is believed from the first pass on."""
    monkeypatch.setattr(trust, "BELIEVED_AFTER", 0)


def standing(house: Hooked) -> Standing:
    found = house.daemon.executor.trust("github")
    assert found is not None
    return found.of(SCOPE, house.loop_clock.now())


@pytest.mark.usefixtures("believed")
@virtual
async def test_a_pass_over_the_whole_list_vouches_for_its_scopes_and_deliveries_flow():
    async with Hooked() as house:
        await asyncio.sleep(1)
        assert standing(house) is Standing.QUIET
        await house.report(Q, 1)
        assert standing(house) is Standing.FLOWING
        await asyncio.sleep(EVERY + 1)
        assert standing(house) is Standing.QUIET


@pytest.mark.usefixtures("believed")
@virtual
async def test_what_was_fetched_counts_as_heard_and_what_is_left_for_the_next_pass_vouches_for_nothing():
    house = Hooked()
    for number in range(MOST_READS + 1):
        house.log.fail(number + 1, C, ago=20)
    async with house:
        await asyncio.sleep(PAUSE - 1)
        assert standing(house) is Standing.NONE
        await asyncio.sleep(2)
        assert standing(house) is Standing.FLOWING


@pytest.mark.usefixtures("believed")
@virtual
async def test_a_delivery_that_cannot_be_read_and_a_list_that_is_closed_vouch_for_nothing():
    house = Hooked()
    house.log.fail(1, C, ago=20)
    house.log.wrong["read:1"] = Refused("no payload")
    async with house:
        await asyncio.sleep(1)
        assert standing(house) is Standing.NONE
    house = Hooked()
    async with house:
        await asyncio.sleep(1)
        assert standing(house) is Standing.QUIET
        house.log.wrong["failed"] = Denied("no leave to read hooks")
        await asyncio.sleep(EVERY)
        assert standing(house) is Standing.NONE


@pytest.mark.usefixtures("believed")
@virtual
async def test_passes_that_get_no_answer_vouch_for_two_intervals_and_no_longer():
    async with Hooked() as house:
        await asyncio.sleep(1)
        house.log.wrong["failed"] = RetryLater("502")
        await asyncio.sleep(2 * EVERY - 2)
        assert standing(house) is Standing.QUIET
        await asyncio.sleep(2)
        assert standing(house) is Standing.NONE


@pytest.mark.usefixtures("believed")
@virtual
async def test_a_job_that_a_listing_shows_and_no_delivery_tells_of_is_a_reason_for_doubt():
    async with Hooked() as house:
        await asyncio.sleep(1)
        house.daemon.inbox.tell(JobsRead(SCOPE, (report(1), report(2), report(3, C))))
        await asyncio.sleep(1)
        await house.report(Q, 1)
        house.log.fail(2)
        await asyncio.sleep(GRACE / 1000)
        assert standing(house) is Standing.FLOWING, "one was late, one failed and was fetched, one is over"
        house.daemon.inbox.tell(JobsRead(SCOPE, (report(4),)))
        await asyncio.sleep(GRACE / 1000 - 1)
        assert standing(house) is not Standing.NONE
        await asyncio.sleep(2)
        assert standing(house) is Standing.NONE
