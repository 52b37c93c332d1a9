"""Looks at a GitHub before anybody needs it: does it answer, may the credential do what the daemon does, do the
clocks agree, is there budget left. Registers and destroys nothing.

Whether runners may be registered is asked by a registration token (`POST {scope}/actions/runners/registration-token`,
GitHub's REST reference): it wants the same permission as a just-in-time configuration, registers nothing by itself,
and ends within the hour. It is not read out of the answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from email.utils import parsedate_to_datetime

from ephemerd.adapters.forges.github import runs, wire
from ephemerd.adapters.forges.github.client import GitHubForge
from ephemerd.adapters.forges.github.connection import Connection
from ephemerd.domain.errors import Remedy
from ephemerd.domain.ids import Scope
from ephemerd.ports.errors import PortError
from ephemerd.ports.forge import Forge
from ephemerd.ports.views import FindingView

SKEW_WARNING, SKEW_PROBLEM = 5.0, 300.0
"""Seconds between the clocks: from the first on an App's tokens are at risk, beyond the second certificates too."""
LITTLE = 0.1
"""Share of an hour's requests below which it is said."""
CREDENTIALS, ENVIRONMENT, CONFIGURATION = 4, 5, 3
TODO = {
    Remedy.DENIED: (CREDENTIALS, "do what it says, or put another token in its place"),
    Remedy.REFUSED: (CONFIGURATION, "correct the forge's settings"),
    Remedy.LIMITED: (0, "wait until the limit ends; give other programs another token"),
    Remedy.BROKEN: (ENVIRONMENT, "mend the file it names"),
}
OTHERWISE = (ENVIRONMENT, "check url, this machine's network and proxy, and the forge's status page")


async def diagnose(
    forge: Forge, scopes: Sequence[Scope], *, timeout_s: float = 20.0, now: Callable[[], float] = time.time
) -> list[FindingView]:
    """Look at one forge and what may be done in each of its scopes; never raises a `PortError`.

    `timeout_s` bounds each question, seconds; `now` is the wall clock, seconds since the epoch.
    """
    assert isinstance(forge, GitHubForge), "made by make_forge"
    found: list[FindingView] = []
    clock: FindingView | None = None
    for scope in scopes:
        look = _Look(forge, scope, timeout_s, now)
        found += await look.run()
        clock = clock or look.clock
    if clock is not None:
        found.append(clock)
    found += _budget(forge)
    return found


class _Look:
    """The questions about one scope."""

    def __init__(self, forge: GitHubForge, scope: Scope, timeout_s: float, now: Callable[[], float]) -> None:
        self.clock: FindingView | None = None
        self._forge = forge
        self._connection: Connection = forge._connection
        self._where = f"forge.{forge.name}"
        self._scope = scope
        self._timeout_s = timeout_s
        self._now = now

    async def run(self) -> list[FindingView]:
        path = self._scope.path
        try:
            listing = wire.list_runners(self._scope)
        except PortError as error:
            return [self._problem(error)]
        seen = await self._ask(
            listing, (200,), f"it answers, and the credential may see the runners of {path}"
        )
        if seen.level != "ok":
            return [seen]  # the others would say the same again
        make = replace(
            listing,
            method="POST",
            target=f"{wire.scope_path(self._scope)}/actions/runners/registration-token",
            endpoint="POST {scope}/actions/runners/registration-token",
            about=f"the right to register runners in {path}",
        )
        found = [seen, await self._ask(make, (201,), f"the credential may register runners in {path}")]
        if self._scope.kind == "repo":
            listed = runs.list_runs(self._scope.target, "queued")
            found.append(await self._ask(listed, (200,), f"the credential may read the jobs of {path}"))
        else:
            found.append(await self._group())
        if self._scope.kind == "org":
            found += await self._repositories()
        return found

    async def _repositories(self) -> list[FindingView]:
        """Look whether jobs can be listed there: by the organization's repositories, and by the runs of one."""
        owner, deadline = self._scope.target, asyncio.get_running_loop().time() + self._timeout_s
        first = runs.list_installed(owner) if self._connection.installed else runs.list_owned(owner)
        try:
            answer = await self._connection.fetch(first, deadline)
            seen = [one for one in runs.read_repositories(first, answer) if not one.dormant]
        except PortError as error:
            return [self._problem(error)]
        if not seen:
            what = f"the credential sees no repository of {owner}, so no job there can be listed"
            todo = "give it access to the repositories that are to be served"
            return [FindingView("warning", 0, self._where, what, todo)]
        ok = f"the credential may list the repositories of {owner} and read the jobs of {seen[0].name}"
        return [await self._ask(runs.list_runs(seen[0].name, "queued"), (200,), ok)]

    async def _group(self) -> FindingView:
        """Look whether there is a runner group of the configured name; a repository has none of its own."""
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        try:
            number = await self._forge._group(self._scope, deadline)
        except PortError as error:
            return self._problem(error)
        return FindingView("ok", 0, self._where, f"{self._scope.path} has the runner group ({number})", "")

    async def _ask(self, request: wire.Request, good: tuple[int, ...], ok: str) -> FindingView:
        loop = asyncio.get_running_loop()
        began = self._now()
        try:
            answer = await self._connection.ask(request, loop.time() + self._timeout_s)
        except PortError as error:
            return self._problem(error)
        self._compare(answer.headers, began)
        if answer.status not in good:
            return self._problem(self._connection.fault(request, answer))
        return FindingView("ok", 0, self._where, ok, "")

    def _problem(self, error: PortError) -> FindingView:
        code, todo = TODO.get(error.remedy, OTHERWISE)
        return FindingView("problem" if code else "warning", code, self._where, error.detail, todo)

    def _compare(self, headers: Mapping[str, str], began: float) -> None:
        """Compare the clocks: the answer's `Date` (whole seconds) lies between question and answer, or is off."""
        there = _date(headers.get("date", ""))
        if there is None or self.clock is not None:
            return
        ended = self._now()
        ahead = there + 1.0 - began if there + 1.0 < began else max(0.0, there - ended)
        self.clock = _clock(self._where, ahead)


def _clock(where: str, ahead: float) -> FindingView:
    """`ahead`: by how many seconds the forge's clock is surely ahead of ours; negative where it is behind."""
    if abs(ahead) < SKEW_WARNING:
        return FindingView("ok", 0, where, "this machine's clock agrees with the forge's", "")
    side = "behind" if ahead > 0 else "ahead of"
    what = f"this machine's clock is {abs(ahead):.0f} s {side} the forge's"
    todo = "set it right, and keep it right: chrony or systemd-timesyncd"
    if abs(ahead) < SKEW_PROBLEM:
        return FindingView("warning", 0, where, what, todo)
    return FindingView("problem", ENVIRONMENT, where, what, todo)


def _budget(forge: GitHubForge) -> list[FindingView]:
    """Say where the last answers told of little budget."""
    found = []
    for told in forge.budgets():
        if told.limit and told.remaining < LITTLE * told.limit:
            what = f"{told.remaining} of {told.limit} requests ({told.resource}) are left in this hour"
            todo = "give other programs another token"
            found.append(FindingView("warning", 0, f"forge.{forge.name}", what, todo))
    return found


def _date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except (ValueError, TypeError, OverflowError):
        return None
