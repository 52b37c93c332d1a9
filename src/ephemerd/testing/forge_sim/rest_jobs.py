"""REST: repositories, runs and jobs, and the small endpoints around them (github.md, sections 1, 5 and 7)."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.routing import Route

from ephemerd.testing.forge_sim import payloads, run_filters
from ephemerd.testing.forge_sim.model import Job, Run
from ephemerd.testing.forge_sim.rest import Reply, Site, paged, route
from ephemerd.testing.forge_sim.world import Refused


def routes(site: Site) -> list[Route]:
    """The endpoints of this module."""
    repo = "/repos/{owner}/{repo}"
    runs = f"{repo}/actions/runs"
    return [
        *route(site, "GET", "/", root),
        *route(site, "GET", "/meta", meta),
        *route(site, "GET", "/rate_limit", rate_limit, free=True),
        *route(site, "GET", repo, get_repository, needs="metadata"),
        *route(site, "GET", runs, list_runs, needs="actions"),
        *route(site, "GET", f"{runs}/{{run_id:int}}", get_run, needs="actions"),
        *route(site, "GET", f"{runs}/{{run_id:int}}/jobs", list_jobs, needs="actions"),
        *route(
            site,
            "GET",
            f"{runs}/{{run_id:int}}/attempts/{{attempt:int}}/jobs",
            list_attempt_jobs,
            needs="actions",
        ),
        *route(site, "POST", f"{runs}/{{run_id:int}}/cancel", cancel_run, needs="actions"),
        *route(site, "POST", f"{runs}/{{run_id:int}}/force-cancel", cancel_run, needs="actions"),
        *route(site, "POST", f"{runs}/{{run_id:int}}/rerun", rerun_run, needs="actions"),
        *route(site, "POST", f"{runs}/{{run_id:int}}/rerun-failed-jobs", rerun_failed, needs="actions"),
        *route(site, "GET", f"{repo}/actions/jobs/{{job_id:int}}", get_job, needs="actions"),
        *route(site, "POST", f"{repo}/actions/jobs/{{job_id:int}}/rerun", rerun_job, needs="actions"),
    ]


async def root(request: Request, site: Site) -> Reply:
    """Name the entry points."""
    base = site.base(request)
    return Reply(
        200, {"current_user_url": f"{base}/user", "repository_url": f"{base}/repos/{{owner}}/{{repo}}"}
    )


async def meta(request: Request, site: Site) -> Reply:
    """Say what this is; ``installed_version`` is what a GHES shows."""
    return Reply(200, {"verifiable_password_authentication": False, "installed_version": "3.18.0"})


async def rate_limit(request: Request, site: Site) -> Reply:
    """Show the limits; free of charge. ``rate`` is gone in the newer API version [doc]."""
    core = request.state.grant.limits.resource()
    # Whether the JIT call draws on the second one is not known (github.md, section 18); here it does not.
    registration = {"limit": 10_000, "used": 0, "remaining": 10_000, "reset": core["reset"]}
    body = {"resources": {"core": core, "actions_runner_registration": registration}}
    if request.headers.get("x-github-api-version") != "2026-03-10":
        body["rate"] = core
    return Reply(200, body)


async def get_repository(request: Request, site: Site) -> Reply:
    """Get a repository."""
    return Reply(200, payloads.repository_json(site.base(request), site.repository(request)))


async def list_runs(request: Request, site: Site) -> Reply:
    """List runs, newest first, by the filters of :mod:`run_filters`."""
    runs = sorted(site.repository(request).runs.values(), key=lambda run: -run.id)
    runs = run_filters.chosen(runs, request.query_params)
    page, headers = paged(request, site, runs)
    shown = [payloads.run_json(site.base(request), run) for run in page]
    return Reply(200, {"total_count": len(runs), "workflow_runs": shown}, headers)


async def get_run(request: Request, site: Site) -> Reply:
    """Get one run."""
    return Reply(200, payloads.run_json(site.base(request), _run(request, site)))


async def list_jobs(request: Request, site: Site) -> Reply:
    """List the jobs of a run: of the latest attempt, or of all with ``filter=all``."""
    run = _run(request, site)
    return _jobs(request, site, run.jobs if request.query_params.get("filter") == "all" else run.latest())


async def list_attempt_jobs(request: Request, site: Site) -> Reply:
    """List the jobs of one attempt."""
    run, attempt = _run(request, site), request.path_params["attempt"]
    if not 1 <= attempt <= run.attempt:
        raise Refused(404, "Not Found")
    return _jobs(request, site, [job for job in run.jobs if job.attempt == attempt])


def _jobs(request: Request, site: Site, jobs: Sequence[Job]) -> Reply:
    page, headers = paged(request, site, jobs)
    shown = [payloads.job_json(site.base(request), job) for job in page]
    return Reply(200, {"total_count": len(jobs), "jobs": shown}, headers)


async def get_job(request: Request, site: Site) -> Reply:
    """Get one job."""
    return Reply(200, payloads.job_json(site.base(request), _job(request, site)))


async def cancel_run(request: Request, site: Site) -> Reply:
    """Cancel every job of a run that has not ended; 409 if all have."""
    open_jobs = [job for job in _run(request, site).latest() if not job.ended and job.foreign is None]
    if not open_jobs:
        raise Refused(409, "Cannot cancel a workflow run that is completed.")
    for job in open_jobs:
        site.offers.cancel(job)
    return Reply(202, {})


async def rerun_run(request: Request, site: Site) -> Reply:
    """Run all jobs of a run once more."""
    site.world.rerun(_run(request, site).latest())
    return Reply(201, {})


async def rerun_failed(request: Request, site: Site) -> Reply:
    """Run the failed and cancelled jobs of a run once more."""
    failed = [
        job for job in _run(request, site).latest() if job.conclusion in ("failure", "cancelled", "timed_out")
    ]
    if not failed:
        raise Refused(403, "This workflow run has no failed jobs")
    site.world.rerun(failed)
    return Reply(201, {})


async def rerun_job(request: Request, site: Site) -> Reply:
    """Run one job once more; only one of the current attempt [field]."""
    job = _job(request, site)
    if job not in job.run.latest():
        raise Refused(403, "This job is not of the latest attempt and cannot be rerun")
    site.world.rerun([job])
    return Reply(201, {})


def _run(request: Request, site: Site) -> Run:
    run = site.repository(request).runs.get(request.path_params["run_id"])
    if run is None:
        raise Refused(404, "Not Found")
    return run


def _job(request: Request, site: Site) -> Job:
    job = site.world.jobs.get(request.path_params["job_id"])
    if job is None or job.run.repository is not site.repository(request):
        raise Refused(404, "Not Found")
    return job
