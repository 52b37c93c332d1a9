"""What is there now."""

from __future__ import annotations

import pytest

from ephemerd.app.present import Present
from ephemerd.domain.job import ForgeStatus
from ephemerd.domain.runner import RunnerState
from tests.unit.app.fakes import until
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
