"""What goes out under a credential: never before its time, reads first to yield, a reserve for writes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerd.adapters.forges.github import runs, wire
from ephemerd.adapters.forges.github.groups import list_groups
from ephemerd.adapters.forges.github.limits import POINTS, Hold, Limits
from ephemerd.domain.ids import RunnerId, Scope
from ephemerd.ports.forge import Budget

SCOPE = Scope("github", "repo:acme/app")
READ = wire.get_runner(SCOPE, 7)
WRITE = wire.register(SCOPE, RunnerId("eph-s-b-1"), ("x",))
FENCE = wire.delete_runner(SCOPE, 7)


def told(
    remaining: int, *, limit: int = 5000, resource: str = "core", request: wire.Request = READ
) -> Limits:
    limits = Limits("acme")
    limits.told(request, Budget(resource, limit, remaining, 1_700_000_000), 600.0, 0.0)
    return limits


def test_nothing_is_held_back_before_anything_was_told():
    assert Limits().hold(READ, 0.0) is None
    assert Limits().budgets(0.0) == []


def test_fp_36_the_reserve_is_for_registrations_and_fences():
    limits = told(1000)
    held = limits.hold(READ, 10.0)
    assert held is not None
    assert (held.seconds, held.limited) == (590.0, False)
    assert "1000 requests are left" in held.why
    assert limits.hold(WRITE, 10.0) is None
    assert limits.hold(FENCE, 10.0) is None
    assert limits.hold(list_groups(Scope("github", "org:acme")), 10.0) is None  # part of a registration
    assert told(1001).hold(READ, 10.0) is None


def test_fp_39_listings_are_the_first_to_yield():
    listing = runs.list_runs("acme/app", "queued")
    held = told(2000).hold(listing, 10.0)
    assert held is not None
    assert (held.seconds, held.limited) == (590.0, False)
    assert told(2001).hold(listing, 10.0) is None
    assert told(2000).hold(READ, 10.0) is None


def test_an_empty_quota_holds_everything_until_its_reset():
    limits = told(0)
    for request in (READ, WRITE, FENCE):
        held = limits.hold(request, 10.0)
        assert held is not None
        assert (held.seconds, held.limited) == (590.0, True)
        assert limits.hold(request, 600.0) is None


def test_each_resource_has_its_own_quota():
    limits = told(0, resource="actions_runner_registration", request=WRITE)
    assert limits.hold(READ, 0.0) is None
    assert limits.hold(WRITE, 0.0) is not None


def test_a_quota_is_shown_with_whose_it_is_and_what_is_kept():
    assert told(4000).budgets(0.0) == [Budget("core", 5000, 4000, 1_700_000_000, "acme", 1000)]


def test_after_its_reset_all_of_a_quota_is_shown_as_there_again():
    (before,), (after,) = told(7).budgets(599.0), told(7).budgets(600.0)
    assert (before.remaining, after.remaining) == (7, 5000)


def test_resources_that_a_broken_server_invents_do_not_pile_up():
    limits = Limits()
    for number in range(100):
        limits.told(READ, Budget(f"made-up-{number}", 1, 1, 1), 1.0, 0.0)
    assert len(limits.budgets(0.0)) == 32


def test_fp_36_who_was_told_to_wait_sends_nothing_before_its_time():
    limits = Limits()
    assert limits.limited(30.0, 100.0, named=True) == 30.0
    assert limits.hold(FENCE, 129.0) == Hold(1.0, True, "GitHub's rate limit")
    assert limits.hold(FENCE, 130.0) is None


def test_pauses_double_while_no_end_is_named_and_begin_anew_after_an_answer():
    limits, now, pauses = Limits(), 0.0, []
    for _ in range(7):
        pauses.append(limits.limited(60.0, now, named=False))
        now += pauses[-1]
    assert pauses == [60.0, 120.0, 240.0, 480.0, 960.0, 1800.0, 1800.0]
    limits.answered(now)
    assert limits.limited(60.0, now, named=False) == 60.0


def test_refusals_of_one_moment_are_one():
    limits = Limits()
    assert [limits.limited(60.0, 0.0, named=False) for _ in range(5)][:1] == [60.0]
    limits.answered(1.0)  # sent before, came after: no sign that the limit is over
    assert limits.hold(READ, 119.0) is not None
    assert limits.limited(60.0, 120.0, named=False) == pytest.approx(120.0)


def test_a_shorter_limit_does_not_cut_a_longer_one_short():
    limits = Limits()
    limits.limited(600.0, 0.0, named=True)
    assert limits.limited(30.0, 0.0, named=True) == 600.0


@given(st.lists(st.tuples(st.sampled_from([READ, WRITE, FENCE]), st.floats(0, 2)), max_size=400))
def test_no_minute_ever_holds_more_points_of_an_endpoint_than_allowed(wanted):
    """Whoever asks before each request and waits as told stays below 900 points in any 60 s (GitHub's limit)."""
    limits, now = Limits(), 0.0
    sent: list[tuple[float, str, int]] = []
    for request, pause in wanted * 3:
        now += pause
        held = limits.hold(request, now)
        if held is not None:
            now += held.seconds
            assert limits.hold(request, now) is None
        limits.spent(request, now)
        sent.append((now, request.endpoint, 5 if request.writes else 1))
    for end, endpoint, _ in sent:
        window = [cost for at, name, cost in sent if name == endpoint and end - 60 < at <= end]
        assert sum(window) <= POINTS


def test_points_are_counted_by_endpoint():
    limits = Limits()
    for _ in range(POINTS // 5):
        assert limits.hold(WRITE, 0.0) is None
        limits.spent(WRITE, 0.0)
    held = limits.hold(WRITE, 20.0)
    assert held is not None
    assert (held.seconds, held.limited) == (40.0, False)
    assert limits.hold(FENCE, 20.0) is None
    assert limits.hold(WRITE, 60.0) is None


def test_endpoints_are_bounded():
    limits = Limits()
    for number in range(100):
        limits.spent(replace(READ, endpoint=f"GET /{number}"), 0.0)
    assert len(limits._points) == 64
