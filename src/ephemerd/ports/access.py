"""Who may use the API: roles, what is kept of a token, and where that is kept."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Role(Enum):
    """What a caller may do: `read` sees everything, `operate` may order as well."""

    READ = "read"
    OPERATE = "operate"

    def covers(self, needed: Role) -> bool:
        """Whether who has this role may do what needs the other."""
        return self is Role.OPERATE or needed is Role.READ


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One token as it is kept: never itself, only `digest`, the SHA-256 of it (32 bytes).

    Times are ms since the epoch on the wall clock; `expires` None: never.
    """

    name: str
    role: Role
    digest: bytes
    created: int
    expires: int | None


class Shelf(Protocol):
    """Where the records of tokens are kept. Few and small: all are read and written together.

    Both raise `Broken` with what to do.
    """

    def read(self) -> list[TokenRecord]:
        """Return what is kept; nothing where nothing was ever written."""
        ...

    def write(self, records: list[TokenRecord]) -> None:
        """Keep these and no others, durably."""
        ...
