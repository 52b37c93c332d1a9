"""Reads secrets: from a file, a systemd credential or the environment. A value is in no text made here."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from ephemerd.config.findings import Code, Finding
from ephemerd.config.layers import ENVIRONMENT, Layers, Origin
from ephemerd.config.tomlfile import KeyPath

CREDENTIAL = "credential:"
VARIABLE = "env:"
MOST_BYTES = 65_536
_LOOKS_SECRET = ("ghp_", "gho_", "ghs_", "ghu_", "ghr_", "github_pat_", "-----BEGIN")


def looks_secret(text: str) -> bool:
    """Say whether a text holds something that should never be printed, whatever key it was written under."""
    return any(mark in text for mark in _LOOKS_SECRET)


@dataclass(slots=True)
class Vault:
    """The secrets that were read, by key without `_file`; what was wrong with the others."""

    values: dict[KeyPath, SecretStr] = field(default_factory=dict, repr=False)
    origins: dict[KeyPath, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def fail(self, where: str, what: str, todo: str) -> None:
        self.findings.append(Finding(Code.CREDENTIALS, where, what, todo))


def read_secret(vault: Vault, layers: Layers, env: Mapping[str, str], key: KeyPath) -> None:
    """Find the secret `key`, given as it is or as `key_file`; the higher layer wins, two in one are refused.

    Nothing happens where neither is given: whether it is needed is not this function's question.
    """
    file_key = (*key[:-1], f"{key[-1]}_file")
    given = [path for path in (key, file_key) if layers.get(path) not in (None, "")]
    if len(given) == 2:
        levels = [layers.origins[path].layer for path in given]
        if levels[0] == levels[1]:
            what, todo = f"{key[-1]} and {file_key[-1]} are both given", "keep one of them"
            vault.findings.append(Finding(Code.CONFIGURATION, layers.where(key), what, todo))
            return
        given = [given[0] if levels[0] > levels[1] else given[1]]
    for path in given:
        _resolve(vault, layers, env, path, key)


def _resolve(vault: Vault, layers: Layers, env: Mapping[str, str], path: KeyPath, key: KeyPath) -> None:
    value, origin, where = layers.get(path), layers.origins[path], layers.where(path)
    if not isinstance(value, str):
        return
    if value.startswith(CREDENTIAL):
        folder = env.get("CREDENTIALS_DIRECTORY", "")
        name = value.removeprefix(CREDENTIAL)
        if not folder:
            vault.fail(
                where,
                f"asks for the systemd credential {name!r}, but $CREDENTIALS_DIRECTORY is not set",
                "start it by a unit with LoadCredential=, or use a file",
            )
        elif not name or "/" in name or name.startswith("."):
            vault.fail(where, f"{name!r} is not the name of a credential", "write credential:NAME")
        else:
            _from_file(vault, where, Path(folder) / name, key, private=True)
    elif path != key:
        _from_path(vault, where, value, key)
    elif value.startswith(VARIABLE):
        name = value.removeprefix(VARIABLE)
        if env.get(name, "").strip():
            _keep(vault, where, env[name], key, f"environment {name}")
        else:
            vault.fail(where, f"the variable {name} is not set", f"set {name}, or use {key[-1]}_file")
    else:
        _plain(vault, where, value, key, origin)


def _plain(vault: Vault, where: str, value: str, key: KeyPath, origin: Origin) -> None:
    if origin.layer == ENVIRONMENT:
        _keep(vault, where, value, key, str(origin))
        return
    what = "a secret must not stand in the configuration itself"
    todo = f'put it in a file of mode 0600 and name that in {key[-1]}_file, or write "credential:NAME"'
    vault.findings.append(Finding(Code.CONFIGURATION, where, what, todo))


def _from_path(vault: Vault, where: str, value: str, key: KeyPath) -> None:
    if looks_secret(value):
        what = "holds what looks like a secret itself, not the path of a file"
        vault.findings.append(
            Finding(Code.CONFIGURATION, where, what, "put it in a file and write that file's path here")
        )
        return
    _from_file(vault, where, Path(value), key, private=False)


def _from_file(vault: Vault, where: str, path: Path, key: KeyPath, *, private: bool) -> None:
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(path.stat().st_mode)
            raw = file.read(MOST_BYTES + 1)
        text = raw.decode("utf-8")
    except FileNotFoundError:
        vault.fail(where, f"the file {path} does not exist", f"create {path} with the secret, mode 0600")
    except OSError as error:
        vault.fail(
            where,
            f"the file {path} cannot be read: {error.strerror}",
            f"make {path} readable for the account that the daemon runs as, and for no other",
        )
    except UnicodeDecodeError:
        vault.fail(where, f"the file {path} is not text", "check that it is the right file")
    else:
        if len(raw) > MOST_BYTES:
            vault.fail(where, f"the file {path} is too large for a secret", "check that it is the right file")
            return
        if not private and mode & stat.S_IROTH:
            what = f"the secret file {path} is readable by every account (mode {mode:04o})"
            if key[-1] == "private_key":  # with it anybody is the App, and nothing of it expires
                vault.fail(where, what, f"chmod 600 {path}")
                return
            vault.findings.append(Finding(Code.WARNING, where, what, f"chmod 600 {path}"))
        _keep(vault, where, text, key, f"file {path}")


def _keep(vault: Vault, where: str, text: str, key: KeyPath, origin: str) -> None:
    secret = text.strip()
    if not secret:
        vault.fail(where, f"the secret from {origin} is empty", "put the secret there")
    elif key[-1] == "token" and not (secret.isascii() and secret.isprintable() and " " not in secret):
        vault.fail(
            where, f"the secret from {origin} is not one token", "put the token alone there, on one line"
        )
    elif key[-1] == "private_key" and not _is_rsa_key(secret):
        todo = "download a new key from the App's settings, and name that .pem file"
        vault.fail(where, f"the secret from {origin} is no RSA private key", todo)
    else:
        vault.values[key] = SecretStr(secret)
        vault.origins[key] = origin


def _is_rsa_key(text: str) -> bool:
    """Say whether a text is a private key as GitHub gives them out, in PEM and without a passphrase."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return isinstance(load_pem_private_key(text.encode("utf-8"), password=None), RSAPrivateKey)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
