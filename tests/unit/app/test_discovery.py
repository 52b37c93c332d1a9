"""Rounds of looks at one forge: one event for the core after its parts, whatever fails on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from ephemerd.app.discovery import AT_ONCE, ROUND
from ephemerd.app.roster import LIST_EVERY
from ephemerd.app.trust import BELIEVED_AFTER
from ephemerd.core import commands as c
from ephemerd.core import events as e
from ephemerd.domain.access import Access
from ephemerd.domain.errors import Remedy
from ephemerd.domain.ids import JobKey, Scope
from ephemerd.domain.job import ForgeStatus, Job, JobReport, JobStatus
from ephemerd.domain.pool import MINUTE, SECOND
from ephemerd.ports.errors import Denied, Limited, PortError, Refused, RetryLater, Unseen
from ephemerd.ports.forge import Audit, Glance, JobsSeen, Look, RepositoriesSeen, RepositorySeen, RunSeen
from tests.unit.app.fakes import T0, setup, until
from tests.unit.app.test_executor import Bench

ORG = Scope("github", "org:acme")
BIG = Scope("github", "enterprise:big")


def repository(name: str, **fields: Any) -> RepositorySeen:
    return RepositorySeen(name, sum(name.encode()) * 100 + len(name), **fields)


class Org(Bench):
    """An executor for an organization; `jobs` are what each repository has, `broken` what cannot be read."""

    def __init__(self, *names: str, scope: Scope = ORG, access: Access | None = None) -> None:
        super().__init__()
        self.names = list(names)
        self.jobs: dict[str, tuple[JobReport, ...]] = {}
        self.broken: dict[str, Exception] = {}
        self.looks: list[tuple[str, Look]] = []
        plain = setup()
        pools = tuple(replace(pool, scope=scope) for pool in plain.pools)
        self.setup = replace(plain, pools=pools, access=() if access is None else (access,))
        self.executor.reconfigure(self.setup, {"linux": self.runtime})
        self.scope = scope
        self.forge.answers["repositories"] = self.listed
        self.forge.answers["active_jobs"] = self.look

    def listed(self, owner: str) -> RepositoriesSeen:
        return RepositoriesSeen(tuple(repository(name) for name in self.names if name.startswith(owner)))

    def look(self, name: str, depth: Look) -> JobsSeen | Exception:
        self.looks.append((name, depth))
        if name in self.broken:
            return self.broken[name]
        reports = self.jobs.get(name, ())
        return JobsSeen(reports, depth is Look.WHOLE, len(reports), 4, 4)

    async def round(self) -> e.JobsListed:
        """List the jobs and return how it ended."""
        told = await self.answers(c.ListJobs(self.scope))
        ended: list[e.JobsListed] = [event for event in told if isinstance(event, e.JobsListed)]
        assert ended == told[-1:]
        return ended[0]


@pytest.fixture
async def org():
    made = Org("acme/app", "acme/lib")
    yield made
    await made.executor.close()


def queued(number: int, name: str) -> JobReport:
    return JobReport(JobKey("github", name, number), ForgeStatus.QUEUED, ("linux",))


def row(number: int, name: str, *, forge: str = "github", at: int = T0, run: int = 7) -> Job:
    """A job's row as the core keeps it."""
    return Job(JobKey(forge, name, number), ("linux",), number, JobStatus.QUEUED, at, at, at, run_id=run)


async def test_an_organization_is_listed_repository_by_repository(org):
    org.jobs = {"acme/app": (queued(1, "acme/app"),), "acme/lib": (queued(2, "acme/lib"),)}
    told = await org.answers(c.ListJobs(ORG))
    parts = [event for event in told if isinstance(event, e.JobsRead)]
    assert {report.key.id for part in parts for report in part.reports} == {1, 2}
    assert told[-1] == e.JobsListed(
        ORG, 2, repositories=("acme/app", "acme/lib"), as_of=org.clock.ms, lively=True
    )


async def test_a_repository_that_may_not_use_the_machines_is_never_asked_about():
    access = Access("github", repositories=("acme/*",), denied=("acme/secret*",))
    org = Org("acme/app", "acme/secret-1", access=access)
    await org.round()
    assert org.looks == [("acme/app", Look.WHOLE)]
    org.setup = replace(org.setup, access=(replace(access, denied=()),))
    org.executor.reconfigure(org.setup, {"linux": org.runtime})
    await org.round()
    assert ("acme/secret-1", Look.WHOLE) in org.looks, "a reload holds from the next round on"
    await org.executor.close()


async def test_public_repositories_are_asked_about_where_they_are_named():
    org = Org(access=Access("github", repositories=("acme/*", "acme/open")))
    found = (repository("acme/open", public=True), repository("acme/else", public=True))
    org.forge.answers["repositories"] = RepositoriesSeen(found)
    await org.round()
    assert [name for name, _ in org.looks] == ["acme/open"]
    await org.executor.close()


async def test_between_whole_looks_only_what_happens_is_looked_at(org):
    org.jobs["acme/app"] = (queued(1, "acme/app"),)
    await org.round()
    org.looks.clear()
    org.clock.ms += 10 * SECOND
    listed = await org.round()
    assert org.looks == [("acme/app", Look.QUICK)]
    assert listed.repositories == ()
    assert listed.as_of == org.clock.ms - 10 * SECOND
    org.clock.ms += 40 * SECOND
    listed = await org.round()
    assert org.looks[1:] == [("acme/app", Look.WHOLE)]
    assert listed.repositories == ("acme/app",)


async def test_an_idle_repository_is_read_at_once_when_a_glance_shows_something(org):
    org.forge.free = {"acme/app", "acme/lib"}
    org.forge.answers["glance"] = Glance(True, 9)
    await org.round()
    org.clock.ms += MINUTE
    await org.round()
    assert len(org.forge.named("glance")) == 2
    org.looks.clear()
    org.forge.answers["glance"] = lambda name: Glance(True, 9, busy=name == "acme/lib", charged=1)
    org.clock.ms += MINUTE
    org.jobs["acme/lib"] = (queued(7, "acme/lib"),)
    told = await org.answers(c.ListJobs(ORG))
    assert org.looks[0] == ("acme/lib", Look.WHOLE)
    assert [report.key.id for event in told if isinstance(event, e.JobsRead) for report in event.reports] == [
        7
    ]


async def test_what_a_delivery_told_makes_the_next_rounds_look_there(org):
    await org.round()
    org.looks.clear()
    org.executor.notice(row(5, "acme/lib"))
    org.executor.notice(row(5, "acme/lib", forge="elsewhere"))
    org.clock.ms += 10 * SECOND
    listed = await org.round()
    assert org.looks == [("acme/lib", Look.QUICK)]
    assert listed.lively


async def test_one_repository_that_cannot_be_read_does_not_keep_the_others(org, caplog):
    org.broken["acme/app"] = Unseen("404")
    listed = await org.round()
    assert listed.fault is None
    assert listed.repositories == ("acme/lib",)
    assert listed.as_of == org.clock.ms
    assert "the jobs of acme/app cannot be read" in caplog.text
    org.clock.ms += LIST_EVERY
    org.names.remove("acme/app")
    listed = await org.round()
    assert listed.repositories == ("acme/app",), "its open jobs are settled one by one"


@pytest.mark.parametrize("error", [Denied("403"), Denied("401")])
async def test_a_credential_that_opens_nothing_is_told_as_refused(org, error):
    org.broken = {"acme/app": error, "acme/lib": error}
    listed = await org.round()
    assert listed.fault == error.fault()
    org.broken.clear()
    listed = await org.round()
    assert listed.repositories == ("acme/app", "acme/lib"), "nobody was set aside for it"


@pytest.mark.parametrize("error", [RetryLater("502"), Limited("429", after_ms=60_000)])
async def test_a_forge_that_does_not_answer_ends_the_round_and_what_was_read_is_told(org, error):
    org.jobs["acme/app"] = (queued(1, "acme/app"),)
    org.broken["acme/lib"] = error
    told = await org.answers(c.ListJobs(ORG))
    (listed,) = [event for event in told if isinstance(event, e.JobsListed)]
    assert listed.fault is not None
    assert listed.fault.remedy is error.remedy
    assert any(isinstance(event, e.JobsRead) for event in told)


async def test_while_the_list_of_repositories_fails_those_known_are_read(org):
    await org.round()
    org.executor.notice(row(1, "acme/app"))
    org.forge.answers["repositories"] = RetryLater("502")
    org.clock.ms += LIST_EVERY
    listed = await org.round()
    assert listed.fault is None
    assert listed.repositories == ("acme/app",)
    asked = len(org.forge.named("repositories"))
    org.clock.ms += SECOND
    await org.round()
    assert len(org.forge.named("repositories")) == asked


async def test_before_the_first_list_its_failure_is_the_round_s(org):
    org.forge.answers["repositories"] = RetryLater("502")
    listed = await org.round()
    assert listed.fault is not None
    assert listed.fault.remedy is Remedy.RETRY


async def test_an_enterprise_is_read_by_the_organizations_that_its_patterns_name():
    access = Access("github", repositories=("acme/*", "Other/tool", "*/any", "*"))
    org = Org("acme/app", "other/tool", "other/else", scope=BIG, access=access)
    listed = await org.round()
    assert [call[1] for call in org.forge.named("repositories")] == ["acme", "other"]
    assert listed.repositories == ("acme/app", "other/else", "other/tool")
    await org.executor.close()


@pytest.mark.parametrize("access", [None, Access("github"), Access("github", repositories=("*",))])
async def test_an_enterprise_without_such_patterns_is_refused_with_what_to_write(access):
    org = Org("acme/app", scope=BIG, access=access)
    listed = await org.round()
    assert listed.fault is not None
    assert listed.fault.remedy is Remedy.REFUSED
    assert "forge.github.repositories" in listed.fault.detail
    await org.executor.close()


async def test_few_repositories_are_read_at_a_time():
    org = Org(*(f"acme/r{number}" for number in range(9)))
    org.forge.hold["active_jobs"] = asyncio.Event()
    org.executor.submit([c.ListJobs(ORG)])
    await until(lambda: len(org.forge.named("active_jobs")) >= AT_ONCE)
    assert len(org.forge.named("active_jobs")) == AT_ONCE
    org.forge.hold["active_jobs"].set()
    await org.executor.settled()
    assert len(org.forge.named("active_jobs")) == 9
    await org.executor.close()


async def test_a_round_comes_to_an_end_and_the_next_one_goes_on():
    org = Org(*(f"acme/r{number}" for number in range(9)))
    slow = org.look

    def look(name: str, depth: Look) -> Any:
        org.clock.ms += ROUND
        return slow(name, depth)

    org.forge.answers["active_jobs"] = look
    seen: set[str] = set()
    for _ in range(5):
        listed = await org.round()
        seen |= set(listed.repositories or ())
    assert len(seen) == 9
    await org.executor.close()


async def test_a_repository_as_scope_says_whether_it_was_read_wholly():
    org = Org(scope=Scope("github", "repo:acme/app"))
    assert (await org.round()).repositories is None
    org.clock.ms += 10 * SECOND
    listed = await org.round()
    assert (listed.repositories, listed.as_of) == ((), org.clock.ms - 10 * SECOND)
    org.forge.answers["active_jobs"] = JobsSeen((), complete=False, open=3)
    org.clock.ms += MINUTE
    listed = await org.round()
    assert (listed.repositories, listed.as_of, listed.jobs) == ((), None, 3)
    await org.executor.close()


async def test_a_repository_as_scope_that_is_not_to_be_seen_fails_as_a_whole():
    org = Org(scope=Scope("github", "repo:acme/app"))
    for error in (Unseen("404"), Denied("403"), Refused("301")):
        org.broken["acme/app"] = error
        listed = await org.round()
        assert listed.fault == error.fault()
    await org.executor.close()


async def test_after_the_machine_slept_all_is_read_anew(org):
    await org.round()
    org.clock.ms += SECOND
    org.executor.awoke()
    org.looks.clear()
    listed = await org.round()
    assert sorted(org.looks) == [("acme/app", Look.WHOLE), ("acme/lib", Look.WHOLE)]
    assert listed.as_of == org.clock.ms


async def test_where_jobs_are_polled_the_run_of_a_job_that_our_runner_is_done_with_is_read_again():
    """What follows a job in its run is queued as it ends, and nobody promises that the run shows it."""
    org = Org("acme/app", "acme/lib")
    polled = tuple(replace(pool, observed=False) for pool in org.setup.pools)
    org.executor.reconfigure(replace(org.setup, pools=polled), {"linux": org.runtime})
    org.jobs = {"acme/app": (queued(1, "acme/app"),)}
    await org.round()
    org.executor.freed(row(1, "Acme/App", run=7))
    org.executor.freed(row(2, "acme/app", run=0))
    org.executor.freed(row(3, "acme/none"))
    org.executor.freed(row(4, "acme/app", forge="elsewhere"))
    org.broken["acme/app"] = RetryLater("502")
    for _ in range(3):
        org.clock.ms += 10 * SECOND
        await org.round()
        org.broken.clear()
    assert org.forge.again[-3:] == [frozenset({7}), frozenset({7}), frozenset()], "until a look went well"
    await org.executor.close()


async def test_beside_deliveries_that_is_what_they_tell(org):
    org.jobs = {"acme/app": (queued(1, "acme/app"),)}
    await org.round()
    org.executor.freed(row(1, "acme/app"))
    org.clock.ms += 10 * SECOND
    await org.round()
    assert set(org.forge.again) == {frozenset()}


# -- where deliveries are vouched for ------------------------------------------------------------------------

EVERY = setup().policy.reconcile_every


def vouch(org: Org, *, flowing: bool = False) -> None:
    """The forge's list of deliveries was read for long, and just now; one came where they are `flowing`."""
    trust = org.executor.trust("github")
    assert trust is not None
    trust.read_back([org.scope], org.clock.ms - BELIEVED_AFTER * EVERY, whole=True)
    trust.read_back([org.scope], org.clock.ms, whole=True)
    if flowing:
        trust.heard(JobKey("github", "acme/else", 9), org.clock.ms)


def showing(
    *runs: RunSeen, told: tuple[JobReport, ...] = (), where: str = "acme/app", **more: Any
) -> Callable[..., Audit]:
    """Audits that show these runs in one repository, and of those that nothing explains these jobs."""

    def audit(name: str, explains: Callable[[RunSeen], bool]) -> Audit:
        if name != where:
            return Audit(False, asked=1)
        strange = [run.id for run in runs if not explains(run)]
        reports = tuple(one for one in told if one.run_id in strange)
        return Audit(True, reports, len(runs), asked=1 + len(strange), charged=1 + len(strange), **more)

    return audit


async def test_where_deliveries_are_vouched_for_runs_that_are_accounted_for_are_not_read(org):
    await org.round()
    org.looks.clear()
    org.clock.ms += EVERY
    org.executor.notice(row(1, "acme/app", at=org.clock.ms))
    vouch(org)
    told = replace(queued(2, "acme/app"), run_id=8)
    known, strange = RunSeen(7, False, 0), RunSeen(8, False, 0)
    org.forge.answers["audit"] = showing(known, strange, told=(queued(1, "acme/app"), told))
    answers = await org.answers(c.ListJobs(ORG))
    assert [call[1] for call in org.forge.named("audit")] == ["acme/app", "acme/lib"]
    assert [event.reports for event in answers if isinstance(event, e.JobsRead)] == [(told,)]
    (listed,) = [event for event in answers if isinstance(event, e.JobsListed)]
    assert listed.repositories == (), "an audit proves nothing gone"
    assert listed.as_of == org.clock.ms, "up to when the forge's list was read"
    assert org.looks == []


async def test_an_audit_that_does_not_show_what_is_believed_to_be_open_is_followed_by_a_whole_look(org):
    await org.round()
    org.looks.clear()
    org.executor.notice(row(1, "acme/app", at=org.clock.ms))
    org.clock.ms += EVERY
    vouch(org)
    org.forge.answers["audit"] = showing(RunSeen(6, True, 0))
    listed = await org.round()
    assert org.looks == [("acme/app", Look.WHOLE)]
    assert listed.repositories == ("acme/app",), "so that the core asks what became of it"


async def test_an_audit_that_does_not_go_back_far_enough_is_followed_by_a_whole_look(org):
    await org.round()
    org.looks.clear()
    org.clock.ms += EVERY
    vouch(org, flowing=True)
    org.executor.notice(row(1, "acme/lib", at=org.clock.ms))
    org.forge.answers["audit"] = showing(RunSeen(7, False, 0), where="acme/lib", more=True)
    await org.round()
    assert org.looks == [("acme/lib", Look.WHOLE)]


async def test_while_deliveries_flow_the_list_of_repositories_and_audits_are_rare(org):
    await org.round()
    lists = len(org.forge.named("repositories"))
    for _ in range(11):
        org.clock.ms += EVERY
        vouch(org, flowing=True)
        org.executor.notice(row(1, "acme/app", at=org.clock.ms))
        org.executor.notice(row(2, "acme/lib", at=org.clock.ms))
        await org.round()
    assert len(org.forge.named("audit")) == 11, "one a round"
    assert {call[1] for call in org.forge.named("audit")} == {"acme/app", "acme/lib"}
    assert len(org.forge.named("repositories")) == lists
    org.executor.reconfigure(org.setup, {"linux": org.runtime})
    await org.round()
    assert len(org.forge.named("repositories")) == lists + 1, "a configuration may let in others"


async def test_a_failing_audit_fails_as_a_look_does(org):
    await org.round()
    org.clock.ms += EVERY
    vouch(org)
    org.executor.notice(row(1, "acme/app", at=org.clock.ms))
    org.forge.answers["audit"] = lambda name, explains: (
        Unseen("404") if name == "acme/app" else Audit(False, asked=1)
    )
    assert (await org.round()).fault is None
    org.clock.ms += EVERY
    vouch(org)
    org.forge.answers["audit"] = RetryLater("502")
    listed = await org.round()
    assert listed.fault is not None
    assert listed.fault.remedy is Remedy.RETRY


async def test_without_a_word_from_the_forge_s_list_everything_is_listed_as_ever(org):
    await org.round()
    org.looks.clear()
    org.executor.notice(row(1, "acme/app", at=org.clock.ms))
    org.clock.ms += EVERY
    listed = await org.round()
    assert org.looks == [("acme/app", Look.WHOLE)]
    assert listed.repositories == ("acme/app",)
    assert org.forge.named("audit") == []


async def test_a_repository_as_scope_is_asked_about_in_each_round_where_the_forge_said_nothing_else():
    org = Org(scope=Scope("github", "repo:acme/app"))
    await org.round()
    org.clock.ms += EVERY
    vouch(org, flowing=True)
    org.executor.trust("github").heard(JobKey("github", "acme/app", 1), org.clock.ms)  # type: ignore[union-attr]
    await org.round()
    assert len(org.forge.named("audit")) == 1
    org.clock.ms += 20 * SECOND  # the audit itself was an answer
    listed = await org.round()
    assert len(org.forge.named("audit")) == 1
    assert (listed.fault, listed.repositories) == (None, ())
    org.clock.ms += 20 * SECOND
    await org.round()
    assert len(org.forge.named("audit")) == 2
    await org.executor.close()


# -- a job whose repository is not to be seen ----------------------------------------------------------------


async def looked_up(org: Org, name: str, error: PortError) -> e.JobLookedUp:
    org.forge.answers["job"] = error
    job = JobKey("github", name, 5)
    (told,) = await org.answers(c.LookUpJob(job, org.scope, 3))
    assert isinstance(told, e.JobLookedUp)
    return told


async def test_a_job_is_gone_with_its_repository(org):
    await org.round()
    assert (await looked_up(org, "acme/gone", Unseen("404"))).missing


async def test_a_job_of_a_repository_that_is_listed_is_not_gone_and_the_scope_not_denied(org):
    await org.round()
    told = await looked_up(org, "acme/app", Unseen("404"))
    assert not told.missing
    assert told.fault is not None
    assert told.fault.remedy is Remedy.REFUSED


async def test_an_old_list_proves_nothing_and_is_read_again(org):
    await org.round()
    org.clock.ms += LIST_EVERY
    org.names.append("acme/new")
    assert not (await looked_up(org, "acme/new", Unseen("404"))).missing
    org.clock.ms += LIST_EVERY
    org.forge.answers["repositories"] = RetryLater("502")
    assert not (await looked_up(org, "acme/gone", Unseen("404"))).missing


@pytest.mark.parametrize(
    "make",
    [
        lambda: Org(scope=Scope("github", "repo:acme/app")),
        lambda: Org(scope=BIG, access=Access("github", repositories=("else/*",))),
    ],
)
async def test_without_a_list_of_the_owner_nothing_is_gone(make: Callable[[], Org]):
    org = make()
    told = await looked_up(org, "acme/app", Unseen("404"))
    assert not told.missing
    assert told.fault is not None
    assert (told.fault.remedy is Remedy.DENIED) is (org.scope.kind == "repo")
    await org.executor.close()
