"""The look-alike's runner applications held against the facts about GitHub (github.md, sections 3.4 and 15; runner.md,
sections 8 and 10), and our own adapter against it."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import tarfile
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ephemerd.adapters.forges.github import make_catalogue, make_forge
from ephemerd.adapters.system.applications import ApplicationShelf
from ephemerd.domain.ids import Scope
from ephemerd.ports.applications import Catalogue, Offered
from ephemerd.ports.errors import PortError, Refused
from ephemerd.testing.fake_runner.folder import write_folder
from ephemerd.testing.forge_sim.main import ForgeSim, Options, running
from tests.unit.forge_sim.conftest import LABELS, REPO, admin, client, quick, register, seen

pytestmark = pytest.mark.e2e
APP = Scope("github", "repo:acme/app")
DOWNLOADS = f"{REPO}/actions/runners/downloads"


@pytest.fixture
async def sim() -> AsyncIterator[ForgeSim]:
    async with running(Options(weather=quick(), time_scale=100.0, seed=5)) as started:
        yield started


@pytest.fixture
async def api(sim: ForgeSim) -> AsyncIterator[httpx2.AsyncClient]:
    async with client(sim) as opened:
        yield opened


@pytest.fixture
async def catalogue(sim: ForgeSim) -> AsyncIterator[Catalogue]:
    forge = make_forge("github", url=sim.url, token=sim.token)
    yield make_catalogue(forge)
    await forge.close()


@pytest.fixture
async def shelf(tmp_path: Path) -> AsyncIterator[ApplicationShelf]:
    made = ApplicationShelf(tmp_path / "applications", user_agent="t", system="linux", architecture="x64")
    await made.open()
    yield made
    await made.close()


async def listed(api: httpx2.AsyncClient, system: str = "linux", architecture: str = "x64") -> Any:
    entries = (await api.get(DOWNLOADS)).json()
    (found,) = [one for one in entries if (one["os"], one["architecture"]) == (system, architecture)]
    return found


async def fetched(api: httpx2.AsyncClient, url: str, **headers: str) -> httpx2.Response:
    return await api.get(url, headers=headers, follow_redirects=True)


async def mine(catalogue: Catalogue, system: str = "linux") -> Offered:
    (found,) = [
        one for one in await catalogue.offered(APP) if (one.system, one.architecture) == (system, "x64")
    ]
    return found


# As GitHub has it


async def test_3_4_the_list_names_every_platform_with_its_words(api):
    answer = await api.get(DOWNLOADS)
    assert answer.status_code == 200
    assert {(one["os"], one["architecture"]) for one in answer.json()} == {
        *(("linux", each) for each in ("x64", "arm64", "arm")),
        *(("osx", each) for each in ("x64", "arm64")),
        *(("win", each) for each in ("x64", "arm64")),
    }
    one = answer.json()[0]
    assert set(one) == {"os", "architecture", "download_url", "filename", "sha256_checksum"}
    assert one["filename"] == "actions-runner-linux-x64-2.336.0.tar.gz"
    for path in ("/orgs/acme", "/api/v3/repos/acme/app"):
        assert (await api.get(f"{path}/actions/runners/downloads")).json() == answer.json()
    assert (await api.get("/repos/acme/nothing/actions/runners/downloads")).status_code == 404


async def test_8_the_list_is_asked_for_again_at_no_cost(api):
    first = await api.get(DOWNLOADS)
    again = await api.get(DOWNLOADS, headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304
    await admin(api, "/applications", publish="2.337.0")
    changed = await api.get(DOWNLOADS, headers={"If-None-Match": first.headers["etag"]})
    assert changed.status_code == 200


async def test_the_archive_is_that_of_the_checksum_and_holds_the_application(api):
    one = await listed(api)
    moved = await api.get(one["download_url"])
    assert moved.status_code == 302
    archive = await fetched(api, one["download_url"])
    assert hashlib.sha256(archive.content).hexdigest() == one["sha256_checksum"]
    with tarfile.open(fileobj=io.BytesIO(archive.content)) as tar:
        assert {"./bin/Runner.Listener", "./bin/Runner.Worker"} <= set(tar.getnames())
        assert tar.getmember("./bin/Runner.Listener").mode & 0o111
    win = await fetched(api, (await listed(api, "win"))["download_url"])
    assert "bin/Runner.Listener" in zipfile.ZipFile(io.BytesIO(win.content)).namelist()


async def test_a_range_goes_on_where_it_ended(api):
    one = await listed(api)
    whole = (await fetched(api, one["download_url"])).content
    rest = await fetched(api, one["download_url"], Range=f"bytes={len(whole) - 10}-")
    assert (rest.status_code, rest.content) == (206, whole[-10:])
    assert rest.headers["content-range"] == f"bytes {len(whole) - 10}-{len(whole) - 1}/{len(whole)}"
    for odd in ("bytes=a-", "bytes=99999999-", "lines=1-"):
        assert (await fetched(api, one["download_url"], Range=odd)).content == whole


@pytest.mark.parametrize(
    ("knobs", "status"), [({"status": 404}, 404), ({"status": 503}, 503), ({}, 200), ({"token": True}, 401)]
)
async def test_archives_are_served_as_a_test_asks(api, knobs, status):
    await admin(api, "/applications", **knobs)
    one = await listed(api)
    archive = await api.get(one["download_url"], headers={"Authorization": "none"}, follow_redirects=True)
    assert archive.status_code == status
    assert ("temp_download_token" in one) is bool(knobs.get("token"))


async def test_what_was_never_made_is_not_there(api):
    for name in ("actions-runner-linux-x64-nothing.tar.gz", "x", "actions-runner-linux-riscv-2.336.0.tar.gz"):
        assert (await fetched(api, f"/_archives/{name}")).status_code == 404


@pytest.mark.parametrize("knobs", [{"publish": "new"}, {"refuse_below": "x"}, {"checksum": "odd"}])
async def test_what_makes_no_sense_is_refused(api, knobs):
    assert (await api.post("/_admin/applications", json=knobs)).status_code == 422


async def test_15_the_end_of_a_version_is_known_where_it_is(api):
    path = f"{REPO}/actions/runners/deprecations/2.336.0"
    assert (await api.get(path)).status_code == 404
    await admin(api, "/applications", deprecations=True)
    assert (await api.get(path)).json() == {
        "runner_version": "2.336.0",
        "registration_deprecates_at": None,
        "runtime_deprecates_at": None,
    }
    await admin(api, "/applications", publish="2.337.0")
    assert (await api.get(path)).json()["runtime_deprecates_at"].endswith("Z")


@pytest.mark.parametrize(("told", "code"), [("1", 7), ("0", 1)])
async def test_10_a_version_that_is_too_old_is_told_so_and_leaves(api, sim, tmp_path, told, code):
    await admin(api, "/applications", publish="2.337.0", refuse_below="2.337.0")
    blob = (await register(api, "old-1", LABELS))["encoded_jit_config"]
    folder = write_folder(tmp_path / "old")
    environment = {
        **os.environ,
        "ACTIONS_RUNNER_INPUT_JITCONFIG": blob,
        "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE": told,
    }
    listener = await asyncio.create_subprocess_exec(
        folder / "bin/Runner.Listener",
        "run",
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await listener.communicate()
    assert listener.returncode == code
    assert b"Runner version v2.336.0 is deprecated and cannot receive messages" in output
    assert b"Running job" not in output
    assert [line["runner"] for line in await seen(sim, "version_refused")] == ["old-1"]


# Our adapter, and what it fetches


async def test_the_adapter_reads_what_is_offered(catalogue, api):
    offered = await catalogue.offered(APP)
    assert len(offered) == 7
    found = await mine(catalogue)
    assert (found.version, found.file) == ("2.336.0", "actions-runner-linux-x64-2.336.0.tar.gz")
    assert len(found.checksum) == 64
    await admin(api, "/applications", publish="2.337.0", checksum="none", token=True)
    found = await mine(catalogue)
    assert (found.version, found.checksum) == ("2.337.0", "")
    assert found.token
    assert found.token not in repr(found)
    with pytest.raises(PortError):
        await catalogue.offered(Scope("github", "repo:acme/nothing"))


async def test_the_adapter_asks_until_when_a_version_is_good(catalogue, api):
    assert await catalogue.ends(APP, "2.336.0") is None
    await admin(api, "/applications", deprecations=True, publish="2.337.0")
    ends = await catalogue.ends(APP, "2.336.0")
    assert ends is not None
    assert ends.running is not None
    assert (await catalogue.ends(APP, "2.337.0")).running is None


async def test_a_version_comes_through_a_redirect_with_the_token_where_it_is_wanted(catalogue, api, shelf):
    await admin(api, "/applications", token=True)
    found = await shelf.fetch(await mine(catalogue), lambda done, total: None)
    assert (found.folder / "bin/Runner.Listener").stat().st_mode & 0o111
    assert (found.folder / "externals/node20/bin/README").is_file()


@pytest.mark.parametrize(
    ("knobs", "why"),
    [
        ({"checksum": "wrong"}, "and the forge states"),
        ({"cut": True}, "and the forge states"),
        ({"checksum": "none"}, "no checksum"),
        ({"status": 404}, "answered 404"),
    ],
)
async def test_what_is_not_right_is_not_used(catalogue, api, shelf, knobs, why):
    await admin(api, "/applications", **knobs)
    with pytest.raises(Refused, match=why):
        await shelf.fetch(await mine(catalogue), lambda done, total: None)
    assert await shelf.unpacked() == []


async def test_a_zip_is_unpacked_for_the_platform_that_has_one(catalogue, tmp_path, monkeypatch):
    shelf = ApplicationShelf(tmp_path / "win", user_agent="t", system="win", architecture="x64")
    await shelf.open()
    with pytest.raises(
        Refused, match=r"holds no bin/Runner\.Listener"
    ):  # the fake one is a script without .exe
        await shelf.fetch(await mine(catalogue, "win"), lambda done, total: None)
    await shelf.close()
