"""`webhook`: look after the forge's hook for this daemon. Hooks at other addresses are never touched."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ephemerd.cli import output
from ephemerd.cli.check import examined, report
from ephemerd.cli.failure import Exit, Failure
from ephemerd.cli.init import SECRET_BYTES, private_file
from ephemerd.cli.options import Config, Json
from ephemerd.cli.webhook_places import USED, AtApp, AtScope, Place, Refused

if TYPE_CHECKING:
    from ephemerd.config.effective import Effective
    from ephemerd.ports.hooks import AppHookAdmin, Hook, HookAdmin, HookDelivery

app = typer.Typer(
    name="webhook",
    help="Look after the forge's hook.",
    epilog="Example: ephemerd webhook install",
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
)
SHOWN = 10
"""So many of the latest deliveries are shown."""
TRIES = 8
"""A ping is looked for after a quarter of a second, and then after pauses that double: a minute in all."""


@dataclass(slots=True)
class _Done:
    """What came of it at one place; `tries` are its latest deliveries where they were looked at."""

    what: str
    ok: bool
    tries: list[HookDelivery] = field(default_factory=list)


Act = Callable[["Place"], Awaitable[_Done]]


@app.command(short_help="Make or mend the hook.", epilog="Example: ephemerd webhook install")
def install(config: Config = None, as_json: Json = False) -> int:
    """Make or mend the hook of each scope; a secret that is missing is made and put into its file."""
    _make_secrets(config)
    return _each(config, _install, as_json=as_json)


@app.command(epilog="Example: ephemerd webhook status")
def status(config: Config = None, as_json: Json = False) -> int:
    """Show the hook of each scope, and what is wrong with it."""
    return _each(config, _status, as_json=as_json)


@app.command("test", short_help="Have the forge send a ping.", epilog="Example: ephemerd webhook test")
def ping(config: Config = None, as_json: Json = False) -> int:
    """Have the forge send a ping to each hook, and say how it was answered."""
    return _each(config, _test, as_json=as_json)


@app.command(epilog="Example: ephemerd webhook remove")
def remove(config: Config = None, as_json: Json = False) -> int:
    """Delete the hook of each scope; hooks at other addresses stay."""
    return _each(config, _remove, as_json=as_json)


async def _install(place: Place) -> _Done:
    return _Done(await place.install(), ok=True)


async def _status(place: Place) -> _Done:
    hook = await place.hook()
    if hook is None:
        return _Done(f"there is none; {place.mend}", ok=False)
    wrong = _wrong(hook)
    if wrong:
        return _Done(f"{', '.join(wrong)}; {place.mend}", ok=False)
    tries = await place.deliveries(hook)
    if not tries:
        return _Done("in order; nothing was delivered yet", ok=True)
    failed = sum(not one.good for one in tries)
    rest = f"; of the last {len(tries)} {failed} failed" if failed else ""
    return _Done(f"in order; the latest delivery was {_answer(tries[0])}{rest}", tries[0].good, tries[:SHOWN])


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


async def _test(place: Place) -> _Done:
    hook = await place.hook()
    if hook is None:
        return _Done(f"there is none; {place.mend}", ok=False)
    before = await place.deliveries(hook)
    known = {one.id for one in before}
    wanted = await place.provoke(hook, before)
    for attempt in range(TRIES):
        await asyncio.sleep(0.25 * 2**attempt)
        for one in await place.deliveries(hook):
            fits = one.delivery == wanted if wanted else one.event == "ping"
            if fits and one.id not in known:
                what = f"{one.event} of before, delivered again," if wanted else "ping"
                return _Done(f"{what} {_answer(one)}", one.good)
    return _Done("the forge shows no delivery of what was asked for", ok=False)


async def _remove(place: Place) -> _Done:
    hook = await place.hook()
    if hook is None:
        return _Done("there was none", ok=True)
    await place.remove(hook)
    return _Done("removed", ok=True)


def _answer(one: HookDelivery) -> str:
    return f"answered {one.status}" if one.status else f"not delivered: {one.outcome}"


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
        output.emit_json({"hooks": [_plain(place, one) for place, one in done]})
    else:
        for place, one in done:
            print(output.clean(f"{place.name}: {place.url}: {one.what}"))
            for failed in one.tries:
                if not failed.good:
                    at = output.clock(failed.at, day=True)
                    print(output.clean(f"  {at}  {failed.event} {failed.delivery}: {_answer(failed)}"))
    return Exit.DONE if all(one.ok for _, one in done) else Exit.ENVIRONMENT


def _plain(place: Place, done: _Done) -> dict[str, Any]:
    """Return one line of the JSON; never anything secret."""
    shown: dict[str, Any] = {"scope": place.name, "url": place.url, "what": done.what, "ok": done.ok}
    if done.tries:
        shown["deliveries"] = [
            {
                "id": one.id,
                "delivery": one.delivery,
                "event": one.event,
                "at": one.at,
                "status": one.status,
                "outcome": one.outcome,
                "good": one.good,
            }
            for one in done.tries
        ]
    return shown


async def _all(effective: Effective, act: Act) -> list[tuple[Place, _Done]]:
    from ephemerd import joining

    async with joining.hook_admins(effective) as admins:
        done: list[tuple[Place, _Done]] = []
        for place in _places(effective, admins.scopes, admins.apps):
            try:
                one = await act(place)
            except Refused as refusal:
                one = _Done(str(refusal), ok=False)
            done.append((place, one))
        return done


def _places(
    effective: Effective, admins: Mapping[str, HookAdmin], apps: Mapping[str, AppHookAdmin]
) -> list[Place]:
    """Return where hooks are to be: one at each scope, or the App's one."""
    places: list[Place] = []
    for name, forge in effective.settings.forge.items():
        if forge.discovery != "webhook":
            continue
        if forge.webhook_url is None:
            what = f"forge.{name}.webhook_url is not set, so nobody knows where the hook leads"
            raise Failure(Exit.CONFIGURATION, what, "set the address by which the forge reaches the daemon")
        secret = effective.webhook_secret(name).get_secret_value()
        if name in apps:
            places.append(AtApp(f"{name}/app", forge.webhook_url, secret, apps[name]))
            continue
        scopes = (scope for scope in effective.scopes() if scope.forge == name)
        places += [AtScope(str(one), forge.webhook_url, secret, one, admins[name]) for one in scopes]
    return places


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
