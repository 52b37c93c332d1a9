"""PyGithub, a client that knows nothing of us, works against the look-alike: at the root, as github.com has its API,
and under `/api/v3`, as an enterprise server has it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import github
import pytest
from github.SelfHostedActionsRunnerJitConfig import SelfHostedActionsRunnerJitConfig

from ephemerd.testing.forge_sim.main import ForgeSim, Options, running
from tests.unit.forge_sim.conftest import LABELS, ScriptedRunner, admin, client, quick, seen
from tests.unit.forge_sim.test_deliveries import Receiver

pytestmark = pytest.mark.e2e

Repository = Any  # the library's classes are typed, but its properties fetch: they are asked for in a thread


@pytest.fixture
async def sim() -> AsyncIterator[ForgeSim]:
    async with running(Options(weather=quick(), time_scale=100.0, seed=11)) as started:
        yield started


@pytest.fixture(params=["", "/api/v3"], ids=["root", "api-v3"])
async def hub(request, sim: ForgeSim) -> AsyncIterator[github.Github]:
    """The library's client: no repetition and no pauses of its own, so that every call counts once."""
    opened = github.Github(
        auth=github.Auth.Token(sim.token),
        base_url=sim.url + request.param,
        per_page=2,
        retry=None,
        seconds_between_requests=None,
        seconds_between_writes=None,
    )
    yield opened
    opened.close()


@pytest.fixture
async def repository(hub: github.Github) -> Repository:
    return await asyncio.to_thread(hub.get_repo, "acme/app")


@pytest.fixture
async def order(sim: ForgeSim) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """Order something of the admin API."""
    async with client(sim) as api:

        async def ask(path: str, **body: Any) -> Any:
            return await admin(api, path, **body)

        yield ask


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/webhooks/github"
    yield made
    server.close()
    await server.wait_closed()


def make_runner(repository: Repository, name: str) -> SelfHostedActionsRunnerJitConfig:
    """The library has the JIT call for organizations only; its requester and its class serve for a repository."""
    path = f"{repository.url}/actions/runners/generate-jitconfig"
    body = {"name": name, "runner_group_id": 1, "labels": LABELS}
    headers, data = repository.requester.requestJsonAndCheck("POST", path, input=body)
    return SelfHostedActionsRunnerJitConfig(repository.requester, headers, data)


async def test_a_repository_and_the_limits(hub, repository):
    assert repository.full_name == "acme/app"
    assert repository.private is True
    assert repository.owner.login == "acme"
    assert repository.default_branch == "main"
    overview = await asyncio.to_thread(hub.get_rate_limit)
    assert overview.resources.core.limit == 5000
    assert overview.resources.core.used == 1
    assert hub.rate_limiting == (4999, 5000)


async def test_runners_are_made_listed_got_and_removed(sim, repository):
    def play() -> None:
        made = [make_runner(repository, f"r{number}") for number in range(5)]
        assert all(len(config.encoded_jit_config) > 3000 for config in made)
        listed = repository.get_self_hosted_runners()
        assert listed.totalCount == 5
        runners = list(listed)  # three pages of two
        assert [runner.name for runner in runners] == ["r0", "r1", "r2", "r3", "r4"]
        one = repository.get_self_hosted_runner(runners[1].id)
        assert (one.name, one.status, one.busy, one.ephemeral) == ("r1", "offline", False, True)
        assert sorted(label["name"] for label in one.labels) == ["linux", "self-hosted"]
        assert repository.remove_self_hosted_runner(one) is True
        assert repository.remove_self_hosted_runner(one) is False
        with pytest.raises(github.UnknownObjectException) as gone:
            repository.get_self_hosted_runner(one.id)
        assert gone.value.status == 404
        assert repository.get_self_hosted_runners().totalCount == 4

    await asyncio.to_thread(play)
    assert len([runner for runner in sim.world.runners.values() if runner.registered]) == 4


async def test_a_taken_name_and_a_held_job_are_refused(sim, repository, order):
    await asyncio.to_thread(make_runner, repository, "r1")
    with pytest.raises(github.GithubException) as taken:
        await asyncio.to_thread(make_runner, repository, "r1")
    assert taken.value.status == 409
    await order("/jobs", labels=LABELS)
    runner = ScriptedRunner(sim, "r1")
    await runner.offered()
    number = runner.runner.id
    assert await asyncio.to_thread(repository.remove_self_hosted_runner, number) is False
    assert runner.runner.registered
    await runner.close()


async def test_runs_and_jobs(sim, repository, order):
    first = (await order("/jobs", labels=LABELS, count=3))["runs"][0]
    second = (await order("/jobs", labels=LABELS, name="alone", held=True))["runs"][0]

    def look() -> None:
        runs = list(repository.get_workflow_runs(status="queued"))
        assert [run.id for run in runs] == [second, first]
        assert {run.event for run in runs} == {"push"}
        assert {run.actor.login for run in runs} == {"look-alike-user"}
        run = repository.get_workflow_run(first)
        assert (run.status, run.conclusion, run.run_attempt) == ("queued", None, 1)
        jobs = list(run.jobs())
        assert len(jobs) == 3
        assert {(job.status, job.run_id, job.runner_id) for job in jobs} == {("queued", first, None)}
        assert jobs[0].labels == LABELS
        assert jobs[0].workflow_name == run.name
        one = repository.get_workflow_job(jobs[0].id)
        assert one.name == jobs[0].name
        assert one.created_at.tzinfo is not None

    await asyncio.to_thread(look)
    await asyncio.to_thread(make_runner, repository, "r1")
    runner = ScriptedRunner(sim, "r1")
    await runner.acquire()
    await runner.step("/_run/started")
    await runner.complete("failure", "finished")
    ended = runner.runner.offer
    assert ended is not None

    def look_again() -> None:
        job = repository.get_workflow_job(ended.job.id)
        assert (job.status, job.conclusion, job.runner_name) == ("completed", "failure", "r1")
        assert [step.status for step in job.steps] == ["completed", "completed"]
        run = repository.get_workflow_run(first)
        assert run.status == "in_progress"
        assert run.cancel() is True
        assert run.cancel() is False, "409: it has ended"
        assert run.rerun_failed_jobs() is True
        run.update()
        assert run.run_attempt == 2
        again = {job.id for job in run.jobs()}
        assert len(again) == 3
        assert again.isdisjoint({job.id for job in run.jobs("all")} - again)
        assert run.jobs("all").totalCount == 6
        assert run.cancel() is True
        assert run.rerun() is True

    await asyncio.to_thread(look_again)
    await runner.close()


async def test_hooks_and_their_deliveries(sim, repository, order, receiver):
    config = {"url": receiver.url, "content_type": "json", "secret": "s3cret", "insecure_ssl": "0"}
    hook = await asyncio.to_thread(repository.create_hook, "web", config, ["workflow_job"], True)
    await seen(sim, "delivery_sent", event="ping", status=202)
    await asyncio.to_thread(hook.ping)
    await seen(sim, "delivery_sent", 2, event="ping", status=202)
    receiver.status = 500
    jobs = (await order("/jobs", labels=LABELS, count=3))["jobs"]
    await seen(sim, "delivery_sent", 3, event="workflow_job", status=500)

    def look() -> Any:
        assert [one.id for one in repository.get_hooks()] == [hook.id]
        assert repository.get_hook(hook.id).config["content_type"] == "json"
        listed = list(repository.get_hook_deliveries(hook.id))  # by cursor, two a page
        assert [one.event for one in listed] == ["workflow_job"] * 3 + ["ping"] * 2
        assert [one.id for one in listed] == sorted((one.id for one in listed), reverse=True)
        assert {one.status_code for one in listed if one.event == "ping"} == {202}
        failed = repository.get_hook_delivery(hook.id, listed[0].id)
        assert failed.status_code == 500
        assert failed.request.payload["workflow_job"]["id"] in jobs
        assert failed.request.headers["X-GitHub-Event"] == "workflow_job"
        assert failed.response.payload == "ok"
        return failed

    failed = await asyncio.to_thread(look)
    receiver.status = 202

    def redeliver() -> int:
        path = f"{hook.url}/deliveries/{failed.id}/attempts"
        status, _, _ = repository.requester.requestJson("POST", path)
        return int(status)

    assert await asyncio.to_thread(redeliver) == 202
    [again] = await seen(sim, "delivery_sent", redelivery=True)
    assert (again["guid"], again["status"]) == (failed.guid, 202)

    def leave() -> None:
        newest = repository.get_hook_deliveries(hook.id)[0]
        assert (newest.guid, newest.redelivery, newest.status) == (failed.guid, True, "OK")
        hook.delete()
        assert list(repository.get_hooks()) == []

    await asyncio.to_thread(leave)


async def test_an_organizations_hook_and_its_deliveries(sim, hub, order, receiver):
    config = {"url": receiver.url, "content_type": "json", "secret": "s3cret", "insecure_ssl": "0"}
    organization = await asyncio.to_thread(hub.get_organization, "acme")
    hook = await asyncio.to_thread(organization.create_hook, "web", config, ["workflow_job"], True)
    await seen(sim, "delivery_sent", event="ping", status=202)
    receiver.status = 500
    jobs = (await order("/jobs", labels=LABELS, count=3))["jobs"]
    await seen(sim, "delivery_sent", 3, event="workflow_job", status=500)

    def look() -> None:
        assert [one.id for one in organization.get_hooks()] == [hook.id]
        listed = list(organization.get_hook_deliveries(hook.id))  # by cursor, two a page
        assert [one.event for one in listed] == ["workflow_job"] * 3 + ["ping"]
        failed = organization.get_hook_delivery(hook.id, listed[0].id)
        assert failed.request.payload["workflow_job"]["id"] in jobs
        assert failed.request.headers["X-GitHub-Hook-Installation-Target-Type"] == "organization"
        hook.edit("web", config, ["workflow_job"], active=False)
        assert organization.get_hook(hook.id).active is False
        organization.delete_hook(hook.id)
        assert list(organization.get_hooks()) == []

    await asyncio.to_thread(look)


async def test_a_wrong_token_is_refused(sim):
    async with contextlib.AsyncExitStack() as stack:
        stranger = github.Github(auth=github.Auth.Token("ghp_wrong"), base_url=sim.url, retry=None)
        stack.callback(stranger.close)
        with pytest.raises(github.BadCredentialsException):
            await asyncio.to_thread(stranger.get_repo, "acme/app")


async def test_an_app_is_itself_and_its_installation_acts(sim, request):
    """Its own JWT, its own way of finding the installation, its own renewal of tokens."""
    permissions = {"administration": "write", "organization_self_hosted_runners": "write"}
    app, key = sim.site.apps.create(permissions, ("acme",))
    auth = github.Auth.AppAuth(app.id, key)

    def act() -> tuple[int, list[str], int, str]:
        integration = github.GithubIntegration(auth=auth, base_url=sim.url)
        found = integration.get_repo_installation("acme", "app")
        token = integration.get_access_token(found.id, {"administration": "write"})
        assert token.permissions == {"administration": "write"}
        assert token.expires_at.tzinfo is not None
        hub = github.Github(auth=auth.get_installation_auth(found.id), base_url=sim.url, retry=None)
        assert hub.get_repo("acme/app").get_self_hosted_runners().totalCount == 0
        organization = hub.get_organization("acme")
        made = organization.create_self_hosted_runner_jitconfig(name="one", runner_group_id=1, labels=LABELS)
        names = [one.full_name for one in found.get_repos()]
        hub.close()
        integration.close()
        return found.id, names, made.runner.id, integration.get_app().slug

    number, names, runner, slug = await asyncio.to_thread(act)
    assert number in app.installations
    assert names == ["acme/app"]
    assert sim.world.runners[runner].name == "one"
    assert slug == app.slug
