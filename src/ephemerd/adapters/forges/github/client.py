"""The `Forge` port for GitHub: each method is one question to GitHub, under one deadline."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path

from ephemerd.adapters.forges.github import faults, runs, wire
from ephemerd.adapters.forges.github.connection import Connection
from ephemerd.adapters.forges.github.groups import DEFAULT, Group, Groups, list_groups, read_groups
from ephemerd.adapters.forges.github.listings import Listings
from ephemerd.adapters.forges.github.tokens import TokenSource
from ephemerd.adapters.kit.http import MAX_BODY, HttpClient, is_loopback
from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.job import JobReport, Origin
from ephemerd.domain.permit import FenceIntent
from ephemerd.domain.runner import FenceAnswer
from ephemerd.ports.errors import Gone, NameTaken, PortError, Refused
from ephemerd.ports.forge import (
    Audit,
    Budget,
    CallRecord,
    ForgeRunner,
    Glance,
    JobsSeen,
    Look,
    Registration,
    RepositoriesSeen,
    RunSeen,
)

log = logging.getLogger(__name__)


class GitHubForge:
    """One configured GitHub. Raises only `PortError`s; the caller's cancellation passes through."""

    def __init__(
        self,
        name: str,
        *,
        url: str,
        tokens: TokenSource,
        ca_file: Path | None = None,
        timeout_s: float = 20.0,
        listing_timeout_s: float = 120.0,
        runner_group: str = DEFAULT,
        max_body: int = MAX_BODY,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Times in seconds: of one request, and of a listing with all its pages. `now` is the wall clock,
        `monotonic` the one that limits are kept by."""
        self.name = name
        base = wire.base_url(url)
        http = HttpClient(base, ca_file=ca_file, max_body=max_body)
        if base.startswith("http:") and not is_loopback(base):
            log.warning("forge %s: the token travels unencrypted to %s; use https", name, base)
        self._connection = Connection(
            http, base=base, tokens=tokens, timeout_s=timeout_s, now=now, monotonic=monotonic
        )
        self._groups = Groups(runner_group)
        self._timeout_s = timeout_s
        self._listings = Listings(self._connection, name, listing_timeout_s, now)

    def __repr__(self) -> str:
        return f"GitHubForge({self.name!r}, {self._connection.base!r})"

    @property
    def connection(self) -> Connection:
        """The connection, for what asks GitHub about other things than runners and jobs."""
        return self._connection

    async def register(self, scope: Scope, name: RunnerId, labels: tuple[str, ...]) -> Registration:
        """Register a just-in-time runner in the configured runner group; sent once.

        `Refused` where the scope has no group of that name.
        Where the name is taken (409: a lost answer or a clash), looks the name up once and raises
        `NameTaken` with the registration's id, None where it was not found or the look-up failed.
        """
        deadline = self._deadline()
        request = wire.register(scope, name, labels, await self._group(scope, deadline))
        answer = await self._connection.ask(request, deadline)
        if answer.status == 201:
            return wire.read_registration(request, answer)
        fault = self._connection.fault(request, answer)
        if answer.status in {403, 404, 422}:
            self._groups.forget(scope)
        if answer.status == 409:
            raise NameTaken(fault.detail, await self._registration_of(scope, name))
        raise fault

    async def deregister(self, scope: Scope, registration: int, intent: FenceIntent) -> FenceAnswer:
        """Delete a registration; sent once. The answer is read by its status alone.

        `Refused` without asking GitHub where the intent names another registration.
        """
        if intent.scope != scope or intent.registration != registration:
            raise Refused(
                f"the intent is for registration {intent.registration} in {intent.scope}, "
                f"not for {registration} in {scope}; nothing was sent"
            )
        request = wire.delete_runner(scope, registration)
        answer = await self._connection.ask(request, self._deadline())
        told = faults.fence_answer(answer.status)
        if told is None:
            raise self._connection.fault(request, answer)
        return told

    async def runner(self, scope: Scope, registration: int) -> ForgeRunner:
        """Get one registration; `Gone` on 404, which a lost permission gives as well."""
        request = wire.get_runner(scope, registration)
        answer = await self._connection.fetch(request, self._deadline())
        return wire.read_runner(request, answer)

    async def find(self, scope: Scope, name: RunnerId) -> ForgeRunner | None:
        """Find a registration by its exact name, however loosely GitHub's own filter matches."""
        async with aclosing(self._each_runner(wire.list_runners(scope, name))) as runners:
            async for runner in runners:
                if runner.name == name:
                    return runner
        return None

    async def runners(self, scope: Scope) -> list[ForgeRunner]:
        """List all registrations, all pages. A list is no evidence that one is absent."""
        return [runner async for runner in self._each_runner(wire.list_runners(scope))]

    async def job(self, key: JobKey) -> JobReport:
        """Get one job. `Gone` only where the repository answers 200 right after the job's 404."""
        deadline = self._deadline()
        request = wire.get_job(key)
        answer = await self._connection.ask(request, deadline)
        if answer.status == 200:
            return wire.read_job(request, answer, key)
        fault = self._connection.fault(request, answer)
        if answer.status == 404:
            await self._connection.fetch(wire.get_repository(key.repository), deadline)
            raise Gone(fault.detail)
        raise fault

    async def origin(self, repository: str, run: int) -> Origin:
        """Get whose work a run is; `Gone` where GitHub does not show the run."""
        request = runs.get_run(repository, run)
        return runs.read_origin(request, await self._connection.fetch(request, self._deadline()))

    async def active_jobs(
        self, repository: str, look: Look = Look.WHOLE, again: frozenset[int] = frozenset()
    ) -> JobsSeen:
        """Read the jobs of a repository's runs that are not over, ended ones of these runs included."""
        return await self._listings.active_jobs(repository, look, again)

    async def audit(self, repository: str, explains: Callable[[RunSeen], bool]) -> Audit:
        """Look at a repository's newest runs, and read the jobs of those that `explains` does not account for."""
        return await self._listings.audit(repository, explains)

    async def glance(self, repository: str) -> Glance:
        """Look at a repository's newest runs alone."""
        return await self._listings.glance(repository)

    def glance_is_free(self, repository: str) -> bool:
        """Say whether GitHub can answer a glance with a 304, which does not count."""
        return self._connection.is_kept(runs.list_newest(repository))

    def audit_is_free(self, repository: str) -> bool:
        """Say the same of an audit."""
        return self._connection.is_kept(runs.list_newest(repository, runs.AUDITED))

    async def repositories(self, owner: str) -> RepositoriesSeen:
        """List the repositories of an organization; as an App those that it is installed on."""
        return await self._listings.repositories(owner)

    def budgets(self) -> tuple[Budget, ...]:
        """Return the rate limits as last told."""
        return self._connection.budgets()

    def take_calls(self) -> list[CallRecord]:
        """Return and forget the requests since last time."""
        return self._connection.take_calls()

    async def close(self) -> None:
        """Release connections."""
        await self._connection.close()

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._timeout_s

    async def _group(self, scope: Scope, deadline: float) -> int:
        """Return the number of the runner group; asked for once in a while."""
        number = self._groups.known(scope, asyncio.get_running_loop().time())
        if number is not None:
            return number
        found: list[Group] = []
        async for request, answer in self._listings.pages(list_groups(scope), deadline):
            found += read_groups(request, answer)
        chosen = self._groups.choose(scope, found, asyncio.get_running_loop().time())
        if chosen.public is False:
            log.info(
                "runner group %s of %s is closed to public repositories: their jobs wait for ever",
                chosen.name,
                scope.path,
            )
        return chosen.id

    async def _registration_of(self, scope: Scope, name: RunnerId) -> int | None:
        try:
            found = await self.find(scope, name)
        except PortError:
            return None
        return None if found is None else found.id

    async def _each_runner(self, first: wire.Request) -> AsyncGenerator[ForgeRunner, None]:
        async for request, answer in self._listings.pages(first, self._listings.deadline()):
            for runner in wire.read_runners(request, answer):
                yield runner
