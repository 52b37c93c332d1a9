"""The API token for a daemon behind an address: from a file or the environment, never from the command line."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from urllib.parse import urlsplit

from ephemerd.cli.failure import Exit, Failure, complain

VARIABLE, FILE_VARIABLE = "EPHEMERD_TOKEN", "EPHEMERD_TOKEN_FILE"
MOST_BYTES = 4096


token_file: ContextVar[Path | None] = ContextVar("token_file", default=None)
"""The file that --token-file named on this command line: commands do not hand the options before them on."""


def token_for(url: str, env: Mapping[str, str], file: Path | None) -> str:
    """Return the token to send to an address, "" for none: that of the file, of $EPHEMERD_TOKEN, or of the file that
    $EPHEMERD_TOKEN_FILE names. Failure 4 where it cannot be read or is none."""
    if file is None and env.get(VARIABLE, ""):
        token = _one(env[VARIABLE], f"${VARIABLE}")
    elif file is not None or env.get(FILE_VARIABLE, ""):
        token = _read(file or Path(env[FILE_VARIABLE]))
    else:
        return ""
    if _in_the_clear(url):
        complain("the token crosses the network in the clear", "use https://", word="warning")
    return token


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            mode, raw = path.stat().st_mode, file.read(MOST_BYTES + 1)
    except OSError as error:
        raise Failure(
            Exit.CREDENTIALS,
            f"the token file {path} cannot be read: {error.strerror}",
            "name the file that 'ephemerd token create --out FILE' wrote",
        ) from None
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        complain(f"other accounts can read the token file {path}", f"chmod 600 {path}", word="warning")
    return _one(raw.decode("utf-8", "replace") if len(raw) <= MOST_BYTES else "", str(path))


def _one(text: str, where: str) -> str:
    token = text.strip()
    if not (token and token.isascii() and token.isprintable() and " " not in token):
        raise Failure(Exit.CREDENTIALS, f"{where} holds no token", "put the token alone there, on one line")
    return token


def _in_the_clear(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False  # said by who connects
    return parts.scheme == "http" and host != "localhost" and not host.startswith("127.") and host != "::1"
