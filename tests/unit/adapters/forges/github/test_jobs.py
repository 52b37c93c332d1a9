"""The job object with all its holes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ephemerd.adapters.forges.github.jobs import (
    MAX_ID,
    JobWire,
    integer,
    job_report,
    repository_name,
    text,
)
from ephemerd.domain.ids import JobKey
from ephemerd.domain.job import ForgeStatus, JobReport

PLAIN: dict[str, Any] = {
    "id": 900000000001001,
    "run_id": 900000000000001,
    "run_attempt": 2,
    "status": "queued",
    "name": "build",
    "labels": ["self-hosted", "Linux"],
}
RUNNER: dict[str, Any] = {"runner_id": 7, "runner_name": "eph-a-b-1"}


def told(action: str | None = None, **fields: Any) -> JobReport | str:
    job = msgspec.convert({**PLAIN, **fields}, JobWire)
    return job_report(job, "github", "Acme/App", action)


def report(action: str | None = None, **fields: Any) -> JobReport:
    found = told(action, **fields)
    assert isinstance(found, JobReport), found
    return found


def test_everything_is_taken_over():
    assert report(**RUNNER | {"status": "completed", "conclusion": "success"}) == JobReport(
        key=JobKey("github", "Acme/App", 900000000001001),
        status=ForgeStatus.COMPLETED,
        labels=("self-hosted", "Linux"),
        name="build",
        run_id=900000000000001,
        attempt=2,
        runner_name="eph-a-b-1",
        runner_id=7,
        conclusion="success",
    )


@pytest.mark.parametrize(
    "number", [None, "", "12", 0, -1, 1.5, 12.0, True, False, MAX_ID + 1, 10**40, [], {}, "x"]
)
def test_a_job_without_a_sound_id_is_unusable(number):
    assert told(id=number) == "job without a usable id"


def test_ids_beyond_32_bits_are_kept():
    assert report(id=MAX_ID).key.id == MAX_ID


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("queued", ForgeStatus.QUEUED),
        ("waiting", ForgeStatus.WAITING),
        ("in_progress", ForgeStatus.IN_PROGRESS),
        ("completed", ForgeStatus.COMPLETED),
        ("pending", ForgeStatus.WAITING),
        ("requested", ForgeStatus.OTHER),
        ("a word of next year", ForgeStatus.OTHER),
        (None, ForgeStatus.OTHER),
        (7, ForgeStatus.OTHER),
    ],
)
def test_the_status_is_told_and_unknown_words_are_other(status, expected):
    assert report(status=status, **RUNNER).status is expected


@pytest.mark.parametrize(
    ("action", "status", "expected"),
    [
        ("queued", "waiting", ForgeStatus.WAITING),
        ("queued", "completed", ForgeStatus.COMPLETED),
        ("in_progress", "queued", ForgeStatus.QUEUED),
        ("a new action", "queued", ForgeStatus.QUEUED),
        ("completed", None, ForgeStatus.COMPLETED),
        ("in_progress", "", ForgeStatus.IN_PROGRESS),
        ("a new action", None, ForgeStatus.OTHER),
        ("", None, ForgeStatus.OTHER),
    ],
)
def test_the_status_counts_and_the_action_only_without_one(action, status, expected):
    assert report(action, status=status).status is expected


@pytest.mark.parametrize(
    ("action", "status", "binds"),
    [
        ("in_progress", "in_progress", True),
        ("completed", "completed", True),
        (None, "in_progress", True),
        (None, "completed", True),
        ("queued", "queued", False),
        ("waiting", "waiting", False),
        ("queued", "in_progress", False),
        ("in_progress", "queued", False),
        ("a new action", "in_progress", False),
        ("", "in_progress", False),
        (None, "queued", False),
        (None, "pending", False),
    ],
)
def test_a_runner_binds_in_running_and_completed_jobs_alone(action, status, binds):
    found = report(action, status=status, **RUNNER)
    expected: tuple[str | None, int | None] = ("eph-a-b-1", 7) if binds else (None, None)
    assert (found.runner_name, found.runner_id) == expected


@pytest.mark.parametrize("number", [None, 0, "", "7", -7, 7.0, True])
@pytest.mark.parametrize("name", [None, "", "   ", 0, 7, [], {}])
def test_nobody_is_nobody_however_it_is_written(number, name):
    found = report(status="completed", conclusion="cancelled", runner_id=number, runner_name=name)
    assert (found.runner_name, found.runner_id) == (None, None)


@pytest.mark.parametrize("conclusion", ["success", "failure", "neutral", "stale", None])
def test_a_completed_check_run_is_not_a_job(conclusion):
    found = told(status="completed", labels=[], runner_id=None, runner_name=None, conclusion=conclusion)
    assert found == "completed check run, not a job"


@pytest.mark.parametrize(
    "fields",
    [
        {"conclusion": "cancelled"},
        {"conclusion": "skipped"},
        {"conclusion": "success", "runner_id": 9},
        {"conclusion": "success", "runner_name": "somebody"},
        {"conclusion": "success", "labels": ["x"]},
    ],
)
def test_the_end_of_a_job_of_a_group_alone_is_told(fields):
    assert report(**{"status": "completed", "labels": [], **fields}).status is ForgeStatus.COMPLETED


@pytest.mark.parametrize("labels", [None, []])
def test_no_labels_are_an_empty_set(labels):
    assert report(labels=labels).labels == ()


@pytest.mark.parametrize(
    "labels",
    [
        "self-hosted",
        7,
        {"a": 1},
        ["self-hosted", None],
        ["self-hosted", 7],
        ["self-hosted", ["gpu"]],
        ["a\x1fb"],
        ["x" * 257],
        [str(number) for number in range(101)],
    ],
)
def test_a_label_that_cannot_be_kept_makes_the_job_unusable_and_is_never_left_out(labels):
    assert told(labels=labels) == "job with unusable labels"


def test_labels_keep_case_order_and_doubles():
    labels = ["X64", "Linux", "x64", " self-hosted "]
    assert report(labels=labels).labels == tuple(labels)


@pytest.mark.parametrize(("given", "kept"), [(3, 3), (None, 1), (0, 1), (-2, 1), ("3", 1), (2.0, 1)])
def test_an_attempt_is_at_least_the_first(given, kept):
    assert report(run_attempt=given).attempt == kept


def test_a_run_without_a_sound_id_is_0():
    assert report(run_id="12").run_id == 0


def test_a_name_is_printable_and_bounded():
    assert report(name="a\x1b[31m\nb").name == "a [31m b"
    assert len(report(name="x" * 10_000).name) == 500
    assert report(name=["x"]).name == ""


@pytest.mark.parametrize("conclusion", ["success", "stale", "startup_failure", "of next year"])
def test_a_conclusion_is_any_word(conclusion):
    assert report(status="completed", conclusion=conclusion).conclusion == conclusion


@pytest.mark.parametrize("conclusion", [None, "", 7, [], {}])
def test_no_conclusion_is_none(conclusion):
    assert report(status="in_progress", conclusion=conclusion).conclusion is None


@pytest.mark.parametrize("name", ["a/b", "Acme/App", "o-1/r.e_p-o", "o/..."])
def test_a_repository_keeps_its_case(name):
    assert repository_name(name) == name


@pytest.mark.parametrize(
    "name",
    [None, 7, "", "a", "/", "a/", "/b", "a/b/c", "a b/c", "../c", "a/..", "./c", "a/b?x", "a/b\n", "ä/b"],
)
def test_what_is_no_repository(name):
    assert repository_name(name) is None


def test_small_helpers():
    assert integer(MAX_ID) == MAX_ID
    assert text("  x  ") == "x"
    assert text("abcdef", 3) == "abc"
