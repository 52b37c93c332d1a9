"""The file of API tokens: digests alone, mode 0600, replaced as a whole.

It lies beside the store and not in it: a backup or an export of the store hands no credentials on, and a store
that is put back brings no token to life again that was revoked meanwhile.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

import msgspec

from ephemerd.adapters.kit.disk import sync
from ephemerd.ports.access import Role, TokenRecord
from ephemerd.ports.errors import Broken

VERSION = 1
MOST_BYTES = 1024 * 1024
MENDED = "put a good copy back, or remove it and make new tokens"


class _Kept(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    role: str
    sha256: str
    created: int
    expires: int | None


class _Whole(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    tokens: list[_Kept]


class TokenFile:
    """`ports.access.Shelf` on one file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[TokenRecord]:
        """Return what is kept; nothing where there is no file. Raises `Broken` with what to do."""
        try:
            with self._path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                raw = file.read(MOST_BYTES + 1)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise Broken(f"{self._path} cannot be read: {error.strerror}; {MENDED}") from error
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise Broken(
                f"{self._path}: other accounts can write it (mode {stat.S_IMODE(mode):04o}) and so make themselves"
                f" tokens; chmod 600 {self._path}, and revoke what you do not know"
            )
        try:
            return [_record(kept) for kept in _decode(raw).tokens]
        except ValueError as error:
            raise Broken(f"{self._path} is no file of tokens ({error}); {MENDED}") from error

    def write(self, records: list[TokenRecord]) -> None:
        """Keep these and no others. Raises `Broken`; what was there stays then."""
        whole = _Whole(
            VERSION,
            [_Kept(one.name, one.role.value, one.digest.hex(), one.created, one.expires) for one in records],
        )
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(beside, msgspec.json.format(msgspec.json.encode(whole)) + b"\n")
            beside.replace(self._path)
            sync(self._path.parent)
        except OSError as error:
            raise Broken(
                f"{self._path} cannot be written: {error.strerror}; look at its disk and folder"
            ) from error
        finally:
            with suppress(OSError):
                beside.unlink(missing_ok=True)


def _decode(raw: bytes) -> _Whole:
    if len(raw) > MOST_BYTES:
        raise ValueError("it is too large")
    whole = msgspec.json.decode(raw, type=_Whole)
    if whole.version != VERSION:
        raise ValueError(f"it is of version {whole.version}, this is {VERSION}")
    return whole


def _record(kept: _Kept) -> TokenRecord:
    digest = bytes.fromhex(kept.sha256)
    if len(digest) != 32:
        raise ValueError(f"the digest of {kept.name!r} is not one")
    return TokenRecord(kept.name, Role(kept.role), digest, kept.created, kept.expires)


def _write(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
