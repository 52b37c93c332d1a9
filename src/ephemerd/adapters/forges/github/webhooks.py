"""Deliveries: verified over the raw bytes, then parsed tolerantly; pure.

The order is signature, event name, content type, JSON (GitHub's webhook documentation; the size cap comes
before, at the web server). A valid signature over well-formed JSON never raises, whatever is inside: what
cannot be used says so in `Delivery.unused`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec.structs import replace

from ephemerd.adapters.forges.github.jobs import JobWire, job_report, repository_name, text
from ephemerd.domain.job import JobReport
from ephemerd.ports.errors import Denied
from ephemerd.ports.webhooks import BadSignature, Delivery, Malformed, WrongType

USED = "workflow_job"
_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"
_LONGEST_ID = 200


class _Repository(msgspec.Struct):
    full_name: Any = None
    private: Any = None
    visibility: Any = None
    forks_count: Any = None


class _Payload(msgspec.Struct):
    action: msgspec.Raw = msgspec.Raw(b"null")
    workflow_job: msgspec.Raw = msgspec.Raw(b"null")
    repository: msgspec.Raw = msgspec.Raw(b"null")


_decode_payload = msgspec.json.Decoder(_Payload).decode
_decode_job = msgspec.json.Decoder(JobWire).decode
_decode_repository = msgspec.json.Decoder(_Repository).decode
_decode_text = msgspec.json.Decoder(str).decode


class GitHubWebhooks:
    """The deliveries of one configured GitHub; the secret stands in no repr."""

    def __init__(self, name: str, secret: bytes) -> None:
        secret = secret.rstrip(b"\r\n")
        if not secret:
            raise Denied(
                f"the webhook secret of forge {name} is empty; set the one that the hook has at GitHub"
            )
        self.name = name
        self._secret = secret

    def receive(self, headers: Mapping[str, str], body: bytes) -> Delivery:
        """Verify and parse one request; header names are lower-case.

        Raises `BadSignature`, `WrongType` and `Malformed`, and nothing else.
        """
        self._verify(headers.get("x-hub-signature-256"), body)
        delivery = _delivery_id(headers.get("x-github-delivery"), body)
        event = text(headers.get("x-github-event"), 100)
        if event != USED:
            return Delivery(delivery, event, None, f"event {event}" if event else "no event name")
        return carried(self.name, delivery, _payload(headers.get("content-type"), body))

    def _verify(self, given: str | None, body: bytes) -> None:
        if not given:
            raise BadSignature("the delivery is not signed; the hook at GitHub has no secret")
        right = "sha256=" + hmac.digest(self._secret, body, "sha256").hex()
        if not hmac.compare_digest(given.encode("utf-8", "replace"), right.encode("ascii")):
            raise BadSignature("the signature does not fit; the hook's secret is not the configured one")


def carried(forge: str, delivery: str, document: bytes) -> Delivery:
    """Return what the payload of an event that we use carries; whoever calls knows where it is from.

    Raises `Malformed` where it is no JSON object.
    """
    found = _parse(forge, document)
    if isinstance(found, JobReport):
        return Delivery(delivery, USED, found)
    return Delivery(delivery, USED, None, found)


def _parse(forge: str, document: bytes) -> JobReport | str:
    payload = _read(document)
    told = _repository(payload.repository)
    repository = repository_name(told.full_name) if told is not None else None
    if told is None or repository is None:
        return "no repository"
    try:
        job = _decode_job(payload.workflow_job)
    except (msgspec.DecodeError, RecursionError):
        return "no job in the payload"  # null has been delivered: ubicloud/ubicloud#1287
    report = job_report(job, forge, repository, _action(payload.action))
    return _with_origin(report, told) if isinstance(report, JobReport) else report


def _read(document: bytes) -> _Payload:
    try:
        return _decode_payload(document)
    except msgspec.ValidationError:
        reason = "the body is no JSON object"
    except (msgspec.DecodeError, RecursionError):
        reason = "the body is no JSON"
    raise Malformed(reason)


def _action(raw: msgspec.Raw) -> str:
    try:
        return _decode_text(raw)
    except (msgspec.DecodeError, RecursionError):
        return ""


def _repository(raw: msgspec.Raw) -> _Repository | None:
    try:
        return _decode_repository(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def _with_origin(report: JobReport, told: _Repository) -> JobReport:
    """Add what the delivery tells of the repository. Where that has no forks nothing comes from one, so that no
    call is spent on the question; of a public one the run is asked about in any case."""
    public = _is_public(told)
    without_forks = public is False and type(told.forks_count) is int and told.forks_count == 0
    return replace(
        report, origin=replace(report.origin, public=public, fork=False if without_forks else None)
    )


def _is_public(told: _Repository) -> bool | None:
    """Whatever says public counts; "internal" repositories are for the members of an enterprise."""
    if told.visibility == "public" or (told.private is False and told.visibility in (None, "public")):
        return True
    return False if told.private is True or told.visibility in ("private", "internal") else None


def _payload(content_type: str | None, body: bytes) -> bytes:
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind == _JSON:
        return body
    if kind != _FORM:
        raise WrongType(f"content type {text(kind, 100) or 'missing'}; set the hook's to {_JSON}")
    for field in body.split(b"&"):
        name, _, value = field.partition(b"=")
        if name == b"payload":
            return unquote_to_bytes(value.replace(b"+", b" "))
    raise Malformed("the form has no field payload")


def _delivery_id(given: str | None, body: bytes) -> str:
    """Return GitHub's own id; without a sound one, an id that the same body always gets."""
    name = (given or "").strip()
    if name and len(name) <= _LONGEST_ID and name.isascii() and name.isprintable():
        return name
    return "body-" + hashlib.sha256(body).hexdigest()
