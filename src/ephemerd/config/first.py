"""The text of a first configuration: few keys, each with why, the others named as comments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ephemerd.config.show import toml_value

DEFAULT_URL = "https://api.github.com"


@dataclass(frozen=True, slots=True)
class First:
    """What a first configuration says.

    scope        "repo:OWNER/NAME" or "org:NAME"
    credential_file       of the token, or with `app_id` of that App's key; absolute
    webhook_secret_file   absolute; None where jobs are polled. No secret itself is in a text made here
    pool         the pool's name
    runtime      process or docker
    user         the jobs' account; "" for the daemon's own (process) or the image's own (docker)
    image        where runtime is docker
    application  the unpacked runner application, where runtime is process; "download" to have it kept current
    """

    scope: str
    credential_file: Path
    webhook_secret_file: Path | None
    pool: str
    labels: tuple[str, ...]
    runtime: str = "process"
    url: str = DEFAULT_URL
    app_id: int | None = None
    user: str = ""
    allow_root: bool = False
    image: str = ""
    application: str = "download"
    runners: int = 4


def text(first: First) -> str:
    """Return the whole file."""
    parts = [HEAD, _forge(first), _pool(first), *([_runner(first)] if first.runtime == "process" else [])]
    return "\n".join([*parts, TAIL])


HEAD = """\
# The first configuration, written by 'ephemerd init'. 'ephemerd check' prints every value that is in effect with
# its origin; docs/CONFIGURATION.md describes all keys. A running daemon takes changes in by 'ephemerd reload'.
"""
TAIL = """\
[server]
# Webhooks and health. Put a proxy with TLS before it: GitHub sends to https://YOUR-NAME/webhooks/github
# webhook_listen = "127.0.0.1:8080"
# Metrics for Prometheus; rules and a dashboard are in contrib/.
# metrics_listen = "127.0.0.1:9464"
# The API and the dashboard over TCP; 'ephemerd token' makes tokens and login links. Any TLS goes before it.
# api_listen = "127.0.0.1:8081"
"""


def _forge(first: First) -> str:
    lines = [
        "[forge.github]",
        "# Where runners are registered. Only the jobs of this scope are served.",
        f"scope = {toml_value(first.scope)}",
        "# The API's address; of an Enterprise Server https://HOST/api/v3",
        f"{'# ' if first.url == DEFAULT_URL else ''}url = {toml_value(first.url)}",
    ]
    file = toml_value(str(first.credential_file))
    if first.app_id is None:
        lines += [
            "# A token that may register runners (Administration: read and write) and read jobs (Actions: read).",
            f"token_file = {file}",
        ]
    else:
        lines += [
            "# A GitHub App with the same rights, installed where the jobs are (docs/OPERATIONS.md).",
            f"app_id = {first.app_id}",
            f"private_key_file = {file}",
        ]
    if first.webhook_secret_file is None:
        lines += ["# Jobs are listed again and again; no port is open for the forge.", 'discovery = "poll"']
    else:
        lines += [
            "# The secret that signs deliveries; the webhook at GitHub has the same one.",
            f"webhook_secret_file = {toml_value(str(first.webhook_secret_file))}",
        ]
    return "\n".join(lines) + "\n"


def _pool(first: First) -> str:
    lines = [
        f"[pools.{first.pool}]",
        "# A job is taken when all labels that it asks for are among these.",
        f"labels = {toml_value(first.labels)}",
        "# process: plain processes of this machine; docker: a container for each runner.",
        f"runtime = {toml_value(first.runtime)}",
        "# Most runners at one time. Each runs one job and is thrown away.",
        f"max_concurrent = {first.runners}",
    ]
    if first.user:
        lines += ["# The account that jobs run as.", f"user = {toml_value(first.user)}"]
    elif first.runtime == "process":
        lines += [
            "# The account that jobs run as; another than the daemon's needs a daemon that is root.",
            '# user = "ci"',
        ]
    lines += ["# Runners that listen in advance, so that jobs start at once.", "# min_idle = 0"]
    if first.runtime == "docker":
        lines += [
            "",
            f"[pools.{first.pool}.container]",
            "# It has the runner application and an account for jobs.",
        ]
        lines += (
            [f"image = {toml_value(first.image)}"]
            if first.image
            else ['# image = "ghcr.io/actions/actions-runner:latest"']
        )
        lines += [
            '# memory = "4GiB"',
            "# isolated needs root and nftables; docs/DOCKER.md says what a job can reach.",
            '# network = "isolated"',
        ]
    return "\n".join(lines) + "\n"


def _runner(first: First) -> str:
    root = (
        "# Jobs run as root, so a job can do anything to this machine.\nallow_root = true\n"
        if first.allow_root
        else ""
    )
    said = (
        "# The version that the forge expects is fetched, verified and kept current; docs/APPLICATION.md.\n"
        "# To do that by hand, name the folder of an unpacked one (github.com/actions/runner/releases)."
        if first.application == "download"
        else "# The unpacked runner application (github.com/actions/runner/releases): a template, each runner gets a "
        "copy.\n"
        '# It has to be renewed every month; "download" does that by itself (docs/APPLICATION.md).'
    )
    return f"""\
[runner]
{said}
application = {toml_value(first.application)}
{root}"""
