"""What the core gets: the words of the domain, milliseconds, and nothing lost on the way."""

from __future__ import annotations

import msgspec
import pytest

from ephemerd.config.model import Settings
from ephemerd.config.policy import PolicySettings
from ephemerd.config.show import toml_value
from ephemerd.domain.ids import Scope
from ephemerd.domain.pool import FenceKind, Host, Policy, Pool
from tests.unit.config.conftest import GOOD

ELSEWHERE = {"backoff", "jitter", "orphan_sweep"}


def test_the_policy_has_each_number_of_the_domain_under_its_name():
    names = {field.name for field in msgspec.structs.fields(Policy)}
    assert set(PolicySettings.model_fields) == names - ELSEWHERE


def test_defaults_are_the_domain_s(bench):
    setup = bench.load().to_setup()
    assert setup.policy == Policy()
    assert setup.pools == (
        Pool(
            name="linux",
            scope=Scope("github", "repo:acme/app"),
            labels=("linux", "self-hosted", "x64"),
            host="local",
            runtime="process",
            probes=True,
            fence=FenceKind.REFUSES,
            observed=True,
        ),
    )
    assert setup.hosts == (Host("local", 4),)


@pytest.mark.parametrize("name", sorted(PolicySettings.model_fields))
def test_each_number_of_the_policy_arrives(bench, name):
    default = getattr(Policy(), name)
    written: str = "7m"
    expected: object = 420_000
    if isinstance(default, str):
        written, expected = "hard", "hard"
    elif isinstance(default, float):
        written, expected = "7.5", 7.5
    elif name in {"write_burst", "alarm_after_exits", "abandoned_limit", "finished_most"}:
        written, expected = "7", 7
    policy = bench.load(GOOD, **{f"policy__{name}": written}).to_setup().policy
    assert getattr(policy, name) == expected != default
    assert msgspec.structs.replace(policy, **{name: default}) == Policy()


def test_the_numbers_that_are_written_elsewhere_arrive(bench):
    text = GOOD + (
        "[runner.orphan_sweep]\nenabled = false\ngrace = '3m'\n"
        "[runner.claim_retry]\nbackoff = ['1s', 2, '250ms']\njitter = 0\n"
    )
    setup = bench.load(text).to_setup()
    assert setup.policy.orphan_sweep is False
    assert setup.policy.backoff == (1_000, 2_000, 250)
    assert setup.policy.jitter == 0
    assert setup.pools[0].orphan_grace == 180_000


def test_a_pool_s_own_values_arrive(bench):
    text = GOOD + (
        "max_concurrent = 3\norphan_grace = 90\nsurplus_grace = 0\njob_timeout = '6h'\nunlabelled = true\n"
        "[runner.orphan_sweep]\ngrace = '3m'\n"
    )
    (pool,) = bench.load(text).to_setup().pools
    assert (pool.max_concurrent, pool.orphan_grace, pool.surplus_grace) == (3, 90_000, 0)
    assert (pool.job_timeout, pool.unlabelled) == (21_600_000, True)


def test_slots_are_the_sum_of_the_host_s_pools_unless_written(bench):
    text = GOOD + "max_concurrent = 3\n[pools.more]\nlabels = ['more']\nruntime = 'process'\n"
    other = "[pools.big]\nhost = 'two'\nlabels = ['big']\nruntime = 'process'\n[hosts.two]\n"
    assert bench.load(text).to_setup().hosts == (Host("local", 7),)
    assert bench.load(text + other).to_setup().hosts == (Host("two", 4), Host("local", 7))
    assert bench.load(text + "[hosts.local]\nslots = 5\n").to_setup().hosts == (Host("local", 5),)


def test_pools_keep_the_order_in_which_they_were_written(bench):
    text = GOOD + "".join(f"[pools.p{number}]\nlabels = ['x']\nruntime = 'process'\n" for number in (3, 1, 2))
    assert [pool.name for pool in bench.load(text).to_setup().pools] == ["linux", "p3", "p1", "p2"]


def test_follow_is_for_the_runtime(bench):
    assert bench.load().settings.pools["linux"].follow == "all"
    assert bench.load(GOOD + "follow = 'listening'\n").settings.pools["linux"].follow == "listening"


def test_the_settings_do_not_change_once_read(bench):
    settings = bench.load().settings
    with pytest.raises(ValueError, match="frozen"):
        settings.policy.settle = 1
    assert Settings().pools == {}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "unset"),
        (True, "true"),
        (4, "4"),
        (0.2, "0.2"),
        ('say "\\"', '"say \\"\\\\\\""'),
        (["a", 1], '["a", 1]'),
        ({}, "{}"),
        ({"A": "b"}, '{ A = "b" }'),
    ],
)
def test_values_as_toml(value, text):
    assert toml_value(value) == text


@pytest.mark.parametrize(
    ("template", "suffix"),
    [
        ("{id}", ""),
        ("{id}-{pool}", "-linux"),
        ("{id}-{host}-{pool}-x", "-local-linux-x"),
        ("{id}-" + "x" * 33, "-" + "x" * 33),
    ],
)
def test_the_names_of_runners_end_as_the_pool_says(bench, template, suffix):
    text = GOOD.replace("[pools.linux]", f'[pools.linux]\nrunner_name = "{template}"')
    assert bench.load(text).to_setup().pools[0].suffix == suffix


def test_a_pools_name_is_written_as_the_forge_takes_it(bench):
    text = GOOD.replace("[pools.linux]", '[pools.Big_One]\nrunner_name = "{id}-{pool}"')
    assert bench.load(text).to_setup().pools[0].suffix == "-big-one"
    name = "x" * 60
    text = GOOD.replace("[pools.linux]", f'[pools.{name}]\nrunner_name = "{{id}}-{{pool}}"')
    assert bench.load(text).to_setup().pools[0].suffix == "-" + "x" * 33


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("linux", "must begin with {id}"),
        ("{pool}-{id}", "must begin with {id}"),
        ("{id}-{label}", "must begin with {id}"),
        ("{id}-Linux", "must begin with {id}"),
        ("{id}_x", "must begin with {id}"),
        ("{id}-" + "x" * 34, "leaves names too long"),
    ],
)
def test_a_name_that_would_not_show_whose_it_is_is_refused(bench, template, why):
    finding = bench.only(GOOD.replace("[pools.linux]", f'[pools.linux]\nrunner_name = "{template}"'))
    assert finding.code == 3
    assert finding.where.startswith("pools.linux.runner_name")
    assert why in finding.what


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ([f"l{number}" for number in range(101)], "at most 100 labels"),
        (["x" * 257], "longer than 256 signs"),
        (["a,b"], "control sign or comma"),
    ],
)
def test_labels_that_no_registration_could_bear_are_refused(bench, labels, why):
    text = GOOD.replace('["self-hosted", "Linux", "x64"]', toml_value(tuple(labels)))
    finding = bench.only(text)
    assert finding.code == 3
    assert why in finding.what
    fine = GOOD.replace('["self-hosted", "Linux", "x64"]', toml_value(("x" * 256, *map(str, range(99)))))
    assert len(bench.load(fine).to_setup().pools[0].labels) == 100
