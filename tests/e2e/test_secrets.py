"""No secret leaves the daemon: everything that it writes, answers, keeps and starts is searched for those it knows.

The daemon holds an App's key, a token, a webhook secret, an API token and a browser's session, and starts runners with
just-in-time configurations, which are taken from the runners' own environment.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from tests.e2e.serving import CONFIG, LABELS, SECRET, until
from tests.e2e.test_serve_as_app import FORGES, AppSite

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400), pytest.mark.platform("linux")]

TOKEN = "token-for-tests"
JIT = "ACTIONS_RUNNER_INPUT_JITCONFIG"
ISSUED = re.compile(rb"gh[pousr]_[A-Za-z0-9]{10,}|-----BEGIN [A-Z ]*PRIVATE KEY")
"""What an installation's token and a key look like."""


class Searched(AppSite):
    """A site that remembers every secret that it comes to know, and everything that was said."""

    def __init__(self, folder: Path) -> None:
        rest = CONFIG[CONFIG.index("[runner]") :].replace("[server]", '[server]\napi_listen = "127.0.0.1:0"')
        self.style = "json"
        self.secrets: dict[str, str] = {}
        self.said: dict[str, bytes] = {}
        super().__init__(folder, f"{FORGES}\n{rest}")
        self.secrets |= {"token": TOKEN, "webhook secret": SECRET}
        key = "".join((folder / "app.pem").read_text().splitlines()[1:-1])
        self.secrets |= {"key": key[:200], "key in the middle": key[300:500]}

    def run(self, *arguments: str, out: str) -> Any:
        """Start a program; the daemon logs at its loudest, in the style that is asked for."""
        if arguments[0] == "serve":
            arguments = ("--log-level", "debug", "--log-format", self.style, *arguments)
        return super().run(*arguments, out=out)

    @property
    def url(self) -> str:
        found: str = until(
            lambda: (re.findall(r"address\W+([0-9.]+:\d+)\W+for\W+api over tcp", self.log()) or [""])[-1]
        )
        return f"http://{found}"

    def while_jobs_run(self, kinds: list[tuple[str, list[str]]]) -> None:
        """Run a job of each kind; note what processes are called, and what is in the runners' environment."""
        for repository, labels in kinds:
            self.admin(self.forge, "jobs", repository=repository, labels=labels, count=1, duration_s=2)
        before = len(self.secrets)
        until(lambda: self._look() >= before + 2 * len(kinds))

    def _look(self) -> int:
        """Note the configurations of runners that run, whole and unpacked, and all command lines."""
        lines = []
        for process in psutil.process_iter():
            try:
                environment, line = process.environ(), process.cmdline()
            except psutil.Error:
                continue
            if not any(str(self.folder) in text for text in (*environment.values(), *line)):
                continue  # of another test
            lines.append(line)
            if blob := environment.get(JIT):
                name = hashlib.sha256(blob.encode()).hexdigest()[:8]
                inside = json.loads(base64.b64decode(json.loads(base64.b64decode(blob))[".credentials"]))
                self.secrets[f"configuration {name}"] = blob[40:240]
                self.secrets[f"client of {name}"] = inside["data"]["clientId"]
        self.said[f"command lines {len(self.said)}"] = json.dumps(lines).encode()
        return len(self.secrets)

    def answers(self) -> None:
        """Note all that the API answers, and the pages that browsers get."""
        token = self.secrets["api token"]
        headers = {"authorization": f"Bearer {token}", "accept": "text/html, */*"}
        with httpx2.Client(base_url=self.url, headers=headers, timeout=30) as client:
            runners = [row["id"] for row in client.get("/api/v1/runners?limit=1000").json()["items"]]
            jobs = [row["id"] for row in client.get("/api/v1/jobs?limit=1000").json()["items"]]
            paths = [path for path in client.get("/api/v1/openapi.json").json()["paths"] if "{" not in path]
            paths += [
                "/",
                "/timeline",
                "/timeline.json",
                "/jobs",
                "/decisions",
                "/forge",
                "/history",
                "/login",
            ]
            paths += ["/api/v1/segments/newest", "/api/v1/nothing"]
            for name in runners:
                logs = client.get(f"/api/v1/runners/{name}/logs").json().get("files", [])
                paths += [f"/api/v1/runners/{name}/logs/{file['name']}" for file in logs]
                paths += [f"/api/v1/runners/{name}{more}" for more in ("", "/story", "/logs")]
                paths += [f"/runners/{name}"]
            for name in jobs:
                paths += [f"/api/v1/jobs/{name}{more}" for more in ("", "/story")]
                paths += [f"/jobs/{name}"]
            for path in paths:
                if path != "/api/v1/events":
                    self.said[f"GET {path}"] = client.get(path).content
            with client.stream("GET", "/api/v1/events?after=0") as events:
                self.said["events"] = next(line for line in events.iter_lines() if "data:" in line).encode()

    def files(self) -> None:
        """Note what the daemon wrote: logs, and everything in its state folder but the runners' own folders."""
        for path in [*self.folder.glob("serve.*"), *(self.folder / "state").rglob("*")]:
            if path.is_file() and "runners" not in path.relative_to(self.folder).parts:
                self.said[f"file {path.name} {len(self.said)}"] = path.read_bytes()
        for path in (self.folder / "state").rglob("*.log"):
            self.said[f"file {path.name} {len(self.said)}"] = path.read_bytes()

    def leaks(self) -> list[str]:
        """Return where which secret is found."""
        found = []
        for place, text in self.said.items():
            found += [
                f"{name} in {place}" for name, secret in self.secrets.items() if secret.encode() in text
            ]
            found += [f"{match.group()[:12]!r} in {place}" for match in ISSUED.finditer(text)]
        return found


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Searched]:
    made = Searched(tmp_path_factory.mktemp("a"))
    yield made
    made.close()


def make_keys(site: Searched) -> None:
    """Make an API token and log a browser in, and have each be refused once."""
    transport = httpx2.HTTPTransport(uds=str(site.folder / "api.sock"))
    with httpx2.Client(transport=transport, base_url="http://x", timeout=20) as socket:
        made = socket.post("/api/v1/tokens", json={"name": f"t-{site.style}", "role": "operate"}).json()
        site.secrets["api token"] = made["token"]
        link = socket.post("/api/v1/login", json={"who": "ann"}).json()["path"]
    site.secrets[f"login code {site.style}"] = link.partition("=")[2]
    with httpx2.Client(base_url=site.url, timeout=20) as browser:
        browser.get(link)
        site.secrets[f"session {site.style}"] = next(iter(browser.cookies.values()))
        for wrong in (link, "/login?code=no"):
            assert browser.get(wrong).status_code in {303, 401}
        site.said["a wrong token"] = browser.get(
            "/api/v1/status", headers={"authorization": f"Bearer {made['token']}x"}
        ).content


def test_no_secret_is_found_in_anything_that_the_daemon_says_keeps_or_starts(site):
    kinds = [("acme/app", LABELS), ("other/tool", ["second"])]
    make_keys(site)
    site.while_jobs_run(kinds)
    site.answers()
    site.daemon.send_signal(signal.SIGTERM)
    site.daemon.wait(60)
    site.style = "console"
    site.daemon = site.start()
    make_keys(site)
    site.while_jobs_run(kinds)
    site.completed(4)
    site.answers()
    site.files()
    kinds_of = {name.split()[0] for name in site.secrets}
    assert kinds_of >= {"token", "webhook", "key", "configuration", "client", "api", "login", "session"}
    assert all(len(secret) >= 8 for secret in site.secrets.values())
    assert any(name.startswith("file state.db") for name in site.said)
    assert any("/logs/" in name for name in site.said)
    assert sum(len(text) for text in site.said.values()) > 100_000
    assert site.leaks() == []
    site.said["a control"] = f"x{site.secrets['api token']}x".encode()
    assert site.leaks() == ["api token in a control"]
