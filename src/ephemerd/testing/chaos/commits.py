"""Kills the daemon in the middle of its group commits while deliveries pour in, and counts by the sender's list.

The daemon is the real one with its webhook port, its writer and its store. Nothing has to be run: its forge does not
answer. A delivery without an answer is sent again to the next life, under its own id, as GitHub does on request.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import random
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2

from ephemerd.testing.alone import SECRET, write_alone
from ephemerd.testing.chaos import judge
from ephemerd.testing.chaos.lives import Lives
from ephemerd.testing.chaos.options import Commits
from ephemerd.testing.demo.options import DemoError
from ephemerd.testing.demo.stage import free_port

SENDERS = 24
"""Deliveries under way at once: what one commit takes together."""
JOBS = 40
READY_WITHIN_S = 120.0
ANSWER_S = 10.0
ACKNOWLEDGED_FIRST = (1, 80)
"""A life acknowledges so many before its end is near; the end itself comes within the next few commits."""
THEN_S = 0.006
LABELS = ("nobody-asks-for-this",)


class Sender:
    """Sends deliveries again and again and keeps the list of what was acknowledged."""

    def __init__(self, port: int, rng: random.Random) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.rng = rng
        self.acknowledged: set[str] = set()
        self.job_of: dict[str, int] = {}
        self.under_way: dict[str, bytes] = {}
        self.unanswered: dict[str, bytes] = {}
        self.progress = asyncio.Event()

    async def until_ready(self) -> None:
        """Return when the daemon takes deliveries."""
        async with asyncio.timeout(READY_WITHIN_S), httpx2.AsyncClient(base_url=self.url) as http:
            while True:
                with contextlib.suppress(httpx2.HTTPError):
                    if (await http.get("/readyz")).status_code == 200:
                        return
                await asyncio.sleep(0.005)

    async def send(self) -> None:
        """Send until cancelled; the first of all are those without an answer."""
        limits = httpx2.Limits(max_connections=SENDERS)
        async with (
            httpx2.AsyncClient(base_url=self.url, limits=limits, timeout=ANSWER_S) as http,
            asyncio.TaskGroup() as group,
        ):
            for _ in range(SENDERS):
                group.create_task(self._one_after_the_other(http))

    async def _one_after_the_other(self, http: httpx2.AsyncClient) -> None:
        while True:
            guid, body = self.unanswered.popitem() if self.unanswered else self._next()
            self.under_way[guid] = body
            answer = await http.post("/webhooks/github", content=body, headers=_headers(guid, body))
            if answer.status_code != judge.STORED:
                raise DemoError(
                    f"a delivery was answered {answer.status_code}", "see daemon.log in the folder"
                )
            del self.under_way[guid]
            self.acknowledged.add(guid)
            self.progress.set()

    def give_up(self) -> None:
        """Whoever would have answered is gone: what was under way is to be sent again."""
        self.unanswered |= self.under_way
        self.under_way.clear()

    def _next(self) -> tuple[str, bytes]:
        guid = str(uuid.UUID(int=self.rng.getrandbits(128), version=4))
        self.job_of[guid] = 1 + self.rng.randrange(JOBS)
        return guid, _body(self.job_of[guid], self.rng.choice(("queued", "completed")))


async def kill_in_commits(folder: Path, kills: int, seed: int) -> Commits:
    """Let deliveries pour in and kill so often; count by the sender's list. Raises :class:`DemoError` where the daemon
    does not begin."""
    rng = random.Random(f"{seed}:commits")
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    write_alone(folder, port, LABELS)
    lives, sender = Lives(folder / "config.toml", folder / "daemon.log"), Sender(port, rng)
    for _ in range(kills):
        await _one_life(lives, sender, rng, folder)
    await _last_life(lives, sender)
    stored, journalled = judge.books(folder / "state.db")
    wanted = Counter(sender.job_of[guid] for guid in stored)
    return Commits(
        kills=kills,
        acknowledged=len(sender.acknowledged),
        lost=len(sender.acknowledged - stored),
        twice=(journalled - wanted).total(),
        never=(wanted - journalled).total(),
    )


async def _one_life(lives: Lives, sender: Sender, rng: random.Random, folder: Path) -> None:
    daemon = lives.begin()
    try:
        try:
            await sender.until_ready()
        except TimeoutError:
            raise DemoError("the daemon did not get ready", f"see {folder / 'daemon.log'}") from None
        enough = len(sender.acknowledged) + rng.randint(*ACKNOWLEDGED_FIRST)
        sending = asyncio.create_task(sender.send())
        while len(sender.acknowledged) < enough and not sending.done():
            sender.progress.clear()
            progress = asyncio.create_task(sender.progress.wait())
            await asyncio.wait({sending, progress}, timeout=ANSWER_S, return_when=asyncio.FIRST_COMPLETED)
            progress.cancel()
        await asyncio.sleep(
            rng.random() * THEN_S
        )  # no waiting for anything: where in the next commits it dies
    finally:
        daemon.kill()
    await asyncio.wait({sending}, timeout=30)
    sending.cancel()
    [ended] = await asyncio.gather(sending, return_exceptions=True)
    await asyncio.to_thread(daemon.join)
    sender.give_up()
    _only_the_death(ended)


def _only_the_death(ended: BaseException | None) -> None:
    """Raise what ended the sending, unless it was that nobody answers any more."""
    if isinstance(ended, BaseExceptionGroup):
        _, other = ended.split(httpx2.HTTPError)
        if other is not None:
            raise other.exceptions[0]


async def _last_life(lives: Lives, sender: Sender) -> None:
    """What was never answered is sent once more; then the daemon is stopped as it should be."""
    daemon = lives.begin()
    try:
        await sender.until_ready()
        async with httpx2.AsyncClient(base_url=sender.url, timeout=ANSWER_S) as http:
            for guid, body in sender.unanswered.items():
                answer = await http.post("/webhooks/github", content=body, headers=_headers(guid, body))
                if answer.status_code == judge.STORED:
                    sender.acknowledged.add(guid)
        daemon.terminate()
        await asyncio.to_thread(daemon.join, 30)
    finally:
        daemon.kill()
        await asyncio.to_thread(daemon.join)


def _body(job: int, status: str) -> bytes:
    told: dict[str, Any] = {
        "id": job,
        "run_id": job,
        "run_attempt": 1,
        "name": "build",
        "labels": ["self-hosted"],
    }
    told |= {"status": status, "conclusion": "success" if status == "completed" else None}
    repository = {"id": 1, "full_name": "acme/app", "name": "app", "owner": {"login": "acme"}}
    return json.dumps({"action": status, "workflow_job": told, "repository": repository}).encode()


def _headers(guid: str, body: bytes) -> dict[str, str]:
    right = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    return {
        "content-type": "application/json",
        "x-github-event": "workflow_job",
        "x-github-delivery": guid,
        "x-hub-signature-256": f"sha256={right}",
    }
