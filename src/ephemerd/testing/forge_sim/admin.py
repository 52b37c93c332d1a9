"""The admin API: makes jobs appear, scripts acts, breaks things, and tells the truth. JSON in, JSON out.

===========================================  ==========================================================
POST /_admin/jobs                            queue ``count`` jobs: ``labels``, ``duration_s`` (real), ``conclusion``,
                                             ``name``, ``tag``, ``repository``, ``max_parallel``, ``waiting``,
                                             ``pending`` (by its concurrency group), ``held``, ``prompt``,
                                             ``one_run`` and ``pushed`` (default true)
                                             -> ``{"jobs": [ids], "runs": [ids]}``
POST /_admin/jobs/{id}/cancel                cancel it (at once if nobody acquired it)
POST /_admin/jobs/{id}/approve               let a waiting or pending one into the queue
POST /_admin/jobs/{id}/rerun                 run it once more -> ``{"jobs": [id]}``
POST /_admin/jobs/{id}/foreign               somebody else's ``runner`` takes it, for ``duration_s``
POST /_admin/jobs/{id}/hold, …/unhold        keep it from being assigned; let it be
POST /_admin/jobs/{id}/hide, …/reveal        let the forge be slow to show that it runs, in deliveries, jobs and
                                             busy flags (the fence knows); show it
POST /_admin/jobs/{id}/pin                   only ``runner`` (a name, or null) may have it
POST /_admin/permute                         ``made_for`` {runner name: job id} -> ``{"pinned": {…}}``,
                                             so that nobody gets its own
POST /_admin/assignment                      ``paused``: stop or resume handing out jobs
POST /_admin/deliveries/hold                 keep back ``actions`` (default in_progress) for ``jobs``
POST /_admin/deliveries/release              send what was kept back (``jobs``, default all) -> ``{"released": n}``
POST /_admin/hooks                           ``url``, ``secret`` (default: the one given at start), ``repository`` or
                                             ``organization``
POST /_admin/repositories                    ``name`` (owner/name), ``private``
POST /_admin/repositories/change             ``name``, and what becomes of it: ``archived``, ``disabled``, ``rename``
                                             (owner/name), ``remove``
POST /_admin/enterprises                     ``name``: an enterprise that holds every organization
POST /_admin/apps                            ``permissions`` (name to level), ``accounts``: make an App and install it;
                                             ``hook_url``, ``hook_secret`` and ``events`` (default workflow_job) set
                                             its hook up
                                             -> ``{"app_id", "client_id", "private_key", "installations"}``
POST /_admin/apps/revoke                     end every token of every installation
POST /_admin/faults                          ``fault``, for ``runner`` (a name) or for the next one registered
POST /_admin/spare                           ``spare``: let the weather break no runner registered from now on
POST /_admin/applications                    ``publish``: a version that is listed from now on; ``refuse_below``: older
                                             ones may not work any more ("" takes it back); ``checksum`` right, wrong
                                             or none; ``cut``, ``status``, ``seconds``, ``token``: how archives are
                                             served; ``systems``, ``deprecations``: what is known
                                             -> ``{"listed": version, "served": n}``
POST /_admin/outage                          ``kind`` (or null to end it), ``seconds``
GET  /_admin/truth?since=SEQ&kinds=a,b       JSON lines
GET  /_admin/outcomes                        counts, see outcomes.py
GET  /_admin/state                           jobs, runners, hooks and assignment as they are
GET  /_admin/wait?for=…&timeout=30           ``{"held": bool}``; ``for`` is one of
                                             ``jobs_ended``, ``jobs_assigned``, ``jobs_acquired``, ``jobs_started``
                                             (all of ``jobs``, default all there are), ``runners_listening``
                                             (``count``), ``no_runners`` (no registration is left)
===========================================  ==========================================================

There is no password: whoever can reach the port may use it, which is why the server binds to loopback. Calls
that a browser makes for a foreign page are refused.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ephemerd.testing.forge_sim.assignment import Assigner
from ephemerd.testing.forge_sim.companies import Company
from ephemerd.testing.forge_sim.model import Fault, Job, Repository, Runner
from ephemerd.testing.forge_sim.outcomes import outcomes
from ephemerd.testing.forge_sim.rest import Site
from ephemerd.testing.forge_sim.world import JobSpec, Refused
from ephemerd.testing.weather import OutageKind

MAX_WAIT_S = 120.0
Json = dict[str, Any]
Handler = Callable[[Request, Json], Awaitable[Json]]


class Admin:
    """The admin endpoints over one site."""

    def __init__(self, site: Site, assigner: Assigner, *, repository: str, webhook_secret: str) -> None:
        self.site = site
        self.world = site.world
        self.assigner = assigner
        self.default_repository = repository
        self.webhook_secret = webhook_secret

    def routes(self) -> list[Route]:
        """The routes of this module."""
        posts: dict[str, Handler] = {
            "/jobs": self.queue,
            "/jobs/{job_id:int}/cancel": self.cancel,
            "/jobs/{job_id:int}/approve": self.approve,
            "/jobs/{job_id:int}/rerun": self.rerun,
            "/jobs/{job_id:int}/foreign": self.foreign,
            "/jobs/{job_id:int}/hold": self.hold,
            "/jobs/{job_id:int}/unhold": self.unhold,
            "/jobs/{job_id:int}/hide": self.hide,
            "/jobs/{job_id:int}/reveal": self.reveal,
            "/jobs/{job_id:int}/pin": self.pin,
            "/permute": self.permute,
            "/assignment": self.assignment,
            "/deliveries/hold": self.hold_deliveries,
            "/deliveries/release": self.release_deliveries,
            "/hooks": self.add_hook,
            "/repositories": self.add_repository,
            "/repositories/change": self.change_repository,
            "/enterprises": self.add_enterprise,
            "/apps": self.add_app,
            "/apps/revoke": self.revoke_tokens,
            "/faults": self.fault,
            "/spare": self.spare,
            "/outage": self.outage,
            "/applications": self.applications,
        }
        gets: dict[str, Handler] = {"/outcomes": self.outcomes, "/state": self.state, "/wait": self.wait}
        return [
            *(Route("/_admin" + path, _endpoint(call), methods=["POST"]) for path, call in posts.items()),
            *(Route("/_admin" + path, _endpoint(call), methods=["GET"]) for path, call in gets.items()),
            Route("/_admin/truth", self.truth, methods=["GET"]),
        ]

    async def applications(self, request: Request, body: Json) -> Json:
        """Publish and refuse versions of the runner application, or serve them badly."""
        found = self.world.applications
        found.change(body)
        for runner in self.world.runners.values() if body.get("refuse_below") else ():
            waits = runner.polling and runner.offer is None
            if waits and runner.version is not None and found.refuses(runner.version):
                runner.messages.put_nowait({"type": "TooOld"})
        if body.get("publish") or body.get("refuse_below"):
            self.world.truth.add("applications", listed=found.listed, refused_below=found.refused_below)
        return {"listed": found.listed, "served": found.served}

    # Jobs

    async def queue(self, request: Request, body: Json) -> Json:
        """Queue jobs."""
        labels = body.get("labels")
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise Refused(422, "labels: a list of strings is needed")
        spec = JobSpec(
            labels=tuple(labels),
            duration_s=_number(body, "duration_s"),
            wanted=str(body.get("conclusion", "success")),
            waiting=bool(body.get("waiting")),
            pending=bool(body.get("pending")),
            held=bool(body.get("held")),
            prompt=bool(body.get("prompt")),
            tag=str(body.get("tag", "")),
            name=str(body.get("name", "")),
        )
        specs = [spec] * int(body.get("count", 1))
        if spec.name and len(specs) > 1:
            raise Refused(422, "name: only for a single job")
        repository = self._repository(body)
        limit = body.get("max_parallel")
        groups = [specs] if body.get("one_run", True) else [[one] for one in specs]
        whose = {"fork": str(body.get("fork", "")), "branch": str(body.get("branch", "main"))}
        pushed = bool(body.get("pushed", True))
        runs = [
            self.world.queue_run(repository, group, max_parallel=limit, pushed=pushed, **whose)
            for group in groups
        ]
        return {"runs": [run.id for run in runs], "jobs": [job.id for run in runs for job in run.jobs]}

    async def cancel(self, request: Request, body: Json) -> Json:
        """Cancel a job."""
        self.site.offers.cancel(self._job(request))
        return {}

    async def approve(self, request: Request, body: Json) -> Json:
        """Approve a waiting job."""
        self.world.approve(self._job(request))
        return {}

    async def rerun(self, request: Request, body: Json) -> Json:
        """Run a job once more."""
        return {"jobs": [job.id for job in self.world.rerun([self._job(request)])]}

    async def foreign(self, request: Request, body: Json) -> Json:
        """Let a foreign runner take a job."""
        name = str(body.get("runner", "somebody-elses-runner"))
        self.world.take_by_foreign(self._job(request), name, _number(body, "duration_s"))
        return {}

    async def hold(self, request: Request, body: Json) -> Json:
        """Keep a job from being assigned."""
        self._job(request).held = True
        return {}

    async def unhold(self, request: Request, body: Json) -> Json:
        """Let a job be assigned."""
        self._job(request).held = False
        self.world.on_change()
        return {}

    async def hide(self, request: Request, body: Json) -> Json:
        """Let the forge be slow to show that a job runs."""
        self.site.offers.hide(self._job(request))
        return {}

    async def reveal(self, request: Request, body: Json) -> Json:
        """Show that a job runs."""
        self.site.offers.reveal(self._job(request))
        return {}

    async def pin(self, request: Request, body: Json) -> Json:
        """Pin a job to a runner."""
        name = body.get("runner")
        self.assigner.pin(self._job(request), None if name is None else str(name))
        return {}

    async def permute(self, request: Request, body: Json) -> Json:
        """Pin jobs so that no runner gets the one it was made for."""
        made_for = {str(name): int(job) for name, job in dict(body.get("made_for", {})).items()}
        unknown = [job for job in made_for.values() if job not in self.world.jobs]
        if unknown:
            raise Refused(404, f"no such job: {unknown[0]}")
        pinned = self.assigner.permute(made_for)
        self.world.truth.add("admin", what="permuted", made_for=made_for, pinned=pinned)
        return {"pinned": pinned}

    async def assignment(self, request: Request, body: Json) -> Json:
        """Pause or resume."""
        paused = bool(body.get("paused"))
        self.world.truth.add("admin", what="assignment", paused=paused)
        if paused:
            self.assigner.pause()
        else:
            self.assigner.resume()
        return {"paused": paused}

    # Webhooks and scopes

    async def hold_deliveries(self, request: Request, body: Json) -> Json:
        """Keep deliveries back."""
        actions = [str(action) for action in body.get("actions", ["in_progress"])]
        self.site.deliverer.hold([int(job) for job in body.get("jobs", [])], actions)
        return {}

    async def release_deliveries(self, request: Request, body: Json) -> Json:
        """Send what was kept back."""
        jobs = body.get("jobs")
        return {"released": self.site.deliverer.release(None if jobs is None else [int(job) for job in jobs])}

    async def add_hook(self, request: Request, body: Json) -> Json:
        """Create a hook."""
        url = body.get("url")
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise Refused(422, "url: an http or https URL is needed")
        secret = str(body.get("secret", self.webhook_secret))
        place: Repository | Company | None = None
        if "organization" in body:
            place = self.world.company("org", str(body["organization"]), create=True)
        return {"id": self.site.deliverer.add_hook(place or self._repository(body), url, secret=secret).id}

    async def add_repository(self, request: Request, body: Json) -> Json:
        """Create a repository."""
        name = str(body.get("name", ""))
        if name.count("/") != 1 or not all(name.split("/")):
            raise Refused(422, "name: owner/name is needed")
        return {"id": self.world.add_repository(name, private=bool(body.get("private", True))).id}

    async def change_repository(self, request: Request, body: Json) -> Json:
        """Archive, disable, rename or remove a repository."""
        repository = self._repository({"repository": body.get("name", "")})
        repository.archived = bool(body.get("archived", repository.archived))
        repository.disabled = bool(body.get("disabled", repository.disabled))
        if "rename" in body:
            name = str(body["rename"])
            if name.count("/") != 1 or not all(name.split("/")) or name.lower() in self.world.repositories:
                raise Refused(422, "rename: owner/name is needed, which no other has")
            self.world.rename_repository(repository, name)
        if body.get("remove"):
            self.world.remove_repository(repository)
        return {}

    async def add_enterprise(self, request: Request, body: Json) -> Json:
        """Create an enterprise."""
        name = body.get("name")
        if not isinstance(name, str) or not name:
            raise Refused(422, "name: a text is needed")
        self.world.company("enterprise", name, create=True)
        return {}

    async def add_app(self, request: Request, body: Json) -> Json:
        """Make an App and install it on accounts."""
        permissions, accounts = body.get("permissions", {}), body.get("accounts", [])
        if not isinstance(permissions, dict) or not isinstance(accounts, list):
            raise Refused(422, "permissions: an object, accounts: a list is needed")
        given = {str(name): str(level) for name, level in permissions.items()}
        app, key = self.site.apps.create(given, tuple(str(account) for account in accounts))
        hook = app.hook
        hook.url, hook.content_type = str(body.get("hook_url", "")), "json"
        hook.secret = str(body.get("hook_secret", self.webhook_secret))
        hook.events = tuple(str(event) for event in body.get("events", ["workflow_job"]))
        installed = {one.account: one.id for one in app.installations.values()}
        return {
            "app_id": app.id,
            "client_id": app.client_id,
            "private_key": key,
            "installations": installed,
        }

    async def revoke_tokens(self, request: Request, body: Json) -> Json:
        """End the tokens of all installations."""
        self.site.apps.tokens.clear()
        return {}

    # Things that go wrong

    async def fault(self, request: Request, body: Json) -> Json:
        """Give a runner a fault."""
        try:
            fault = Fault(str(body.get("fault")))
        except ValueError:
            raise Refused(422, f"fault: one of {', '.join(Fault)}") from None
        name = body.get("runner")
        if name is None:
            self.world.faults_for_next.append((fault, "admin"))
        else:
            self._runner(str(name)).faults[fault] = "admin"
        return {}

    async def spare(self, request: Request, body: Json) -> Json:
        """Spare the runners of a scripted act, or no more."""
        self.world.sparing = bool(body.get("spare"))
        self.world.truth.add("admin", what="spare", spare=self.world.sparing)
        return {"spare": self.world.sparing}

    async def outage(self, request: Request, body: Json) -> Json:
        """Begin or end an outage of REST."""
        kind = body.get("kind")
        if kind is None:
            self.site.outages.end()
        elif kind in get_args(OutageKind):
            self.site.outages.begin(kind, float(body.get("seconds", 5.0)))
        else:
            raise Refused(422, f"kind: one of {', '.join(get_args(OutageKind))}")
        return {}

    # Looking

    async def truth(self, request: Request) -> Response:
        """The truth log as JSON lines."""
        kinds = request.query_params.get("kinds")
        chosen = frozenset(kinds.split(",")) if kinds else None
        since = int(request.query_params.get("since", "0"))
        text = "".join(self.world.truth.lines(since, chosen))
        return Response(text, headers={"content-type": "application/x-ndjson"})

    async def outcomes(self, request: Request, body: Json) -> Json:
        """Count what happened so far."""
        return outcomes(self.world.truth.records)

    async def state(self, request: Request, body: Json) -> Json:
        """Show what there is."""
        return {
            "paused": self.assigner.paused,
            "outage": self.site.outages.kind,
            "jobs": [_job_state(job) for job in self.world.jobs.values()],
            "runners": [self._runner_state(r) for r in self.world.runners.values() if r.registered],
            "hooks": [h.url for p in self.world.places() for h in p.hooks.values()],
        }

    def _runner_state(self, runner: Runner) -> Json:
        held = runner.holds
        return {
            "id": runner.id,
            "name": runner.name,
            "labels": list(runner.labels),
            "online": self.world.online(runner),
            "listening": runner.polling and held is None,
            "pid": runner.pid,
            "job": held.id if held else None,
            "worker_pid": runner.offer.worker_pid if runner.offer else None,
        }

    async def wait(self, request: Request, body: Json) -> Json:
        """Wait until a condition holds."""
        query = request.query_params
        wanted = (
            [int(job) for job in query["jobs"].split(",")] if query.get("jobs") else list(self.world.jobs)
        )
        jobs = [self.world.jobs[job] for job in wanted if job in self.world.jobs]
        count = int(query.get("count", "1"))
        conditions: dict[str, Callable[[], bool]] = {
            "jobs_ended": lambda: all(job.ended for job in jobs),
            "jobs_assigned": lambda: all(job.ended or job.offer for job in jobs),
            "jobs_acquired": lambda: all(job.ended or (job.offer and job.offer.acquired) for job in jobs),
            "jobs_started": lambda: all(job.ended or (job.offer and job.offer.worker_pid) for job in jobs),
            "runners_listening": lambda: self._listening() >= count,
            "no_runners": lambda: not any(runner.registered for runner in self.world.runners.values()),
        }
        condition = conditions.get(query.get("for", ""))
        if condition is None:
            raise Refused(422, f"for: one of {', '.join(conditions)}")
        timeout = min(float(query.get("timeout", "30")), MAX_WAIT_S)
        return {"held": await self.world.truth.wait_until(condition, timeout)}

    def _listening(self) -> int:
        runners = self.world.runners.values()
        return sum(1 for r in runners if r.registered and r.session and r.holds is None and r.listener_alive)

    # Finding things

    def _job(self, request: Request) -> Job:
        try:
            return self.world.jobs[request.path_params["job_id"]]
        except KeyError:
            raise Refused(404, f"no such job: {request.path_params['job_id']}") from None

    def _runner(self, name: str) -> Runner:
        for runner in self.world.runners.values():
            if runner.name == name and runner.registered:
                return runner
        raise Refused(404, f"no such runner: {name}")

    def _repository(self, body: Json) -> Repository:
        name = str(body.get("repository", self.default_repository))
        try:
            return self.world.repositories[name.lower()]
        except KeyError:
            raise Refused(404, f"no such repository: {name}") from None


def _job_state(job: Job) -> Json:
    offer = job.offer
    return {
        "id": job.id,
        "run": job.run.id,
        "name": job.name,
        "labels": list(job.labels),
        "tag": job.tag,
        "status": job.status.value,
        "conclusion": job.conclusion,
        "runner": offer.runner.name if offer else job.foreign,
        "acquired": bool(offer and offer.acquired),
        "worker_pid": offer.worker_pid if offer else None,
        "worker_alive": bool(offer and offer.worker_alive),
        "held": job.held,
        "pinned": job.pinned,
    }


def _number(body: Json, key: str) -> float | None:
    value = body.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise Refused(422, f"{key}: a number of seconds is needed")
    return float(value)


def _endpoint(call: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        status = 200
        try:
            if "origin" in request.headers:
                raise Refused(403, "not for browsers")
            body = json.loads(await request.body() or b"{}")
            if not isinstance(body, dict):
                raise Refused(400, "a JSON object is needed")
            result = await call(request, body)
        except Refused as refusal:
            status, result = refusal.status, {"error": refusal.message}
        except (ValueError, TypeError, KeyError) as error:
            status, result = 422, {"error": f"{type(error).__name__}: {error}"}
        return Response(json.dumps(result), status, {"content-type": "application/json"})

    return answer
