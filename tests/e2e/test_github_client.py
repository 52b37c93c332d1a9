"""The GitHub port over a real socket: statuses, pages, deadlines, what is repeated, what shows nowhere."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import traceback
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import ephemerd
from ephemerd.adapters.forges.github import make_forge
from ephemerd.adapters.forges.github.client import GitHubForge
from ephemerd.adapters.forges.github.tokens import FixedToken, OneToken
from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.job import ForgeStatus
from ephemerd.domain.permit import FenceIntent, Warrant
from ephemerd.domain.runner import FenceAnswer
from ephemerd.ports.errors import (
    Denied,
    Gone,
    Limited,
    NameTaken,
    PortError,
    Refused,
    RetryLater,
    Unseen,
)
from ephemerd.ports.forge import Budget, ForgeRunner, Registration
from tests.e2e.scripted_server import (
    Answerer,
    Endless,
    Raw,
    Received,
    Reply,
    Reset,
    Silence,
    in_turn,
    server,
)

pytestmark = pytest.mark.e2e
SCOPE = Scope("github", "repo:Acme/App")
NAME = RunnerId("eph-s-b-1")
KEY = JobKey("github", "Acme/App", 12)
TOKEN = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"
BLOB = "eyJzZWNyZXQiOiJibG9iIn0=" * 20
RUNNER = {"id": 7, "name": NAME, "status": "offline", "busy": False, "labels": [], "version": None}
REGISTERED = Reply(201, {"runner": RUNNER, "encoded_jit_config": BLOB})
RUNNERS = "/repos/Acme/App/actions/runners"


def intent(registration: int = 7, scope: Scope = SCOPE) -> FenceIntent:
    return FenceIntent(NAME, scope, registration, Warrant.IDLE, "expired", 0, ())


@asynccontextmanager
async def github(answer: Answerer, path: str = "", **how: Any):
    async with server(answer) as running:
        how = {"tokens": FixedToken(TOKEN), "timeout_s": 20.0, **how}
        forge = GitHubForge("github", url=running.url + path, **how)
        try:
            yield forge, running
        finally:
            await forge.close()


async def register(forge: GitHubForge) -> Registration:
    return await forge.register(SCOPE, NAME, ("self-hosted", "Linux"))


CALLS: dict[str, Callable[[GitHubForge], Any]] = {
    "register": register,
    "deregister": lambda forge: forge.deregister(SCOPE, 7, intent()),
    "runner": lambda forge: forge.runner(SCOPE, 7),
    "find": lambda forge: forge.find(SCOPE, NAME),
    "runners": lambda forge: forge.runners(SCOPE),
    "job": lambda forge: forge.job(KEY),
    "active_jobs": lambda forge: forge.active_jobs(SCOPE.target),
    "glance": lambda forge: forge.glance(SCOPE.target),
    "repositories": lambda forge: forge.repositories("acme"),
}
READS = {name: call for name, call in CALLS.items() if name not in {"register", "deregister"}}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
every_read = pytest.mark.parametrize("call", READS.values(), ids=READS)
every_write = pytest.mark.parametrize(
    "call", [CALLS["register"], CALLS["deregister"]], ids=["register", "deregister"]
)


# -- the wire -----------------------------------------------------------------------------------------------


async def test_registering_sends_what_github_wants():
    async with github(in_turn(REGISTERED)) as (forge, running):
        assert await register(forge) == Registration(7, BLOB)
    (request,) = running.requests
    assert (request.method, request.target) == ("POST", f"{RUNNERS}/generate-jitconfig")
    assert request.json == {
        "name": NAME,
        "runner_group_id": 1,
        "labels": ["self-hosted", "Linux"],
        "work_folder": "_work",
    }
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    assert request.headers["accept"] == "application/vnd.github+json"
    assert request.headers["x-github-api-version"] == "2022-11-28"
    assert request.headers["user-agent"] == f"ephemerd/{ephemerd.__version__}"
    assert request.headers["content-type"] == "application/json"


async def test_an_enterprise_server_has_a_path_before_everything():
    async with github(in_turn(Reply(200, RUNNER)), "/api/v3/") as (forge, running):
        assert await forge.runner(SCOPE, 7) == ForgeRunner(7, NAME, False, False, (), False)
    assert running.lines == [f"GET /api/v3{RUNNERS}/7"]


GROUPS = Reply(
    200, {"runner_groups": [{"id": 5, "name": "Other"}, {"id": 3, "name": "Alle", "default": True}]}
)


@pytest.mark.parametrize(
    ("path", "expected"), [("org:acme", "/orgs/acme"), ("enterprise:acme", "/enterprises/acme")]
)
async def test_an_organization_is_asked_at_its_place_and_for_its_default_group(path, expected):
    async with github(in_turn(GROUPS, REGISTERED, REGISTERED)) as (forge, running):
        for _ in range(2):
            await forge.register(Scope("github", path), NAME, ("x",))
    assert running.lines == [
        f"GET {expected}/actions/runner-groups?per_page=100",
        f"POST {expected}/actions/runners/generate-jitconfig",
        f"POST {expected}/actions/runners/generate-jitconfig",
    ]
    assert running.requests[1].json["runner_group_id"] == 3


async def test_a_repository_has_no_groups_to_ask_for():
    async with github(in_turn(REGISTERED), runner_group="Fast") as (forge, running):
        await register(forge)
    assert running.requests[0].json["runner_group_id"] == 1


async def test_a_group_is_found_by_its_name_and_asked_for_again_after_a_refusal():
    answers = in_turn(GROUPS, Reply(404, {"message": "Not Found"}), GROUPS, REGISTERED)
    scope = Scope("github", "org:acme")
    async with github(answers, runner_group="other") as (forge, running):
        with pytest.raises(Denied):
            await forge.register(scope, NAME, ("x",))
        await forge.register(scope, NAME, ("x",))
    assert [request.method for request in running.requests] == ["GET", "POST", "GET", "POST"]
    assert running.requests[3].json["runner_group_id"] == 5


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (GROUPS, Refused, "no runner group 'Fast'.*Other, Alle"),
        (Reply(200, {"runner_groups": []}), Refused, "one of: none"),
        (Reply(404, {"message": "Not Found"}), Denied, "Self-hosted runners, read and write"),
        (Reply(200, {"groups": 1}), RetryLater, "not understood"),
    ],
)
async def test_without_its_group_no_runner_is_registered(answer, error, words):
    async with github(in_turn(answer), runner_group="Fast") as (forge, running):
        with pytest.raises(error, match=words):
            await forge.register(Scope("github", "org:acme"), NAME, ("x",))
    assert len(running.requests) == 1


async def test_what_can_only_be_refused_is_not_sent():
    async with github(in_turn()) as (forge, running):
        for wrong in (
            forge.register(SCOPE, RunnerId("Wrong Name"), ("x",)),
            forge.register(SCOPE, NAME, ()),
            forge.register(Scope("github", "repo:nobody"), NAME, ("x",)),
            forge.deregister(SCOPE, 8, intent(7)),
            forge.deregister(SCOPE, 7, intent(7, Scope("github", "repo:Acme/Other"))),
            forge.active_jobs("acme"),
        ):
            with pytest.raises(Refused):
                await wrong
    assert running.requests == []


# -- statuses -----------------------------------------------------------------------------------------------


@every_call
@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(401), Denied),
        (Reply(403), Denied),
        (Reply(403, None, {"Retry-After": "60"}), Limited),
        (Reply(403, None, {"X-RateLimit-Remaining": "0"}), Limited),
        (Reply(429), Limited),
        (Reply(410), Refused),
        (
            Reply(
                500, {"message": "Failed to delete the specified runner, it may be actively running a job"}
            ),
            RetryLater,
        ),
        (Reply(502, b"<html>"), RetryLater),
        (Reply(503), RetryLater),
        (Reply(301), Refused),
        (Reply(202, b"{}"), RetryLater),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Reply) else value.__name__,
)
async def test_a_failure_has_its_remedy_and_is_asked_once(call, reply, kind):
    async with github(lambda _request: reply) as (forge, running):
        with pytest.raises(PortError) as caught:
            await call(forge)
    assert type(caught.value) is kind
    assert len(running.requests) == 1


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (204, FenceAnswer.ACCEPTED),
        (422, FenceAnswer.REFUSED),
        (400, FenceAnswer.REFUSED),
        (404, FenceAnswer.NOT_FOUND),
    ],
)
async def test_a_fence_is_read_by_its_status(status, answer):
    said = Reply(status, None if status == 204 else {"message": "whatever it says"})
    async with github(in_turn(said)) as (forge, running):
        assert await forge.deregister(SCOPE, 7, intent()) is answer
    assert running.lines == [f"DELETE {RUNNERS}/7"]


@pytest.mark.parametrize("status", [200, 409, 418])
async def test_any_other_answer_to_a_fence_raises(status):
    async with github(in_turn(Reply(status, {}))) as (forge, _running):
        with pytest.raises(PortError):
            await forge.deregister(SCOPE, 7, intent())


async def test_a_422_on_registering_is_a_refusal_with_githubs_words():
    message = {"message": "Runner group 1 has reached max limit of 10000 runners"}
    async with github(in_turn(Reply(422, message, {"X-GitHub-Request-Id": "A1:B2"}))) as (forge, _running):
        with pytest.raises(Refused, match="10,000 registrations") as caught:
            await register(forge)
    assert not isinstance(caught.value, NameTaken)
    assert "A1:B2" in caught.value.detail


async def test_a_404_on_registering_says_what_to_check():
    async with github(in_turn(Reply(404))) as (forge, _running):
        with pytest.raises(Denied, match="runner group 1"):
            await register(forge)


async def test_a_registration_that_is_not_there_is_gone_and_a_list_that_is_not_there_is_not():
    async with github(lambda _request: Reply(404)) as (forge, _running):
        with pytest.raises(Gone):
            await forge.runner(SCOPE, 7)
        for call in (forge.find(SCOPE, NAME), forge.runners(SCOPE), forge.active_jobs(SCOPE.target)):
            with pytest.raises(Denied):
                await call


# -- a name that is taken -----------------------------------------------------------------------------------

TAKEN = Reply(409, {"message": "Already exists - A runner with the name eph-s-b-1 already exists."})


async def test_a_taken_name_is_looked_up_once():
    page = Reply(200, {"runners": [{**RUNNER, "id": 6, "name": "eph-s-b-10"}, RUNNER]})
    async with github(in_turn(TAKEN, page)) as (forge, running):
        with pytest.raises(NameTaken, match="Already exists") as caught:
            await register(forge)
    assert caught.value.registration == 7
    assert running.lines == [f"POST {RUNNERS}/generate-jitconfig", f"GET {RUNNERS}?name={NAME}&per_page=100"]


@pytest.mark.parametrize(
    "look_up",
    [
        Reply(200, {"runners": []}),
        Reply(200, {"runners": [{**RUNNER, "name": "other"}]}),
        Reply(500),
        Reply(404),
    ],
)
async def test_a_taken_name_that_is_not_found_is_still_taken(look_up):
    async with github(in_turn(TAKEN, look_up)) as (forge, running):
        with pytest.raises(NameTaken) as caught:
            await register(forge)
    assert caught.value.registration is None
    assert len(running.requests) == 2


# -- jobs ---------------------------------------------------------------------------------------------------


async def test_a_job_is_read():
    answer = Reply(
        200, {"id": 12, "status": "in_progress", "labels": ["x"], "runner_id": 7, "runner_name": NAME}
    )
    async with github(in_turn(answer)) as (forge, running):
        found = await forge.job(KEY)
    assert (found.key, found.status, found.runner_id, found.runner_name) == (
        KEY,
        ForgeStatus.IN_PROGRESS,
        7,
        NAME,
    )
    assert running.lines == ["GET /repos/Acme/App/actions/jobs/12"]


async def test_a_job_is_gone_only_where_the_repository_itself_answers():
    async with github(in_turn(Reply(404), Reply(200, {}))) as (forge, running):
        with pytest.raises(Gone, match="job 12"):
            await forge.job(KEY)
    assert running.lines == ["GET /repos/Acme/App/actions/jobs/12", "GET /repos/Acme/App"]


@pytest.mark.parametrize(
    ("repository", "kind"),
    [
        (Reply(404), Unseen),
        (Reply(403), Denied),
        (Reply(502), RetryLater),
        (Reply(429), Limited),
        (Silence(), RetryLater),
    ],
)
async def test_a_job_that_is_not_to_be_seen_is_not_gone(repository, kind):
    limit = 0.5 if isinstance(repository, Silence) else 30.0
    async with github(in_turn(Reply(404), repository), timeout_s=limit) as (forge, _running):
        with pytest.raises(PortError) as caught:
            await forge.job(KEY)
    assert type(caught.value) is kind


def runs(request: Received) -> Reply:
    """A repository with three active runs on two pages, one of which is deleted before its jobs are read."""
    path = re.sub(r"^/repositories/9|^/repos/acme/app", "", request.target, flags=re.IGNORECASE)
    named = {"full_name": "Acme/App"}
    match path.split("?")[0]:
        case "/actions/runs" if "status=queued" in path:
            return Reply(
                200, {"workflow_runs": [{"id": 1, "repository": named}, {"id": 2, "repository": named}]}
            )
        case "/actions/runs" if "page=2" not in path:
            link = f"<http://{request.headers['host']}/repositories/9/actions/runs?status=in_progress&page=2>"
            return Reply(
                200, {"workflow_runs": [{"id": 2, "repository": named}]}, {"Link": f'{link}; rel="next"'}
            )
        case "/actions/runs":
            return Reply(200, {"workflow_runs": [{"id": 3, "repository": named}]})
        case "/actions/runs/1/jobs":
            return Reply(404)
        case "/actions/runs/2/jobs":
            return Reply(200, {"jobs": [{"id": 21, "status": "queued", "labels": ["x"]}, {"id": "22"}]})
        case "/actions/runs/3/jobs":
            return Reply(
                200, {"jobs": [{"id": 31, "status": "in_progress", "labels": ["x"], "runner_name": "other"}]}
            )
        case _:
            return Reply(599)


async def test_active_jobs_are_those_of_queued_and_running_runs():
    async with github(runs) as (forge, running):
        found = (await forge.active_jobs("acme/app")).reports
    assert [(report.key.id, report.status, report.runner_name) for report in found] == [
        (21, ForgeStatus.QUEUED, None),
        (31, ForgeStatus.IN_PROGRESS, "other"),
    ]
    assert {report.key.repository for report in found} == {"Acme/App"}
    assert len([line for line in running.lines if "/runs/2/jobs" in line]) == 1


async def test_a_failure_among_the_runs_fails_the_listing():
    def answer(request: Received) -> Reply:
        return Reply(502) if "/runs/3/jobs" in request.target else runs(request)

    async with github(answer) as (forge, _running):
        with pytest.raises(RetryLater, match="run 3"):
            await forge.active_jobs("acme/app")


async def test_many_runs_are_read_a_few_at_a_time():
    def answer(request: Received) -> Reply:
        if "/jobs" not in request.target:
            listed = range(1, 31) if "queued" in request.target else []
            return Reply(200, {"workflow_runs": [{"id": number} for number in listed]})
        number = int(request.target.split("/")[6])
        return Reply(200, {"jobs": [{"id": number, "status": "queued", "labels": []}]})

    async with github(answer) as (forge, running):
        seen = await forge.active_jobs(SCOPE.target)
    assert [report.key.id for report in seen.reports] == list(range(1, 31))
    assert len(running.requests) == seen.asked == seen.charged == 34
    assert running.most_connections <= 3


# -- pages --------------------------------------------------------------------------------------------------


def paged(total: int) -> Answerer:
    """Runners on pages of 100 whose links lead by the repository's id, as GitHub's do."""

    def answer(request: Received) -> Reply:
        found = re.search(r"[?&]page=(\d+)", request.target)
        page = int(found[1]) if found else 1
        first = (page - 1) * 100
        entries = [
            {**RUNNER, "id": number + 1, "name": f"r-{number}"}
            for number in range(first, min(total, first + 100))
        ]
        here = f"http://{request.headers['host']}/repositories/9/actions/runners?per_page=100&page="
        links = [f'<{here}1>; rel="first"'] + (
            [f'<{here}{page + 1}>; rel="next"'] if first + 100 < total else []
        )
        return Reply(200, {"total_count": total, "runners": entries}, {"Link": ", ".join(links)})

    return answer


@pytest.mark.parametrize("total", [0, 1, 100, 101, 1234])
async def test_all_pages_are_read(total):
    async with github(paged(total)) as (forge, running):
        found = await forge.runners(SCOPE)
    assert [runner.id for runner in found] == list(range(1, total + 1))
    assert len(running.requests) == max(1, -(-total // 100))


async def test_a_name_is_found_on_a_later_page_where_the_filter_is_ignored():
    async with github(paged(1000)) as (forge, running):
        found = await forge.find(SCOPE, RunnerId("r-250"))
    assert found is not None
    assert found.id == 251
    assert len(running.requests) == 3


async def test_a_name_that_is_nowhere_is_none():
    async with github(paged(250)) as (forge, running):
        assert await forge.find(SCOPE, RunnerId("r-25")) is not None
        assert await forge.find(SCOPE, RunnerId("r-2500")) is None
    assert len(running.requests) == 1 + 3


async def test_pages_without_end_are_no_list():
    link = {"Link": f'<{RUNNERS}?page=1>; rel="next"'}
    async with github(lambda _request: Reply(200, {"runners": [RUNNER]}, link)) as (forge, running):
        with pytest.raises(Refused, match="not complete"):
            await forge.runners(SCOPE)
    assert len(running.requests) == 120


async def test_a_page_at_another_host_is_not_asked_for():
    async with server(lambda _request: Reply(200, {"runners": []})) as other:
        link = {"Link": f'<{other.url}/x>; rel="next"'}
        async with github(lambda _request: Reply(200, {"runners": [RUNNER]}, link)) as (forge, _running):
            with pytest.raises(Refused, match="another host"):
                await forge.runners(SCOPE)
    assert other.requests == []


async def test_a_failure_on_a_later_page_is_no_shorter_list():
    def answer(request: Received) -> Reply:
        return Reply(502) if "page=3" in request.target else paged(1000)(request)  # type: ignore[return-value]

    async with github(answer) as (forge, _running):
        with pytest.raises(RetryLater):
            await forge.runners(SCOPE)


# -- redirects ----------------------------------------------------------------------------------------------


@every_write
@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_write_follows_no_redirect(call, status):
    reply = Reply(status, {"message": "Moved Permanently"}, {"Location": "/repositories/9/actions/runners/7"})
    async with github(lambda _request: reply) as (forge, running):
        with pytest.raises(Refused, match="renamed"):
            await call(forge)
    assert len(running.requests) == 1


async def test_a_read_follows_a_renamed_repository():
    answers = in_turn(Reply(301, None, {"Location": "/repositories/9/actions/runners/7"}), Reply(200, RUNNER))
    async with github(answers) as (forge, running):
        assert (await forge.runner(SCOPE, 7)).id == 7
    assert running.lines == [f"GET {RUNNERS}/7", "GET /repositories/9/actions/runners/7"]


async def test_a_read_follows_no_circle():
    here = Reply(301, None, {"Location": f"{RUNNERS}/7"})
    async with github(lambda _request: here) as (forge, running):
        with pytest.raises(Refused, match="renamed"):
            await forge.runner(SCOPE, 7)
    assert len(running.requests) == 4


async def test_a_token_never_follows_a_redirect_to_another_host():
    async with server(lambda _request: Reply(200, RUNNER)) as other:
        away = Reply(302, None, {"Location": f"{other.url}/x"})
        async with github(lambda _request: away) as (forge, _running):
            with pytest.raises(Refused, match="another host"):
                await forge.runner(SCOPE, 7)
    assert other.requests == []


# -- no answer ----------------------------------------------------------------------------------------------


@every_call
async def test_a_server_that_never_answers_ends_at_the_deadline(call):
    async with github(lambda _request: Silence(), timeout_s=0.5) as (forge, running):
        began = asyncio.get_running_loop().time()
        with pytest.raises(RetryLater, match="no complete answer within"):
            await call(forge)
        assert asyncio.get_running_loop().time() - began < 5
    assert len(running.requests) == 1


async def test_a_listing_has_one_deadline_over_all_pages():
    link = {"Link": f'<{RUNNERS}?page=2>; rel="next"'}
    left = [Reply(200, {"runners": []}, link)]
    async with github(
        lambda _request: left.pop() if left else Silence(), timeout_s=60, listing_timeout_s=1.5
    ) as (forge, running):
        with pytest.raises(RetryLater):
            await asyncio.wait_for(forge.runners(SCOPE), 20)
    assert len(running.requests) == 2


@every_call
async def test_nobody_listening_is_for_later(call):
    async with server(lambda _request: Reply()) as running:
        pass
    forge = GitHubForge("github", url=running.url, tokens=FixedToken(TOKEN))
    with pytest.raises(RetryLater, match="ConnectError"):
        await call(forge)
    await forge.close()


@every_write
@pytest.mark.parametrize(
    "broken", [Reset(), Raw(b""), Raw(b"HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\nhalf")]
)
async def test_a_write_whose_answer_was_lost_is_never_repeated(call, broken):
    async with github(lambda _request: broken) as (forge, running):
        with pytest.raises(RetryLater, match="no answer"):
            await call(forge)
    assert len(running.requests) == 1


async def test_a_read_is_repeated_once_where_the_connection_broke():
    async with github(in_turn(Reset(), Reply(200, RUNNER))) as (forge, running):
        assert (await forge.runner(SCOPE, 7)).id == 7
    assert len(running.requests) == 2


@every_read
async def test_a_read_is_not_repeated_twice(call):
    async with github(lambda _request: Reset()) as (forge, running):
        with pytest.raises(RetryLater):
            await call(forge)
    assert len(running.requests) == 2


async def test_an_answer_beyond_its_bound_is_none():
    async with github(lambda _request: Endless(), max_body=100_000) as (forge, running):
        with pytest.raises(RetryLater, match="larger than 100000 bytes"):
            await forge.runners(SCOPE)
    assert len(running.requests) == 1


@every_read
async def test_an_answer_that_is_not_understood_is_for_later(call):
    async with github(lambda _request: Reply(200, b"<html>welcome to the hotel's network</html>")) as (
        forge,
        _running,
    ):
        with pytest.raises(RetryLater, match="not understood"):
            await call(forge)


async def test_a_cancelled_call_stays_cancelled():
    arrived = asyncio.Event()

    def answer(_request: Received) -> Silence:
        arrived.set()
        return Silence()

    async with github(answer) as (forge, _running):
        task = asyncio.create_task(forge.active_jobs(SCOPE.target))
        await asyncio.wait_for(arrived.wait(), 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_after_closing_a_call_is_for_later():
    async with github(lambda _request: Reply(200, RUNNER)) as (forge, _running):
        await forge.close()
        with pytest.raises(RetryLater, match="closed by ourselves"):
            await forge.runner(SCOPE, 7)


# -- the token ----------------------------------------------------------------------------------------------


def guarded(valid: str) -> Answerer:
    def answer(request: Received) -> Reply:
        if request.headers["authorization"] != f"Bearer {valid}":
            return Reply(401, {"message": "Bad credentials"})
        return REGISTERED if request.method == "POST" else Reply(200, RUNNER)

    return answer


@asynccontextmanager
async def by_file(path: Path, answer: Answerer):
    async with server(answer) as running:
        forge = make_forge("github", url=running.url, token_file=path)
        assert isinstance(forge, GitHubForge)
        try:
            yield forge, running
        finally:
            await forge.close()


async def test_a_read_goes_on_with_the_token_that_was_put_into_the_file(tmp_path):
    path = tmp_path / "token"
    path.write_text("new", encoding="utf-8")
    async with by_file(path, guarded("new")) as (forge, running):
        assert (await forge.runner(SCOPE, 7)).id == 7
        path.write_text("newer\n", encoding="utf-8")
        running.answer = guarded("newer")
        assert (await forge.runner(SCOPE, 7)).id == 7
    assert [request.headers["authorization"] for request in running.requests] == [
        "Bearer new",
        "Bearer new",
        "Bearer newer",
    ]


async def test_a_read_with_a_token_that_stays_wrong_is_denied_at_once(tmp_path):
    path = tmp_path / "token"
    path.write_text("old", encoding="utf-8")
    async with by_file(path, guarded("new")) as (forge, running):
        with pytest.raises(Denied, match="401"):
            await forge.runner(SCOPE, 7)
        assert len(running.requests) == 1
        path.write_text("also-old", encoding="utf-8")
        with pytest.raises(Denied, match="401"):
            await forge.runner(SCOPE, 7)
    assert len(running.requests) == 3


@every_write
async def test_a_write_is_not_repeated_with_a_new_token_but_the_next_call_has_it(tmp_path, call):
    path = tmp_path / "token"
    path.write_text("old", encoding="utf-8")
    async with by_file(path, guarded("old")) as (forge, running):
        await forge.runner(SCOPE, 7)
        path.write_text("new", encoding="utf-8")
        running.answer = guarded("new")
        with pytest.raises(RetryLater, match=r"401 .* another one is at hand"):
            await call(forge)
        assert len(running.requests) == 2
        assert (await register(forge)).id == 7
    assert len(running.requests) == 3


async def test_without_a_token_nothing_is_sent(tmp_path):
    async with by_file(tmp_path / "missing", lambda _request: Reply(200, RUNNER)) as (forge, running):
        for call in CALLS.values():
            with pytest.raises(Denied, match="missing cannot be read"):
                await call(forge)
    assert running.requests == []


class SlowTokens(OneToken):
    """A source that hangs, as a file on a lost network share does."""

    name = "token_file /lost"

    async def token(self, account: str) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    async def refused(self, account: str, token: str) -> bool:
        raise AssertionError


async def test_a_token_source_has_the_deadline_of_the_call():
    async with github(in_turn(), tokens=SlowTokens(), timeout_s=0.2) as (forge, running):
        with pytest.raises(RetryLater, match="nothing was sent"):
            await asyncio.wait_for(forge.runner(SCOPE, 7), 20)
    assert running.requests == []


# -- what shows ---------------------------------------------------------------------------------------------

LEAKY = [
    Reply(status, {"message": f"{TOKEN} {BLOB} Bearer {TOKEN}", "runner": RUNNER, "encoded_jit_config": BLOB})
    for status in (200, 201, 202, 301, 400, 401, 403, 404, 409, 410, 422, 429, 500, 503)
] + [
    Reply(201, {"runner": {"id": TOKEN}, "encoded_jit_config": BLOB}),
    Reply(201, {"runner": RUNNER, "encoded_jit_config": BLOB + "\n"}),
    Raw(f"HTTP/1.1 {TOKEN}\r\n\r\n".encode()),
    Raw(f"HTTP/1.1 200 OK\r\n{TOKEN}\r\n\r\n".encode()),
    Silence(),
    Reset(),
]


@every_call
@pytest.mark.parametrize(
    "reply", LEAKY, ids=lambda reply: str(getattr(reply, "status", type(reply).__name__))
)
async def test_neither_token_nor_credential_shows_anywhere(call, reply, caplog):
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []
    async with github(lambda _request: reply, timeout_s=0.2) as (forge, _running):
        try:
            shown.append(repr(await call(forge)))
        except PortError as error:
            shown += [
                repr(error),
                str(error),
                repr(error.fault()),
                repr(error.__context__),
                repr(error.__cause__),
            ]
            shown.append(
                "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
            )
        shown += [repr(forge), repr(forge.take_calls()), repr(forge.budgets()), caplog.text]
    # In this file a frame of the test itself holds what the server sends; the program's frames hold none of it.
    text = re.sub(r"(?m)^    (reply|_running|shown) = .*$", "", "\n".join(shown))
    assert TOKEN not in text
    assert BLOB[:24] not in text


async def test_registering_leaves_no_trace_of_the_credential(caplog):
    caplog.set_level(logging.DEBUG)
    async with github(in_turn(REGISTERED)) as (forge, _running):
        given = await register(forge)
        assert BLOB[:24] not in repr(given) + repr(forge) + repr(forge.take_calls()) + caplog.text
        assert TOKEN not in caplog.text


async def test_budgets_are_kept_as_last_told_until_their_reset():
    reset = {"core": int(time.time()) + 3000, "search": 1_700_000_000}

    def limits(resource: str, remaining: int) -> dict[str, str]:
        return {
            "X-RateLimit-Limit": "5000",
            "X-RateLimit-Remaining": str(remaining),
            "X-RateLimit-Reset": str(reset[resource]),
            "X-RateLimit-Resource": resource,
        }

    answers = in_turn(
        Reply(200, RUNNER, limits("core", 3_010)),
        Reply(500, None, limits("core", 3_009)),
        Reply(200, RUNNER, limits("search", 5)),
        Reply(200, RUNNER),
    )
    async with github(answers) as (forge, _running):
        assert forge.budgets() == ()
        await forge.runner(SCOPE, 7)
        with pytest.raises(RetryLater):
            await forge.runner(SCOPE, 7)
        for _ in range(2):
            await forge.runner(SCOPE, 7)
        assert forge.budgets() == (
            Budget("core", 5000, 3_009, reset["core"], reserve=1000),
            Budget("search", 5000, 5000, reset["search"], reserve=1000),
        )


async def test_resources_that_a_broken_server_invents_do_not_pile_up():
    number = 0

    def answer(_request: Received) -> Reply:
        nonlocal number
        number += 1
        parts = {"Limit": "1", "Remaining": "1", "Reset": "1", "Resource": f"made-up-{number}"}
        return Reply(200, RUNNER, {f"X-RateLimit-{name}": text for name, text in parts.items()})

    async with github(answer) as (forge, _running):
        for _ in range(40):
            await forge.runner(SCOPE, 7)
        assert len(forge.budgets()) == 32


async def test_calls_are_recorded_by_template_and_taken_once():
    async with github(in_turn(Reply(200, RUNNER), Reply(404), Reset(), Reply(422))) as (forge, _running):
        await forge.runner(SCOPE, 7)
        with pytest.raises(Gone):
            await forge.runner(SCOPE, 8)
        with pytest.raises(Refused):
            await forge.runners(SCOPE)
        calls = forge.take_calls()
        assert forge.take_calls() == []
    assert [(call.endpoint, call.status) for call in calls] == [
        ("GET {scope}/actions/runners/{id}", 200),
        ("GET {scope}/actions/runners/{id}", 404),
        ("GET {scope}/actions/runners", 0),
        ("GET {scope}/actions/runners", 422),
    ]
    assert all(0 <= call.seconds < 20 for call in calls)


async def test_an_announced_end_is_logged_once(caplog):
    ending = Reply(200, RUNNER, {"Deprecation": "@1", "Sunset": "Sat, 10 Mar 2028 00:00:00 GMT"})
    async with github(lambda _request: ending) as (forge, _running):
        await forge.runner(SCOPE, 7)
        await forge.runner(SCOPE, 7)
    assert [record.levelname for record in caplog.records if "announces the end" in record.message] == [
        "WARNING"
    ]


async def test_a_token_that_would_travel_in_the_clear_is_warned_about(caplog):
    forges = [
        GitHubForge("work", url=url, tokens=FixedToken(TOKEN))
        for url in ("http://ghe.invalid/api/v3", "http://127.0.0.1:1", "https://ghe.invalid/api/v3")
    ]
    assert [record.message for record in caplog.records] == [
        "forge work: the token travels unencrypted to http://ghe.invalid/api/v3; use https"
    ]
    assert repr(forges[0]) == "GitHubForge('work', 'http://ghe.invalid/api/v3')"
    for forge in forges:
        await forge.close()


def test_a_forge_that_cannot_be_is_not_made():
    for url in ("nonsense", "https://user:password@ghe.invalid"):
        with pytest.raises(Refused):
            make_forge("github", url=url, token=TOKEN)
    with pytest.raises(Denied):
        make_forge("github")
    with pytest.raises(Denied):
        make_forge("github", token=TOKEN, token_file=Path("/x"))
