"""The webhooks that a forge sends: how they are set up there, and what became of what was sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ephemerd.domain.ids import Scope
from ephemerd.ports.webhooks import Delivery


@dataclass(frozen=True, slots=True)
class Hook:
    """A hook as the forge shows it; its secret is never shown, only whether there is one.

    answered   the status of its latest delivery, None where there was none or no answer, or it is not shown
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
    """One try to deliver: `status` is the answer's, 0 where none came; `outcome` what the forge says of it.

    id          of this try; `delivery` is the id of what was delivered, which each try of it bears
    good        whether it was delivered
    at          when, ms since the epoch by the forge's clock; 0 where that was not told
    used        whether it may carry what we use
    repository  the forge's number of the repository that it is about, None where that was not told
    """

    id: int
    event: str
    status: int
    outcome: str
    delivery: str = ""
    good: bool = False
    at: int = 0
    used: bool = False
    repository: int | None = None


@dataclass(frozen=True, slots=True)
class Tries:
    """A page of tries, newest first; `older` leads to the next one and is "" at the end."""

    items: tuple[HookDelivery, ...]
    older: str = ""


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


class AppHookAdmin(Protocol):
    """Looks after the one hook of an App, as far as a program may. Calls are as those of `HookAdmin`."""

    async def hook(self) -> Hook:
        """Get it: `id` is 0, `url` "" where it leads nowhere. Whether it is switched on is not shown (`active` is
        true)."""
        ...

    async def update(self, url: str, secret: str) -> None:
        """Have it lead to `url`, with our secret and content type."""
        ...

    async def deliveries(self) -> list[HookDelivery]:
        """List the newest deliveries, newest first."""
        ...

    async def redeliver(self, number: int) -> None:
        """Have the forge try one of them once more, under the same delivery id."""
        ...


class DeliveryLog(Protocol):
    """The forge's own list of what it tried to deliver by one hook of ours; it reaches back for some days.

    Calls only read, have a deadline each and raise only `PortError`s; `Refused` where no hook leads to us.

    name     of the hook, for people: `github/repo:acme/app`
    forge    the configured name
    scopes   whose jobs it tells of
    """

    name: str
    forge: str
    scopes: tuple[Scope, ...]

    async def failed(self, older: str = "") -> Tries:
        """Read the newest page of tries that failed, or the page that an earlier one led to. A forge that cannot
        choose shows all tries."""
        ...

    async def read(self, number: int) -> tuple[Delivery, bytes]:
        """Read what one try held, and its body. `Gone` where the forge has forgotten it, `Refused` where it
        shows no body."""
        ...
