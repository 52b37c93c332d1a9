"""Deliveries on their way in: what is counted, what is stored, what is refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping

import pytest

from ephemerd.app import intake as module
from ephemerd.app.inbox import Fate, Inbox, Receipt
from ephemerd.app.intake import Intake, Taken
from ephemerd.core.events import JobReported
from ephemerd.domain.job import Told
from ephemerd.ports.store import DeliveryId
from ephemerd.ports.webhooks import BadSignature, Delivery, Malformed, WrongType
from tests.unit.app.fakes import FakeMeter, report, until


class FakeWebhooks:
    """Answers each request with what the test set."""

    name = "github"

    def __init__(self) -> None:
        self.answer: Delivery | Exception = Delivery("d1", "workflow_job", report())
        self.threads: list[int] = []

    def receive(self, headers: Mapping[str, str], body: bytes) -> Delivery:
        self.threads.append(threading.get_ident())
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def hooks():
    return FakeWebhooks()


@pytest.fixture
def meter():
    return FakeMeter()


@pytest.fixture
async def inbox():
    return Inbox()


@pytest.fixture
async def intake(hooks, meter, inbox):
    return Intake({"github": hooks}, inbox, meter)


async def test_a_delivery_is_answered_with_its_fate(intake, inbox, meter):
    for fate, taken in (
        (Fate.STORED, Taken.STORED),
        (Fate.DUPLICATE, Taken.DUPLICATE),
        (Fate.QUARANTINED, Taken.QUARANTINED),
        (Fate.NOT_STORED, Taken.NOT_STORED),
    ):
        taking = asyncio.create_task(intake.take("github", {}, b"body"))
        await until(lambda: len(inbox))
        (item,) = inbox.take(1)
        assert item.event == JobReported(report(), Told.WEBHOOK)
        assert item.delivery == DeliveryId("github", "d1")
        assert item.body == b"body"
        assert not taking.done()
        item.answer(Receipt(fate))
        assert await taking == (taken, "")
        assert meter.total("webhooks_total", forge="github", event="workflow_job", result=taken.value) == 1


@pytest.mark.parametrize(("event", "counted"), [("ping", "ping"), ("push", "other"), ("x" * 999, "other")])
async def test_what_is_not_used_is_told_and_not_stored(intake, inbox, hooks, meter, event, counted):
    hooks.answer = Delivery("d1", event, None, "not used")
    assert await intake.take("github", {}, b"") == (Taken.UNUSED, "not used")
    assert len(inbox) == 0
    assert meter.total("webhooks_total", event=counted, result="unused") == 1


@pytest.mark.parametrize(
    ("error", "result"),
    [(BadSignature(), "bad_signature"), (Malformed(), "malformed"), (WrongType(), "wrong_type")],
)
async def test_what_is_refused_is_counted_and_raised(intake, inbox, hooks, meter, error, result):
    hooks.answer = error
    with pytest.raises(type(error)):
        await intake.take("github", {}, b"")
    assert meter.total("webhooks_total", event="unknown", result=result) == 1
    assert len(inbox) == 0


async def test_a_full_inbox_is_not_stored(hooks, meter):
    intake = Intake({"github": hooks}, Inbox(most=0), meter)
    assert await intake.take("github", {}, b"") == (Taken.NOT_STORED, "")


async def test_a_commit_that_does_not_come_is_not_stored(hooks, meter, inbox):
    intake = Intake({"github": hooks}, inbox, meter, wait=0.01)
    assert await intake.take("github", {}, b"") == (Taken.NOT_STORED, "")
    (item,) = inbox.take(1)
    item.answer(Receipt(Fate.STORED))


async def test_large_bodies_are_read_beside_the_loop(intake, hooks):
    hooks.answer = Delivery("d1", "ping", None, "ping")
    await intake.take("github", {}, b"x")
    await intake.take("github", {}, b"x" * module.LARGE)
    small, large = hooks.threads
    assert small == threading.get_ident()
    assert large != small


def test_only_configured_forges_are_known(hooks, meter):
    intake = Intake({"github": hooks}, Inbox(), meter)
    assert intake.knows("github")
    assert not intake.knows("gitea")
