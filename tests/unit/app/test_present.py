"""What is there now, and decisions chosen by what they say."""

from __future__ import annotations

import pytest

from ephemerd.app.decided import Wanted, decided
from ephemerd.app.present import Present
from ephemerd.app.queries import Queries
from ephemerd.core.codec import encode_decision
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import ForgeStatus
from ephemerd.domain.runner import Decision, RunnerState
from tests.unit.app.fakes import T0, until
from tests.unit.app.test_daemon import House
from tests.unit.app.test_operator import listening


@pytest.fixture
async def house():
    async with House() as made:
        yield made


async def test_the_waiting_line_is_oldest_first_with_reasons_and_bounded(house):
    for number in range(1, 9):
        await house.report(number=number)
    line = Present(house.daemon).waiting(3)
    assert [one.number for one in line.jobs] == [1, 2, 3]
    assert line.total == 8
    assert all(one.why for one in line.jobs)


async def test_the_crew_leaves_out_who_is_gone(house):
    name = await listening(house)
    present = Present(house.daemon)
    assert [one.id for one in present.crew().runners] == [name]
    assert present.crew(pool="other").total == 0
    house.runtime.exit(name, 0)
    await until(lambda: any(row.state is RunnerState.GONE for row in house.runners()))
    assert name not in [one.id for one in present.crew().runners]


async def test_jobs_that_ended_come_newest_first(house):
    for number in (1, 2):
        await house.report(number=number)
        await house.report(ForgeStatus.COMPLETED, number=number, conclusion="success")
        house.pass_time(1_000)
    ended = Present(house.daemon).ended(5)
    assert [one.number for one in ended] == [2, 1]
    assert ended[0].conclusion == "success"


def keep(house: House, number: int, outcome: str, verdict: str, rule: str, via: str) -> None:
    made = Decision(
        *(number, T0 + number, RunnerId(f"r{number}"), "linux", 1, rule, outcome, verdict, via, "", 0, 0, ())
    )
    house.store.made.append(encode_decision(made))


async def test_decisions_are_chosen_by_each_of_their_words(house):
    keep(house, 1, "vetoed", "busy", "surplus", "probe")
    keep(house, 2, "reaped", "idle", "expired", "fence")
    keep(house, 3, "vetoed", "unknown", "expired", "none")
    queries = Queries(house.daemon, "1")

    async def ids(**wanted: str) -> list[int]:
        return [one.id for one in (await decided(queries, Wanted(**wanted))).items]

    assert await ids() == [3, 2, 1]
    assert await ids(outcome="vetoed") == [3, 1]
    assert await ids(verdict="idle") == [2]
    assert await ids(rule="expired") == [3, 2]
    assert await ids(via="probe") == [1]
    assert await ids(runner="r2") == [2]
    assert await ids(outcome="vetoed", rule="expired") == [3]


async def test_pages_go_on_where_the_one_before_ended(house):
    for number in range(1, 8):
        keep(house, number, "vetoed", "busy", "surplus" if number % 2 else "expired", "probe")
    queries = Queries(house.daemon, "1")
    first = await decided(queries, Wanted(rule="surplus"), limit=2)
    assert ([one.id for one in first.items], first.next) == ([7, 5], 5)
    second = await decided(queries, Wanted(rule="surplus"), before=first.next, limit=2)
    assert ([one.id for one in second.items], second.next) == ([3, 1], 0)
