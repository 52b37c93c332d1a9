"""The webhooks that a forge sends, as they are set up there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ephemerd.domain.ids import Scope


@dataclass(frozen=True, slots=True)
class Hook:
    """A hook as the forge shows it; its secret is never shown, only whether there is one.

    answered   the status of its latest delivery, None where there was none or no answer
    """

    id: int
    url: str
    active: bool
    events: tuple[str, ...]
    json: bool
    signed: bool
    verified: bool
    answered: int | None


@dataclass(frozen=True, slots=True)
class HookDelivery:
    """One try to deliver: `status` is the answer's, 0 where none came; `outcome` what the forge says of it."""

    id: int
    event: str
    status: int
    outcome: str


class HookAdmin(Protocol):
    """Looks after hooks. Every call has a deadline of its own and raises only `PortError`s."""

    async def hooks(self, scope: Scope) -> list[Hook]:
        """List all hooks of a scope, ours and others."""
        ...

    async def create(self, scope: Scope, url: str, secret: str) -> None:
        """Make an active hook for the deliveries that we use."""
        ...

    async def update(self, scope: Scope, hook: int, url: str, secret: str) -> None:
        """Bring a hook to what `create` would make."""
        ...

    async def remove(self, scope: Scope, hook: int) -> None:
        """Delete a hook; one that is gone already is no error."""
        ...

    async def ping(self, scope: Scope, hook: int) -> None:
        """Have the forge send a ping."""
        ...

    async def deliveries(self, scope: Scope, hook: int) -> list[HookDelivery]:
        """List the newest deliveries, newest first."""
        ...
