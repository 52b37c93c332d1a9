"""What the truth log says of a manager's manners: requests before their time, teardowns in outages, lost deliveries."""

from __future__ import annotations

from typing import Any

import pytest

from ephemerd.testing.forge_sim.limits import AT_ONCE
from ephemerd.testing.forge_sim.manners import (
    early_calls,
    lost_to_start_ms,
    told_to_start_ms,
    torn_down_in_outages,
)
from tests.unit.forge_sim.conftest import REPO, client, seen

Record = dict[str, Any]


def records(*steps: tuple[float, str, dict[str, Any]]) -> list[Record]:
    return [{"seq": n + 1, "ms": float(ms), "kind": kind, **more} for n, (ms, kind, more) in enumerate(steps)]


def call(ms: float, **more: Any) -> tuple[float, str, dict[str, Any]]:
    return ms, "api_call", {"took_ms": 100.0, "status": 200, "who": "token", **more}


def limited(ms: float, wait: int, **more: Any) -> tuple[float, str, dict[str, Any]]:
    return call(ms, status=429, wait_ms=wait, **more)


def test_a_request_before_the_named_time_is_early_and_one_after_it_is_not():
    told = records(limited(1000, 10_000), call(5000), call(11_099), call(11_101), call(20_000))
    assert [(one.seq, one.ms, one.permitted_ms) for one in early_calls(told)] == [
        (2, 4900, 11_000),
        (3, 10_999, 11_000),
    ]


def test_what_was_on_its_way_when_the_limit_was_answered_is_not_early():
    told = records(
        limited(1000, 10_000),
        call(1050, status=200),
        limited(1900, 60_000),
        call(2099),
        call(2101),
        call(62_001),
    )
    assert [one.seq for one in early_calls(told)] == [5]
    assert early_calls(told)[0].permitted_ms == 61_900, "the latest word counts"


def test_each_credential_has_its_own_limits_and_other_refusals_name_no_time():
    told = records(
        limited(1000, 10_000, who="installation:1"),
        call(5000, who="installation:2"),
        call(5000, who="token"),
        call(5100, status=403, who="token"),
        call(6000, who="token"),
    )
    assert early_calls(told) == []


def test_a_runner_that_ends_in_an_outage_without_a_job_that_is_over_was_torn_down():
    told = records(
        *((0, "runner_registered", {"runner": name}) for name in "abcdefg"),
        (1, "runner_deregistered", {"runner": "a", "by": "api"}),
        (2, "listener_exited", {"runner": "b", "clean": True}),
        (3, "outage", {"state": "begins", "what": "503"}),
        (4, "listener_exited", {"runner": "a", "clean": True}),
        (5, "job_completed", {"runner": "c", "job": 1}),
        (6, "listener_exited", {"runner": "c", "clean": True}),
        (7, "misbehaved", {"runner": "d", "what": "exit_without_job"}),
        (8, "listener_exited", {"runner": "d", "clean": False}),
        (9, "listener_exited", {"runner": "e", "clean": True}),
        (10, "outage", {"state": "ends", "what": "503"}),
        (11, "listener_exited", {"runner": "f", "clean": True}),
    )
    assert torn_down_in_outages(told) == ["e"]


def test_the_wait_of_jobs_whose_delivery_never_came():
    told = records(
        *((float(job), "job_queued", {"job": job}) for job in range(1, 7)),
        *((10, "delivery_lost", {"job": job, "action": "queued", "listed": True}) for job in (1, 2, 3, 4)),
        (11, "delivery_lost", {"job": 5, "action": "in_progress", "listed": True}),
        (12, "delivery_sent", {"job": 3, "action": "queued", "status": 202}),
        (13, "delivery_sent", {"job": 2, "action": "queued", "status": 503}),
        *((100.0 * job, "worker_started", {"job": job, "runner": "r"}) for job in (2, 1, 3, 5, 6)),
        (9999, "worker_started", {"job": 1, "runner": "again"}),
    )
    assert lost_to_start_ms(told) == [99.0, 198.0]
    assert told_to_start_ms(told) == [288.0]
    early = (0.5, "worker_started", {"job": 3, "runner": "r"})
    late = (12, "delivery_sent", {"job": 3, "action": "queued", "status": 202})
    assert told_to_start_ms(records(early, late)) == [0.0]


@pytest.mark.parametrize(("kind", "least"), [("429", 8), ("403-rate-limit", 8), ("503", None)])
async def test_the_look_alike_writes_down_for_how_long_a_limit_asks_to_wait(sim, api, kind, least):
    await api.get(REPO)
    sim.site.outages.begin(kind, 9.0)
    answer = await api.get(REPO)
    async with client(sim, Authorization="Bearer ghp_wrong") as stranger:
        await stranger.get(REPO)
    calls = [one for one in sim.truth.records if one["kind"] == "api_call"]
    assert [one["who"] for one in calls] == ["token", "token", ""]
    assert "wait_ms" not in calls[0]
    if least is None:
        assert "wait_ms" not in calls[1]
    else:
        assert least * 1000 <= calls[1]["wait_ms"] <= 11_000, answer.headers
    assert early_calls(sim.truth.records) == []


async def test_a_limit_without_a_time_asks_for_a_minute(sim, api):
    sim.site.limits.under_way = AT_ONCE
    assert (await api.get(REPO)).status_code == 403
    [one] = [one for one in sim.truth.records if one["kind"] == "api_call"]
    assert one["wait_ms"] == 60_000
    assert await seen(sim, "api_call")
