"""A sender of signed deliveries over kept connections: prepared bytes out, a status line and a time back.

It is its own HTTP client, of a few lines: what a general one costs would be measured with the server.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ephemerd.testing.alone import SECRET
from ephemerd.testing.bench.programs import LABELS

SIZE = 10 * 1024
"""Bytes of a delivery's body: GitHub's are 9 to 12 KiB."""
ANSWER_S = 30.0
STATUSES = ("queued", "in_progress", "completed")


@dataclass(slots=True)
class Sent:
    """Answers by status code, the time of each (s), and how long all of it took (s)."""

    answers: Counter[int] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)
    took: float = 0.0

    @property
    def rate(self) -> float:
        return sum(self.answers.values()) / self.took

    def percentile(self, share: float) -> float:
        """Return the time (s) within which that share was answered."""
        ordered = sorted(self.times)
        return ordered[min(len(ordered) - 1, round(share * len(ordered)))]


def prepared(first: int, count: int) -> list[bytes]:
    """Return whole requests: three deliveries of each job, which a runner of somebody else takes."""
    return [_request(first + number) for number in range(count)]


def _request(number: int) -> bytes:
    job, status = number // 3 + 1, STATUSES[number % 3]
    body = _body(job, status)
    signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    head = (
        "POST /webhooks/github HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"x-github-event: workflow_job\r\nx-github-delivery: 00000000-0000-4000-8000-{number:012d}\r\n"
        f"x-hub-signature-256: sha256={signature}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode("ascii") + body


def _body(job: int, status: str) -> bytes:
    begun = status != "queued"
    fields: dict[str, Any] = {
        "id": 10_000_000 + job,
        "run_id": 20_000_000 + job,
        "run_attempt": 1,
        "name": f"build ({job})",
        "status": status,
        "conclusion": "success" if status == "completed" else None,
        "labels": list(LABELS),
        "runner_id": 7 if begun else None,
        "runner_name": "somebody-else" if begun else None,
        "head_branch": "main",
        "workflow_name": "CI",
        "steps": [],
    }
    repository = {"id": 1, "full_name": "acme/app", "private": True, "owner": {"login": "acme"}}
    body = {
        "action": status,
        "workflow_job": fields,
        "repository": repository,
        "sender": {"login": "octocat"},
    }
    length = len(json.dumps(body)) + len(', "more": ""')
    return json.dumps({**body, "more": "x" * max(0, SIZE - length)}).encode("ascii")


async def send(port: int, requests: list[bytes], connections: int) -> Sent:
    """Send all of them over so many connections, each the next one as soon as it is free."""
    sent, waiting = Sent(), iter(requests)
    began = time.perf_counter()
    await asyncio.gather(*(_connection(port, waiting, sent) for _ in range(connections)))
    sent.took = time.perf_counter() - began
    return sent


async def _connection(port: int, waiting: Any, sent: Sent) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for request in waiting:
            began = time.perf_counter()
            writer.write(request)
            async with asyncio.timeout(ANSWER_S):
                status = await _answer(reader)
            sent.times.append(time.perf_counter() - began)
            sent.answers[status] += 1
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
    if length:
        await reader.readexactly(length)
    return int(head[9:12])
