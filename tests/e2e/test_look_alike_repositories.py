"""The look-alike's repositories, runs that wait and limits held against the facts about GitHub, and our adapter's
listings against it: organizations, Apps, ETags under new tokens, lists that are cut, secondary limits."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from ephemerd.adapters.forges.github import make_forge
from ephemerd.adapters.forges.github.client import GitHubForge
from ephemerd.adapters.forges.github.runs import AUDITED, POLLED
from ephemerd.adapters.forges.github.tokens import FixedToken
from ephemerd.domain.ids import Scope
from ephemerd.domain.job import ForgeStatus
from ephemerd.ports.errors import Limited, NotSent, RetryLater, Unseen
from ephemerd.ports.forge import Forge, Look, RunSeen
from ephemerd.testing.forge_sim import run_filters
from ephemerd.testing.forge_sim.limits import AT_ONCE, Limits
from ephemerd.testing.forge_sim.main import ForgeSim, Options, running
from ephemerd.testing.forge_sim.world import JobSpec
from ephemerd.testing.weather import Uniform
from tests.unit.forge_sim.conftest import LABELS, admin, client, quick

pytestmark = pytest.mark.e2e
SPEC = JobSpec(labels=tuple(LABELS), duration_s=300.0)
PERMISSIONS = {"administration": "write", "actions": "read", "organization_self_hosted_runners": "write"}


@pytest.fixture
async def sim() -> AsyncIterator[ForgeSim]:
    async with running(Options(weather=quick(), time_scale=1.0, seed=5)) as started:
        for name, private in (("acme/lib", True), ("acme/open", False), ("other/tool", True)):
            started.world.add_repository(name, private=private)
        yield started


@pytest.fixture
async def api(sim: ForgeSim) -> AsyncIterator[httpx2.AsyncClient]:
    async with client(sim) as opened:
        yield opened


@contextlib.asynccontextmanager
async def by_token(sim: ForgeSim, token: str = "") -> AsyncIterator[GitHubForge]:
    forge = GitHubForge("github", url=sim.url, tokens=FixedToken(token or sim.token))
    try:
        yield forge
    finally:
        await forge.close()


@contextlib.asynccontextmanager
async def by_app(sim: ForgeSim) -> AsyncIterator[Forge]:
    app, key = sim.site.apps.create(PERMISSIONS, ("acme",))
    forge = make_forge("github", url=sim.url, app_id=app.id, private_key=key)
    try:
        yield forge
    finally:
        await forge.close()


def used(forge: Forge) -> int:
    return sum(budget.limit - budget.remaining for budget in forge.budgets() if budget.resource == "core")


def names(found: Any) -> list[str]:
    return sorted(one.name for one in found)


# -- repositories -------------------------------------------------------------------------------------------


async def test_an_organization_s_repositories_are_listed_in_pages_sorted_and_chosen(sim, api):
    for number in range(120):
        sim.world.add_repository(f"many/r{number:03}")
    answer = await api.get("/orgs/many/repos?per_page=100")
    assert len(answer.json()) == 100
    assert len((await api.get(answer.links["next"]["url"])).json()) == 20
    first = (await api.get("/orgs/many/repos?sort=full_name&per_page=1")).json()
    assert first[0]["full_name"] == "many/r000"
    sim.world.repositories["many/r007"].pushed_at = time.time()
    pushed = (await api.get("/orgs/many/repos?sort=pushed&per_page=1")).json()
    assert pushed[0]["full_name"] == "many/r007"
    shown = (await api.get("/orgs/acme/repos?type=public")).json()
    assert [one["full_name"] for one in shown] == ["acme/open"]
    assert (await api.get("/orgs/nobody/repos")).status_code == 404


async def test_a_renamed_repository_is_found_by_its_old_name(sim, api):
    await admin(api, "/repositories/change", name="acme/lib", rename="acme/fresh")
    answer = await api.get("/repos/acme/lib/actions/runs?status=queued", follow_redirects=False)
    assert answer.status_code == 301
    number = sim.world.repositories["acme/fresh"].id
    assert answer.headers["location"] == f"{sim.url}/repositories/{number}/actions/runs?status=queued"
    moved = await api.get(answer.headers["location"])
    assert (moved.status_code, moved.json()["total_count"]) == (200, 0)
    assert (await api.get("/repositories/1")).status_code == 404
    await admin(api, "/repositories/change", name="acme/fresh", remove=True)
    assert (await api.get("/repos/acme/lib")).status_code == 404


async def test_the_adapter_sees_what_becomes_of_repositories(sim, api):
    async with by_token(sim) as forge:
        before = {one.name: one for one in (await forge.repositories("acme")).found}
        assert names(before.values()) == ["acme/app", "acme/lib", "acme/open"]
        assert before["acme/open"].public is True
        await admin(api, "/repositories/change", name="acme/lib", archived=True)
        await admin(api, "/repositories/change", name="acme/app", rename="acme/fresh")
        sim.world.queue_run(sim.world.repositories["acme/open"], [SPEC])
        after = {one.id: one for one in (await forge.repositories("acme")).found}
        assert after[before["acme/lib"].id].dormant
        assert after[before["acme/app"].id].name == "acme/fresh"
        assert after[before["acme/open"].id].pushed != before["acme/open"].pushed


async def test_an_app_lists_what_it_is_installed_on(sim):
    async with by_app(sim) as forge:
        assert names((await forge.repositories("acme")).found) == ["acme/app", "acme/lib", "acme/open"]
        installation = next(iter(next(iter(sim.site.apps.apps.values())).installations.values()))
        installation.repositories = frozenset({"acme/lib"})
        assert names((await forge.repositories("acme")).found) == ["acme/lib"]


async def test_a_list_of_repositories_that_did_not_change_is_free(sim):
    async with by_token(sim) as forge:
        assert (await forge.repositories("acme")).charged == 1
        before = used(forge)
        seen = await forge.repositories("acme")
        assert (len(seen.found), seen.charged, used(forge)) == (3, 0, before)


async def test_a_repository_that_is_not_there_is_unseen(sim):
    async with by_token(sim) as forge:
        for call in (
            forge.active_jobs("acme/none"),
            forge.active_jobs("acme/none", Look.NEWEST),
            forge.audit("acme/none", lambda run: True),
            forge.glance("acme/none"),
            forge.repositories("none"),
        ):
            with pytest.raises(Unseen):
                await call


# -- what waits ---------------------------------------------------------------------------------------------


async def test_what_waits_for_an_approval_or_its_group_is_read_and_is_no_demand(sim, api):
    await admin(api, "/jobs", labels=LABELS, waiting=True)
    (held,) = (await admin(api, "/jobs", labels=LABELS, pending=True))["jobs"]
    runs = await api.get("/repos/acme/app/actions/runs?status=pending")
    assert runs.json()["total_count"] == 1
    async with by_token(sim) as forge:
        seen = await forge.active_jobs("acme/app")
        assert [report.status for report in seen.reports] == [ForgeStatus.WAITING] * 2
        assert (seen.open, seen.complete) == (0, True)
        await admin(api, f"/jobs/{held}/approve")
        seen = await forge.active_jobs("acme/app", Look.QUICK)
        assert [(report.key.id, report.status) for report in seen.reports] == [(held, ForgeStatus.QUEUED)]


# -- looks and glances --------------------------------------------------------------------------------------


async def test_a_quick_look_tells_what_changed_and_how_what_left_the_lists_ended(sim, api):
    jobs = (await admin(api, "/jobs", labels=LABELS, count=2))["jobs"]
    async with by_token(sim) as forge:
        assert len((await forge.active_jobs("acme/app")).reports) == 2
        again = await forge.active_jobs("acme/app", Look.QUICK)
        assert (again.reports, again.open, again.asked, again.charged) == ((), 2, 3, 0)
        await admin(api, f"/jobs/{jobs[0]}/cancel")
        seen = await forge.active_jobs("acme/app", Look.QUICK)
        told = {report.key.id: report.status for report in seen.reports}
        assert told == {jobs[0]: ForgeStatus.COMPLETED, jobs[1]: ForgeStatus.QUEUED}
        await admin(api, f"/jobs/{jobs[1]}/cancel")
        seen = await forge.active_jobs("acme/app", Look.QUICK)
        assert {report.status for report in seen.reports} == {ForgeStatus.COMPLETED}
        assert (seen.open, len(seen.reports)) == (0, 2)
        seen = await forge.active_jobs("acme/app", Look.QUICK)
        assert (seen.reports, seen.charged, seen.asked) == ((), 0, 2)


async def test_a_look_at_the_newest_runs_reads_those_that_show_themselves_changed(sim, api):
    runs = [(await admin(api, "/jobs", labels=LABELS, count=2))["jobs"] for _ in range(2)]
    async with by_token(sim) as forge:
        await forge.active_jobs("acme/app")
        seen = await forge.active_jobs("acme/app", Look.NEWEST)
        assert (seen.asked, seen.charged, seen.open, seen.reports) == (1, 1, 4, ())
        seen = await forge.active_jobs("acme/app", Look.NEWEST)
        assert (seen.asked, seen.charged, seen.open, seen.reports) == (1, 0, 4, ())
        await admin(api, f"/jobs/{runs[0][0]}/cancel")
        (fresh,) = (await admin(api, "/jobs", labels=LABELS))["jobs"]
        seen = await forge.active_jobs("acme/app", Look.NEWEST)
        assert {report.key.id for report in seen.reports} == {*runs[0], fresh}
        assert (seen.asked, seen.charged, seen.open, seen.complete) == (3, 3, 4, False)
        await admin(api, f"/jobs/{fresh}/cancel")
        seen = await forge.active_jobs("acme/app", Look.NEWEST)
        assert [(report.key.id, report.status) for report in seen.reports] == [(fresh, ForgeStatus.COMPLETED)]
        seen = await forge.active_jobs("acme/app")
        assert (seen.open, seen.complete) == (3, True)


async def test_runs_are_read_again_although_nothing_shows_that_they_changed(sim, api):
    made = [await admin(api, "/jobs", labels=LABELS) for _ in range(2)]
    (first, second), both = (one["runs"][0] for one in made), [one["jobs"][0] for one in made]
    async with by_token(sim) as forge:
        await forge.active_jobs("acme/app")
        await forge.active_jobs("acme/app", Look.NEWEST)
        seen = await forge.active_jobs("acme/app", Look.NEWEST, frozenset({first, 1}))
        assert (seen.asked, seen.charged, seen.open, seen.reports) == (2, 0, 2, ())
        await admin(api, f"/jobs/{both[0]}/cancel")
        seen = await forge.active_jobs("acme/app", Look.NEWEST, frozenset({first, second}))
        assert [(one.key.id, one.status) for one in seen.reports] == [(both[0], ForgeStatus.COMPLETED)]
        assert (seen.asked, seen.charged, seen.open) == (3, 2, 1)


async def test_an_older_run_that_is_not_among_the_newest_stays_known_until_a_whole_look(sim, api):
    (old,) = (await admin(api, "/jobs", labels=LABELS))["jobs"]
    async with by_token(sim) as forge:
        await forge.active_jobs("acme/app")
        for _ in range(POLLED):
            await admin(api, "/jobs", labels=LABELS)
        await admin(api, f"/jobs/{old}/cancel")
        seen = await forge.active_jobs("acme/app", Look.NEWEST)
        assert (seen.open, len(seen.reports)) == (POLLED + 1, POLLED)
        seen = await forge.active_jobs("acme/app")
        assert (old, ForgeStatus.COMPLETED) in [(one.key.id, one.status) for one in seen.reports]


# -- audits -------------------------------------------------------------------------------------------------


async def test_an_audit_asks_what_explains_each_run_and_reads_the_others(sim, api):
    made = [await admin(api, "/jobs", labels=LABELS, count=2) for _ in range(3)]
    first, second, third = (one["runs"][0] for one in made)
    await admin(api, f"/jobs/{made[0]['jobs'][0]}/cancel")
    await admin(api, f"/jobs/{made[0]['jobs'][1]}/cancel")
    shown: list[RunSeen] = []

    def explains(run: RunSeen) -> bool:
        shown.append(run)
        return bool(run.id != second)

    async with by_token(sim) as forge:
        assert not forge.audit_is_free("acme/app")
        seen = await forge.audit("acme/app", explains)
        assert [(run.id, run.over) for run in shown] == [(third, False), (second, False), (first, True)]
        assert all(run.quiet is not None and 0 <= run.quiet < 60_000 for run in shown)
        assert {(one.key.id, one.run_id) for one in seen.reports} == {
            (job, second) for job in made[1]["jobs"]
        }
        assert seen.reports[0].origin.public is False
        assert (seen.changed, seen.open, seen.more, seen.asked, seen.charged) == (True, 2, False, 2, 2)
        assert forge.audit_is_free("acme/app")
        before = used(forge)
        again = await forge.audit("acme/app", explains)
        assert (again.changed, again.reports, again.asked, used(forge) - before) == (False, (), 1, 0)
        assert len(shown) == 3
        await admin(api, f"/jobs/{made[2]['jobs'][0]}/cancel")
        assert (await forge.audit("acme/app", lambda run: True)).charged == 1
        assert not forge.audit_is_free("acme/lib")


async def test_an_audit_says_whether_there_are_older_runs(sim):
    await queue(sim, AUDITED - 1, apart_s=1.0)
    async with by_token(sim) as forge:
        assert not (await forge.audit("acme/app", lambda run: True)).more
        await queue(sim, 2, apart_s=1.0)
        seen = await forge.audit("acme/app", lambda run: True)
        assert (seen.more, seen.open) == (True, AUDITED)


@pytest.mark.parametrize("audit", [True, False])
async def test_newest_runs_that_could_not_be_read_to_the_end_are_asked_for_anew(sim, api, audit):
    """Else the next question would be answered by 304, and what was not read would stay unread."""
    (job,) = (await admin(api, "/jobs", labels=LABELS))["jobs"]

    async def look(forge: Forge) -> Any:
        if audit:
            return await forge.audit("acme/app", lambda run: False)
        return await forge.active_jobs("acme/app", Look.NEWEST)

    async with by_token(sim) as forge:
        listings = forge._listings
        whole = listings._jobs_of

        async def broken(*told: Any) -> Any:
            return RetryLater("502")

        listings._jobs_of = broken  # type: ignore[method-assign, assignment]
        with pytest.raises(RetryLater):
            await look(forge)
        listings._jobs_of = whole  # type: ignore[method-assign]
        assert [report.key.id for report in (await look(forge)).reports] == [job]


async def test_glances_are_free_until_something_happens(sim, api):
    async with by_token(sim) as forge:
        assert not forge.glance_is_free("acme/lib")
        assert not (await forge.glance("acme/lib")).busy
        assert forge.glance_is_free("acme/lib")
        before = used(forge)
        seen = await forge.glance("acme/lib")
        assert (seen.changed, seen.charged, used(forge)) == (False, 0, before)
        (run,) = (await admin(api, "/jobs", repository="acme/lib", labels=LABELS, pushed=False))["runs"]
        seen = await forge.glance("acme/lib")
        assert (seen.changed, seen.busy, seen.newest, seen.charged) == (True, True, run, 1)


async def test_fp_39_under_a_new_token_every_question_is_asked_wholly_once(sim):
    async with by_app(sim) as forge:
        await forge.active_jobs("acme/app")
        await forge.glance("acme/app")
        assert (await forge.active_jobs("acme/app")).charged == 0
        sim.site.apps.tokens.clear()
        seen = await forge.active_jobs("acme/app")
        assert seen.charged == seen.asked == 5, "four lists, and the one that met the old token"
        assert not forge.glance_is_free("acme/app")
        assert (await forge.active_jobs("acme/app")).charged == 0


# -- lists that are cut -------------------------------------------------------------------------------------


async def queue(sim: ForgeSim, count: int, *, apart_s: float) -> set[int]:
    repository = sim.world.repositories["acme/app"]
    now, made = time.time(), set()
    for number in range(count):
        run = sim.world.queue_run(repository, [replace(SPEC, held=True)])
        run.created_at = now - number * apart_s
        made.add(run.jobs[0].id)
    return made


async def test_a_list_beyond_its_cap_is_read_in_parts_until_it_is_whole(sim, monkeypatch):
    monkeypatch.setattr(run_filters, "MAX_FILTERED", 20)
    monkeypatch.setattr("ephemerd.adapters.forges.github.runs.MOST", 20)
    made = await queue(sim, 50, apart_s=700.0)
    async with by_token(sim) as forge:
        seen = await forge.active_jobs("acme/app")
    assert {report.key.id for report in seen.reports} == made
    assert seen.complete
    assert seen.asked < 50 + 60


async def test_what_cannot_be_cut_any_finer_is_said_not_to_be_whole(sim, monkeypatch):
    monkeypatch.setattr(run_filters, "MAX_FILTERED", 20)
    monkeypatch.setattr("ephemerd.adapters.forges.github.runs.MOST", 20)
    await queue(sim, 25, apart_s=0.0)
    async with by_token(sim) as forge:
        seen = await forge.active_jobs("acme/app")
    assert not seen.complete
    assert len(seen.reports) == 20


async def test_a_list_that_shifts_between_two_pages_is_not_whole(sim, monkeypatch):
    monkeypatch.setattr("ephemerd.adapters.forges.github.runs.PER_PAGE", 10)
    await queue(sim, 15, apart_s=60.0)
    first = sim.world.repositories["acme/app"].runs
    async with by_token(sim) as forge:
        send = forge.connection._send
        gone: list[Any] = []

        async def shifting(request: Any, headers: Any, deadline: float) -> Any:
            if "page=2" in request.target and not gone:
                gone.append(first.pop(next(iter(first))))
            return await send(request, headers, deadline)

        monkeypatch.setattr(forge.connection, "_send", shifting)
        seen = await forge.active_jobs("acme/app")
        assert gone
        assert not seen.complete
        assert (await forge.active_jobs("acme/app")).complete


# -- limits -------------------------------------------------------------------------------------------------


async def test_7_1_more_than_a_hundred_requests_at_a_time_are_refused():
    limits = Limits(None)  # type: ignore[arg-type]
    for _ in range(AT_ONCE):
        limits.enter()
    with pytest.raises(Exception, match="secondary rate limit"):
        limits.enter()
    limits.leave()
    limits.leave()
    limits.enter()
    assert limits.most_under_way == AT_ONCE + 1


async def test_whatever_is_asked_at_once_few_requests_are_under_way():
    async with running(Options(weather=quick(rest_delay=Uniform(0.02, 0.02)), time_scale=1.0)) as sim:
        for number in range(30):
            sim.world.add_repository(f"acme/r{number}")
        async with by_token(sim) as forge:
            await asyncio.gather(*(forge.active_jobs(f"acme/r{number}") for number in range(30)))
        assert 1 < sim.site.limits.most_under_way <= 10


async def test_listings_yield_first_then_reads_and_registrations_go_on(sim):
    scope = Scope("github", "repo:acme/app")
    async with by_token(sim) as forge:
        await forge.runners(scope)
        sim.site.limits.used = 5_000 - 2_002
        await forge.active_jobs("acme/lib", Look.QUICK)
        with pytest.raises(NotSent, match="kept for registrations"):
            await forge.active_jobs("acme/open")
        assert await forge.find(scope, "eph-s-b-9") is None  # type: ignore[arg-type]
        sim.site.limits.used = 5_000 - 1_001
        assert await forge.find(scope, "eph-s-b-9") is None  # type: ignore[arg-type]
        with pytest.raises(NotSent):
            await forge.find(scope, "eph-s-b-9")  # type: ignore[arg-type]
        assert (await forge.register(scope, "eph-s-b-1", ("x",))).id  # type: ignore[arg-type]
        (budget,) = forge.budgets()
        assert (budget.remaining, budget.reserve) == (999, 1_000)


async def test_the_points_of_an_endpoint_are_never_used_up(sim):
    """Whoever lists without a pause is held back by ourselves before GitHub has to."""
    async with by_token(sim) as forge:
        for _ in range(800):
            await forge.glance("acme/app")
        with pytest.raises(NotSent, match="points a minute"):
            await forge.glance("acme/app")
        assert len(forge.take_calls()) == 800
        assert await forge.runners(Scope("github", "repo:acme/app")) == [], "the points of another endpoint"


async def test_nothing_is_listed_before_a_limit_has_ended(sim):
    async with by_token(sim) as forge:
        sim.site.outages.begin("429", 60.0)
        with pytest.raises(Limited):
            await forge.active_jobs("acme/app")
        for call in (forge.active_jobs("acme/lib"), forge.glance("acme/lib"), forge.repositories("acme")):
            with pytest.raises(Limited, match="was not sent"):
                await call
        assert len(forge.take_calls()) == 1
