from __future__ import annotations

import pytest

from ephemerd.app.timeline import Timeline
from tests.unit.app.test_daemon import House
from tests.unit.web.dashboard.desk import Desk


@pytest.fixture
async def desk():
    house = House()
    timeline = Timeline(house.daemon)
    timeline.begin()
    async with house:
        made = Desk(house, timeline)
        yield made
        await made.client.aclose()


@pytest.fixture
async def house(desk):
    return desk.house
