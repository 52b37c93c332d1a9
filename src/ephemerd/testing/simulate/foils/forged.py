"""Forged leave to destroy and to deregister: what the foils hold out instead of what the gate makes.

The classes have the attributes of `domain.permit` and nothing else in common with it: no type accepts them
where a `Permit` or a `FenceIntent` is asked for, the codec has no name for them, and the shell's executor and
adapters never meet them. The simulator's models take whatever bears these attributes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from ephemerd.core import codec
from ephemerd.core.commands import Command, Deregister, Destroy
from ephemerd.domain.ids import RunnerId, Scope
from ephemerd.domain.permit import Warrant
from ephemerd.domain.runner import Runner
from ephemerd.domain.verdict import Evidence, Verdict


@dataclass(frozen=True, slots=True)
class ForgedIntent:
    """Looks like a `FenceIntent`; no gate was asked."""

    runner: RunnerId
    scope: Scope
    registration: int
    warrant: Warrant
    rule: str
    made: int
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class ForgedPermit:
    """Looks like a `Permit`; nothing was proven."""

    runner: RunnerId
    environment: str
    warrant: Warrant
    rule: str
    verdict: Verdict
    made: int
    expires: int
    epoch: str = "forged"
    fence: str = "none"
    proofs: tuple[int, int] = (0, 0)
    evidence: tuple[Evidence, ...] = ()
    polite: bool = False


def destroy(row: Runner, now: int, rule: str, warrant: Warrant = Warrant.IDLE) -> Destroy:
    """Return the command that destroys a runner's environment without leave."""
    forged = ForgedPermit(row.id, row.environment or "", warrant, rule, Verdict.UNKNOWN, now, now)
    return Destroy(cast(Any, forged), row.pool)


def deregister(row: Runner, now: int, rule: str, token: int) -> Deregister:
    """Return the command that deregisters a runner without leave."""
    forged = ForgedIntent(row.id, row.scope, row.registration or 0, Warrant.IDLE, rule, now)
    return Deregister(cast(Any, forged), token)


def is_forged(command: Command) -> bool:
    """Say whether a command stands on a forged permit or intent."""
    leave: object = getattr(command, "permit", None) or getattr(command, "intent", None)
    return isinstance(leave, ForgedPermit | ForgedIntent)


def command_hash(command: Command) -> str:
    """Return 32 hex digits over a command of any policy, the same in every process."""
    if is_forged(command):
        return hashlib.blake2s(repr(command).encode(), digest_size=16).hexdigest()
    return codec.command_hash((command,))


def commands_hash(commands: Sequence[Command]) -> str:
    """Return 32 hex digits over the commands of any policy in their order; `gate`'s as the codec has it."""
    if not any(is_forged(command) for command in commands):
        return codec.command_hash(commands)
    return hashlib.blake2s("".join(map(command_hash, commands)).encode(), digest_size=16).hexdigest()
