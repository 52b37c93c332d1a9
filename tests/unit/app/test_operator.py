"""Orders of a person: committed before they are acknowledged, and through the same gate as every rule."""

from __future__ import annotations

import asyncio
import difflib

import pytest

from ephemerd.app.operator import NotTaken, Operator, Unknown, near
from ephemerd.domain.runner import RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.app.fakes import idle_report, until
from tests.unit.app.test_daemon import House


@pytest.fixture
async def house():
    async with House() as made:
        yield made


@pytest.fixture
def operator(house):
    return Operator(house.daemon)


async def listening(house: House):
    """Give the house one listening runner and return its id."""
    await house.report()
    (order,) = await until(lambda: house.runtime.orders)
    house.runtime.tell(order.runner, Sign.LISTENING)
    await until(lambda: all(row.environment and row.listening for row in house.runners()))
    return order.runner


async def test_a_cordon_stops_planning_and_ends_again(house, operator):
    view = await operator.cordon("ann", "all", reason="upgrade")
    assert (view.outcome, view.detail) == ("accepted", "everything is cordoned")
    assert house.daemon.core.cordoned("linux")
    await house.report()
    assert house.runners() == []
    await operator.uncordon("ann", "all")
    assert not house.daemon.core.cordoned("linux")
    await until(lambda: house.forge.named("register"))


@pytest.mark.parametrize(("target", "name"), [("pool", "linux"), ("host", "local")])
async def test_a_drain_of_one_pool_or_host(house, operator, target, name):
    view = await operator.drain("ann", target, name)
    assert view.outcome == "accepted"
    assert name in view.detail
    assert house.daemon.core.cordoned("linux")


@pytest.mark.parametrize(("target", "name"), [("pool", "linus"), ("host", "lokal"), ("all", "x")])
async def test_what_does_not_exist_is_unknown(operator, target, name):
    with pytest.raises(Unknown) as caught:
        await operator.cordon("ann", target, name)
    assert name in str(caught.value)
    if target != "all":
        assert caught.value.near


async def test_a_sweep_is_an_event(house, operator):
    assert (await operator.sweep()).outcome == "accepted"
    assert house.store.kinds().count("SweepOrdered") == 1


async def test_a_kill_of_a_busy_runner_is_vetoed_with_its_evidence(house, operator):
    runner = await listening(house)
    house.runtime.answers["probe"] = idle_report(workers=1, detail="Runner.Worker 4711")
    view = await operator.kill("ann", runner, "looks odd")
    assert view.outcome == "vetoed"
    assert view.decision.runner == runner
    assert view.decision.rule == "operator"
    assert view.decision.verdict == "busy"
    assert view.decision.evidence
    assert not house.runtime.named("destroy")
    assert not house.forge.named("deregister")


async def test_a_kill_of_an_idle_runner_is_accepted_after_the_whole_gate(house, operator):
    runner = await listening(house)
    killing = asyncio.create_task(operator.kill("ann", runner, "not needed"))
    await until(lambda: "FenceAnswered" in house.store.kinds())
    assert not killing.done()
    house.pass_time(10_000)
    view = await killing
    assert view.outcome == "accepted"
    await until(lambda: house.runtime.named("destroy"))
    assert len(house.runtime.named("probe")) == 2


async def test_a_forced_kill_of_a_busy_runner_is_accepted(house, operator):
    runner = await listening(house)
    house.runtime.tell(runner, Sign.ANNOUNCED)
    await house.runner(RunnerState.RUNNING)
    house.runtime.answers["probe"] = idle_report(workers=1)
    killing = asyncio.create_task(operator.kill("ann", runner, "it mines coins", even_if_busy=True))
    await until(lambda: house.store.kinds()[-1] != "KillOrdered")
    house.pass_time(10_000)
    assert (await asyncio.wait_for(killing, 10)).outcome == "accepted"
    await until(lambda: house.runtime.named("destroy"))


async def test_a_kill_that_is_not_decided_in_time_is_pending(house):
    runner = await listening(house)
    house.runtime.hold["probe"] = asyncio.Event()
    view = await Operator(house.daemon, kill_wait=0.01).kill("ann", runner, "odd")
    assert view.outcome == "pending"
    assert not house.daemon._watchers


async def test_a_kill_of_nobody_names_who_resembles(house, operator):
    runner = await listening(house)
    with pytest.raises(Unknown) as caught:
        await operator.kill("ann", runner[:-1] + "7", "odd")
    assert caught.value.near == (runner,)


async def test_an_order_that_cannot_be_stored_is_not_taken(house, operator):
    house.store.fail = 1
    with pytest.raises(NotTaken):
        await operator.cordon("ann", "all")
    assert not house.daemon.core.cordoned("linux")


async def test_an_order_while_stopping_is_not_taken(house, operator):
    house.daemon.inbox.close()
    with pytest.raises(NotTaken):
        await operator.sweep()


def test_near_prefers_what_contains_the_text():
    known = ["eph-a-b-1", "eph-a-b-12", "other"]
    assert near("b-12", known) == ("eph-a-b-12",)
    assert near("othr", known) == ("other",)
    assert near("", known) == ()
    assert near("zzzz", known) == ()


def test_near_compares_few_however_many_there_are(monkeypatch):
    """10,000 open jobs took 5 s of the loop for one address that was mistyped."""
    compared = []

    def count(text, names, **_):
        compared.append((len(text), len(names)))
        return names[:1]

    monkeypatch.setattr(difflib, "get_close_matches", count)
    jobs = [f"github/acme/tool/{number}" for number in range(10_000)]
    assert near("github/acme/tool/x", ["eph-a-b-1", *jobs]) == ("github/acme/tool/9900",)
    assert near("eph-a-b-2", ["eph-a-b-1", *jobs]) == ("eph-a-b-1",)
    assert near("/" * 60_000, jobs) == ("github/acme/tool/9900",)
    assert compared == [(18, 100), (9, 1), (200, 100)]
