"""What only the rough weathers bring: drawn alike for a seed, ordered of the look-alike, and bounded."""

from __future__ import annotations

import asyncio
import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from ephemerd.testing.demo.narrator import Narrator
from ephemerd.testing.demo.options import DemoOptions
from ephemerd.testing.demo.rough import Rough
from ephemerd.testing.weather import Weather, load


class Orders:
    """Stands for the look-alike: notes what is ordered, gives out ids, and says that everything has ended."""

    def __init__(self, *, ended: bool = True) -> None:
        self.got: list[tuple[str, dict[str, Any]]] = []
        self.ended = ended

    async def admin(self, path: str, **body: Any) -> dict[str, Any]:
        self.got.append((path, body))
        return {"jobs": [900 + len(self.got)]}

    async def queue(self, labels: tuple[str, ...], count: int, **body: Any) -> list[int]:
        self.got.append(("/jobs", body))
        return [800 + len(self.got)]

    async def wait(self, condition: str, timeout: float, **query: Any) -> bool:
        self.got.append((condition, query))
        return self.ended


def rough(weather: Weather | str, *, seed: int = 1, forge: Orders | None = None) -> tuple[Rough, Orders]:
    chosen = load(weather) if isinstance(weather, str) else weather
    forge = forge or Orders()
    options = DemoOptions(seed=seed, weather=chosen.name, time_scale=100_000.0)
    stage: Any = SimpleNamespace(options=options, weather=chosen, forge=forge)
    return Rough(stage, Narrator(to_stderr=True, muted=True)), forge


@pytest.mark.parametrize(("weather", "comes"), [("calm", False), ("lossy", False), ("outage", True)])
async def test_an_outage_comes_once_in_the_second_half_if_the_weather_has_any(weather, comes):
    made, forge = rough(weather)
    assert not made.outage_is_due(9, 20)
    assert made.outage_is_due(10, 20) is comes
    if comes:
        await made.outage()
        assert not made.outage_is_due(15, 20)
        [(path, body)] = forge.got
        assert path == "/outage"
        assert body["kind"] in load(weather).outage_kind
        assert 60 / 100_000 <= body["seconds"] <= 3600 / 100_000


async def test_the_same_seed_draws_the_same_outage():
    bodies = []
    for seed in (4, 4, 5):
        made, forge = rough("hostile", seed=seed)
        await made.outage()
        bodies.append(forge.got[0][1])
    assert bodies[0] == bodies[1] != bodies[2]


def test_a_matrix_is_narrower_than_its_burst_and_needs_two_jobs():
    always = dataclasses.replace(load("hostile"), max_parallel=1.0)
    made, _ = rough(always)
    assert made.width(1) is None
    widths = {made.width(6) for _ in range(60)}
    assert widths == {1, 2, 3}
    assert rough("bursty")[0].width(6) is None


async def besides(weather: Weather, **of_rough: Any) -> list[tuple[str, dict[str, Any]]]:
    made, forge = rough(weather, **of_rough)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        made.besides([1, 2, 3], group)
    return forge.got


async def test_waiting_jobs_are_approved_or_turned_down():
    weather = dataclasses.replace(load("hostile"), approval=1.0, rerun=0.0)
    ends: set[str] = set()
    for seed in range(12):
        got = await besides(weather, seed=seed)
        assert [body for path, body in got if path == "/jobs"] == [{"tag": "extra", "waiting": True}] * 3
        ends |= {path.rpartition("/")[2] for path, _ in got if path != "/jobs"}
    assert ends == {"approve", "cancel"}


async def test_one_job_of_a_burst_is_run_again_when_all_have_ended():
    weather = dataclasses.replace(load("hostile"), approval=0.0, rerun=1.0)
    assert await besides(weather) == [("jobs_ended", {"jobs": "1,2,3"}), ("/jobs/1/rerun", {})]
    assert await besides(weather, forge=Orders(ended=False)) == [("jobs_ended", {"jobs": "1,2,3"})]


async def test_calm_weathers_bring_nothing_besides():
    assert await besides(load("bursty")) == []
