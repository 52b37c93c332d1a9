"""Runs of workflows and their jobs, and the repositories of an account: what to ask and what an answer says; pure.

Sources: GitHub's REST reference (workflow runs, workflow jobs, repositories). There is no list of jobs beyond one
run, and none of runs beyond one repository. A list with a filter ends after 1,000 runs, whatever there are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import msgspec

from ephemerd.adapters.forges.github.jobs import JobWire, integer, job_report, moment, repository_name, text
from ephemerd.adapters.forges.github.wire import PER_PAGE, Request, read, repository_path, scope_path
from ephemerd.adapters.kit.answer import Answer
from ephemerd.domain.ids import Scope
from ephemerd.domain.job import JobReport, Origin
from ephemerd.ports.errors import RetryLater
from ephemerd.ports.forge import RepositorySeen

BUSY = ("queued", "in_progress")
"""The statuses of runs that have jobs for somebody. A run with one running and five queued jobs is `in_progress`."""
ACTIVE = ("waiting", "pending", *BUSY)
"""Those of all runs that are not over. waiting: an approval or a timer is awaited; pending: another run of the same
concurrency group is. In the order in which a run goes through them, so that one that moves on meanwhile is met."""
MOST = 1_000
"""A list with a filter shows no more runs than this."""
GLANCED, POLLED, AUDITED = 10, 30, PER_PAGE
"""So many of a repository's newest runs are glanced at, looked at where jobs are polled, and compared with what
deliveries told."""
LONGEST_DAYS = 36
"""A run is ended after 35 days, waiting included (GitHub's usage limits)."""
DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a workflow, as a listing shows it. `over` says that nothing of it can be queued or run any more;
    `mark` differs where something happened to it, as far as the run itself shows that; `updated` is when that was, ms
    since the epoch, 0 where it is not told."""

    id: int
    repository: str
    origin: Origin
    over: bool = False
    mark: str = ""
    updated: int = 0


@dataclass(frozen=True, slots=True)
class RunPage:
    """One page of runs, and how many the whole list has, by GitHub's word; None where it does not say."""

    runs: tuple[Run, ...]
    total: int | None


@dataclass(frozen=True, slots=True)
class Span:
    """A time in which runs were created: seconds since the epoch, both ends belong to it."""

    first: int
    last: int

    def halves(self) -> tuple[Span, Span] | None:
        """Return both halves; None where it is a single second."""
        if self.first >= self.last:
            return None
        middle = (self.first + self.last) // 2
        return Span(self.first, middle), Span(middle + 1, self.last)


def all_days(now: float) -> Span:
    """Return the time in which every run that is not over was created: whole days, up to tomorrow's end.

    `now` is the wall clock in seconds; a clock that is off by less than a day does no harm.
    """
    today = int(now) // DAY_S * DAY_S
    return Span(today - LONGEST_DAYS * DAY_S, today + 2 * DAY_S - 1)


# -- what to send -------------------------------------------------------------------------------------------


def list_runs(repository: str, status: str, created: Span | None = None) -> Request:
    """Ask for the runs of one status (at most 1,000 come with such a filter, whatever there are)."""
    query = {"status": status, "exclude_pull_requests": "true", "per_page": str(PER_PAGE)}
    if created is not None:
        query["created"] = f"{_stamp(created.first)}..{_stamp(created.last)}"
    return Request(
        "GET",
        f"{repository_path(repository)}/actions/runs?{urlencode(query)}",
        "GET /repos/{owner}/{repo}/actions/runs",
        f"the {status} runs of {repository}",
        f"check that {repository} exists and that the token may read its runs (Actions: read)",
        account=repository_path(repository),
        conditional=True,
    )


def list_newest(repository: str, most: int = GLANCED) -> Request:
    """Ask for the newest runs, whatever became of them: one question that shows whether anything happens there."""
    query = urlencode({"exclude_pull_requests": "true", "per_page": most})
    request = list_runs(repository, "newest")
    return replace(request, target=f"{repository_path(repository)}/actions/runs?{query}", whole=False)


def get_run(repository: str, run: int) -> Request:
    """Ask for one run; 404 means that it was deleted, or may not be seen."""
    return Request(
        "GET",
        f"{repository_path(repository)}/actions/runs/{run:d}?exclude_pull_requests=true",
        "GET /repos/{owner}/{repo}/actions/runs/{id}",
        f"run {run} of {repository}",
        account=repository_path(repository),
    )


def list_jobs(repository: str, run: int) -> Request:
    """Ask for the jobs of a run's latest attempt; 404 means that the run was deleted."""
    query = urlencode({"filter": "latest", "per_page": PER_PAGE})
    return Request(
        "GET",
        f"{repository_path(repository)}/actions/runs/{run:d}/jobs?{query}",
        "GET /repos/{owner}/{repo}/actions/runs/{id}/jobs",
        f"the jobs of run {run} of {repository}",
        account=repository_path(repository),
        conditional=True,
    )


def list_owned(owner: str) -> Request:
    """Ask for the repositories of an organization, as far as the credential may see them."""
    path = scope_path(Scope("", f"org:{owner}"))
    return Request(
        "GET",
        f"{path}/repos?{urlencode({'type': 'all', 'per_page': PER_PAGE})}",
        "GET /orgs/{org}/repos",
        f"the repositories of {owner}",
        f"check that the organization {owner} exists and that the token may see its repositories (Metadata: read)",
        account=path,
        conditional=True,
    )


def list_installed(owner: str) -> Request:
    """Ask for the repositories that an App's installation on an account reaches."""
    return Request(
        "GET",
        f"/installation/repositories?{urlencode({'per_page': PER_PAGE})}",
        "GET /installation/repositories",
        f"the repositories of {owner} that the App is installed on",
        f"check that the App is installed on {owner}",
        account=scope_path(Scope("", f"org:{owner}")),
        conditional=True,
    )


def _stamp(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# -- what an answer says ------------------------------------------------------------------------------------


class _Repository(msgspec.Struct):
    id: Any = None
    full_name: Any = None
    private: Any = None
    archived: Any = None
    disabled: Any = None
    pushed_at: Any = None


class _Run(msgspec.Struct):
    id: int
    repository: _Repository | None = None
    head_repository: _Repository | None = None
    head_branch: Any = None
    name: Any = None
    path: Any = None
    status: Any = None
    run_attempt: Any = None
    updated_at: Any = None


class _RunPage(msgspec.Struct):
    workflow_runs: list[_Run]
    total_count: Any = None


class _JobPage(msgspec.Struct):
    jobs: list[JobWire]


class _InstalledPage(msgspec.Struct):
    repositories: list[_Repository]


def read_runs(request: Request, answer: Answer, repository: str) -> RunPage:
    """Read one page of runs; the repository's name in the case that GitHub keeps."""
    page = read(request, answer, _RunPage)
    total = page.total_count
    return RunPage(
        tuple(
            Run(
                run.id,
                (run.repository and repository_name(run.repository.full_name)) or repository,
                _origin_of(run),
                over=run.status == "completed",
                mark=f"{run.status} {run.run_attempt} {run.updated_at}"[:100],
                updated=moment(run.updated_at),
            )
            for run in page.workflow_runs
        ),
        total if isinstance(total, int) and not isinstance(total, bool) and total >= 0 else None,
    )


def read_origin(request: Request, answer: Answer) -> Origin:
    """Read whose work one run is; `RetryLater` where GitHub does not say whether the repository is public."""
    origin = _origin_of(read(request, answer, _Run))
    if origin.public is None:
        raise RetryLater(f"GitHub's answer on {request.about} does not say whether the repository is private")
    return origin


def _origin_of(run: _Run) -> Origin:
    """`head_repository` is where the commit is from, null where that fork was deleted: then it is one, too."""
    ours, head = run.repository, run.head_repository
    private = ours.private if ours is not None else None
    public = not private if isinstance(private, bool) else None
    number = integer(ours.id) if ours is not None else None
    fork = number is None or head is None or integer(head.id) != number
    path = text(run.path).partition("@")[0]
    return Origin(public, fork, text(run.head_branch), text(run.name) or path)


def read_jobs(request: Request, answer: Answer, forge: str, run: Run) -> list[JobReport]:
    """Read one page of a run's jobs, with what the run tells of them; what is no usable job is left out."""
    told, found = run.origin, []
    for job in read(request, answer, _JobPage).jobs:
        report = job_report(job, forge, run.repository)
        if isinstance(report, JobReport):
            own = report.origin
            origin = Origin(told.public, told.fork, told.branch or own.branch, own.workflow or told.workflow)
            found.append(msgspec.structs.replace(report, origin=origin))
    return found


def read_repositories(request: Request, answer: Answer) -> list[RepositorySeen]:
    """Read one page of repositories, of an organization or an installation; what has no usable name is left out."""
    if request.endpoint == "GET /installation/repositories":
        entries = read(request, answer, _InstalledPage).repositories
    else:
        entries = read(request, answer, list[_Repository])
    seen = (_repository(entry) for entry in entries)
    return [one for one in seen if one is not None]


def _repository(entry: _Repository) -> RepositorySeen | None:
    name, number = repository_name(entry.full_name), integer(entry.id)
    if name is None or number is None:
        return None
    public = not entry.private if isinstance(entry.private, bool) else None
    dormant = entry.archived is True or entry.disabled is True
    return RepositorySeen(name, number, public, dormant, text(entry.pushed_at, 40))
