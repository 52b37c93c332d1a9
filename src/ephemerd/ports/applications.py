"""The runner application as a forge offers it, and where its unpacked versions are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ephemerd.domain.ids import Scope


@dataclass(frozen=True, slots=True)
class Offered:
    """One version for one platform, as a forge lists it for a scope.

    system         linux, osx or win; architecture: x64, arm64 or arm (the forge's words)
    file           name of the archive, `….tar.gz` or `….zip`
    checksum       its SHA-256, 64 hex digits; "" where the forge states none
    token          a short-lived one that the address wants, if any
    ca_file        certificates to trust instead of the system's at that address, where it is the forge's own
    """

    system: str
    architecture: str
    version: str
    url: str
    file: str
    checksum: str = ""
    token: str = field(default="", repr=False)
    ca_file: Path | None = None

    @property
    def key(self) -> str:
        """What tells it apart from every other, also from a file of the same name with other content."""
        return f"{self.version}-{self.system}-{self.architecture}-{self.checksum[:16] or 'unverified'}"


@dataclass(frozen=True, slots=True)
class Ends:
    """From when a version is refused, ms since the epoch; None where that is not told (yet)."""

    registration: int | None = None
    running: int | None = None


class Catalogue(Protocol):
    """What a forge says of runner applications. Calls only read, have a deadline and raise only `PortError`s."""

    async def offered(self, scope: Scope) -> list[Offered]:
        """List what it offers for a scope, all platforms; asked again, it costs little where nothing changed."""
        ...

    async def ends(self, scope: Scope, version: str) -> Ends | None:
        """Return from when a version is refused; None where the forge does not know that question."""
        ...


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A version that is at hand: `folder` is only read. `at` is when it was unpacked, ms since the epoch."""

    key: str
    version: str
    folder: Path
    at: int
    verified: bool = True


@dataclass(frozen=True, slots=True)
class Use:
    """From `since` (ms of the shell clock) on, new runners of a scope are made from the version `key`."""

    key: str
    since: int


Uses = Mapping[str, Sequence[Use]]
"""By scope (as text), the newest first."""


class Shelf(Protocol):
    """Versions side by side in one folder of ours, each whole or not there. Raises only `PortError`s."""

    system: str
    architecture: str

    async def open(self) -> None:
        """Take the folder for this process alone. `Broken` where another has it or it cannot be used."""
        ...

    async def unpacked(self) -> list[Unpacked]:
        """List what is at hand."""
        ...

    async def fetch(self, offered: Offered, progress: Callable[[int, int], None]) -> Unpacked:
        """Fetch, verify and unpack a version; one that is at hand is returned as it is.

        progress   called with the bytes that are there, and all of them (0 where that is not known)
        """
        ...

    async def remove(self, key: str) -> None:
        """Remove a version that nobody needs."""
        ...

    async def uses(self) -> dict[str, list[Use]]:
        """Read which version was used from when on; empty where nothing readable is there."""
        ...

    async def keep_uses(self, uses: Uses) -> None:
        """Write that, whole or not at all."""
        ...

    async def close(self) -> None:
        """Let go of the folder."""
        ...
