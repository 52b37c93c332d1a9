"""Identities: what a runner, a job, a scope is called, and nothing else about them."""

from __future__ import annotations

from functools import lru_cache
from typing import NewType

from ephemerd.domain.value import Value

RunnerId = NewType("RunnerId", str)
"""Our own name of a runner, also its name at the forge: `[a-z0-9][a-z0-9-]{0,62}`."""


class JobKey(Value, frozen=True, order=True, cache_hash=True):
    """A job's identity: the forge's configured name, the repository (`owner/name`), the forge's id."""

    forge: str
    repository: str
    id: int

    def __str__(self) -> str:
        return f"{self.forge}/{self.repository}/{self.id}"


@lru_cache(maxsize=2_048)
def job_text(key: JobKey) -> str:
    """Return `str(key)`, which the handling of an event wants several times."""
    return str(key)


DIGITS = 19
"""Of the number of a job: what 63 bits can have. Python itself refuses to read some thousands."""


def parse_job_key(text: str) -> JobKey | None:
    """Return the key that `str(key)` wrote, or None where the text is no such thing."""
    forge, _, rest = text.partition("/")
    repository, _, number = rest.rpartition("/")
    plain = number.isascii() and number.isdigit() and len(number) <= DIGITS
    if forge and repository and plain:
        return JobKey(forge, repository, int(number))
    return None


class Scope(Value, frozen=True, order=True, cache_hash=True):
    """Where a runner is registered: `path` is `repo:OWNER/NAME`, `org:NAME` or `enterprise:NAME`."""

    forge: str
    path: str

    def __str__(self) -> str:
        return f"{self.forge}/{self.path}"

    @property
    def kind(self) -> str:
        return self.path.partition(":")[0]

    @property
    def target(self) -> str:
        return self.path.partition(":")[2]

    def serves(self, job: JobKey) -> bool:
        """Say whether a runner of this scope can be given that job (names compare without case)."""
        if job.forge != self.forge:
            return False
        kind, _, target = self.path.partition(":")
        if kind == "repo":
            return job.repository.lower() == target.lower()
        if kind == "org":
            return job.repository.partition("/")[0].lower() == target.lower()
        return kind == "enterprise"


@lru_cache(maxsize=1_024)
def scope_text(scope: Scope) -> str:
    """Return `str(scope)`, kept: there are few scopes, and each answer of a forge asks for the text of one."""
    return str(scope)


LONGEST_NAME = 63
"""Characters of a runner's name (github.md, section 14)."""


def runner_name(store_id: str, epoch: str, counter: int, suffix: str = "") -> RunnerId:
    """Build a runner's name from the store's id, the boot epoch and a counter, so that none repeats; the suffix is
    for people, and gives way where the name would become too long."""
    return RunnerId(f"eph-{store_id}-{epoch}-{counter}{suffix}"[:LONGEST_NAME].rstrip("-"))


def is_ours(name: str, store_id: str) -> bool:
    """Say whether a name at the forge was made by the store with this id (exact prefix, never a guess)."""
    return name.startswith(f"eph-{store_id}-")
