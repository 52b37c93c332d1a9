"""Answers of the web: JSON from views, and problems as RFC 9457 describes them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

PROBLEM = "application/problem+json"


def json_answer(value: Any, status: int = 200) -> Response:
    """Answer with a view, a page or anything plain; dataclass fields are the keys."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def problem(status: int, detail: str, *, headers: dict[str, str] | None = None, **extra: Any) -> Response:
    """Answer with a problem: `title` is the status in words, `detail` a sentence; `extra` its members."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return Response(msgspec.json.encode({**body, **extra}), status, headers, media_type=PROBLEM)
