"""The API of a running daemon over TCP: it keeps its document's word, and tells no secret anywhere."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import ignored_auth

from tests.e2e.serving import CONFIG, Site, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

OVER_TCP = CONFIG.replace("[server]", '[server]\napi_listen = "127.0.0.1:0"')
EXAMPLES = 8
"""Requests that are made up for each operation and mode."""


class Running(Site):
    """A daemon whose API is served over TCP, and the token that its tests use."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, OVER_TCP)
        self.url = until(self._listening)
        self.token = self.cli("token", "create", "tests", "--role", "operate").stdout.strip()
        self.headers = {"Authorization": f"Bearer {self.token}"}

    def _listening(self) -> str:
        found = re.search(r'"address": "([^"]*)", "for": "api over tcp"', self.log())
        return f"http://{found[1]}" if found else ""

    def cli(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command beside the daemon."""
        return subprocess.run(
            [sys.executable, "-m", "ephemerd", *arguments],
            cwd=self.folder,
            env={**os.environ, "EPHEMERD_SOCKET": str(self.folder / "api.sock"), **env},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def get(self, path: str, **more: Any) -> Any:
        return self.web.get(f"{self.url}{path}", headers=self.headers, timeout=20, **more)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    made = Running(tmp_path_factory.mktemp("api"))
    try:
        made.queue(3, 0.2)
        made.completed(3)
        yield made
    finally:
        made.close()


def test_the_command_line_reaches_it_with_a_token_and_not_without(site):
    file = site.folder / "cli.token"
    made = site.cli("token", "create", "cli", "--role", "read", "--out", str(file))
    assert (made.returncode, stat.S_IMODE(file.stat().st_mode)) == (0, 0o600)
    found = site.cli("status", "--json", "--url", site.url, "--token-file", str(file))
    assert json.loads(found.stdout)["ready"] is True
    found = site.cli("status", "--json", "--url", site.url, EPHEMERD_TOKEN=file.read_text().strip())
    assert found.returncode == 0
    assert site.cli("status", "--url", site.url).returncode == 4
    refused = site.cli("cordon", "linux", "--url", site.url, "--token-file", str(file))
    assert (refused.returncode, "operate" in refused.stderr) == (4, True)
    assert site.cli("token", "revoke", "cli").returncode == 0
    assert site.cli("status", "--url", site.url, "--token-file", str(file)).returncode == 4


def test_a_browser_comes_in_by_the_link_once(site):
    link = site.cli("token", "login").stdout.strip()
    with httpx2.Client(timeout=20) as browser:
        entered = browser.get(link)
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        assert browser.get(f"{site.url}/api/v1/status").status_code == 200
        assert browser.get(f"{site.url}/", headers={"accept": "text/html"}).status_code == 200
    with httpx2.Client(timeout=20) as stranger:
        assert stranger.get(link).status_code == 401
        page = stranger.get(f"{site.url}/", headers={"accept": "text/html"})
        assert (page.status_code, page.headers["location"]) == (303, "/login")


def test_what_happens_is_streamed(site):
    with httpx2.stream("GET", f"{site.url}/api/v1/events", headers=site.headers, timeout=60) as answer:
        site.queue(1, 0.1)
        told = next(line for line in answer.iter_lines() if line.startswith("data: ") and '"done"' in line)
        event = json.loads(told.removeprefix("data: "))
    assert "done" in event["data"]["jobs"].values()
    (entry,) = site.get(f"/api/v1/journal?after={event['id'] - 1}&limit=1").json()["items"]
    assert entry["seq"] == event["id"]


# Left out is `ignored_auth`: it knows no 429, which wrong tokens get after some; each operation's 401 has its own test.
SKIPPED = {"events"}
"""Never ends, and so cannot be held against a schema as a whole answer; the tests above and in units follow it."""


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_operation_keeps_the_documents_word(site, mode):
    found = site.get("/api/v1/openapi.json").json()
    schema = schemathesis.openapi.from_dict(found)
    schema.config.update(base_url=site.url)
    wrong: list[str] = []
    tried = 0
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        if operation.definition.raw["operationId"] in SKIPPED:
            continue

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case: Any) -> None:
            nonlocal tried
            tried += 1
            case.call_and_validate(timeout=30, headers=site.headers, excluded_checks=[ignored_auth])

        try:
            check()
        except Unsatisfiable:  # there is no wrong way to call what takes nothing
            assert mode is GenerationMode.NEGATIVE
            assert not found["paths"][operation.path][operation.method].get("parameters")
        except (Exception, BaseExceptionGroup) as error:
            wrong.append(
                f"{operation.label}: {error}\n{'; '.join(str(one) for one in getattr(error, 'exceptions', ()))}"
            )
    assert wrong == [], "\n\n".join(wrong)
    assert tried > 50
    assert site.get("/healthz").status_code == 200
