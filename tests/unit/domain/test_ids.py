"""Identities: keys that go to text and back, scopes that serve, names that never repeat."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerd.domain.ids import LONGEST_NAME, JobKey, Scope, is_ours, parse_job_key, runner_name

PART = st.from_regex(r"[a-z0-9._-]{1,10}", fullmatch=True)


@given(PART, PART, PART, st.integers(0, 2**63))
def test_job_key_goes_to_text_and_back(forge, owner, name, number):
    key = JobKey(forge, f"{owner}/{name}", number)
    assert parse_job_key(str(key)) == key


def test_a_job_key_in_writing():
    key = JobKey("github", "acme/app", 41)
    assert str(key) == "github/acme/app/41"
    assert parse_job_key("github/acme/app/41") == key


@pytest.mark.parametrize(
    "text", ["", "github", "github/app", "github/acme/app/", "github/acme/app/x1", "/a/b/1"]
)
def test_what_is_no_job_key(text):
    assert parse_job_key(text) is None


@pytest.mark.parametrize("digits", [20, 5_000])
def test_a_number_that_no_job_can_have_is_no_job_key(digits):
    assert parse_job_key("github/acme/app/" + "9" * digits) is None


def test_digits_of_other_scripts_are_no_job_key():
    assert parse_job_key("github/acme/app/١٢") is None


@pytest.mark.parametrize(
    ("path", "repository", "serves"),
    [
        ("repo:acme/app", "acme/app", True),
        ("repo:Acme/App", "acme/APP", True),
        ("repo:acme/app", "acme/app2", False),
        ("repo:acme/app", "other/app", False),
        ("org:acme", "acme/app", True),
        ("org:ACME", "acme/other", True),
        ("org:acme", "acme2/app", False),
        ("enterprise:big", "any/thing", True),
        ("unknown:acme", "acme/app", False),
    ],
)
def test_scope_serves(path, repository, serves):
    assert Scope("github", path).serves(JobKey("github", repository, 1)) is serves
    assert not Scope("ghes", path).serves(JobKey("github", repository, 1))


def test_scope_in_parts():
    scope = Scope("github", "org:acme")
    assert (scope.kind, scope.target, str(scope)) == ("org", "acme", "github/org:acme")


def test_names_differ_by_store_epoch_and_counter():
    names = [
        runner_name("abcd1234", "e1", 1),
        runner_name("abcd1234", "e1", 2),
        runner_name("abcd1234", "e2", 1),
        runner_name("ffff0000", "e1", 1),
    ]
    assert len(set(names)) == 4
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", name) for name in names)


def test_ours_is_the_exact_prefix():
    assert is_ours("eph-abcd1234-e1-1", "abcd1234")
    assert not is_ours("eph-abcd12345-e1-1", "abcd1234")
    assert not is_ours("my-eph-abcd1234-e1-1", "abcd1234")
    assert not is_ours("eph-abcd1234", "abcd1234")


def test_a_name_may_say_more_for_people_and_stays_ours_and_one_of_a_kind():
    assert runner_name("abcd1234", "e1", 7, "-linux") == "eph-abcd1234-e1-7-linux"
    long = runner_name("abcd1234", "e1", 10**9, "-" + "x" * 80)
    assert len(long) == LONGEST_NAME
    assert long.startswith("eph-abcd1234-e1-1000000000-x")
    assert not runner_name("abcd1234", "e1", 1, "-" * 80).endswith("-")
    assert is_ours(long, "abcd1234")
    assert not is_ours(runner_name("abcd1234", "e1", 1, "-eph-ffff0000-e1-1"), "ffff0000")
