"""What joins the daemon to its forges: their ports and hooks, what is read back of them, and what they are asked
beforehand.

Must not decide anything, and must not know `testing`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ephemerd import __version__
from ephemerd.adapters.forges.github import (
    make_app_hook_admin,
    make_catalogue,
    make_delivery_logs,
    make_forge,
    make_hook_admin,
    make_webhooks,
)
from ephemerd.adapters.forges.github.doctor import diagnose as look_at_forge
from ephemerd.adapters.system.applications import ApplicationShelf
from ephemerd.config.effective import Effective
from ephemerd.config.environment import needs_application
from ephemerd.config.findings import Code
from ephemerd.domain.ids import Scope
from ephemerd.domain.pool import SECOND
from ephemerd.ports.applications import Unpacked
from ephemerd.ports.errors import Denied, PortError
from ephemerd.ports.forge import Forge
from ephemerd.ports.hooks import AppHookAdmin, DeliveryLog, HookAdmin
from ephemerd.ports.views import FindingView
from ephemerd.ports.webhooks import Webhooks

logger = logging.getLogger(__name__)


def make_forges(effective: Effective) -> Mapping[str, Forge]:
    """Make the ports to all forges. A credential's file is handed over by its path, so that a new one in it is found
    without a restart. Raises `PortError`s."""
    forges: dict[str, Forge] = {}
    for name, forge in effective.settings.forge.items():
        app = forge.app_id is not None
        inline = forge.private_key if app else forge.token
        file = None if inline is not None else forge.private_key_file if app else forge.token_file
        readable = file is not None and file.is_absolute()
        given = (
            "" if readable else (effective.private_key if app else effective.token)(name).get_secret_value()
        )
        forges[name] = make_forge(
            name,
            url=forge.url,
            token="" if app else given,
            token_file=file if readable and not app else None,
            app_id=forge.app_id,
            private_key=given if app else "",
            private_key_file=file if readable and app else None,
            runner_group=forge.runner_group,
            ca_file=forge.ca_file,
        )
    return forges


@dataclass(frozen=True, slots=True)
class HookAdmins:
    """What looks after the hooks, by the forge's name: of scopes at each forge, and of an App where the hook is its."""

    scopes: dict[str, HookAdmin]
    apps: dict[str, AppHookAdmin]


@asynccontextmanager
async def hook_admins(effective: Effective) -> AsyncIterator[HookAdmins]:
    """Make what looks after the hooks of the configured forges. Raises `PortError`s."""
    forges, settings = make_forges(effective), effective.settings.forge
    try:
        yield HookAdmins(
            {name: make_hook_admin(forge) for name, forge in forges.items()},
            {
                name: make_app_hook_admin(forge)
                for name, forge in forges.items()
                if settings[name].webhook_owner == "app"
            },
        )
    finally:
        for forge in forges.values():
            await forge.close()


def delivery_logs(effective: Effective, forges: Mapping[str, Forge]) -> list[DeliveryLog]:
    """Make what reads back the deliveries of the hooks that tell us of jobs."""
    logs: list[DeliveryLog] = []
    for name, settings in effective.settings.forge.items():
        if settings.discovery != "webhook" or name not in forges:
            continue
        scopes = tuple(scope for scope in effective.scopes() if scope.forge == name)
        app = settings.webhook_owner == "app"
        found = make_delivery_logs(forges[name], scopes, url=settings.webhook_url, app=app)
        if not found:
            logger.info(
                "what cannot be delivered is not fetched: forge.%s.webhook_url is not set; the reconcile repairs it",
                name,
            )
        logs += found
    return logs


def verifiers(effective: Effective, forges: list[str]) -> dict[str, Webhooks]:
    """Make what verifies the deliveries of these forges, where they come by webhooks. Raises `Denied`."""
    return {
        name: make_webhooks(name, secret=effective.webhook_secret(name).get_secret_value())
        for name in forges
        if name in effective.settings.forge and effective.settings.forge[name].discovery == "webhook"
    }


async def look_at_forges(effective: Effective) -> list[FindingView]:
    """Ask each forge what the daemon would need of it; changes nothing there. Each question has a deadline."""
    try:
        forges = make_forges(effective)
    except PortError as error:
        code = Code.CREDENTIALS if isinstance(error, Denied) else Code.ENVIRONMENT
        return [FindingView("problem", int(code), "forge", error.detail, "mend what it names")]
    found: list[FindingView] = []
    for name, forge in forges.items():
        try:
            scopes = [scope for scope in effective.scopes() if scope.forge == name]
            found += await look_at_forge(forge, scopes)
            found += await _look_at_applications(effective, name, forge)
        finally:
            await forge.close()
    return found


async def _look_at_applications(effective: Effective, name: str, forge: Forge) -> list[FindingView]:
    """Ask a forge for the runner application of each scope that wants it, and compare it with what is at hand."""
    shelf, found = shelf_of(effective), list[FindingView]()
    there = {one.key: one for one in await shelf.unpacked()}
    wanted = dict.fromkeys(scope for scope in downloads(effective).values() if scope.forge == name)
    for scope in wanted:
        where = f"runner.application for {scope.path}"
        try:
            offered = await make_catalogue(forge).offered(scope)
        except PortError as error:
            todo = "check the scope, the token's rights and this machine's network"
            found.append(FindingView("problem", int(Code.ENVIRONMENT), where, error.detail, todo))
            continue
        platform = (shelf.system, shelf.architecture)
        one = next((one for one in offered if (one.system, one.architecture) == platform), None)
        if one is None:
            what = f"the forge offers none for {' '.join(platform)}"
            todo = "unpack one by hand and write its folder into runner.application"
            found.append(FindingView("problem", int(Code.ENVIRONMENT), where, what, todo))
        elif not one.checksum and not shelf.unverified:
            what, todo = (
                f"the forge states no checksum for {one.file}",
                "set runner.download.unverified = true",
            )
            found.append(FindingView("problem", int(Code.CONFIGURATION), where, what, todo))
        else:
            hand = f"at hand: {_at_hand(there.values()) or 'none, so that the first start fetches it'}"
            found.append(FindingView("ok", 0, where, f"the forge expects version {one.version}; {hand}", ""))
    return found


async def applications_at_hand(effective: Effective) -> str:
    """Return in words which downloaded runner applications there are; "" where none is wanted or there."""
    return _at_hand(await shelf_of(effective).unpacked()) if downloads(effective) else ""


def _at_hand(found: Iterable[Unpacked]) -> str:
    now = time.time()
    return ", ".join(
        f"{one.version} ({max(0, now - one.at / SECOND) / 86_400:.0f} days old)"
        for one in sorted(found, key=lambda one: one.at)
    )


def downloads(effective: Effective) -> dict[str, Scope]:
    """Return the scope of each pool whose runner application is downloaded."""
    settings = effective.settings
    if settings.runner.application != "download":
        return {}
    return {
        name: effective.scope_of(name) for name, pool in settings.pools.items() if needs_application(pool)
    }


def shelf_of(effective: Effective) -> ApplicationShelf:
    """Return where downloaded runner applications are kept."""
    work_dir = effective.settings.runner.work_dir
    assert work_dir is not None, "the effective configuration fills it in"
    return ApplicationShelf(
        work_dir.with_name("applications"),
        user_agent=f"ephemerd/{__version__}",
        unverified=effective.settings.runner.download.unverified,
    )
