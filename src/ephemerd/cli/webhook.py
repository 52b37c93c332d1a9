"""`webhook`: look after the forge's hook for this daemon. Hooks at other addresses are never touched."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ephemerd.cli import output
from ephemerd.cli.check import examined, report
from ephemerd.cli.failure import Exit, Failure
from ephemerd.cli.init import SECRET_BYTES, private_file
from ephemerd.cli.options import Config, Json

if TYPE_CHECKING:
    from ephemerd.config.effective import Effective
    from ephemerd.domain.ids import Scope
    from ephemerd.ports.hooks import Hook, HookAdmin

app = typer.Typer(
    name="webhook",
    help="Look after the forge's hook.",
    epilog="Example: ephemerd webhook install",
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
)
USED = "workflow_job"
TRIES = 8
"""A ping is looked for after a quarter of a second, and then after pauses that double: a minute in all."""


@dataclass(frozen=True, slots=True)
class _Place:
    """One scope that is to have a hook at `url`, and what looks after it."""

    scope: Scope
    url: str
    secret: str
    admin: HookAdmin

    def __repr__(self) -> str:
        return f"_Place({self.scope}, {self.url!r})"

    async def ours(self) -> Hook | None:
        """Find the hook that leads to our address."""
        return next((hook for hook in await self.admin.hooks(self.scope) if hook.url == self.url), None)


Act = Callable[[_Place], Awaitable[tuple[str, bool]]]


@app.command(epilog="Example: ephemerd webhook install")
def install(config: Config = None, as_json: Json = False) -> int:
    """Make or mend the hook of each scope; a secret that is missing is made and put into its file."""
    _make_secrets(config)
    return _each(config, _install, as_json=as_json)


@app.command(epilog="Example: ephemerd webhook status")
def status(config: Config = None, as_json: Json = False) -> int:
    """Show the hook of each scope, and what is wrong with it."""
    return _each(config, _status, as_json=as_json)


@app.command("test", epilog="Example: ephemerd webhook test")
def ping(config: Config = None, as_json: Json = False) -> int:
    """Have the forge send a ping to each hook, and say how it was answered."""
    return _each(config, _test, as_json=as_json)


@app.command(epilog="Example: ephemerd webhook remove")
def remove(config: Config = None, as_json: Json = False) -> int:
    """Delete the hook of each scope; hooks at other addresses stay."""
    return _each(config, _remove, as_json=as_json)


async def _install(place: _Place) -> tuple[str, bool]:
    hook = await place.ours()
    if hook is None:
        await place.admin.create(place.scope, place.url, place.secret)
        return "made", True
    await place.admin.update(place.scope, hook.id, place.url, place.secret)
    return "brought up to date", True


async def _status(place: _Place) -> tuple[str, bool]:
    hook = await place.ours()
    if hook is None:
        return "there is none; run 'ephemerd webhook install'", False
    wrong = _wrong(hook)
    if wrong:
        return f"{', '.join(wrong)}; run 'ephemerd webhook install'", False
    if hook.answered is None:
        return "in order; nothing was delivered yet", True
    return f"in order; the latest delivery was answered {hook.answered}", hook.answered < 300


def _wrong(hook: Hook) -> list[str]:
    found = [] if hook.active else ["it is switched off"]
    if USED not in hook.events and "*" not in hook.events:
        found.append(f"it does not send {USED}")
    if not hook.json:
        found.append("its content type is not application/json")
    if not hook.signed:
        found.append("it has no secret")
    if not hook.verified:
        found.append("it does not verify certificates")
    return found


async def _test(place: _Place) -> tuple[str, bool]:
    hook = await place.ours()
    if hook is None:
        return "there is none; run 'ephemerd webhook install'", False
    before = {one.id for one in await place.admin.deliveries(place.scope, hook.id)}
    await place.admin.ping(place.scope, hook.id)
    for attempt in range(TRIES):
        await asyncio.sleep(0.25 * 2**attempt)
        for one in await place.admin.deliveries(place.scope, hook.id):
            if one.event == "ping" and one.id not in before:
                good = 200 <= one.status < 300
                said = f"answered {one.status}" if one.status else f"not delivered: {one.outcome}"
                return f"ping {said}", good
    return "the forge shows no delivery of the ping", False


async def _remove(place: _Place) -> tuple[str, bool]:
    hook = await place.ours()
    if hook is None:
        return "there was none", True
    await place.admin.remove(place.scope, hook.id)
    return "removed", True


def _each(config: Path | None, act: Act, *, as_json: bool) -> int:
    """Do it for each scope; the code is 0 where all is well, else 5. Failure where the forge refuses."""
    from ephemerd.ports.errors import Denied, PortError, RetryLater

    effective = _effective(config)
    try:
        done = asyncio.run(_all(effective, act))
    except PortError as error:
        code = Exit.REFUSED
        if isinstance(error, Denied):
            code = Exit.CREDENTIALS
        elif isinstance(error, RetryLater):
            code = Exit.UNREACHABLE
        raise Failure(code, error.detail, "see docs/GITHUB.md for what the token must be allowed") from None
    if as_json:
        output.emit_json({"hooks": done})
    else:
        for one in done:
            print(output.clean(f"{one['scope']}: {one['url']}: {one['what']}"))
    return Exit.DONE if all(one["ok"] for one in done) else Exit.ENVIRONMENT


async def _all(effective: Effective, act: Act) -> list[dict[str, Any]]:
    from ephemerd import bootstrap

    done: list[dict[str, Any]] = []
    async with bootstrap.hook_admins(effective) as admins:
        for scope in effective.scopes():
            forge = effective.settings.forge[scope.forge]
            if forge.discovery != "webhook":
                continue
            if forge.webhook_url is None:
                what = f"forge.{scope.forge}.webhook_url is not set, so nobody knows where the hook leads"
                raise Failure(
                    Exit.CONFIGURATION, what, "set the address by which the forge reaches the daemon"
                )
            secret = effective.webhook_secret(scope.forge).get_secret_value()
            place = _Place(scope, forge.webhook_url, secret, admins[scope.forge])
            what, ok = await act(place)
            done.append({"scope": str(scope), "url": place.url, "what": what, "ok": ok})
    return done


def _effective(config: Path | None) -> Effective:
    found = examined(config, [])
    if found.effective is None:
        report(found.findings)
        code = min(int(one.code) for one in found.findings if one.code)
        raise Failure(code, "the configuration cannot be used", "mend what is named above")
    return found.effective


def _make_secrets(config: Path | None) -> None:
    """Write a fresh secret into each `webhook_secret_file` of the configuration that is not there yet."""
    from ephemerd.config.tomlfile import TomlFile, read_toml

    path = examined(config, []).path
    read = read_toml(path) if path is not None else None
    if path is None or not isinstance(read, TomlFile):
        return
    forges = read.data.get("forge")
    for forge in forges.values() if isinstance(forges, dict) else ():
        named = forge.get("webhook_secret_file") if isinstance(forge, dict) else None
        if not isinstance(named, str) or named.startswith("credential:"):
            continue
        file = path.parent / Path(named).expanduser()
        try:
            if private_file(file, secrets.token_hex(SECRET_BYTES) + "\n"):
                output.note(f"made a secret in {file}; the daemon reads it at its start")
        except OSError as error:
            what = f"{file} cannot be written: {error.strerror}"
            raise Failure(Exit.ENVIRONMENT, what, "correct webhook_secret_file, or ask root") from None
