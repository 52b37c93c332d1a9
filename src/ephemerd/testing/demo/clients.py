"""The two sides that the demo talks to: the look-alike's admin API and the daemon's own API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2

from ephemerd.testing.demo.options import DemoError

Json = dict[str, Any]


class Forge:
    """The look-alike: REST as an operator would use it, and its admin API."""

    def __init__(self, url: str, token: str, repository: str) -> None:
        self.repository = repository
        headers = {"Authorization": f"Bearer {token}", "User-Agent": "ephemerd-demo"}
        self.http = httpx2.AsyncClient(base_url=url, headers=headers, timeout=150, verify=False)

    async def admin(self, path: str, **body: Any) -> Json:
        """Order something; raises :class:`DemoError` if it is refused."""
        answer = await self.http.post("/_admin" + path, json=body)
        if answer.status_code != 200:
            raise DemoError(f"the look-alike refused {path}: {answer.text}", "report this, it is a defect")
        result: Json = answer.json()
        return result

    async def state(self) -> Json:
        """Jobs and runners as the look-alike has them."""
        result: Json = (await self.http.get("/_admin/state")).json()
        return result

    async def queue(self, labels: tuple[str, ...], count: int, **body: Any) -> list[int]:
        """Queue jobs; returns their ids."""
        answer = await self.admin("/jobs", labels=list(labels), count=count, **body)
        return [int(job) for job in answer["jobs"]]

    async def wait(self, condition: str, timeout: float, **query: Any) -> bool:
        """Wait for a condition of the admin API; see ``forge_sim/admin.py``."""
        asked = {"for": condition, "timeout": timeout, **query}
        answer = await self.http.get("/_admin/wait", params=asked)
        return bool(answer.json().get("held"))

    async def close(self) -> None:
        """Close the connections."""
        await self.http.aclose()


class Daemon:
    """The daemon's API on its unix socket. Remembers every runner that it ever showed."""

    def __init__(self, socket: Path) -> None:
        transport = httpx2.AsyncHTTPTransport(uds=str(socket))
        self.http = httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=30)
        self.runners: dict[str, Json] = {}

    async def get(self, path: str, **query: Any) -> Any:
        """Read a view; raises :class:`DemoError` if the daemon does not answer."""
        try:
            answer = await self.http.get(path, params=query)
        except httpx2.HTTPError as error:
            raise DemoError(
                f"the daemon does not answer: {error!r}", "see daemon.log in the folder"
            ) from error
        if answer.status_code not in (200, 503):
            raise DemoError(f"{path}: {answer.status_code} {answer.text}", "see daemon.log in the folder")
        return answer.json()

    async def items(self, what: str, **query: Any) -> list[Json]:
        """Read a whole list, page by page."""
        found: list[Json] = []
        after: str | None = None
        while True:
            page = await self.get(
                f"/api/v1/{what}", limit=1000, **query, **({"after": after} if after else {})
            )
            found += page["items"]
            after = page["next"]
            if after is None:
                return found

    async def look(self) -> None:
        """Read the runners and remember them: gone ones stay in the list for a while only."""
        for runner in await self.items("runners"):
            self.runners[runner["id"]] = runner

    async def kill(self, runner: str, reason: str) -> int:
        """Ask to end a runner without force; returns the HTTP status (409 is the veto)."""
        answer = await self.http.post(
            f"/api/v1/runners/{runner}/kill", json={"reason": reason, "who": "demo"}
        )
        return answer.status_code

    async def metric(self, name: str) -> int:
        """The sum of a counter over its labels; 0 if it is not there."""
        text = (await self.http.get("/metrics")).text
        values = [
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith((name + "{", name + " "))
        ]
        return round(sum(values))

    async def close(self) -> None:
        """Close the connections."""
        await self.http.aclose()


async def until(condition: Callable[[], Any], timeout: float, every: float = 0.1) -> Any:
    """Await ``condition()`` again and again until it is true; return its value, or None after ``timeout`` s."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    while True:
        value = await condition()
        if value or loop.time() > deadline:
            return value or None
        await asyncio.sleep(every)
