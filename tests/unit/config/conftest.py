"""A configuration that can be used, to be changed by each test, in a folder of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ephemerd.config.effective import Effective, Examined, examine, load_settings
from ephemerd.config.findings import Finding

GOOD = """\
[forge.github]
scope = "repo:acme/app"
token_file = "token"
webhook_secret_file = "hook"

[pools.linux]
labels = ["self-hosted", "Linux", "x64"]
runtime = "process"
"""


@dataclass
class Bench:
    """A folder with secrets and a runner application; `env` names only what is inside it."""

    folder: Path
    env: dict[str, str]

    @property
    def file(self) -> Path:
        return self.folder / "ephemerd.toml"

    def write(self, text: str = GOOD) -> Path:
        self.file.write_text(text, encoding="utf-8")
        return self.file

    def examine(self, text: str = GOOD, *, environment: bool = False, **flags: Any) -> Examined:
        dotted = {key.replace("__", "."): value for key, value in flags.items()}
        return examine(self.write(text), self.env, dotted, environment=environment)

    def load(self, text: str = GOOD, **flags: Any) -> Effective:
        dotted = {key.replace("__", "."): value for key, value in flags.items()}
        return load_settings(self.write(text), self.env, dotted)

    def findings(self, text: str, **flags: Any) -> list[Finding]:
        return list(self.examine(text, **flags).findings)

    def only(self, text: str) -> Finding:
        """The one finding that this text has."""
        found = self.findings(text)
        assert len(found) == 1, found
        return found[0]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    for name, text in (("token", "ghp_secret\n"), ("hook", "hush\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    application = tmp_path / "application" / "bin" / "Runner.Listener"
    application.parent.mkdir(parents=True)
    application.write_text("#!/bin/sh\n")
    application.chmod(0o755)
    return Bench(
        tmp_path,
        {
            "HOME": str(tmp_path),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "STATE_DIRECTORY": str(tmp_path / "state"),
            "RUNTIME_DIRECTORY": str(tmp_path / "run"),
        },
    )
