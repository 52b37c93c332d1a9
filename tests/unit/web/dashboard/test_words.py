"""How things read, and the small charts."""

from __future__ import annotations

import pytest

from ephemerd.domain.job import JobStatus
from ephemerd.domain.runner import Rule, RunnerState
from ephemerd.domain.verdict import Verdict, Via
from ephemerd.web.dashboard import pages, words
from ephemerd.web.dashboard.charts import Series, bars, lines, nice
from ephemerd.web.dashboard.forges import quantile
from ephemerd.web.dashboard.render import environment
from tests.unit.web.dashboard.page import read


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0 s"),
        (0.04, "0 s"),
        (4.24, "4.2 s"),
        (59.4, "59 s"),
        (200, "3 min 20 s"),
        (7_500, "2 h 5 min"),
        (7_200, "2 h"),
        (100_800, "1 d 4 h"),
        (-3, "0 s"),
    ],
)
def test_durations(seconds, text):
    assert words.span(seconds) == text


def test_every_word_of_the_domain_has_a_shape_and_a_tone():
    for found in (RunnerState, JobStatus, Verdict):
        for member in found:
            assert member.value in words.SHAPES, member
            assert member.value in words.TONES, member
    assert {state.value for state in RunnerState} == set(words.MEANINGS)
    assert {rule.value for rule in Rule} == set(pages.RULES)
    assert {via.value for via in Via} == set(pages.VIAS)
    assert {verdict.value for verdict in Verdict} == set(pages.VERDICTS)


def test_states_that_share_a_tone_differ_in_shape():
    seen: dict[tuple[str, str], str] = {}
    for state in RunnerState:
        tag = words.tag(state.value)
        assert seen.setdefault((tag.tone, tag.shape), tag.word) == tag.word


def test_every_shape_is_drawn():
    source = environment().get_template("_shapes.svg").render()
    drawn = {one.attributes["id"] for one in read(source).all("symbol")}
    marks = {shape for _, shape, _, _ in pages.MARKS}
    assert {f"s-{shape}" for shape in set(words.SHAPES.values()) | marks | {"lock"}} <= drawn


def test_backticks_are_code_and_all_else_is_escaped():
    assert words.prose("run `ephemerd <x>` & wait") == "run <code>ephemerd &lt;x&gt;</code> &amp; wait"
    assert words.prose("one ` alone") == "one ` alone"


def test_names_are_short_and_addresses_safe():
    assert words.short_runner("eph-s0000001-ab12-7") == "ab12-7"
    assert words.short_runner("other") == "other"
    assert words.short_job("github/acme/app/7") == "app/7"
    assert words.runner_url("a/b c") == "/runners/a%2Fb%20c"


@pytest.mark.parametrize(
    ("most", "top"), [(0, 1), (0.03, 0.03), (1, 1), (7, 8), (11, 20), (99, 100), (250, 300)]
)
def test_an_axis_ends_at_a_round_number_that_is_enough(most, top):
    assert nice(most) == pytest.approx(top)
    assert nice(most) >= most * 0.999


def test_charts_draw_each_value_and_leave_gaps():
    times = [0, 60_000, 120_000]
    drawn = read(bars([Series("a", "c-a", [1, 0, 3]), Series("b", "c-b", [2, 0, 0])], times, "Bars"))
    assert len(drawn.all("rect")) == 3
    assert drawn.one("svg").attributes["aria-label"] == "Bars: 6 in all"
    drawn = read(lines([Series("a", "c-a", [1.0, None, 3.0])], times, "Lines"))
    assert len(drawn.all("circle")) == 2
    assert not drawn.all("polyline")


def test_percentiles_are_read_off_buckets():
    buckets = [(0.1, 5.0), (0.5, 9.0), (float("inf"), 10.0)]
    assert quantile(buckets, 0.5) == pytest.approx(0.1)
    assert quantile(buckets, 0.7) == pytest.approx(0.3)
    assert quantile(buckets, 0.99) == 0.5
    assert quantile([], 0.5) is None
    assert quantile([(0.1, 0.0), (float("inf"), 0.0)], 0.5) is None
