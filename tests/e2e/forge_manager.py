"""A runner manager as small as can be: registers runners by REST and starts the fake runner's listener.

It stands in for the daemon in tests of the look-alike and the fake runner against each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

LABELS = ["self-hosted", "Linux"]


@dataclass
class Started:
    """One runner environment."""

    name: str
    id: int
    root: Path
    process: asyncio.subprocess.Process

    @property
    def output(self) -> str:
        return (self.root / "out.log").read_text("utf-8")

    def diagnostics(self, kind: str = "Runner") -> str:
        return "".join(file.read_text() for file in sorted((self.root / "_diag").glob(f"{kind}_*.log")))

    def counters(self, kind: str = "Runner") -> list[str]:
        """The names of the performance counters in order."""
        path = self.root / "perf" / f"{kind}.perf"
        return [line.partition(":")[0] for line in path.read_text().splitlines()]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    async def exit_code(self) -> int:
        async with asyncio.timeout(60):
            return await self.process.wait()


class Manager:
    """Talks to one look-alike and keeps the processes it started, until `close` ends what is left of them."""

    def __init__(self, url: str, token: str, repository: str, template: Path, roots: Path) -> None:
        self.template = template
        self.roots = roots
        self.runners = f"/repos/{repository}/actions/runners"
        self.started: list[Started] = []
        headers = {"Authorization": f"Bearer {token}", "User-Agent": "test-manager"}
        self.http = httpx2.AsyncClient(base_url=url, headers=headers, timeout=150, verify=False)

    async def admin(self, path: str, **body: Any) -> Any:
        answer = await self.http.post("/_admin" + path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def queue(self, count: int = 1, **body: Any) -> list[int]:
        jobs: list[int] = (await self.admin("/jobs", **{"labels": LABELS, "count": count, **body}))["jobs"]
        return jobs

    async def outcomes(self) -> Any:
        return (await self.http.get("/_admin/outcomes")).json()

    async def wait(self, condition: str, **query: Any) -> None:
        """Wait until the look-alike says that the condition holds; see its admin API."""
        asked = {"for": condition, "timeout": 90, **query}
        answer = await self.http.get("/_admin/wait", params=asked)
        state = (await self.http.get("/_admin/state")).json()
        assert answer.json() == {"held": True}, (asked, state)

    async def start(self, count: int = 1, **env: str) -> list[Started]:
        return list(await asyncio.gather(*(self._start(env) for _ in range(count))))

    async def _start(self, env: dict[str, str]) -> Started:
        name = f"runner-{len(self.started) + 1}-{os.urandom(4).hex()}"
        body = {"name": name, "runner_group_id": 1, "labels": LABELS}
        answer = await self.http.post(f"{self.runners}/generate-jitconfig", json=body)
        assert answer.status_code == 201, answer.text
        root = self.roots / name
        shutil.copytree(self.template, root)
        with (root / "out.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                root / "bin" / "Runner.Listener",
                "run",
                env={
                    "PATH": os.environ["PATH"],
                    "ACTIONS_RUNNER_INPUT_JITCONFIG": answer.json()["encoded_jit_config"],
                    "RUNNER_PERFLOG": str(root / "perf"),
                    **env,
                },
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.started.append(Started(name, answer.json()["runner"]["id"], root, process))
        return self.started[-1]

    async def worker_of(self, runner: Started) -> int:
        """The pid of the worker that this runner started."""
        state = (await self.http.get("/_admin/state")).json()
        [pid] = [r["worker_pid"] for r in state["runners"] if r["name"] == runner.name]
        return int(pid)

    async def delete(self, runner: Started) -> int:
        return (await self.http.delete(f"{self.runners}/{runner.id}")).status_code

    async def close(self) -> None:
        for runner in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(runner.process.pid, signal.SIGKILL)
            await runner.process.wait()
        await self.http.aclose()


def command_name(pid: int) -> str:
    """What the process table calls a process; empty once it is gone."""
    if sys.platform != "linux":
        return ""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
