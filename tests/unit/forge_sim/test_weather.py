"""The weather file: all five load, inherit, scale, and bad ones are refused with their place."""

from __future__ import annotations

import random
import statistics

import pytest

from ephemerd.testing import weather
from ephemerd.testing.weather import Chance, LogNormal, Uniform, WeatherError, load, load_all

MINIMAL = """
[a]
burst = [1, 3]
gap = [10, 60]
job = { p50 = 30, p95 = 300 }
webhook_delay = [0, 1]
rest_delay = [0, 1]
assign = [0, 1]
acknowledge = [0, 1]
acquire = [0, 1]
spawn = [0, 1]
report = [0, 1]
boot = [0, 1]
wind_down = [0, 1]
stop = [0, 1]
refuses_from = "assignment"
slots = 4
"""


def test_all_five_weathers_load():
    assert list(load_all()) == ["calm", "bursty", "lossy", "outage", "hostile"]


def test_a_weather_inherits_through_several_levels_and_overrides():
    hostile = load("hostile")
    assert hostile.webhook_late == Chance(0.05, Uniform(60, 600))  # from lossy
    assert hostile.sibling_skew == Uniform(0, 8)  # from bursty
    assert hostile.job == Uniform(20, 300)  # from calm
    assert hostile.spawn == Uniform(0.05, 60)  # its own
    assert hostile.refuses_from == "acquisition"
    assert hostile.outage_kind["403-rate-limit"] == 0.3


def test_what_a_weather_does_not_say_does_not_happen():
    calm = load("calm")
    assert calm.ghost == calm.webhook_lost == 0
    assert calm.outage_every is None
    assert calm.webhook_late.draw(random.Random(1)) is None


def test_scaling_divides_what_reaches_above_ten_seconds_and_nothing_else():
    scaled = load("bursty").scaled(20)
    assert scaled.gap == Uniform(1, 6)
    assert scaled.job == Uniform(1, 15)
    assert scaled.sibling_skew == Uniform(0, 8)
    assert scaled.webhook_delay == Uniform(0.2, 5)
    assert scaled.cancelled_queued == 0.05
    assert load("hostile").scaled(10).clock_step == Chance(0.0005, Uniform(-720, 720))
    assert load("lossy").scaled(10).webhook_late == Chance(0.05, Uniform(6, 60))


@pytest.mark.parametrize(("seconds", "result"), [(10.0, 10.0), (10.5, 1.05), (60.0, 6.0), (0.2, 0.2)])
def test_single_durations_scale_alike(seconds, result):
    assert weather.scale_seconds(seconds, 10) == pytest.approx(result)


def test_a_scale_of_nothing_is_refused():
    with pytest.raises(WeatherError, match="above 0"):
        load("calm").scaled(0)


def test_draws_come_from_the_given_generator_alone():
    draws = [Uniform(1, 2).draw(random.Random(5)) for _ in range(3)]
    assert len(set(draws)) == 1
    assert 1 <= draws[0] <= 2


def test_log_normal_draws_have_the_stated_quantiles():
    rng = random.Random(1)
    values = sorted(LogNormal(30, 300).draw(rng) for _ in range(20_000))
    assert statistics.median(values) == pytest.approx(30, rel=0.05)
    assert values[int(0.95 * len(values))] == pytest.approx(300, rel=0.1)
    assert LogNormal(30, 300).scaled(10) == LogNormal(3, 30)
    assert LogNormal(1, 9).scaled(10) == LogNormal(1, 9)


def test_outage_kinds_follow_their_weights():
    rng = random.Random(3)
    outage = load("outage")
    kinds = [outage.draw_outage_kind(rng) for _ in range(2000)]
    assert kinds.count("503") / 2000 == pytest.approx(0.4, abs=0.05)
    with pytest.raises(WeatherError, match="no outages"):
        load("calm").draw_outage_kind(rng)


def test_bursts_stay_in_their_range():
    rng = random.Random(3)
    calm = load("calm")
    assert {calm.draw_burst(rng) for _ in range(100)} == {1, 2, 3}


def test_a_table_in_the_quantile_form_loads():
    assert load("a", MINIMAL).job == LogNormal(30, 300)


@pytest.mark.parametrize(
    ("addition", "message"),
    [
        ("ghosts = 0.1", "unknown key 'ghosts'"),
        ("ghost = 1.5", "a.ghost: expected a share"),
        ("ghost = true", "a.ghost: expected a share"),
        ("sibling_skew = [2, 1]", "lower end"),
        ("sibling_skew = [1]", "expected 2 numbers"),
        ("sibling_skew = { p50 = 3 }", "p50 and p95"),
        ("sibling_skew = { p50 = 3, p95 = 2 }", "0 < p50 < p95"),
        ("webhook_late = [0.1, 5]", "expected 3 numbers"),
        ("outage_kind = { fire = 1.0 }", "not a value"),
        ('inherits = "b"', "'b', which does not exist"),
        ('inherits = "a"', "inherits from itself"),
        ("= 3", "weather file"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(addition, message):
    with pytest.raises(WeatherError, match=message):
        load_all(MINIMAL + addition)


@pytest.mark.parametrize("line", ['refuses_from = "assignment"', "slots = 4"])
def test_missing_keys_and_wrong_values_are_refused(line):
    with pytest.raises(WeatherError):
        load_all(MINIMAL.replace(line, ""))
    with pytest.raises(WeatherError, match="not a value"):
        load_all(MINIMAL.replace(line, line.split("=")[0] + '= "x"'))


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(WeatherError, match="calm, bursty, lossy, outage, hostile"):
        load("sunny")
