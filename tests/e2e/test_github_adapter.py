"""The real adapter against the look-alike: they share no code, so a wire mistake of either shows here."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx2
import msgspec
import pytest

from ephemerd.adapters.forges.github import make_forge, make_webhooks
from ephemerd.adapters.forges.github.client import GitHubForge
from ephemerd.adapters.forges.github.tokens import FileToken, FixedToken
from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.job import ForgeStatus, JobReport
from ephemerd.domain.permit import FenceIntent, Warrant
from ephemerd.domain.runner import FenceAnswer
from ephemerd.ports.errors import Gone, Limited, PortError, RetryLater
from ephemerd.ports.forge import CallRecord, Forge, ForgeRunner, Look, Registration
from ephemerd.testing.contracts.forge import CHECKS, LABELS, Check, Stage, name
from ephemerd.testing.fake_runner.folder import write_folder
from ephemerd.testing.forge_sim.main import ForgeSim, Options, running
from ephemerd.testing.weather import Uniform, load
from tests.e2e.scripted_server import Received, Reply, server

pytestmark = pytest.mark.e2e
REPOSITORY = "Acme/App"
SCOPE = Scope("github", f"repo:{REPOSITORY}")
MISSING = Scope("github", "repo:Acme/Missing")
PROMPT = replace(load("calm"), rest_delay=Uniform(), boot=Uniform(), assign=Uniform())
JOB_S = 300.0  # never waited for: a job ends because it is cancelled


@dataclass
class LookAlikeStage:
    """The look-alike as the stage of the contract suite; runners are real processes."""

    sim: ForgeSim
    forge: Forge
    folder: Path
    base: str
    scope: Scope = SCOPE
    missing: Scope = MISSING
    kind: type[GitHubForge] = GitHubForge
    cleanup: AsyncExitStack = field(default_factory=AsyncExitStack)

    def stranger(self) -> Forge:
        forge = self.kind("github", url=self.base, tokens=FixedToken("wrong"))
        self.cleanup.push_async_callback(forge.close)
        return forge

    def intent(self, scope: Scope, runner: RunnerId, registration: int) -> FenceIntent:
        return FenceIntent(runner, scope, registration, Warrant.IDLE, "expired", 0, ())

    async def queue(self, labels: tuple[str, ...]) -> JobKey:
        answer = await self.admin("jobs", {"labels": list(labels), "duration_s": JOB_S})
        return JobKey("github", REPOSITORY, answer["jobs"][0])

    async def occupy(self, runner: RunnerId, given: Registration) -> None:
        write_folder(self.folder)
        environment = {**os.environ, "ACTIONS_RUNNER_INPUT_JITCONFIG": given.credential}
        process = await asyncio.create_subprocess_exec(
            str(self.folder / "bin" / "Runner.Listener"),
            "run",
            env=environment,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        self.cleanup.push_async_callback(self.end, process)
        await self.wait("jobs_started")

    async def release(self, job: JobKey) -> None:
        await self.admin(f"jobs/{job.id}/cancel", {})
        await self.wait("jobs_ended")

    async def end(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.wait_for(process.wait(), 30)

    async def admin(self, path: str, body: dict[str, object]) -> dict[str, list[int]]:
        async with httpx2.AsyncClient(trust_env=False, timeout=30) as client:
            answer = await client.post(f"{self.sim.url}/_admin/{path}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()  # type: ignore[no-any-return]

    async def wait(self, what: str) -> None:
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
            answer = await client.get(f"{self.sim.url}/_admin/wait", params={"for": what, "timeout": "45"})
        assert answer.json() == {"held": True}, f"{what} did not come: {answer.text}"


@asynccontextmanager
async def staged(folder: Path, *, prefix: str = "", timeout_s: float = 20.0) -> AsyncIterator[LookAlikeStage]:
    token_file = folder / "token"
    token_file.write_text("ghp_of_the_look_alike\n", encoding="utf-8")
    options = Options(repository=REPOSITORY, token_file=token_file, weather=PROMPT)
    async with running(options) as sim:
        forge = make_forge("github", url=sim.url + prefix, token_file=token_file, timeout_s=timeout_s)
        stage = LookAlikeStage(sim, forge, folder / "runner", sim.url + prefix)
        try:
            yield stage
        finally:
            await stage.cleanup.aclose()
            await forge.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_adapter_keeps_the_contract(check: Check, tmp_path: Path):
    async with staged(tmp_path) as stage:
        as_the_suite_sees_it: Stage = stage
        await check(as_the_suite_sees_it)


class Loose(GitHubForge):
    """Mistakes that adapters have made; each check of the suite must catch its own."""

    async def find(self, scope, name):
        return next((one for one in await self.runners(scope) if one.name.startswith(name[:-1])), None)

    async def runners(self, scope):
        try:
            return (await super().runners(scope))[:100]
        except PortError:
            return []

    async def runner(self, scope, registration):
        try:
            return await super().runner(scope, registration)
        except Gone:
            return ForgeRunner(registration, name(), False, False, (), None)

    async def deregister(self, scope, registration, intent):
        intent = FenceIntent(name(), scope, registration, intent.warrant, intent.rule, 0, ())
        try:
            answer = await super().deregister(scope, registration, intent)
        except PortError:
            return FenceAnswer.NOT_FOUND
        return FenceAnswer.ACCEPTED if answer is FenceAnswer.NOT_FOUND else answer

    async def job(self, key):
        try:
            return await super().job(key)
        except PortError as error:
            raise Gone(error.detail) from None

    async def active_jobs(self, repository, look=Look.WHOLE, again=frozenset()):
        seen = await super().active_jobs(repository, look, again)
        reports = [msgspec.structs.replace(one, runner_name="somebody") for one in seen.reports]
        return replace(seen, reports=tuple(reports))

    def take_calls(self):
        return [CallRecord(f"{call.endpoint} {SCOPE.target}", 200, 0.0) for call in super().take_calls()]


CAUGHT = [
    "a_scope_without_registrations_is_empty",
    "a_name_is_found_exactly",
    "a_list_is_whole",
    "what_is_not_there_is_not_empty",
    "a_wrong_credential_is_denied",
    "a_queued_job_is_seen",
    "a_job_that_is_not_there_is_gone_only_where_its_repository_is",
    "calls_are_told_once_and_name_no_one",
    "an_idle_runner_is_let_go_once",
    "leave_for_one_is_no_leave_for_another",
    "a_runner_that_holds_a_job_is_not_let_go",
]


@pytest.mark.parametrize("named", CAUGHT)
async def test_the_contract_catches_an_adapter_that_breaks_it(named, tmp_path):
    (check,) = [check for check in CHECKS if check.__name__ == named]
    async with staged(tmp_path) as stage:
        await stage.forge.close()
        stage.kind = Loose
        stage.forge = Loose("github", url=stage.base, tokens=FileToken(tmp_path / "token"))
        stage.cleanup.push_async_callback(stage.forge.close)
        with pytest.raises(AssertionError):
            await check(stage)


async def test_an_enterprise_server_is_no_different(tmp_path):
    async with staged(tmp_path, prefix="/api/v3") as stage:
        given = await stage.forge.register(stage.scope, name(), LABELS)
        found = await stage.forge.find(stage.scope, name())
        assert found is not None
        assert found.id == given.id
        assert (await stage.forge.job(await stage.queue(LABELS))).status is ForgeStatus.QUEUED
    calls = [record for record in stage.sim.truth.records if record["kind"] == "api_call"]
    assert len(calls) == 3
    assert all(record["path"].startswith("/repos/{owner}/{repo}/actions/") for record in calls)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("503", RetryLater), ("429", Limited), ("403-rate-limit", Limited), ("timeout", RetryLater)],
)
async def test_an_outage_is_no_answer_to_a_fence(tmp_path, kind, expected):
    async with staged(tmp_path, timeout_s=1.0) as stage:
        given = await stage.forge.register(stage.scope, name(), LABELS)
        intent = stage.intent(stage.scope, name(), given.id)
        await stage.admin("outage", {"kind": kind, "seconds": 3600})
        for call in (
            stage.forge.deregister(stage.scope, given.id, intent),
            stage.forge.runner(stage.scope, given.id),
            stage.forge.runners(stage.scope),
            stage.forge.register(stage.scope, name(2), LABELS),
        ):
            with pytest.raises(PortError) as caught:
                await call
            assert type(caught.value) is expected
            assert (caught.value.after_ms is not None) == (expected is Limited)
        await stage.admin("outage", {"kind": None})
        if expected is Limited:  # whoever was told to wait waits; another process was not told
            told = len(stage.sim.truth.records)
            with pytest.raises(Limited, match="was not sent"):
                await stage.forge.runners(stage.scope)
            assert len(stage.sim.truth.records) == told
            stage.forge = stage.kind("github", url=stage.base, tokens=FixedToken(stage.sim.token))
            stage.cleanup.push_async_callback(stage.forge.close)
        assert [runner.id for runner in await stage.forge.runners(stage.scope)] == [given.id]
        assert await stage.forge.deregister(stage.scope, given.id, intent) is FenceAnswer.ACCEPTED


async def test_the_quota_is_kept_as_told(tmp_path):
    async with staged(tmp_path) as stage:
        await stage.forge.runners(stage.scope)
        (budget,) = stage.forge.budgets()
        assert (budget.resource, budget.limit, budget.remaining) == ("core", 5000, 4999)


async def test_every_delivery_of_a_jobs_life_is_verified_and_parsed(tmp_path):
    hooks = make_webhooks("github", secret="of-this-hook")
    reports: list[JobReport] = []
    ended = asyncio.Event()

    def receive(request: Received) -> Reply:
        found = hooks.receive(request.headers, request.body)
        assert found.report is not None, found.unused
        assert found.id == request.headers["x-github-delivery"]
        assert found.report.key.repository == REPOSITORY
        reports.append(found.report)
        if found.report.status is ForgeStatus.COMPLETED:
            ended.set()
        return Reply(202)

    async with staged(tmp_path) as stage, server(receive) as hook:
        await stage.admin("hooks", {"url": hook.url, "secret": "of-this-hook"})
        given = await stage.forge.register(stage.scope, name(), LABELS)
        key = await stage.queue(LABELS)
        await stage.occupy(name(), given)
        await stage.release(key)
        async with asyncio.timeout(60):
            await ended.wait()
    by_status = {report.status: report for report in reports}
    assert {report.key for report in reports} == {key}
    assert by_status[ForgeStatus.QUEUED].labels == LABELS
    assert by_status[ForgeStatus.QUEUED].runner_name is None
    assert by_status[ForgeStatus.COMPLETED].conclusion == "cancelled"
    assert by_status[ForgeStatus.COMPLETED].runner_name == name()
    assert by_status[ForgeStatus.COMPLETED].runner_id == given.id
