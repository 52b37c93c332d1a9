"""A daemon with a webhook port, a store and nobody else: its forge answers nothing. The folder of one, as files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ephemerd.testing.demo.settings import write_secret
from ephemerd.testing.fake_runner.folder import write_folder

SECRET = "a-secret-of-the-sender"  # noqa: S105 - known to both sides of a test alone
CONFIG = """
[forge.github]
url = "http://127.0.0.1:9"
scope = "repo:acme/app"
token_file = "{folder}/token"
webhook_secret_file = "{folder}/hook"

[pools.linux]
labels = {labels}
runtime = "process"

[runner]
application = "{folder}/application"
work_dir = "{folder}/runners"
allow_root = true

[server]
webhook_listen = "127.0.0.1:{port}"
api_socket = "{folder}/api.sock"
metrics_listen = "none"
store = "sqlite:///{folder}/state.db"
"""


def write_alone(folder: Path, port: int, labels: Sequence[str]) -> Path:
    """Write what such a daemon needs: secrets (`SECRET` signs deliveries), the fake runner, and its configuration,
    whose path is returned. It listens for deliveries on that port; its one pool has these labels."""
    write_secret(folder / "token", "a-token-of-nobody")
    write_secret(folder / "hook", SECRET)
    write_folder(folder / "application")
    config = folder / "config.toml"
    config.write_text(
        CONFIG.format(folder=folder, port=port, labels=json.dumps(list(labels))), encoding="utf-8"
    )
    return config
