"""Answers by remedy: the table of what may and may not be concluded from a status."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerd.adapters.forges.github import faults, runs, wire
from ephemerd.adapters.kit.answer import Answer
from ephemerd.domain.errors import Remedy
from ephemerd.domain.ids import JobKey, Scope
from ephemerd.domain.runner import FenceAnswer
from ephemerd.ports.errors import Denied, Gone, Limited, PortError, Refused, RetryLater, Unseen
from ephemerd.ports.forge import Budget

SCOPE = Scope("github", "repo:acme/app")
REGISTER = wire.register(SCOPE, "eph-a-b-1", ("x",))
GET = wire.get_runner(SCOPE, 7)
LIST = wire.list_runners(SCOPE)
FIND = wire.list_runners(SCOPE, "eph-a-b-1")
DELETE = wire.delete_runner(SCOPE, 7)
REPOSITORY = wire.get_repository("acme/app")
JOB = wire.get_job(JobKey("github", "acme/app", 1))
RUNS = runs.list_runs("acme/app", "queued")
EVERY = [REGISTER, GET, LIST, FIND, DELETE, REPOSITORY, JOB, RUNS, runs.list_jobs("acme/app", 1)]
NOW = 1_700_000_000.0
DATE = "Tue, 14 Nov 2023 22:13:20 GMT"  # NOW


def fault(request: wire.Request, status: int, message: str = "", secrets=(), **headers: str) -> PortError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = json.dumps({"message": message}).encode() if message else b""
    return faults.fault(request, Answer(status, named, body), now=NOW, secrets=secrets)


@pytest.mark.parametrize("request_", EVERY)
@pytest.mark.parametrize(
    ("status", "kind", "remedy"),
    [
        (200, RetryLater, Remedy.RETRY),
        (202, RetryLater, Remedy.RETRY),
        (301, Refused, Remedy.REFUSED),
        (302, Refused, Remedy.REFUSED),
        (307, Refused, Remedy.REFUSED),
        (308, Refused, Remedy.REFUSED),
        (304, RetryLater, Remedy.RETRY),
        (400, Refused, Remedy.REFUSED),
        (401, Denied, Remedy.DENIED),
        (403, Denied, Remedy.DENIED),
        (405, Refused, Remedy.REFUSED),
        (408, RetryLater, Remedy.RETRY),
        (409, Refused, Remedy.REFUSED),
        (410, Refused, Remedy.REFUSED),
        (415, Refused, Remedy.REFUSED),
        (422, Refused, Remedy.REFUSED),
        (429, Limited, Remedy.LIMITED),
        (500, RetryLater, Remedy.RETRY),
        (502, RetryLater, Remedy.RETRY),
        (503, RetryLater, Remedy.RETRY),
        (504, RetryLater, Remedy.RETRY),
        (599, RetryLater, Remedy.RETRY),
    ],
)
def test_a_status_has_its_remedy(request_, status, kind, remedy):
    found = fault(request_, status)
    assert type(found) is kind
    assert found.fault().remedy is remedy
    assert str(status) in found.detail
    assert request_.endpoint in found.detail
    assert request_.about in found.detail


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (REGISTER, Denied),
        (LIST, Unseen),
        (FIND, Unseen),
        (REPOSITORY, Unseen),
        (RUNS, Unseen),
        (GET, Gone),
        (JOB, Gone),
    ],
)
def test_not_found_is_gone_only_where_one_thing_was_asked_for(request_, kind):
    assert type(fault(request_, 404)) is kind


def test_a_404_on_registering_says_what_to_check():
    text = fault(REGISTER, 404).detail
    for part in ("repo:acme/app", "runner group 1", "Administration: write"):
        assert part in text


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (204, FenceAnswer.ACCEPTED),
        (422, FenceAnswer.REFUSED),
        (400, FenceAnswer.REFUSED),
        (404, FenceAnswer.NOT_FOUND),
        (200, None),
        (202, None),
        (301, None),
        (401, None),
        (403, None),
        (409, None),
        (410, None),
        (429, None),
        (500, None),
        (502, None),
        (503, None),
    ],
)
def test_a_fence_is_read_by_its_status_alone(status, answer):
    assert faults.fence_answer(status) is answer


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"retry_after": "60"}, ""),
        ({"x_ratelimit_remaining": "0"}, ""),
        ({}, "You have exceeded a secondary rate limit. Please wait"),
        ({}, "API rate limit exceeded for user ID 1."),
        ({}, "You have triggered an abuse detection mechanism."),
    ],
)
def test_a_403_that_is_a_limit_is_never_a_permission(headers, message):
    assert type(fault(REGISTER, 403, message, **headers)) is Limited


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({}, "Resource not accessible by personal access token"),
        ({"x_ratelimit_remaining": "4999"}, "Must have admin rights to Repository."),
        ({"x_ratelimit_remaining": "none"}, ""),
    ],
)
def test_a_403_that_is_no_limit_is_denied(headers, message):
    assert type(fault(REGISTER, 403, message, **headers)) is Denied


def test_a_403_says_which_permission_was_wanted():
    found = fault(REGISTER, 403, x_accepted_github_permissions="administration=write")
    assert "it needs administration=write" in found.detail


@pytest.mark.parametrize("status", [403, 429])
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "90"}, 90),
        ({"retry_after": "0"}, 1),
        ({"retry_after": "1000000"}, 7200),
        ({"retry_after": "Tue, 14 Nov 2023 22:15:20 GMT"}, 120),
        ({"retry_after": "Tue, 14 Nov 2023 22:15:20 GMT", "date": "Tue, 14 Nov 2023 22:14:20 GMT"}, 60),
        ({"x_ratelimit_remaining": "0", "x_ratelimit_reset": str(int(NOW) + 500)}, 501),
        ({"x_ratelimit_remaining": "0", "x_ratelimit_reset": str(int(NOW) + 500), "retry_after": "60"}, 501),
        ({"x_ratelimit_remaining": "0", "x_ratelimit_reset": str(int(NOW) + 20), "retry_after": "60"}, 60),
        ({"x_ratelimit_remaining": "0", "x_ratelimit_reset": str(int(NOW) - 5)}, 60),
        ({"x_ratelimit_remaining": "0", "x_ratelimit_reset": "soon"}, 60),
        ({"x_ratelimit_remaining": "0"}, 60),
        ({"x_ratelimit_remaining": "0", "x_ratelimit_reset": "99999999999"}, 7200),
        ({"x_ratelimit_remaining": "0", "retry_after": "when it suits"}, 60),
    ],
)
def test_how_long_a_limit_lasts(status, headers, seconds):
    found = fault(REGISTER, status, **headers)
    assert type(found) is Limited
    assert found.after_ms == seconds * 1000
    assert f"in {seconds} s" in found.detail


def test_a_limit_without_any_header_lasts_a_minute():
    assert fault(REGISTER, 429).after_ms == 60_000


def test_a_quota_far_from_empty_does_not_stretch_the_wait():
    headers = {"x_ratelimit_remaining": "4000", "x_ratelimit_reset": str(int(NOW) + 3000)}
    assert fault(REGISTER, 429, **headers).after_ms == 60_000
    assert fault(REGISTER, 429, retry_after="60", **headers).after_ms == 60_000


def test_the_answers_own_clock_counts_when_this_hosts_is_wrong():
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(NOW) + 30), "date": DATE}
    for wrong in (NOW - 86_400, NOW + 86_400):
        assert faults.limit_wait_ms(headers, wrong) == 31_000


@pytest.mark.parametrize("date", ["", "yesterday", "Tue, 99 Nov 2023 99:99:99 GMT"])
def test_a_date_that_is_none_leaves_the_clock_of_this_host(date):
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(NOW) + 30), "date": date}
    assert faults.limit_wait_ms(headers, NOW) == 31_000


def test_a_503_may_say_when_to_come_back():
    assert fault(GET, 503, retry_after="7").after_ms == 7000
    assert fault(GET, 503).after_ms is None


def test_a_full_group_is_told_as_such():
    found = fault(REGISTER, 422, "Runner group 1 has reached max limit of 10000 runners")
    assert "10,000 registrations" in found.detail
    assert "10,000" not in fault(REGISTER, 422, "Invalid property /labels: 1 item required").detail


def test_a_410_names_the_api_version():
    assert wire.API_VERSION in fault(GET, 410).detail


def test_a_redirect_says_what_to_change():
    assert "renamed" in fault(REGISTER, 301).detail


def test_the_request_id_is_kept():
    assert "[request id AB12:34]" in fault(GET, 500, x_github_request_id="AB12:34").detail


def test_githubs_own_words_are_quoted_but_bounded_and_printable():
    found = fault(REGISTER, 422, "no\x1b[31m\nway " + "very " * 500)
    assert "(no [31m way very very" in found.detail
    assert len(found.detail) < 700
    assert found.detail.isprintable()


@pytest.mark.parametrize(
    "secret",
    ["t0ken", "ghp_" + "a1B2" * 9, "github_pat_11AAA_bbb", "ghs_123_eyJhbGciOi.x-y", "eyJ" + "Zm9v" * 200],
)
def test_a_secret_that_is_echoed_is_hidden(secret):
    found = fault(REGISTER, 422, f"bad credential {secret} given", secrets=("t0ken",))
    assert secret not in found.detail
    assert "[hidden]" in found.detail


@pytest.mark.parametrize(
    "body", [b"", b"<html>t0ken</html>", b"[]", b'"t0ken"', b'{"message":["t0ken"]}', b"[" * 100_000]
)
def test_a_body_that_is_no_message_is_not_quoted(body):
    found = faults.fault(GET, Answer(500, {}, body), now=NOW)
    assert "t0ken" not in found.detail


def test_no_answer_says_what_was_asked_and_why_it_failed():
    found = faults.no_answer(REGISTER, "ConnectError: refused")
    assert type(found) is RetryLater
    assert "generate-jitconfig" in found.detail
    assert "runner eph-a-b-1 in repo:acme/app" in found.detail
    assert "ConnectError: refused" in found.detail


def test_a_budget_is_read():
    headers = {
        "x-ratelimit-limit": "5000",
        "x-ratelimit-remaining": "4998",
        "x-ratelimit-reset": "1700003600",
        "x-ratelimit-resource": "actions_runner_registration",
    }
    assert faults.budget(headers) == Budget("actions_runner_registration", 5000, 4998, 1700003600)
    del headers["x-ratelimit-resource"]
    assert faults.budget(headers) == Budget("core", 5000, 4998, 1700003600)


@pytest.mark.parametrize("missing", ["limit", "remaining", "reset"])
@pytest.mark.parametrize("value", [None, "", "-1", "1.5", "many", "9" * 40, "²"])
def test_a_budget_with_a_hole_is_none(missing, value):
    headers = {f"x-ratelimit-{part}": "1" for part in ("limit", "remaining", "reset")}
    if value is None:
        del headers[f"x-ratelimit-{missing}"]
    else:
        headers[f"x-ratelimit-{missing}"] = value
    assert faults.budget(headers) is None


def test_the_end_of_an_endpoint_is_announced():
    assert faults.end_of_life({}) == ""
    announced = faults.end_of_life({"deprecation": "@1", "sunset": "Sat, 10 Mar 2028 00:00:00 GMT"})
    assert announced == "deprecation @1, sunset Sat, 10 Mar 2028 00:00:00 GMT"


@given(
    status=st.integers(100, 599),
    headers=st.dictionaries(
        st.sampled_from(
            ["retry-after", "date", "x-ratelimit-remaining", "x-ratelimit-reset", "x-github-request-id"]
        ),
        st.text(max_size=40) | st.integers().map(str),
    ),
    body=st.binary(max_size=50) | st.text().map(lambda text: json.dumps({"message": text}).encode()),
)
def test_any_answer_has_a_remedy(status, headers, body):
    for request in EVERY:
        found = faults.fault(request, Answer(status, headers, body), now=NOW)
        assert isinstance(found, PortError)
        assert found.after_ms is None or 1000 <= found.after_ms <= 7_200_000
        assert isinstance(found, Gone) <= (status == 404)


@pytest.mark.parametrize(
    ("headers", "at"), [({"date": DATE}, NOW * 1000), ({"date": "soon"}, 0), ({"date": ""}, 0), ({}, 0)]
)
def test_when_an_answer_was_sent_is_told_by_the_forge_alone(headers, at):
    assert faults.sent_at(headers) == at
