"""Deliveries: every file of tests/data/webhooks, the order of the checks, and any bytes at all."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ephemerd.adapters.forges.github import make_webhooks
from ephemerd.domain.ids import JobKey
from ephemerd.domain.job import ForgeStatus, Origin
from ephemerd.ports.errors import Denied
from ephemerd.ports.webhooks import BadSignature, Delivery, Malformed, WrongType

DATA = Path(__file__).parents[4] / "data" / "webhooks"
HEADERS = json.loads((DATA / "headers.json").read_text(encoding="utf-8"))
SECRET = HEADERS["secret"]
FILES = sorted(HEADERS["deliveries"])
REPOSITORY = "ephemerd-fixture-org/ephemerd-fixture-repo"
JOB: dict[str, Any] = {"id": 12, "status": "queued", "labels": ["linux"], "name": "build", "run_id": 3}
BODY: dict[str, Any] = {"action": "queued", "workflow_job": JOB, "repository": {"full_name": "Acme/App"}}
# What each file says: status, id's last digits, attempt, runner, conclusion.
EXPECTED = {
    "workflow_job.queued.json": (ForgeStatus.QUEUED, 900000000001001, False, None),
    "workflow_job.waiting.json": (ForgeStatus.WAITING, 900000000001002, False, None),
    "workflow_job.in_progress.json": (ForgeStatus.IN_PROGRESS, 900000000001001, True, None),
    "workflow_job.completed.json": (ForgeStatus.COMPLETED, 900000000001001, True, "success"),
    "workflow_job.completed.cancelled-while-queued.json": (
        ForgeStatus.COMPLETED,
        900000000001001,
        False,
        "cancelled",
    ),
    "workflow_job.completed.skipped.json": (ForgeStatus.COMPLETED, 900000000001003, False, "skipped"),
}


def signed(body: bytes, secret: str = SECRET, **more: str) -> dict[str, str]:
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {
        "x-github-event": "workflow_job",
        "x-github-delivery": "d-1",
        "content-type": "application/json",
        "x-hub-signature-256": f"sha256={digest}",
        **{name.replace("_", "-"): value for name, value in more.items()},
    }


def receive(body: bytes | dict[str, Any], **more: str) -> Delivery:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return make_webhooks("github", secret=SECRET).receive(signed(raw, **more), raw)


def changed(**fields: Any) -> dict[str, Any]:
    return {**BODY, "workflow_job": {**JOB, **fields}}


def test_every_file_is_listed():
    assert FILES == sorted(path.name for path in DATA.glob("workflow_job.*.json")) == sorted(EXPECTED)


@pytest.mark.parametrize("name", FILES)
def test_a_recorded_delivery_passes_with_its_own_signature(name):
    body = (DATA / name).read_bytes()
    given_headers = {key.lower(): value for key, value in HEADERS["deliveries"][name].items()}
    found = make_webhooks("github", secret=SECRET).receive(given_headers, body)
    status, number, has_runner, conclusion = EXPECTED[name]
    assert (found.id, found.event, found.unused) == (given_headers["x-github-delivery"], "workflow_job", "")
    assert found.report is not None
    assert found.report.key == JobKey("github", REPOSITORY, number)
    assert found.report.status is status
    assert found.report.conclusion == conclusion
    raw = json.loads(body)["workflow_job"]
    assert found.report.labels == tuple(raw["labels"])
    assert found.report.run_id == raw["run_id"]
    expected = (raw["runner_name"], raw["runner_id"]) if has_runner else (None, None)
    assert (found.report.runner_name, found.report.runner_id) == expected


@pytest.mark.parametrize("name", FILES)
def test_one_changed_byte_breaks_the_signature(name):
    body = bytearray((DATA / name).read_bytes())
    given_headers = {key.lower(): value for key, value in HEADERS["deliveries"][name].items()}
    body[len(body) // 2] ^= 1
    with pytest.raises(BadSignature):
        make_webhooks("github", secret=SECRET).receive(given_headers, bytes(body))


@pytest.mark.parametrize(
    "signature",
    [
        None,
        "",
        "sha256=",
        "sha256=00",
        "sha1=ccf9ceaff1a684c545527cfa8a7214b68c45c626",
        "sha256=" + "é" * 64,
        "\udcff\x00",
    ],
)
def test_a_missing_or_wrong_signature_is_refused(signature):
    headers = signed(b"{}")
    del headers["x-hub-signature-256"]
    if signature is not None:
        headers["x-hub-signature-256"] = signature
    with pytest.raises(BadSignature):
        make_webhooks("github", secret=SECRET).receive(headers, b"{}")


def test_the_hook_of_another_secret_is_refused():
    raw = json.dumps(BODY).encode()
    with pytest.raises(BadSignature):
        make_webhooks("github", secret="another").receive(signed(raw), raw)


def test_a_signature_over_the_re_encoded_body_is_refused():
    raw = json.dumps(BODY, indent=2).encode()
    headers = signed(json.dumps(BODY).encode())
    with pytest.raises(BadSignature):
        make_webhooks("github", secret=SECRET).receive(headers, raw)


def test_the_signature_comes_before_everything_else():
    headers = signed(b"nonsense", content_type="text/plain", x_github_event="")
    headers["x-hub-signature-256"] = "sha256=" + "0" * 64
    with pytest.raises(BadSignature):
        make_webhooks("github", secret=SECRET).receive(headers, b"nonsense")


@pytest.mark.parametrize("event", ["ping", "push", "workflow_run", "of next year"])
def test_another_event_is_unused_whatever_it_carries(event):
    found = receive(b"\xff not JSON", x_github_event=event, content_type="text/plain")
    assert found == Delivery("d-1", event, None, f"event {event}")


def test_no_event_name_is_unused():
    assert receive(BODY, x_github_event="").unused == "no event name"


@pytest.mark.parametrize("kind", ["text/plain", "", "application/xml", "multipart/form-data; boundary=x"])
def test_another_content_type_is_refused_before_the_body_is_read(kind):
    with pytest.raises(WrongType):
        receive(b"nonsense", content_type=kind)


def test_a_missing_content_type_is_refused():
    raw = json.dumps(BODY).encode()
    headers = signed(raw)
    del headers["content-type"]
    with pytest.raises(WrongType, match="missing"):
        make_webhooks("github", secret=SECRET).receive(headers, raw)


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=utf-8", " application/json "]
)
def test_json_by_any_spelling_of_its_type(kind):
    assert receive(BODY, content_type=kind).report is not None


def test_a_form_with_a_payload_says_the_same():
    document = json.dumps(changed(name="a + b & ü %41"))
    raw = urlencode({"payload": document}).encode()
    found = receive(raw, content_type="application/x-www-form-urlencoded")
    assert found == receive(document.encode())
    assert found.report is not None
    assert found.report.name == "a + b & ü %41"


@pytest.mark.parametrize("raw", [b"", b"payloads=1", b"a=1&b=2", b"{}", b"&&&="])
def test_a_form_without_a_payload_is_malformed(raw):
    with pytest.raises(Malformed, match="payload"):
        receive(raw, content_type="application/x-www-form-urlencoded")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"12",
        b"{} {}",
        b"\xef\xbb\xbf{}",
        b"{'a': 1}",
        b'{"action": NaN}',
        b"\x00" * 10,
        b"[" * 200_000,
        b'{"workflow_job":' + b"[" * 200_000,
        b'{"unknown":' + b'{"a":' * 200_000,
        json.dumps(BODY).encode()[:-5],
    ],
)
def test_what_is_no_json_object_is_malformed(raw):
    with pytest.raises(Malformed):
        receive(raw)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({**BODY, "workflow_job": None}, "no job in the payload"),
        ({"action": "queued", "repository": BODY["repository"]}, "no job in the payload"),
        ({**BODY, "workflow_job": []}, "no job in the payload"),
        ({**BODY, "workflow_job": "x"}, "no job in the payload"),
        ({**BODY, "workflow_job": {}}, "job without a usable id"),
        (changed(id="12"), "job without a usable id"),
        (changed(id=12.0), "job without a usable id"),
        (changed(id=10**30), "job without a usable id"),
        (changed(labels=["a\x1fb"]), "job with unusable labels"),
        (changed(status="completed", labels=[], conclusion="success"), "completed check run, not a job"),
        ({**BODY, "repository": None}, "no repository"),
        ({**BODY, "repository": {"full_name": None}}, "no repository"),
        ({**BODY, "repository": {"full_name": "no slash"}}, "no repository"),
        ({**BODY, "repository": ["x"]}, "no repository"),
        ({"zen": "Keep it logically awesome."}, "no repository"),
        ({}, "no repository"),
    ],
)
def test_a_payload_with_holes_is_unused_and_says_why(body, why):
    assert receive(body) == Delivery("d-1", "workflow_job", None, why)


@pytest.mark.parametrize("number", [b"1e999", b"9" * 5000])
def test_a_number_beyond_all_bounds_is_a_hole_too(number):
    body = json.dumps(BODY).encode()
    assert receive(body.replace(b'"id": 12', b'"id": ' + number)).unused == "no job in the payload"
    found = receive(body.replace(b'"action": "queued"', b'"action": ' + number))
    assert found.report is not None
    assert found.report.status is ForgeStatus.QUEUED


def test_unknown_actions_and_fields_do_no_harm():
    body = {**changed(new_field={"deep": [1]}), "action": "of next year", "enterprise": {"id": 1}}
    found = receive(body).report
    assert found is not None
    assert (found.status, found.labels, found.name) == (ForgeStatus.QUEUED, ("linux",), "build")


def test_a_queued_delivery_can_say_waiting_and_its_runner_is_no_binding():
    found = receive(changed(status="waiting", runner_id=7, runner_name="eph-a-b-1")).report
    assert found is not None
    assert (found.status, found.runner_id, found.runner_name) == (ForgeStatus.WAITING, None, None)


def test_a_running_delivery_without_an_action_binds_nobody():
    body = changed(status="in_progress", runner_id=7, runner_name="eph-a-b-1")
    del body["action"]
    found = receive(body).report
    assert found is not None
    assert (found.status, found.runner_id, found.runner_name) == (ForgeStatus.IN_PROGRESS, None, None)


@pytest.mark.parametrize(
    ("told", "public", "fork"),
    [
        ({"private": True, "forks_count": 0}, False, False),
        ({"private": True, "visibility": "internal", "forks_count": 0}, False, False),
        ({"private": False, "visibility": "internal", "forks_count": 2}, False, None),
        ({"private": True, "forks_count": 1}, False, None),
        ({"private": True}, False, None),
        ({"private": True, "forks_count": False}, False, None),
        ({"private": False, "forks_count": 0}, True, None),
        ({"private": False, "visibility": "public"}, True, None),
        ({"private": True, "visibility": "public", "forks_count": 0}, True, None),
        ({"forks_count": 0}, None, None),
        ({"private": "yes", "visibility": 3}, None, None),
    ],
)
def test_what_a_delivery_tells_of_the_repository(told, public, fork):
    job = {**JOB, "head_branch": "main", "workflow_name": "CI"}
    report = receive({**BODY, "workflow_job": job, "repository": {"full_name": "Acme/App", **told}}).report
    assert report is not None
    assert report.origin == Origin(public, fork, "main", "CI")


def test_the_repository_keeps_its_case_and_the_forge_its_configured_name():
    raw = json.dumps(BODY).encode()
    found = make_webhooks("work", secret=SECRET).receive(signed(raw), raw)
    assert found.report is not None
    assert found.report.key == JobKey("work", "Acme/App", 12)


@pytest.mark.parametrize("given_id", ["", "   ", "x" * 201, "a\nb", "ü"])
def test_without_a_sound_delivery_id_the_same_body_always_has_the_same(given_id):
    first, again = receive(BODY, x_github_delivery=given_id), receive(BODY, x_github_delivery=given_id)
    assert first.id == again.id == "body-" + hashlib.sha256(json.dumps(BODY).encode()).hexdigest()
    assert receive(changed(id=13), x_github_delivery=given_id).id != first.id


def test_a_missing_delivery_id_is_made_from_the_body():
    raw = json.dumps(BODY).encode()
    headers = signed(raw)
    del headers["x-github-delivery"]
    found = make_webhooks("github", secret=SECRET).receive(headers, raw)
    assert found.id == "body-" + hashlib.sha256(raw).hexdigest()


@pytest.mark.parametrize("secret", ["", b"", "\n", b"\r\n"])
def test_without_a_secret_there_is_no_start(secret):
    with pytest.raises(Denied, match="secret"):
        make_webhooks("github", secret=secret)


def test_the_line_end_of_a_secret_file_is_no_part_of_the_secret():
    raw = json.dumps(BODY).encode()
    assert make_webhooks("github", secret=f"{SECRET}\n").receive(signed(raw), raw).report is not None


def test_the_secret_shows_nowhere():
    hooks = make_webhooks("github", secret="very-private")
    with pytest.raises(BadSignature) as caught:
        hooks.receive({}, b"{}")
    assert "very-private" not in repr(hooks) + repr(caught.value) + str(caught.value)


LOOSE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just("queued"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
LOOSE_JOB = st.fixed_dictionaries(
    {},
    optional={
        name: LOOSE | st.sampled_from([12, "completed", "in_progress", [], ["linux"], ""])
        for name in (*JOB, "conclusion", "run_attempt", "runner_id", "runner_name")
    },
)
LOOSE_BODY = st.fixed_dictionaries(
    {},
    optional={
        "action": LOOSE,
        "workflow_job": LOOSE | LOOSE_JOB,
        "repository": LOOSE | st.just({"full_name": "Acme/App"}),
    },
)


@given(
    body=st.binary(max_size=200) | LOOSE_BODY.map(lambda body: json.dumps(body).encode()),
    kind=st.sampled_from(["application/json", "application/x-www-form-urlencoded"]) | st.text(max_size=30),
    event=st.sampled_from(["workflow_job", "workflow_job", "ping"]) | st.text(max_size=10),
    delivery=st.text(max_size=10),
)
@example(b'{"action":"\\ud800","repository":{"full_name":"a/b"}}', "application/json", "workflow_job", "d")
@example(b'payload=%ff%7b%7d&payload={"a":1}', "application/x-www-form-urlencoded", "workflow_job", "d")
def test_whatever_is_signed_gives_a_delivery_or_one_of_the_three(body, kind, event, delivery):
    try:
        found = receive(body, content_type=kind, x_github_event=event, x_github_delivery=delivery)
    except (Malformed, WrongType):
        return
    assert (found.report is None) == bool(found.unused)
    assert found.id
    json.dumps(found.unused + found.id + found.event).encode("utf-8")
    if found.report is not None:
        kept = found.report
        assert kept.key.repository == "Acme/App"
        assert 0 < kept.key.id < 2**63
        assert all(isinstance(label, str) for label in kept.labels)
        f"{kept.name}{kept.runner_name}{kept.conclusion}{kept.labels}".encode()


@given(
    headers=st.dictionaries(
        st.sampled_from(["x-hub-signature-256", "x-github-event", "content-type"]) | st.text(), st.text()
    ),
    body=st.binary(max_size=100),
)
def test_whatever_is_not_signed_is_refused(headers, body):
    with pytest.raises(BadSignature):
        make_webhooks("github", secret=SECRET).receive(headers, body)
