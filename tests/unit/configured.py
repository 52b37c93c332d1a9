"""A configuration whose files lie in a folder of the test's, from which everything can be built."""

from __future__ import annotations

from pathlib import Path

import pytest

from ephemerd.config.effective import Effective, load_settings

CONFIG = """
[forge.github]
url = "http://127.0.0.1:9"
scope = "repo:acme/app"
token_file = "token"
webhook_secret_file = "hook"

[pools.linux]
labels = ["linux"]
runtime = "process"

[pools.big]
labels = ["linux", "big"]
runtime = "process"
follow = "listening"

[policy]
retiring_limit = "7s"

[runner]
application = "application"
work_dir = "state/runners"
allow_root = true

[server]
webhook_listen = "127.0.0.1:0"
api_socket = "api.sock"
metrics_listen = "none"
store = "sqlite://{folder}/state.db"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("token", "hook"):
        Path(name).write_text("a-secret-of-tests")
    return tmp_path


def load(folder: Path, *changes: tuple[str, str]) -> Effective:
    text = CONFIG.format(folder=folder)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "ephemerd.toml"
    path.write_text(text)
    return load_settings(path, {"HOME": str(folder)})
