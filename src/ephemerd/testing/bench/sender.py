"""A sender of signed deliveries over kept connections: prepared bytes out, a status line and a time back.

It is its own HTTP client, of a few lines: what a general one costs would be measured with the server.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import math
import time
from collections import Counter
from collections.abc import Sequence
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
        return percentile(self.times, share)


def percentile(times: Sequence[float], share: float) -> float:
    """Return the time within which that share lies."""
    ordered = sorted(times)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def prepared(first: int, count: int) -> list[bytes]:
    """Return whole requests: three deliveries of each job, which a runner of somebody else takes."""
    requests = []
    for number in range(first, first + count):
        status = STATUSES[number % 3]
        runner = None if status == "queued" else "somebody-else"
        conclusion = "success" if status == "completed" else None
        requests.append(request(number, number // 3 + 1, status, runner=runner, conclusion=conclusion))
    return requests


def request(
    delivery: int,
    job: int,
    status: str,
    *,
    runner: str | None = None,
    conclusion: str | None = None,
) -> bytes:
    """Return the whole request of one signed delivery: that a job, which `runner` has, is in this status.

    Like GitHub's it says that the private repository has no forks, so that the forge is not asked whose work it is.
    """
    body = _body(job, status, runner, conclusion)
    signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    head = (
        "POST /webhooks/github HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"x-github-event: workflow_job\r\nx-github-delivery: 00000000-0000-4000-8000-{delivery:012d}\r\n"
        f"x-hub-signature-256: sha256={signature}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode("ascii") + body


def _body(job: int, status: str, runner: str | None, conclusion: str | None) -> bytes:
    fields: dict[str, Any] = {
        "id": job,
        "run_id": job,
        "run_attempt": 1,
        "name": f"build ({job})",
        "status": status,
        "conclusion": conclusion,
        "labels": list(LABELS),
        "runner_id": 7 if runner else None,
        "runner_name": runner,
        "head_branch": "main",
        "workflow_name": "CI",
        "steps": [],
    }
    repository = {
        "id": 1,
        "full_name": "acme/app",
        "private": True,
        "forks_count": 0,
        "owner": {"login": "acme"},
    }
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
                status = await answer(reader)
            sent.times.append(time.perf_counter() - began)
            sent.answers[status] += 1
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader) -> int:
    """Read one answer to its end and return its status."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
    if length:
        await reader.readexactly(length)
    return int(head[9:12])
