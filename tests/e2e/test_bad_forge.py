"""Hours without a usable word of the forge, over the real adapter: nothing goes, nothing is lost, all resumes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import ForgeStatus, JobStatus
from ephemerd.domain.runner import RunnerState
from tests.e2e.bad_forge import ANSWERS, HOUR, MINUTE, SECOND, BadForge

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
S = RunnerState


async def away(forge: BadForge) -> None:
    await forge.go_away()


async def comes_back(forge: BadForge) -> None:
    await forge.listen()


async def no_name(forge: BadForge) -> None:
    forge.resolves = False
    await forge.server.stop()


async def name_again(forge: BadForge) -> None:
    forge.resolves = True


async def other_certificate(forge: BadForge) -> None:
    forge.new_certificate("other")
    await forge.server.stop()


async def right_certificate(forge: BadForge) -> None:
    assert forge._tls is not None
    forge._tls.load_cert_chain(forge._folder / "good.pem", forge._folder / "good.key")


def wrong(kind: str) -> Callable[[BadForge], Awaitable[None]]:
    async def begin(forge: BadForge) -> None:
        forge.truth.wrong = kind

    return begin


DOWN = {
    **{kind: (wrong(kind), wrong("")) for kind in ANSWERS},
    "nothing listens": (away, comes_back),
    "no such name": (no_name, name_again),
    "another certificate": (other_certificate, right_certificate),
}
SAYS = {
    "401": "renew the token",
    "403": "the token may not do this",
    "403 limit": "limits our requests",
    "429": "limits our requests",
    "404": "GitHub answered 404",
    "500": "GitHub answered 500",
    "502 page": "GitHub answered 502",
    "reset": "no answer from GitHub",
    "silence": "no complete answer within",
    "half an answer": "no answer from GitHub",
    "another page": "no JSON",
    "nothing listens": "nothing listens there: check url",
    "no such name": "the name server does not answer",
    "another certificate": "set ca_file",
}
HOURS = {"silence": 0.25, "403 limit": 1.0, "429": 1.0}


async def busy_house(forge: BadForge) -> tuple[RunnerId, RunnerId, RunnerId]:
    """One runner that works, one that nobody needs any more, and one that has just left without a job."""
    works = await forge.working(1)
    idle = await forge.listening(2)
    leaves = await forge.listening(3)
    return works, idle, leaves


@pytest.mark.parametrize("kind", DOWN)
async def test_a_forge_without_a_usable_word(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, end = DOWN[kind]
    patience = 0.25 if kind == "silence" else 20.0
    secure = kind == "another certificate"
    async with BadForge(tmp_path, monkeypatch, tls=secure, patience=patience) as forge:
        works, idle, leaves = await busy_house(forge)
        await begin(forge)
        await forge.told(2, ForgeStatus.COMPLETED, conclusion="cancelled")
        await forge.told(3, ForgeStatus.COMPLETED, conclusion="cancelled")
        forge.leave(leaves, 1)
        await forge.told(4, ForgeStatus.QUEUED)
        await forge.pass_time(10 * MINUTE, step=30 * SECOND)
        before, hours = len(forge.server.requests), HOURS.get(kind, 2.0)
        await forge.pass_time(int(hours * HOUR), step=MINUTE)

        assert forge.destroyed() <= {
            f"env-{leaves}"
        }  # what has ended by itself is tidied up, and nobody else
        assert forge.truth.deleted == []
        assert (forge.row(works).state, forge.row(idle).state) == (S.RUNNING, S.LISTENING)
        assert leaves in forge.truth.names.values()
        assert forge.job(4).status is JobStatus.QUEUED
        # A trial is one call of ours; a read is sent once more where its connection broke.
        assert len(forge.server.requests) - before <= 2 * (hours * 60 + 2)
        assert any(SAYS[kind] in reason for reason in forge.health().reasons), forge.health().reasons

        await end(forge)
        requests = len(forge.server.requests)
        await forge.pass_time(12 * MINUTE)
        # The idle one may serve the job that came meanwhile; once its fence was sent another one does.
        serves = idle if forge.row(idle).state is S.LISTENING else forge.runtime.orders[-1].runner
        assert set(forge.truth.names.values()) == {works, serves}
        assert forge.row(serves).surplus_since is None
        assert serves == idle or forge.row(serves).intent == forge.job(4).key
        assert len(forge.server.requests) - requests <= 40  # no stampede
        assert not any("github/repo:acme/app" in reason for reason in forge.health().reasons)
        assert forge.row(works).state is S.RUNNING
        assert "blob" not in forge.everything_written()


async def test_work_resumes_within_a_minute_of_the_forges_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with BadForge(tmp_path, monkeypatch) as forge:
        await forge.go_away()
        await forge.told(1, ForgeStatus.QUEUED)
        await forge.pass_time(30 * MINUTE)
        assert forge.runtime.orders == []
        await forge.listen()
        await forge.pass_time(61 * SECOND, step=SECOND)
        assert [forge.row(order.runner).intent for order in forge.runtime.orders] == [forge.job(1).key]


async def test_lost_access_to_runners_alone_removes_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs are answered, runners are "not found": the scope's answers about jobs must not vouch for that."""
    async with BadForge(tmp_path, monkeypatch) as forge:
        works, idle, leaves = await busy_house(forge)
        everything = forge.truth.answer

        def answer(request: object) -> object:
            if "/actions/runners" in request.target:  # type: ignore[attr-defined]
                return ANSWERS["404"]()
            return everything(request)  # type: ignore[arg-type]

        forge.server.answer = answer
        await forge.told(2, ForgeStatus.COMPLETED, conclusion="cancelled")
        await forge.told(3, ForgeStatus.COMPLETED, conclusion="cancelled")
        forge.leave(leaves, 1)
        await forge.pass_time(2 * HOUR, step=MINUTE)
        assert forge.destroyed() <= {f"env-{leaves}"}
        assert (forge.row(works).state, forge.row(idle).state) == (S.RUNNING, S.LISTENING)
        assert any("Administration: write" in reason for reason in forge.health().reasons)
        forge.server.answer = everything
        await forge.pass_time(15 * MINUTE)
        assert forge.row(idle).state is S.GONE
        assert set(forge.truth.names.values()) == {works}
