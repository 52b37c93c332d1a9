"""Where a hook can be: at a scope, as one of several, or at a GitHub App, as its only one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ephemerd.domain.ids import Scope
    from ephemerd.ports.hooks import AppHookAdmin, Hook, HookAdmin, HookDelivery

USED = "workflow_job"


class Refused(Exception):
    """What is asked for is not done; the text says why, and what to do instead."""


class Place(Protocol):
    """One place that is to have a hook which leads to `url`. Hooks that lead elsewhere are not touched.

    name   as it is shown
    mend   what brings an imperfect hook into order
    """

    name: str
    url: str
    mend: str

    async def hook(self) -> Hook | None:
        """Find the hook that leads to our address."""
        ...

    async def install(self) -> str:
        """Make the hook, or bring it up to date; say which. Raises `Refused`."""
        ...

    async def deliveries(self, hook: Hook) -> list[HookDelivery]:
        """List the newest tries to deliver, newest first."""
        ...

    async def provoke(self, hook: Hook, before: list[HookDelivery]) -> str:
        """Have the forge deliver something; return its id, or "" for a ping. Raises `Refused`."""
        ...

    async def remove(self, hook: Hook) -> None:
        """Delete it. Raises `Refused`."""
        ...


@dataclass(slots=True)
class AtScope:
    """A hook of a repository or organization."""

    name: str
    url: str
    secret: str
    scope: Scope
    admin: HookAdmin
    mend: str = "run 'ephemerd webhook install'"

    def __repr__(self) -> str:
        return f"AtScope({self.name!r}, {self.url!r})"

    async def hook(self) -> Hook | None:
        """Find it among all hooks of the scope."""
        return next((hook for hook in await self.admin.hooks(self.scope) if hook.url == self.url), None)

    async def install(self) -> str:
        """Make or mend it."""
        hook = await self.hook()
        if hook is None:
            await self.admin.create(self.scope, self.url, self.secret)
            return "made"
        await self.admin.update(self.scope, hook.id, self.url, self.secret)
        return "brought up to date"

    async def deliveries(self, hook: Hook) -> list[HookDelivery]:
        """List them by the hook's number."""
        return await self.admin.deliveries(self.scope, hook.id)

    async def provoke(self, hook: Hook, before: list[HookDelivery]) -> str:
        """Ask for a ping."""
        await self.admin.ping(self.scope, hook.id)
        return ""

    async def remove(self, hook: Hook) -> None:
        """Delete it."""
        await self.admin.remove(self.scope, hook.id)


@dataclass(slots=True)
class AtApp:
    """The hook of a GitHub App. A program may say where it leads and with which secret; that it is active and which
    events it sends is set in the App's settings, where alone it can be switched off."""

    name: str
    url: str
    secret: str
    admin: AppHookAdmin
    mend: str = "run 'ephemerd webhook install'"

    def __repr__(self) -> str:
        return f"AtApp({self.name!r}, {self.url!r})"

    async def hook(self) -> Hook | None:
        """Return it where it leads to us, None where it leads nowhere."""
        hook = await self.admin.hook()
        if hook.url not in ("", self.url):
            raise Refused(
                f"the App's hook leads to {hook.url}, where another program may rely on it; clear the Webhook URL in "
                'the App\'s settings if that is not so, or write webhook_owner = "scope"'
            )
        return hook if hook.url else None

    async def install(self) -> str:
        """Lead it to us."""
        hook = await self.hook()
        await self.admin.update(self.url, self.secret)
        done = "made" if hook is None else "brought up to date"
        events = (hook or await self.admin.hook()).events
        if USED not in events:
            raise Refused(
                f"{done}, but the App does not send {USED}; subscribe it to 'Workflow jobs' in its settings, and see "
                "that its webhook is active there"
            )
        return f"{done}; whether it is active is set in the App's settings alone"

    async def deliveries(self, hook: Hook) -> list[HookDelivery]:
        """List those of the App."""
        return await self.admin.deliveries()

    async def provoke(self, hook: Hook, before: list[HookDelivery]) -> str:
        """Have the newest delivery tried once more: an App's hook has no ping."""
        if not before:
            raise Refused(
                "nothing was delivered in the last days, and an App's hook has no ping; run a workflow, or look "
                "whether the hook is active in the App's settings"
            )
        await self.admin.redeliver(before[0].id)
        return before[0].delivery

    async def remove(self, hook: Hook) -> None:
        """It cannot be deleted."""
        raise Refused("an App's hook cannot be removed by a program; switch it off in the App's settings")
