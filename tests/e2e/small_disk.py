"""A real, small disk (a tmpfs of its own), deliveries by the thousand, and what was stored of them."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import sqlite3
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2

from tests.e2e.serving import SECRET, Site

AT_ONCE = 250


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount an empty disk of that size there; needs root."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path, leave: int = 0) -> Path:
    """Fill the disk with one file until so many bytes are left; return the file."""
    filler = folder / "filler"
    with filler.open("ab", buffering=0) as file:
        for step in (65_536, 4096):
            try:
                while room(folder) - step >= leave:
                    file.write(b"\0" * step)
            except OSError:
                continue
    return filler


def room(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def delivery(number: int) -> tuple[str, bytes, dict[str, str]]:
    """Return the id, the body and the headers of a signed delivery of a job that no pool serves."""
    body = json.dumps(
        {
            "action": "queued",
            "repository": {"full_name": "acme/app"},
            "workflow_job": {
                "id": 9_000_000 + number,
                "run_id": 1,
                "run_attempt": 1,
                "name": "build",
                "status": "queued",
                "conclusion": None,
                "labels": ["self-hosted", "windows"],
                "runner_id": None,
                "runner_name": None,
            },
        }
    ).encode()
    name = f"delivery-{number}"
    right = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    headers = {
        "content-type": "application/json",
        "x-github-event": "workflow_job",
        "x-github-delivery": name,
        "x-hub-signature-256": f"sha256={right}",
    }
    return name, body, headers


def send(site: Site, numbers: Iterable[int], at_once: int = AT_ONCE) -> dict[int, int]:
    """Send these deliveries, several at once, each as a forge does; return the status of each, 0 for none."""

    async def run() -> dict[int, int]:
        gate = asyncio.Semaphore(at_once)
        limits = httpx2.Limits(max_connections=at_once)
        async with httpx2.AsyncClient(timeout=60, limits=limits) as client:

            async def one(number: int) -> tuple[int, int]:
                _, body, headers = delivery(number)
                async with gate:
                    try:
                        answer = await client.post(site.hook, content=body, headers=headers)
                    except httpx2.TransportError:
                        return number, 0
                return number, answer.status_code

            return dict(await asyncio.gather(*(one(number) for number in numbers)))

    return asyncio.run(run())


def stored(path: Path) -> tuple[set[str], int]:
    """Return the delivery ids in a store, and how many jobs it has of those that `delivery` makes."""
    with closing(sqlite3.connect(path)) as connection:
        names = {name for (name,) in connection.execute("SELECT id FROM delivery")}
        jobs = connection.execute(
            "SELECT count(*) FROM record WHERE kind = 'job' AND id LIKE 'github/acme/app/9______'"
        ).fetchone()[0]
    return names, jobs
