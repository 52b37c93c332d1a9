"""Webhooks: signed deliveries with delay, loss, duplication and reordering, and the list of what was tried.

Rules of github.md, sections 9 and 11: an answer after 10 s is a failure, nothing is repeated unasked, a
redelivery keeps its GUID, and failed deliveries stay listed with their payload.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import json
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from ephemerd.testing.forge_sim import payloads
from ephemerd.testing.forge_sim.apps import App
from ephemerd.testing.forge_sim.companies import Company
from ephemerd.testing.forge_sim.http_post import PostError, post
from ephemerd.testing.forge_sim.model import Delivery, Hook, Job, Repository
from ephemerd.testing.forge_sim.world import Refused, World

ANSWER_WITHIN_S = 10.0
KEPT_PER_HOOK = 20_000
MAX_HOOKS = 20
"""Hooks of one repository or organization for one event [doc]."""


@dataclass(frozen=True, slots=True)
class _Held:
    job: Job
    action: str
    hook: Hook
    installation: int | None
    guid: str
    body: bytes


class Deliverer:
    """Announces jobs to the hooks of their repository, of its organization, and of the Apps installed there."""

    apps: Mapping[int, App]

    def __init__(self, world: World) -> None:
        self.world = world
        self.outage = False
        self.apps = {}
        self._holding: set[tuple[int, str]] = set()
        self._held: list[_Held] = []
        self._ids = itertools.count(70_000_000_001)
        self._hook_ids = itertools.count(400_000_001)

    # Hooks

    def add_hook(
        self,
        place: Repository | Company,
        url: str,
        *,
        secret: str,
        content_type: str = "json",
        events: tuple[str, ...] = ("workflow_job",),
        active: bool = True,
        insecure_ssl: str = "0",
    ) -> Hook:
        """Create a hook and send it the ping that GitHub sends at creation."""
        for event in events:
            if sum(event in hook.events for hook in place.hooks.values()) >= MAX_HOOKS:
                raise Refused(422, f"Validation Failed: {MAX_HOOKS} hooks at most for the event {event}")
        number, now = next(self._hook_ids), time.time()
        hook = Hook(number, url, secret, content_type, events, active, now, insecure_ssl)
        if isinstance(place, Repository):
            hook.target, hook.path = place.id, f"/repos/{place.full_name}/hooks/{number}"
        else:
            hook.kind, hook.target = "organization", payloads.ACCOUNT_ID
            hook.path = f"/orgs/{place.login}/hooks/{number}"
        place.hooks[hook.id] = hook
        self.ping(place, hook)
        return hook

    def ping(self, place: Repository | Company, hook: Hook) -> None:
        """Send a ``ping``."""
        base = self.world.base_url
        body = {
            "zen": "Keep it logically awesome.",
            "hook_id": hook.id,
            "hook": payloads.hook_json(base, hook),
        }
        if isinstance(place, Repository):
            body["repository"] = payloads.repository_json(base, place)
        else:
            body["organization"] = payloads.organization_json(base, place.login)
        delivery = self._new(hook, self._guid(), "ping", None, None, json.dumps(body).encode())
        delivery.repository_id = place.id if isinstance(place, Repository) else None
        self.world.spawn(self._send(delivery, 0.0))

    # Jobs

    def announce(self, job: Job, action: str, skew: float) -> None:
        """Send one ``workflow_job`` event to each hook that wants it, as the weather delays or loses it."""
        for hook, installation in self._wanting(job.run.repository):
            body = payloads.delivery_body(self.world.base_url, job, action, installation)
            if (job.id, action) in self._holding:
                guid = self._guid()
                self._held.append(_Held(job, action, hook, installation, guid, body))
                self.world.truth.add("delivery_held", guid=guid, action=action, job=job.id)
            else:
                self._schedule(_Held(job, action, hook, installation, self._guid(), body), skew)

    def _wanting(self, repository: Repository) -> Iterator[tuple[Hook, int | None]]:
        """Yield the hooks that are told of jobs of a repository; of an App's with the installation."""
        organization = self.world.company("org", repository.owner)
        for place in (repository, organization):
            if place is not None:
                yield from ((hook, None) for hook in place.hooks.values() if hook.wants("workflow_job"))
        for app in self.apps.values():
            if app.hook.wants("workflow_job"):
                heard = (one.id for one in app.installations.values() if one.hears_of(repository))
                yield from ((app.hook, number) for number in heard)

    def _schedule(self, told: _Held, skew: float) -> None:
        weather, rng = self.world.weather, self.world.rng("webhooks")
        job, guid, action = told.job, told.guid, told.action
        delivery = self._of_job(told)
        if job.prompt:
            self.world.spawn(self._send(delivery, 0.0))
            return
        delay = weather.webhook_delay.draw(rng) + skew
        late = weather.webhook_late.draw(rng)
        lost = rng.random() < weather.webhook_lost
        listed = rng.random() < 0.5
        twice = rng.random() < weather.webhook_duplicated
        if late is not None:
            delay += late
        if self.outage:
            delay += weather.webhook_late_in_outage.draw(rng)
        if lost:
            self.world.truth.add("delivery_lost", guid=guid, action=action, job=job.id, listed=listed)
            if listed:
                self._close(delivery, "timed out", 0, time.time(), ANSWER_WITHIN_S)
            return
        self.world.spawn(self._send(delivery, delay))
        if twice:
            again = self._of_job(told)
            self.world.spawn(self._send(again, delay + weather.webhook_delay.draw(rng)))

    # Holding back, for scripted acts

    def hold(self, job_ids: list[int], actions: list[str]) -> None:
        """Keep back the deliveries of these actions for these jobs until :meth:`release`."""
        self._holding |= {(job_id, action) for job_id in job_ids for action in actions}

    def release(self, job_ids: list[int] | None = None) -> int:
        """Send what was kept back (all, or of these jobs), in order; returns how many deliveries that were."""

        def chosen(job_id: int) -> bool:
            return job_ids is None or job_id in job_ids

        self._holding = {key for key in self._holding if not chosen(key[0])}
        going = [held for held in self._held if chosen(held.job.id)]
        self._held = [held for held in self._held if not chosen(held.job.id)]
        for held in going:
            self.world.spawn(self._send(self._of_job(held), 0.0))
        return len(going)

    # One attempt

    def redeliver(self, delivery: Delivery) -> Delivery:
        """Try a delivery again under its GUID."""
        again = self._new(
            delivery.hook, delivery.guid, delivery.event, delivery.action, delivery.job_id, delivery.body
        )
        again.redelivery = True
        again.repository_id, again.installation_id = delivery.repository_id, delivery.installation_id
        self.world.spawn(self._send(again, 0.0))
        return again

    def _guid(self) -> str:
        bits = self.world.rng("guids").getrandbits(128)
        return str(uuid.UUID(int=bits, version=1))

    def _of_job(self, told: _Held) -> Delivery:
        job = told.job
        delivery = self._new(told.hook, told.guid, "workflow_job", told.action, job.id, told.body)
        delivery.repository_id, delivery.installation_id = job.run.repository.id, told.installation
        return delivery

    def _new(
        self, hook: Hook, guid: str, event: str, action: str | None, job_id: int | None, body: bytes
    ) -> Delivery:
        return Delivery(next(self._ids), guid, hook, event, action, job_id, body)

    async def _send(self, delivery: Delivery, delay: float) -> None:
        await asyncio.sleep(delay)
        hook = delivery.hook
        if not hook.active:
            return
        body = delivery.body
        if hook.content_type != "json":
            body = b"payload=" + quote(body.decode()).encode()
        delivery.request_headers = self._headers(delivery, body)
        began, at = time.monotonic(), time.time()
        try:
            answer = await post(hook.url, delivery.request_headers, body, timeout=ANSWER_WITHIN_S)
        except PostError as error:
            self._close(delivery, error.status, 0, at, time.monotonic() - began)
        else:
            delivery.response_headers, delivery.response_body = answer.headers, answer.body
            good = 200 <= answer.status < 300
            text = "OK" if good else f"Invalid HTTP Response: {answer.status}"
            self._close(delivery, text, answer.status, at, time.monotonic() - began)
        self.world.truth.add(
            "delivery_sent",
            delivery=delivery.id,
            guid=delivery.guid,
            event=delivery.event,
            action=delivery.action,
            job=delivery.job_id,
            status=delivery.status_code,
            handling_ms=round(delivery.duration * 1000, 3),
            redelivery=delivery.redelivery,
        )

    def _close(self, delivery: Delivery, status: str, code: int, at: float, duration: float) -> None:
        delivery.status, delivery.status_code = status, code
        delivery.delivered_at, delivery.duration = at, duration
        kept = delivery.hook.deliveries
        kept.append(delivery)
        del kept[:-KEPT_PER_HOOK]

    def _headers(self, delivery: Delivery, body: bytes) -> dict[str, str]:
        """The headers of github.md, section 9.2; the signatures cover the body as it is sent."""
        hook = delivery.hook
        form = "application/x-www-form-urlencoded"
        headers = {
            "Accept": "*/*",
            "Content-Type": "application/json" if hook.content_type == "json" else form,
            "User-Agent": "GitHub-Hookshot/0000000",
            "X-GitHub-Delivery": delivery.guid,
            "X-GitHub-Event": delivery.event,
            "X-GitHub-Hook-ID": str(hook.id),
            "X-GitHub-Hook-Installation-Target-ID": str(hook.target),
            "X-GitHub-Hook-Installation-Target-Type": hook.kind,
        }
        if hook.secret:
            key = hook.secret.encode()
            headers["X-Hub-Signature"] = "sha1=" + hmac.new(key, body, hashlib.sha1).hexdigest()
            headers["X-Hub-Signature-256"] = "sha256=" + hmac.new(key, body, hashlib.sha256).hexdigest()
        return headers
