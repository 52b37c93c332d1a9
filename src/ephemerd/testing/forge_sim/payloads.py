"""The JSON that clients see: the shapes of GitHub's REST answers and of ``workflow_job`` deliveries.

Field sets follow github.md, sections 3.2, 5, 9 and 10.2; every value is invented.
"""

from __future__ import annotations

import base64
import json
import zlib
from datetime import UTC, datetime
from typing import Any

from ephemerd.testing.forge_sim.model import Delivery, Hook, Job, JobStatus, Repository, Run, Runner

Json = dict[str, Any]

SHA = "deadbeef" * 5
ACCOUNT_ID = 9_000_000_001
SENDER_ID = 9_000_000_002
ACTOR = "look-alike-user"
BRANCH = "main"
EVENT = "push"
RUNNER_VERSION = "2.336.0"

_REPOSITORY_URLS = {
    "forks_url": "/forks",
    "keys_url": "/keys{/key_id}",
    "collaborators_url": "/collaborators{/collaborator}",
    "teams_url": "/teams",
    "hooks_url": "/hooks",
    "issue_events_url": "/issues/events{/number}",
    "events_url": "/events",
    "assignees_url": "/assignees{/user}",
    "branches_url": "/branches{/branch}",
    "tags_url": "/tags",
    "blobs_url": "/git/blobs{/sha}",
    "git_tags_url": "/git/tags{/sha}",
    "git_refs_url": "/git/refs{/sha}",
    "trees_url": "/git/trees{/sha}",
    "statuses_url": "/statuses/{sha}",
    "languages_url": "/languages",
    "stargazers_url": "/stargazers",
    "contributors_url": "/contributors",
    "subscribers_url": "/subscribers",
    "subscription_url": "/subscription",
    "commits_url": "/commits{/sha}",
    "git_commits_url": "/git/commits{/sha}",
    "comments_url": "/comments{/number}",
    "issue_comment_url": "/issues/comments{/number}",
    "contents_url": "/contents/{+path}",
    "compare_url": "/compare/{base}...{head}",
    "merges_url": "/merges",
    "archive_url": "/{archive_format}{/ref}",
    "downloads_url": "/downloads",
    "issues_url": "/issues{/number}",
    "pulls_url": "/pulls{/number}",
    "milestones_url": "/milestones{/number}",
    "notifications_url": "/notifications{?since,all,participating}",
    "labels_url": "/labels{/name}",
    "releases_url": "/releases{/id}",
    "deployments_url": "/deployments",
}


def stamp(seconds: float | None) -> str | None:
    """Write a time as GitHub does: UTC, whole seconds, ``Z``."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def node_id(prefix: str, number: int) -> str:
    """Make an opaque node id that encodes ``number``."""
    return prefix + "_kwDP" + base64.urlsafe_b64encode(number.to_bytes(8, "big")).decode().rstrip("=")


def account(base: str, login: str, number: int, kind: str) -> Json:
    """A user or organization as it appears inside other objects."""
    url, site = f"{base}/users/{login}", website(base)
    return {
        "login": login,
        "id": number,
        "node_id": node_id("O" if kind == "Organization" else "U", number),
        "avatar_url": avatar(base, number),
        "gravatar_id": "",
        "url": url,
        "html_url": f"{site}/{login}",
        "followers_url": f"{url}/followers",
        "following_url": f"{url}/following{{/other_user}}",
        "gists_url": f"{url}/gists{{/gist_id}}",
        "starred_url": f"{url}/starred{{/owner}}{{/repo}}",
        "subscriptions_url": f"{url}/subscriptions",
        "organizations_url": f"{url}/orgs",
        "repos_url": f"{url}/repos",
        "events_url": f"{url}/events{{/privacy}}",
        "received_events_url": f"{url}/received_events",
        "type": kind,
        "site_admin": False,
    }


def website(base: str) -> str:
    """Where people look, for the API's ``base``."""
    return base.removesuffix("/api/v3")


def avatar(base: str, number: int) -> str:
    """The picture of an account; nothing is served there."""
    return f"{website(base)}/avatars/u/{number}?v=4"


def organization_json(base: str, login: str) -> Json:
    """The organization of a delivery."""
    url = f"{base}/orgs/{login}"
    return {
        "login": login,
        "id": ACCOUNT_ID,
        "node_id": node_id("O", ACCOUNT_ID),
        "url": url,
        "repos_url": f"{url}/repos",
        "events_url": f"{url}/events",
        "hooks_url": f"{url}/hooks",
        "issues_url": f"{url}/issues",
        "members_url": f"{url}/members{{/member}}",
        "public_members_url": f"{url}/public_members{{/member}}",
        "avatar_url": avatar(base, ACCOUNT_ID),
        "description": "Invented organization of a forge look-alike",
    }


def repository_json(base: str, repository: Repository) -> Json:
    """A repository."""
    url = f"{base}/repos/{repository.full_name}"
    page = f"{website(base)}/{repository.full_name}"
    host = page.partition("://")[2]
    return {
        **_short_repository(base, repository),
        "owner": account(base, repository.owner, ACCOUNT_ID, "Organization"),
        **{key: url + tail for key, tail in _REPOSITORY_URLS.items()},
        "created_at": "2025-02-03T09:11:40Z",
        "updated_at": "2026-11-28T17:02:11Z",
        "pushed_at": stamp(repository.pushed_at),
        "git_url": f"git://{host}.git",
        "ssh_url": f"ssh://git@{host}.git",
        "clone_url": f"{page}.git",
        "svn_url": page,
        "homepage": None,
        "size": 0,
        "stargazers_count": 0,
        "watchers_count": 0,
        "language": "Python",
        "has_issues": True,
        "has_projects": True,
        "has_downloads": True,
        "has_wiki": True,
        "has_pages": False,
        "forks_count": repository.forks,
        "mirror_url": None,
        "archived": repository.archived,
        "disabled": repository.disabled,
        "open_issues_count": 0,
        "license": None,
        "forks": repository.forks,
        "open_issues": 0,
        "watchers": 0,
        "default_branch": BRANCH,
        "is_template": False,
        "topics": [],
        "visibility": "private" if repository.private else "public",
        "web_commit_signoff_required": False,
        "custom_properties": {},
        "allow_forking": False,
        "has_discussions": False,
    }


def _short_repository(base: str, repository: Repository) -> Json:
    """What names a repository; all that a run shows of it here."""
    return {
        "id": repository.id,
        "node_id": node_id("R", repository.id),
        "name": repository.name,
        "full_name": repository.full_name,
        "private": repository.private,
        "html_url": f"{website(base)}/{repository.full_name}",
        "description": "Invented repository of a forge look-alike",
        "fork": False,
        "url": f"{base}/repos/{repository.full_name}",
    }


def job_json(base: str, job: Job) -> Json:
    """A job, as both REST and deliveries show it.

    Between the assignment and the worker's report it still reads ``queued`` without a runner (github.md,
    section 13). A job cancelled before it had a runner shows ``0`` and ``""`` (section 10.1).
    """
    repo = f"{base}/repos/{job.run.repository.full_name}"
    page = f"{website(base)}/{job.run.repository.full_name}/actions/runs/{job.run.id}"
    runner_id, runner_name = job.shown_runner or (None, None)
    group: tuple[int | None, str | None] = (1, "Default") if job.shown_runner else (None, None)
    if job.ended and job.shown_runner is None and job.conclusion != "skipped":
        runner_id, runner_name, group = 0, "", (0, "")
    return {
        "id": job.id,
        "run_id": job.run.id,
        "workflow_name": job.run.name,
        "head_branch": job.run.branch,
        "run_url": f"{repo}/actions/runs/{job.run.id}",
        "run_attempt": job.attempt,
        "node_id": node_id("CR", job.id),
        "head_sha": SHA,
        "url": f"{repo}/actions/jobs/{job.id}",
        "html_url": f"{page}/job/{job.id}",
        "status": job.status.value,
        "conclusion": job.conclusion,
        "created_at": stamp(job.created_at),
        "started_at": stamp(job.started_at or job.created_at),
        "completed_at": stamp(job.completed_at),
        "name": job.name,
        "steps": _steps(job),
        "check_run_url": f"{repo}/check-runs/{job.id}",
        "labels": list(job.labels),
        "runner_id": runner_id,
        "runner_name": runner_name,
        "runner_group_id": group[0],
        "runner_group_name": group[1],
    }


def _steps(job: Job) -> list[Json]:
    """The steps: none until a runner reported, then two that follow the job's state."""
    if job.shown_runner is None:
        return []
    started, ended = stamp(job.started_at), stamp(job.completed_at)
    return [
        {
            "name": "Set up job",
            "status": "completed",
            "conclusion": "success",
            "number": 1,
            "started_at": started,
            "completed_at": started,
        },
        {
            "name": "Build",
            "status": "completed" if job.ended else "in_progress",
            "conclusion": job.conclusion,
            "number": 2,
            "started_at": started,
            "completed_at": ended,
        },
    ]


def run_status(run: Run) -> tuple[str, str | None]:
    """Derive a run's status and conclusion from the jobs of its latest attempt (github.md, section 5)."""
    jobs = run.latest()
    states = {job.status for job in jobs}
    if states == {JobStatus.COMPLETED}:
        conclusions = {job.conclusion for job in jobs}
        for worst in ("failure", "timed_out", "cancelled"):
            if worst in conclusions:
                return "completed", worst
        return "completed", "success"
    if JobStatus.IN_PROGRESS in states or JobStatus.COMPLETED in states:
        return "in_progress", None
    first = next(one for one in (JobStatus.QUEUED, JobStatus.WAITING, JobStatus.PENDING) if one in states)
    return first.value, None


def _updated(run: Run) -> float:
    """When something happened to a run last: to one of its jobs [unv]."""
    moments = [(job.created_at, job.started_at, job.completed_at) for job in run.jobs]
    return max((one for three in moments for one in three if one is not None), default=run.created_at)


def run_json(base: str, run: Run) -> Json:
    """A workflow run, without the embedded objects that nobody needs here."""
    repo = f"{base}/repos/{run.repository.full_name}"
    url, suite = f"{repo}/actions/runs/{run.id}", check_suite(run)
    actor = account(base, ACTOR, SENDER_ID, "User")
    status, conclusion = run_status(run)
    return {
        "id": run.id,
        "name": run.name,
        "node_id": node_id("WFR", run.id),
        "check_suite_id": suite,
        "check_suite_node_id": node_id("CS", suite),
        "head_branch": run.branch,
        "head_sha": SHA,
        "path": ".github/workflows/ci.yml",
        "display_title": "Invented commit",
        "run_number": run.id % 100_000,
        "run_attempt": run.attempt,
        "event": EVENT,
        "status": status,
        "conclusion": conclusion,
        "workflow_id": 1,
        "workflow_url": f"{repo}/actions/workflows/1",
        "url": url,
        "html_url": f"{website(base)}/{run.repository.full_name}/actions/runs/{run.id}",
        "jobs_url": f"{url}/jobs",
        "cancel_url": f"{url}/cancel",
        "rerun_url": f"{url}/rerun",
        "check_suite_url": f"{repo}/check-suites/{suite}",
        "pull_requests": [],
        "created_at": stamp(run.created_at),
        "updated_at": stamp(_updated(run)),
        "run_started_at": stamp(run.created_at),
        "actor": actor,
        "triggering_actor": actor,
        "repository": _short_repository(base, run.repository),
        "head_repository": _head_repository(base, run),
    }


def _head_repository(base: str, run: Run) -> Json | None:
    """Where the commit of a run is from; null where that repository was deleted."""
    if not run.fork:
        return _short_repository(base, run.repository)
    if run.fork == "deleted":
        return None
    shown = _short_repository(base, run.repository)
    number = zlib.crc32(run.fork.encode()) + 1_000_000_000
    return shown | {"id": number, "full_name": run.fork, "name": run.fork.partition("/")[2], "fork": True}


def check_suite(run: Run) -> int:
    """The id of the check suite of a run."""
    return run.id + 20_000_000_000


def runner_json(runner: Runner, *, online: bool, busy: bool) -> Json:
    """A runner: labels lower-cased and read-only, ``os`` unreliable, ``version`` null until it connected."""
    return {
        "id": runner.id,
        "name": runner.name,
        "os": "linux" if runner.version else "unknown",
        "status": "online" if online else "offline",
        "busy": busy,
        "ephemeral": True,
        "runner_group_id": runner.group_id,
        "version": runner.version,
        "labels": [
            {"id": 0, "name": name, "type": "read-only"}
            for name in sorted({label.lower() for label in runner.labels}, reverse=True)
        ],
    }


def delivery_body(base: str, job: Job, action: str, installation: int | None = None) -> bytes:
    """The raw bytes of one ``workflow_job`` delivery (github.md, section 10.2), of an App's hook with the
    installation that it is for."""
    repository = job.run.repository
    payload = {
        "action": action,
        "workflow_job": job_json(base, job),
        "repository": repository_json(base, repository),
        "organization": organization_json(base, repository.owner),
        "sender": {**account(base, ACTOR, SENDER_ID, "User"), "user_view_type": "public"},
    }
    if installation is not None:
        payload["installation"] = {"id": installation, "node_id": node_id("I", installation)}
    return json.dumps(payload, separators=(",", ":")).encode()


def hook_config_json(hook: Hook) -> Json:
    """Where a webhook leads; the secret is masked, as GitHub does."""
    return {
        "content_type": hook.content_type,
        "insecure_ssl": hook.insecure_ssl,
        "url": hook.url,
        **({"secret": "********"} if hook.secret else {}),
    }


def hook_json(base: str, hook: Hook) -> Json:
    """A webhook. That of a repository shows its latest answer, that of an organization does not."""
    url = f"{base}{hook.path}"
    last = hook.deliveries[-1] if hook.deliveries else None
    shown: Json = {
        "type": hook.kind.capitalize(),
        "id": hook.id,
        "name": "web",
        "active": hook.active,
        "events": list(hook.events),
        "config": hook_config_json(hook),
        "created_at": stamp(hook.created_at),
        "updated_at": stamp(hook.created_at),
        "url": url,
        "ping_url": f"{url}/pings",
        "deliveries_url": f"{url}/deliveries",
    }
    if hook.kind == "repository":
        shown["test_url"] = f"{url}/test"
        shown["last_response"] = {
            "code": last.status_code if last else None,
            "status": last.status if last else "unused",
            "message": None,
        }
    return shown


def delivery_json(delivery: Delivery, *, full: bool) -> Json:
    """A delivery as listed, or with request and response (github.md, section 11)."""
    at = datetime.fromtimestamp(delivery.delivered_at or 0, UTC)
    item: Json = {
        "id": delivery.id,
        "guid": delivery.guid,
        "delivered_at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "redelivery": delivery.redelivery,
        "duration": round(delivery.duration, 2),
        "status": delivery.status,
        "status_code": delivery.status_code,
        "event": delivery.event,
        "action": delivery.action,
        "installation_id": delivery.installation_id,
        "repository_id": delivery.repository_id,
        "throttled_at": None,
    }
    if full:
        item["url"] = delivery.hook.url
        item["request"] = {"headers": delivery.request_headers, "payload": json.loads(delivery.body)}
        item["response"] = {"headers": delivery.response_headers, "payload": delivery.response_body}
    return item
