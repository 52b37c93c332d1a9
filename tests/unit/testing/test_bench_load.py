"""What the benchmarks put on a daemon: jobs at a steady rate, bounds that are lifted by name, times that are paired."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ephemerd.app import spending
from ephemerd.testing.bench import busy, eager, run
from ephemerd.testing.bench.api import Traffic
from ephemerd.testing.bench.figures import figure, skipped
from ephemerd.testing.bench.sender import percentile
from ephemerd.testing.bench.starts import spans
from ephemerd.testing.virtual_time import virtually

SECONDS = 30


def test_jobs_arrive_at_their_rate_and_each_is_told_as_words(capsys):
    async def some_time() -> None:
        daemon: Any = SimpleNamespace(ports=SimpleNamespace(clock=SimpleNamespace(now=lambda: 1_000)))
        world = busy.SteadyWorld(daemon)
        world.begin()
        await asyncio.sleep(SECONDS + 0.5 / busy.PER_SECOND)

    virtually(some_time)
    told = [line.split() for line in capsys.readouterr().out.splitlines()]
    queued = [words for words in told if words[1] == "queued"]
    assert len(queued) == SECONDS * busy.PER_SECOND
    assert queued[0] == ["1", "queued", "-", "-"]
    assert {tuple(words[1:]) for words in told} - {("queued", "-", "-")} == {("completed", "-", "cancelled")}


def test_bounds_of_listings_are_lifted_and_one_that_is_no_more_is_missed(monkeypatch):
    for name in eager.BOUNDS:
        monkeypatch.setattr(spending, name, getattr(spending, name))
    eager.lift()
    assert {getattr(spending, name) for name in eager.BOUNDS} == {1_000_000}
    monkeypatch.setattr(eager, "BOUNDS", ("NOTHING",))
    with pytest.raises(AttributeError, match="NOTHING"):
        eager.lift()


def test_a_start_is_counted_from_the_delivery_of_its_rank():
    assert spans([3_000_000, 1_000_000], [5_000_000, 9_000_000]) == [4.0, 6.0]
    with pytest.raises(ValueError, match="longer"):
        spans([1], [2, 3])


def test_a_percentile_is_one_of_the_times():
    assert percentile([5.0, 1.0, 3.0], 0.5) == 3.0
    assert percentile([5.0, 1.0, 3.0], 0.99) == 5.0


def test_lines_become_deliveries_and_ends_are_counted():
    async def play() -> Traffic:
        traffic, lines = Traffic(0), asyncio.StreamReader()
        lines.feed_data(b"7 queued - -\n7 completed eph-1 success\n")
        lines.feed_eof()
        await traffic.listen(lines)
        first, last = (traffic._waiting.get_nowait() for _ in range(2))
        assert b'"status": "queued"' in first
        assert b'"runner_name": null' in first
        assert b'"runner_name": "eph-1"' in last
        assert b'"conclusion": "success"' in last
        return traffic

    traffic = asyncio.run(play())
    assert len(traffic.ended) == 1
    assert traffic.rate(traffic.ended[0] - 1.0) > 0


def test_what_is_slow_is_seen_only_where_it_was_sent_since():
    async def play() -> None:
        traffic = Traffic(0)
        traffic.answered = [(1.0, 9.0), (2.0, 0.001), (3.0, 0.002)]
        assert await traffic.p99(2.0) == 2.0

    asyncio.run(play())


def test_a_benchmark_that_fails_is_told_keeps_no_bound_and_stops_nothing(monkeypatch):
    def fails():
        raise RuntimeError("no port")

    monkeypatch.setattr(run, "BENCHMARKS", {"one": fails, "two": lambda: [figure("two", "s", [1.0])]})
    one, two = run.run(["one", "two"], lambda name: None)
    assert (one.name, one.value, one.met, one.note) == ("one", None, False, "failed: RuntimeError: no port")
    assert (two.value, two.met) == (1.0, None)


def test_what_cannot_be_measured_here_says_why_and_breaks_nothing():
    found = skipped("dispatch.docker", "ms", "no engine")
    assert (found.value, found.ratio, found.met, found.note) == (None, None, None, "skipped: no engine")
    assert found.plain()["value"] is None
