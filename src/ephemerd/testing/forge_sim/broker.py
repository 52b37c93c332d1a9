"""What the runner application talks to: sessions, the long poll, taking a job, renewing it, ending it.

Modelled on runner.md, sections 5, 7 and 10. The paths and bodies are our own (nobody but the fake runner calls
them); the order of calls and what each refusal leads to are the real ones. All delays of the weather are spent
here, before an answer, so that the fake runner needs to know none of them:

==================================  ===================================================================
POST   /_broker/session             answered after ``boot``
GET    /_broker/message             long poll; 204 after a while, 404 RunnerNotFound for the deregistered, 400
                                    RunnerVersionTooOld for a version that is refused
POST   /_broker/acknowledge         answered after ``acknowledge``
POST   /_run/acquirejob             answered after ``acquire``; from then on the job is the runner's
POST   /_run/renewjob               the first one is answered after ``spawn``: no worker before it succeeded
POST   /_run/started                from the worker, answered after ``report``
POST   /_run/completejob            from the worker, or from the listener whose worker crashed
DELETE /_broker/session             answered after ``wind_down`` if there was a job, else after ``stop``
GET    /_broker/lifeline            stays open as long as the process lives, so that the truth log knows
==================================  ===================================================================
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ephemerd.testing.forge_sim.model import Fault, Offer, Runner
from ephemerd.testing.forge_sim.offers import RENEW_EVERY_S, Offers
from ephemerd.testing.forge_sim.payloads import RUNNER_VERSION
from ephemerd.testing.forge_sim.world import Refused, World
from ephemerd.testing.weather import Spread

POLL_S = 50.0
"""How long a poll stays open without a message [src]. Not scaled: it is a matter of the connection, and a runner
that was deregistered learns of it only when its poll ends."""

Handler = Callable[[Request, Runner], Awaitable[Response]]


class Broker:
    """The endpoints for runners."""

    def __init__(self, world: World, offers: Offers) -> None:
        self.world = world
        self.offers = offers
        self._known: dict[str, Runner] = {}

    def routes(self) -> list[Route]:
        """The routes of this module."""
        table: list[tuple[str, str, Handler]] = [
            ("POST", "/_broker/session", self.open_session),
            ("DELETE", "/_broker/session", self.close_session),
            ("GET", "/_broker/message", self.message),
            ("POST", "/_broker/acknowledge", self.acknowledge),
            ("GET", "/_broker/lifeline", self.lifeline),
            ("POST", "/_run/acquirejob", self.acquire),
            ("POST", "/_run/renewjob", self.renew),
            ("POST", "/_run/started", self.started),
            ("POST", "/_run/completejob", self.complete),
        ]
        return [Route(path, self._endpoint(handler), methods=[method]) for method, path, handler in table]

    def _endpoint(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                return await handler(request, self._runner(request))
            except Refused as refusal:
                return _json({"error": refusal.message}, refusal.status)

        return answer

    def _runner(self, request: Request) -> Runner:
        """The runner whose credential the call bears, also after its registration is gone."""
        secret = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        if secret not in self._known:
            self._known = {runner.secret: runner for runner in self.world.runners.values()}
        if secret not in self._known:
            raise Refused(401, "Unauthorized")
        return self._known[secret]

    async def _pause(self, spread: Spread, request: Request) -> bool:
        """Spend a delay of the weather; return False if the caller went away meanwhile."""
        delay = spread.draw(self.world.rng("runners"))
        gone = await _gone_within(request, delay)
        return not gone

    # Sessions

    async def open_session(self, request: Request, runner: Runner) -> Response:
        """Connect: 201; 401 when the registration is gone; 409 while another session is open."""
        body = await _body(request)
        if not runner.registered:
            raise Refused(401, "invalid_client")
        if runner.session is not None and runner.listener_alive:
            raise Refused(409, "TaskAgentSessionConflict")
        if not await self._pause(self.world.weather.boot, request):
            return Response(status_code=499)
        if not runner.registered:
            raise Refused(401, "invalid_client")
        runner.session = f"{self.world.rng('sessions').getrandbits(128):032x}"
        runner.pid = int(body.get("pid", 0))
        runner.version = str(body.get("version", RUNNER_VERSION))
        runner.listener_alive = True
        runner.last_poll_mono = asyncio.get_running_loop().time()
        self.world.truth.add("runner_online", runner=runner.name, pid=runner.pid)
        if Fault.EXIT_WITHOUT_JOB in runner.faults:
            soon = self.world.rng("faults").uniform(0.0, self.world.seconds(60.0))
            self.world.later(soon, lambda: self._send_away(runner))
        if Fault.STOP_IGNORED in runner.faults:
            self.world.misbehaved(runner, Fault.STOP_IGNORED)
        self.world.on_change()
        answer = {"session": runner.session, "ignore_stop": Fault.STOP_IGNORED in runner.faults}
        return _json(answer, 201)

    def _send_away(self, runner: Runner) -> None:
        """The forge removes an idle runner, which then leaves with code 0 (actions/runner#4726)."""
        if runner.offer is None and runner.registered and not runner.spent:
            self.world.misbehaved(runner, Fault.EXIT_WITHOUT_JOB)
            runner.messages.put_nowait({"type": "Gone"})
            self.world.drop_registration(runner, "expired")

    async def close_session(self, request: Request, runner: Runner) -> Response:
        """End the session: an idle runner stays registered, one that had its job is removed."""
        had_job = runner.offer is not None and runner.offer.acquired
        weather = self.world.weather
        if await self._pause(weather.wind_down if had_job else weather.stop, request):
            self.offers.session_ended(runner)
        return Response(status_code=204)

    async def lifeline(self, request: Request, runner: Runner) -> Response:
        """Hold a connection open for as long as the process lives."""
        offer_id, pid = request.query_params.get("offer"), int(request.query_params.get("pid", "0"))
        offer = self.offers.get(offer_id) if offer_id else None
        if offer is not None:
            self.offers.worker_started(offer, pid)

        async def stream() -> AsyncIterator[bytes]:
            yield b"\n"
            closing = asyncio.ensure_future(self.world.closing.wait())
            left = asyncio.ensure_future(_disconnected(request))
            try:
                await asyncio.wait({left, closing}, return_when="FIRST_COMPLETED")
            finally:
                left.cancel()
                closing.cancel()
                if not self.world.closing.is_set():
                    self._process_ended(runner, offer)

        return _Open(stream())

    def _process_ended(self, runner: Runner, offer: Offer | None) -> None:
        if offer is None:
            self.offers.listener_gone(runner)
        else:
            self.offers.worker_gone(offer)

    # The poll

    async def message(self, request: Request, runner: Runner) -> Response:
        """Wait for a message; with ``status=Online`` the runner may be given a job."""
        if runner.session is None or request.query_params.get("session") != runner.session:
            raise Refused(410, "RunnerSessionInvalid")
        if self.world.applications.refuses(runner.version or RUNNER_VERSION):
            self.world.truth.add("version_refused", runner=runner.name, version=runner.version)
            raise Refused(400, "RunnerVersionTooOld")
        loop = asyncio.get_running_loop()
        runner.polling, runner.last_poll_mono = True, loop.time()
        self.world.on_change()
        try:
            message = await self._next_message(request, runner)
        finally:
            runner.polling, runner.last_poll_mono = False, loop.time()
        if message is not None:
            return _json(self._deliver(runner, message))
        if not runner.registered and runner.gone_by != "ghost" and runner.offer is None:
            raise Refused(404, "RunnerNotFound")
        return Response(status_code=204)

    async def _next_message(self, request: Request, runner: Runner) -> dict[str, Any] | None:
        """The next message, or None after a while or when the caller went away (a message then stays)."""
        if not runner.messages.empty():
            return runner.messages.get_nowait()
        if not runner.registered and runner.gone_by != "ghost":
            return None
        coming = asyncio.ensure_future(runner.messages.get())
        left = asyncio.ensure_future(_disconnected(request))
        closing = asyncio.ensure_future(self.world.closing.wait())
        try:
            await asyncio.wait({coming, left, closing}, timeout=POLL_S, return_when="FIRST_COMPLETED")
            return coming.result() if coming.done() else None
        finally:
            for task in (coming, left, closing):
                task.cancel()

    def _deliver(self, runner: Runner, message: dict[str, Any]) -> dict[str, Any]:
        if message["type"] == "Gone":
            raise Refused(404, "RunnerNotFound")
        if message["type"] == "TooOld":
            raise Refused(400, "RunnerVersionTooOld")
        return message

    # One job

    def _offer(self, body: dict[str, Any], runner: Runner) -> Offer:
        offer = self.offers.get(str(body.get("offer", "")))
        if offer.runner is not runner:
            raise Refused(404, "JobRequestNotFound")
        return offer

    async def acknowledge(self, request: Request, runner: Runner) -> Response:
        """The listener got the offer."""
        body = await _body(request)
        self._offer(body, runner)
        if await self._pause(self.world.weather.acknowledge, request):
            self.offers.acknowledge(self._offer(body, runner))
        return _json({})

    async def acquire(self, request: Request, runner: Runner) -> Response:
        """The listener takes the job; the answer is the job message."""
        body = await _body(request)
        offer = self._offer(body, runner)
        if Fault.HANG in runner.faults:
            self.world.misbehaved(runner, Fault.HANG)
            runner.spent = True
            await _disconnected(request)
            return Response(status_code=499)
        if not await self._pause(self.world.weather.acquire, request):
            return Response(status_code=499)
        offer = self._offer(body, runner)
        self.offers.acquire(offer)
        faults = [fault for fault in _IN_MID_JOB if fault in runner.faults]
        for fault in faults:
            self.world.misbehaved(runner, fault)
        return _json(
            {
                "offer": offer.id,
                "job": str(offer.job.id),
                "name": offer.job.name,
                "seconds": offer.job.duration_s,
                "conclusion": offer.job.wanted,
                "renew_every": self.world.seconds(RENEW_EVERY_S),
                "faults": [fault.value for fault in faults],
            }
        )

    async def renew(self, request: Request, runner: Runner) -> Response:
        """Extend the lease; the first call is answered only after the weather's ``spawn``."""
        body = await _body(request)
        self.offers.renew(self._offer(body, runner))
        if body.get("first") and not await self._pause(self.world.weather.spawn, request):
            return Response(status_code=499)
        return _json({})

    async def started(self, request: Request, runner: Runner) -> Response:
        """The worker reports its start."""
        offer = self._offer(await _body(request), runner)
        if await self._pause(self.world.weather.report, request):
            self.offers.in_progress(offer)
        return _json({})

    async def complete(self, request: Request, runner: Runner) -> Response:
        """The job is over."""
        body = await _body(request)
        offer = self._offer(body, runner)
        if offer.job.ended:
            raise Refused(404, "JobNotFound")
        self.offers.complete(offer, str(body["conclusion"]), str(body["reason"]))
        return _json({})


_IN_MID_JOB = (Fault.WEDGED_WORKER, Fault.LISTENER_DIES, Fault.LEAVE_DAEMON, Fault.COMPLETED_EARLY)


class _Open(StreamingResponse):
    """A streamed answer that leaves watching for the disconnect to somebody else."""

    async def listen_for_disconnect(self, receive: Any) -> None:
        """Do nothing: the stream itself reads the receive channel."""
        await asyncio.Event().wait()


async def _disconnected(request: Request) -> None:
    """Return when the caller has closed its connection. The request's body has to be read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _gone_within(request: Request, seconds: float) -> bool:
    """Wait so long; return True early if the caller goes away."""
    try:
        await asyncio.wait_for(_disconnected(request), seconds)
    except TimeoutError:
        return False
    return True


async def _body(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.body() or b"{}")
    except ValueError:
        raise Refused(400, "not JSON") from None
    return body if isinstance(body, dict) else {}


def _json(body: dict[str, Any], status: int = 200) -> Response:
    return Response(json.dumps(body), status, {"content-type": "application/json"})
