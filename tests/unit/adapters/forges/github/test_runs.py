"""Lists of runs and repositories: what is asked, how a list that is too long is cut, what an answer says."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerd.adapters.forges.github import runs
from ephemerd.adapters.forges.github.runs import DAY_S, Span
from ephemerd.adapters.kit.answer import Answer
from ephemerd.ports.errors import Refused, RetryLater
from ephemerd.ports.forge import RepositorySeen

NOW = 1_796_000_000.0


def document(body: Any) -> Answer:
    return Answer(200, {}, json.dumps(body).encode())


def query(target: str) -> dict[str, list[str]]:
    return parse_qs(urlsplit(target).query)


# -- what is asked -----------------------------------------------------------------------------------------


def test_fp_28_runs_that_run_and_runs_that_wait_are_listed_beside_those_that_are_queued():
    assert set(runs.ACTIVE) == {"queued", "in_progress", "waiting", "pending"}
    assert set(runs.BUSY) < set(runs.ACTIVE)


def test_fp_39_pages_are_as_long_as_they_can_be():
    for request in (runs.list_runs("a/b", "queued"), runs.list_jobs("a/b", 1), runs.list_owned("acme")):
        assert query(request.target)["per_page"] == ["100"]
        assert request.conditional
    assert query(runs.list_installed("acme").target)["per_page"] == ["100"]


def test_the_times_of_a_list_are_written_as_github_reads_them():
    request = runs.list_runs("a/b", "queued", Span(1_795_910_400, 1_795_996_799))
    assert query(request.target)["created"] == ["2026-11-29T00:00:00Z..2026-11-29T23:59:59Z"]
    assert query(request.target)["status"] == ["queued"]


def test_a_glance_asks_for_a_few_of_the_newest_runs_and_keeps_no_body():
    request = runs.list_newest("Acme/App")
    assert request.target == "/repos/Acme/App/actions/runs?exclude_pull_requests=true&per_page=10"
    assert (request.conditional, request.whole) == (True, False)
    more = runs.list_newest("Acme/App", runs.AUDITED)
    assert more.target == "/repos/Acme/App/actions/runs?exclude_pull_requests=true&per_page=100"
    assert runs.GLANCED < runs.POLLED < runs.AUDITED


def test_repositories_are_listed_on_the_account_that_they_belong_to():
    assert runs.list_owned("acme").target == "/orgs/acme/repos?type=all&per_page=100"
    assert runs.list_owned("acme").account == runs.list_installed("acme").account == "/orgs/acme"
    for wrong in ("", "a/b", "..", "a b"):
        with pytest.raises(Refused):
            runs.list_owned(wrong)


# -- a list that is too long --------------------------------------------------------------------------------


def test_every_run_that_is_not_over_was_created_in_all_days():
    span = runs.all_days(NOW)
    assert span.first <= NOW - 35 * DAY_S
    assert span.last >= NOW + DAY_S - 1
    assert runs.all_days(NOW + 60) == span, "asked again within a day it is the same question"


@given(st.integers(0, 2**40), st.integers(0, 2**22))
def test_the_halves_of_a_time_are_all_of_it_without_an_overlap(first: int, length: int):
    span = Span(first, first + length)
    halves = span.halves()
    if length == 0:
        assert halves is None
        return
    assert halves is not None
    left, right = halves
    assert (left.first, right.last) == (span.first, span.last)
    assert left.last + 1 == right.first
    assert left.first <= left.last
    assert right.first <= right.last


# -- what is read -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "read"), [(0, 0), (1234, 1234), (None, None), ("7", None), (True, None), (-1, None)]
)
def test_how_many_runs_there_are_is_told_or_not(total, read):
    page = {"workflow_runs": [], "total_count": total}
    assert runs.read_runs(runs.list_runs("a/b", "queued"), document(page), "a/b").total == read


@pytest.mark.parametrize(
    ("status", "over"),
    [("completed", True), ("queued", False), ("waiting", False), (None, False), (7, False)],
)
def test_a_run_is_over_only_where_it_says_so(status, over):
    page = {"workflow_runs": [{"id": 1, "status": status}]}
    (run,) = runs.read_runs(runs.list_newest("a/b"), document(page), "a/b").runs
    assert run.over is over


@pytest.mark.parametrize(
    ("told", "read"),
    [
        ("2026-11-29T13:58:02Z", 1_795_960_682_000),
        ("2026-11-29T13:58:02", 1_795_960_682_000),
        ("2026-11-29T14:58:02.500+01:00", 1_795_960_682_500),
        ("yesterday", 0),
        (1_795_960_682, 0),
        (None, 0),
    ],
)
def test_when_something_happened_to_a_run_last_is_told_or_not(told, read):
    page = {"workflow_runs": [{"id": 1, "status": "queued", "updated_at": told}]}
    (run,) = runs.read_runs(runs.list_newest("a/b"), document(page), "a/b").runs
    assert run.updated == read


SHOWN = {"id": 7, "full_name": "Acme/App", "private": True, "pushed_at": "2026-11-29T13:58:02Z"}
SEEN = RepositorySeen("Acme/App", 7, public=False, pushed="2026-11-29T13:58:02Z")


def test_both_lists_of_repositories_say_the_same():
    owned = runs.read_repositories(runs.list_owned("acme"), document([SHOWN]))
    installed = runs.read_repositories(
        runs.list_installed("acme"), document({"total_count": 1, "repositories": [SHOWN]})
    )
    assert owned == installed == [SEEN]


@pytest.mark.parametrize(
    ("fields", "seen"),
    [
        ({"archived": True}, RepositorySeen("Acme/App", 7, False, True, SEEN.pushed)),
        ({"disabled": True}, RepositorySeen("Acme/App", 7, False, True, SEEN.pushed)),
        ({"private": False}, RepositorySeen("Acme/App", 7, True, False, SEEN.pushed)),
        ({"private": None, "pushed_at": None}, RepositorySeen("Acme/App", 7)),
        ({"full_name": "no slash"}, None),
        ({"id": None}, None),
    ],
)
def test_a_repository_with_holes_is_read_as_far_as_it_goes(fields, seen):
    found = runs.read_repositories(runs.list_owned("acme"), document([{**SHOWN, **fields}]))
    assert found == ([] if seen is None else [seen])


@pytest.mark.parametrize("body", [{}, {"repositories": 7}, "x", None])
def test_what_is_no_list_of_repositories_is_not_understood(body):
    for request in (runs.list_owned("acme"), runs.list_installed("acme")):
        with pytest.raises(RetryLater, match="not understood"):
            runs.read_repositories(request, document(body))
