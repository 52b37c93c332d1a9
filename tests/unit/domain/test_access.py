"""Who may use the machines: one row a case, and what is not known is never served."""

from __future__ import annotations

from typing import Any

import pytest

from ephemerd.domain.access import Access, Refusal, fits
from ephemerd.domain.ids import JobKey
from ephemerd.domain.job import Job, JobStatus

R = Refusal


def job(repository: str = "acme/app", **facts: Any) -> Job:
    told: dict[str, Any] = {"public": False, "fork": False, "branch": "main", "workflow": "CI"}
    key = JobKey("github", repository, 1)
    return Job(key, ("linux",), 1, JobStatus.QUEUED, 0, 0, 0, run_id=7, **(told | facts))


def access(**rules: Any) -> Access:
    return Access("github", **rules)


@pytest.mark.parametrize(
    ("rules", "facts", "refusal"),
    [
        ({}, {}, None),
        ({}, {"public": True}, R.PUBLIC),
        ({}, {"public": None}, R.UNKNOWN),
        ({}, {"fork": True}, R.FORK),
        ({}, {"fork": None}, R.UNKNOWN),
        ({}, {"public": True, "fork": None}, R.PUBLIC),
        # by a pattern a public repository is not named
        ({"repositories": ("acme/*",)}, {}, None),
        ({"repositories": ("acme/*",)}, {"public": True}, R.PUBLIC),
        ({"repositories": ("acme/*", "Acme/App")}, {"public": True}, None),
        ({"repositories": ("acme/app",)}, {"public": None}, None),
        ({"repositories": ("acme/lib",)}, {"public": None}, R.REPOSITORY),
        ({"repositories": ("ACME/*",), "denied": ("acme/a*",)}, {}, R.REPOSITORY),
        # a public repository that is named still lets no fork in
        ({"repositories": ("acme/app",)}, {"public": True, "fork": True}, R.FORK),
        ({"repositories": ("acme/app",), "forks": ("acme/*",)}, {"public": True, "fork": True}, None),
        ({"forks": ("acme/app",)}, {"fork": None}, None),
        ({"forks": ("acme/lib",)}, {"fork": True}, R.FORK),
        # branches and workflows; their names tell capitals apart
        ({"branches": ("main", "release/*")}, {"branch": "release/1/2"}, None),
        ({"branches": ("main",)}, {"branch": "Main"}, R.BRANCH),
        ({"branches": ("main",)}, {"branch": ""}, R.UNKNOWN),
        ({"workflows": ("CI", "Build *")}, {"workflow": "Build all"}, None),
        ({"workflows": ("CI",)}, {"workflow": "ci"}, R.WORKFLOW),
        ({"workflows": ("CI",)}, {"workflow": ""}, R.UNKNOWN),
        # a fork can call its branch as it likes
        ({"branches": ("main",), "forks": ("acme/*",)}, {"fork": True}, R.BRANCH),
        ({"branches": ("main",), "forks": ("acme/*",)}, {"fork": None}, R.UNKNOWN),
    ],
)
def test_who_is_served(rules: dict[str, Any], facts: dict[str, Any], refusal: Refusal | None) -> None:
    assert access(**rules).refuses(job(**facts)) is refusal


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("main", ["main"], ["mai", "main2", ""]),
        ("*", ["", "a/b"], []),
        ("rel/*", ["rel/", "rel/1/2"], ["rel", "xrel/1"]),
        ("*-lts", ["1-lts", "-lts"], ["1-lts2"]),
        ("a*b*c", ["abc", "axbxbxc"], ["ab", "ac", "acb", "abcd"]),
        ("ab*ba", ["abba", "ab-ba"], ["aba"]),
        ("[ab]?", ["[ab]?"], ["ab", "a"]),
    ],
)
def test_patterns(pattern: str, yes: list[str], no: list[str]) -> None:
    assert [text for text in (*yes, *no) if fits(text, pattern)] == yes


def test_repositories_compare_without_case() -> None:
    rules = access(repositories=("ACME/App",), forks=("acme/APP",))
    assert rules.refuses(job("Acme/aPP", public=True, fork=True)) is None


@pytest.mark.parametrize(
    ("rules", "public", "served"),
    [
        ({}, False, True),
        ({}, None, True),
        ({}, True, False),
        ({"repositories": ("acme/*",)}, True, False),
        ({"repositories": ("ACME/app",)}, True, True),
        ({"repositories": ("acme/*",)}, None, True),
        ({"repositories": ("other/*",)}, False, False),
        ({"denied": ("acme/A*",)}, False, False),
        ({"repositories": ("acme/app",), "denied": ("*/app",)}, True, False),
    ],
)
def test_a_repository_is_asked_about_only_where_a_job_of_it_could_be_served(
    rules: dict[str, Any], public: bool | None, served: bool
) -> None:
    assert access(**rules).lets_in("Acme/App", public=public) is served
    one = job("Acme/App", public=public, fork=False)
    assert served is (access(**rules).refuses(one) in (None, Refusal.UNKNOWN))
