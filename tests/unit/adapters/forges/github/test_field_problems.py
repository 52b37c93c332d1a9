"""Field problems that bite at the wire of GitHub: what a status, a header, a field or a body may mean.

Numbers are those of docs/FIELD-PROBLEMS.md.
"""

from __future__ import annotations

import json

import pytest

from ephemerd.adapters.forges.github import faults, make_webhooks, runs, wire
from ephemerd.adapters.kit.answer import Answer
from ephemerd.domain.ids import JobKey, Scope
from ephemerd.domain.job import ForgeStatus
from ephemerd.domain.runner import FenceAnswer
from ephemerd.ports.errors import Denied, Limited, PortError, Refused
from ephemerd.ports.webhooks import BadSignature
from tests.unit.adapters.forges.github.test_webhooks import JOB, changed, receive, signed

SCOPE = Scope("github", "repo:acme/app")
REGISTER = wire.register(SCOPE, "eph-a-b-1", ("x",))
DELETE = wire.delete_runner(SCOPE, 7)
NOW = 1_700_000_000.0


def fault(request: wire.Request, status: int, message: str, **headers: str) -> PortError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return faults.fault(request, Answer(status, named, json.dumps({"message": message}).encode()), now=NOW)


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (204, FenceAnswer.ACCEPTED),
        (422, FenceAnswer.REFUSED),
        (400, FenceAnswer.REFUSED),
        (404, FenceAnswer.NOT_FOUND),
        (500, None),
        (502, None),
        (401, None),
        (403, None),
        (429, None),
    ],
)
def test_fp_11_a_refusal_is_known_by_its_status_and_not_by_its_words(status, answer):
    """Three wordings are known for one status; a 500 with the wording of a refusal is no word at all."""
    assert faults.fence_answer(status) is answer


def test_fp_21_ten_thousand_registrations_is_a_refusal_of_its_own():
    found = fault(REGISTER, 422, "Runner group 1 has reached max limit of 10000 runners")
    assert type(found) is Refused
    assert "10000" in found.detail


@pytest.mark.parametrize(
    ("action", "fields"),
    [
        ("queued", None),
        ("an action of the future", {"status": "a status of the future"}),
        ("completed", {"status": "completed", "conclusion": "a conclusion of the future"}),
        ("queued", {"id": None}),
    ],
)
def test_fp_31_well_formed_and_signed_never_raises_whatever_is_inside(action, fields):
    body = {**changed(**(fields or {})), "action": action}
    if fields is None:
        body["workflow_job"] = None
    found = receive(body)
    assert found.unused or found.report is not None


@pytest.mark.parametrize(
    "nobody", [{"runner_id": 0, "runner_name": ""}, {"runner_id": None, "runner_name": None}]
)
@pytest.mark.parametrize("status", ["in_progress", "completed"])
def test_fp_32_nought_and_empty_and_null_are_nobody(status, nobody):
    found = receive({**changed(status=status, **nobody), "action": status})
    assert found.report is not None
    assert (found.report.runner_name, found.report.runner_id) == (None, None)


def test_fp_32_the_runner_of_a_queued_job_is_no_binding():
    found = receive(changed(status="queued", runner_id=7, runner_name="eph-a-b-1"))
    assert found.report is not None
    assert (found.report.status, found.report.runner_name) == (ForgeStatus.QUEUED, None)


def test_fp_33_no_secret_no_start():
    with pytest.raises(Denied):
        make_webhooks("github", secret="")


def test_fp_33_the_raw_bytes_are_signed_and_by_this_hooks_secret():
    raw = b'{"action" :  "queued"}'
    again = json.dumps(json.loads(raw)).encode()
    for headers in (signed(again), signed(raw, "another hook's secret"), {}):
        with pytest.raises(BadSignature):
            make_webhooks("github", secret="right").receive(headers, raw)


@pytest.mark.parametrize(
    ("status", "headers", "wait"),
    [
        (403, {"retry_after": "60", "x_ratelimit_remaining": "4000"}, 60_000),
        (429, {}, 60_000),
    ],
)
def test_fp_36_told_to_wait_although_the_quota_is_far_from_empty(status, headers, wait):
    found = fault(REGISTER, status, "You have exceeded a secondary rate limit", **headers)
    assert type(found) is Limited
    assert found.fault().after_ms is not None
    assert wait <= (found.fault().after_ms or 0) <= wait + 1_000


def test_fp_37_an_exhausted_quota_is_no_invalid_token_and_each_remedy_has_its_kind():
    exhausted = fault(
        DELETE,
        403,
        "API rate limit exceeded",
        x_ratelimit_remaining="0",
        x_ratelimit_reset=str(int(NOW) + 500),
    )
    assert type(exhausted) is Limited
    assert type(fault(DELETE, 401, "Bad credentials")) is Denied
    assert type(fault(DELETE, 403, "Resource not accessible by integration")) is Denied


def test_fp_39_pages_of_a_hundred_and_a_link_to_the_next():
    for request in (
        wire.list_runners(SCOPE),
        runs.list_runs("acme/app", "queued"),
        runs.list_jobs("acme/app", 34),
    ):
        assert "per_page=100" in request.target
    assert JobKey("github", "acme/app", int(JOB["id"])).id == 12
