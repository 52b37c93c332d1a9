"""What listings may ask: bounded in a minute, in an hour, and by what others need until the reset."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ephemerd.app.spending import (
    IDLE_SHARE,
    LIMIT,
    LIVELY_REQUESTS,
    REQUESTS,
    Ease,
    Spending,
    Window,
    budget_of,
)
from ephemerd.domain.pool import HOUR, MINUTE, SECOND
from ephemerd.ports.forge import Budget

T0 = 1_796_000_000_000


def told(remaining: int, left_ms: int = HOUR, limit: int = 5_000) -> Budget:
    return Budget("core", limit, remaining, (T0 + left_ms) // SECOND, "", limit // 5)


def begun(remaining: int = 5_000, left_ms: int = HOUR) -> Spending:
    spending = Spending()
    spending.begin(T0, told(remaining, left_ms))
    return spending


@given(st.lists(st.tuples(st.integers(0, 90_000), st.integers(0, 50)), max_size=60))
def test_a_window_counts_what_was_spent_within_it_and_forgets_no_grain_too_early(spent):
    window, now, all_of_it = Window(HOUR), T0, []
    for pause, amount in spent:
        now += pause
        window.add(now, amount)
        all_of_it.append((now, amount))
        within = sum(amount for at, amount in all_of_it if at > now - HOUR)
        a_little_more = sum(amount for at, amount in all_of_it if at > now - HOUR - 2 * MINUTE)
        assert within <= window.total(now) <= a_little_more


def test_a_window_that_nobody_asks_holds_no_more_than_its_span():
    window = Window(MINUTE)
    for second in range(10_000):
        window.add(T0 + second * SECOND, 1)
        assert len(window._grains) <= 62
    assert window.total(T0 + 9_999 * SECOND) in (60, 61)


def test_what_is_larger_than_the_bound_by_itself_goes_where_nothing_else_did():
    window = Window(MINUTE)
    assert window.fits(T0, 900, 700)
    window.add(T0, 1)
    assert not window.fits(T0, 900, 700)


def test_fp_39_no_minute_has_more_requests_than_an_endpoint_allows():
    spending, now, sent = begun(), T0, []
    while now < T0 + 5 * MINUTE:
        if spending.may_look(now, 4, 0):
            spending.looked(now, 4, 0)
            sent.append(now)
        elif spending.may_see_idle(now, 1, 0):
            spending.saw_idle(now, 1, 0)
            sent.append(now)
        else:
            now += SECOND
    for end in sent:
        assert sum(4 for at in sent if end - MINUTE < at <= end) <= 4 * 900
    assert not spending.may_look(now, 4, 0) or len(sent) > 5 * LIVELY_REQUESTS // 4


def test_idle_repositories_have_their_turn_beside_any_number_of_lively_ones():
    spending = begun()
    while spending.may_look(T0, 4, 0):
        spending.looked(T0, 4, 0)
    assert spending.may_see_idle(T0, 1, 0)
    assert spending.may_look_first(T0, 4)
    while spending.may_see_idle(T0, 1, 0):
        spending.saw_idle(T0, 1, 0)
    assert not spending.may_look_first(T0, 4)
    assert spending.may_look(T0 + 62 * SECOND, 4, 0)
    assert REQUESTS < 900


def test_idle_repositories_cost_a_sixtieth_of_any_hour():
    spending, charged, now = begun(), [], T0
    for _ in range(4 * 60 * 10):
        now += 6 * SECOND
        spending.begin(now, told(5_000, HOUR + now - T0))
        while spending.may_see_idle(now, 1, 1):
            spending.saw_idle(now, 1, 1)
            charged.append(now)
    for end in charged[::50]:
        assert sum(end - HOUR < at <= end for at in charged) <= LIMIT // IDLE_SHARE
    assert len(charged) >= 3 * LIMIT // IDLE_SHARE


def test_what_is_free_is_asked_though_the_share_is_used_up():
    spending = begun()
    spending.saw_idle(T0, 83, 83)
    assert not spending.may_see_idle(T0 + MINUTE * 2, 1, 1)
    assert spending.may_see_idle(T0 + MINUTE * 2, 1, 0)


def test_first_looks_have_a_quarter_of_an_hour_s_limit():
    spending, now = begun(), T0
    looks = 0
    for _ in range(59):
        now += MINUTE
        while spending.may_look_first(now, 4):
            spending.looked_first(now, 4, 4)
            looks += 1
    assert looks * 4 == 1248


def test_lively_repositories_stretch_what_is_left_until_the_reset():
    """Each look costs 10; 3000 of 5000 may go within the hour, so that a fifth is left for jobs' own requests
    above the reserve, whatever the pace that is wished."""
    spending, now, left = begun(), T0, 5_000
    while now < T0 + HOUR:
        spending.begin(now, told(left))
        while spending.may_look(now, 10, 10):
            spending.looked(now, 10, 10)
            left -= 10
        now += 10 * SECOND
    assert 1_900 <= left <= 2_100


def test_a_look_reads_less_while_lively_repositories_use_up_what_they_have():
    spending, ease = begun(), []
    for cost in (0, 10, 0, 20, 0):
        spending.looked(T0, 4, cost)
        ease.append(spending.ease)
    spending.begin(T0 + MINUTE, told(5_000))
    assert [*ease, spending.ease] == [Ease.EASY, Ease.FAIR, Ease.FAIR, Ease.TIGHT, Ease.TIGHT, Ease.EASY]


def test_it_is_not_easy_where_half_of_what_may_be_spent_was_spent_lately():
    """3,000 may go in the hour, 500 in ten minutes."""
    spending = begun()
    for minute in range(10):
        spending.begin(T0 + minute * MINUTE, told(5_000))
        spending.looked(T0 + minute * MINUTE, 4, 35)
    ease = []
    for at in (T0 + 10 * MINUTE - 1, T0 + 12 * MINUTE):
        spending.begin(at, told(5_000))
        ease.append(spending.ease)
    assert ease == [Ease.FAIR, Ease.EASY]


def test_with_twice_the_reserve_left_nothing_is_listed_until_the_reset():
    spending = begun(2_000, left_ms=10 * MINUTE)
    low = [spending.low]
    assert not spending.may_look(T0, 1, 0)
    assert not spending.may_look_first(T0, 1)
    assert not spending.may_see_idle(T0, 1, 0)
    spending.begin(T0 + 11 * MINUTE, told(2_000, left_ms=10 * MINUTE))
    assert [*low, spending.low] == [True, False]
    assert spending.may_look(T0 + 11 * MINUTE, 1, 1)


def test_before_anything_was_told_the_least_limit_is_taken_for_granted():
    spending = Spending()
    spending.begin(T0, None)
    assert not spending.low
    assert spending.may_look(T0, 4, 4)
    spending.saw_idle(T0, 1, 83)
    assert not spending.may_see_idle(T0, 1, 1)


def test_the_limit_that_counts_is_the_owner_s_else_that_of_the_one_credential():
    own, other = Budget("core", 1, 1, 1, "acme"), Budget("core", 2, 2, 2, "")
    search = Budget("search", 3, 3, 3, "acme")
    assert budget_of((search, other, own), "acme") is own
    assert budget_of((search, other), "acme") is other
    assert budget_of((search, own), "else") is None
