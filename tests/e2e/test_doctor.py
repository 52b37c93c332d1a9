"""`doctor` asks a real forge look-alike: what the credential may do, whether the clocks agree, what is left."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ephemerd.adapters.forges.github import make_forge
from ephemerd.adapters.forges.github.doctor import diagnose
from ephemerd.cli.main import run
from ephemerd.config.effective import Effective, load_settings
from ephemerd.domain.ids import Scope
from ephemerd.joining import look_at_forges
from ephemerd.ports.views import FindingView
from ephemerd.testing.forge_sim.main import ForgeSim, Options, running
from tests.e2e.scripted_server import Received, Reply, server

pytestmark = pytest.mark.e2e
SCOPE = Scope("github", "repo:acme/app")
TOKEN = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"
HOUR = 3600.0


async def look(sim: ForgeSim, token: str = "", scope: Scope = SCOPE, ahead: float = 0.0) -> list[FindingView]:
    forge = make_forge("github", url=sim.url, token=token or sim.token)
    try:
        return await diagnose(forge, [scope], now=lambda: time.time() + ahead)
    finally:
        await forge.close()


def levels(found: list[FindingView]) -> list[str]:
    return [one.level for one in found]


async def test_a_good_credential_may_do_everything_and_nothing_is_registered():
    async with running(Options()) as sim:
        found = await look(sim)
        registered = len(sim.world.runners)
    assert levels(found) == ["ok"] * 4
    said = " ".join(one.what for one in found)
    for words in ("see the runners of repo:acme/app", "register runners", "read the jobs", "clock agrees"):
        assert words in said
    assert registered == 0


@pytest.mark.parametrize(("group", "level", "code"), [("Default", "ok", 0), ("no such group", "problem", 3)])
async def test_an_organization_has_the_runner_group(group, level, code):
    scope = Scope("github", "org:acme")
    async with running(Options()) as sim:
        forge = make_forge("github", url=sim.url, token=sim.token, runner_group=group)
        try:
            found = await diagnose(forge, [scope])
        finally:
            await forge.close()
    assert [(one.level, one.code) for one in found] == [
        ("ok", 0),
        ("ok", 0),
        (level, code),
        ("ok", 0),
        ("ok", 0),
    ]
    assert "runner group" in found[2].what
    assert "read the jobs of acme/app" in found[3].what


async def test_an_organization_of_which_no_repository_is_seen():
    async with running(Options()) as sim:
        sim.world.repositories["acme/app"].archived = True
        found = await look(sim, scope=Scope("github", "org:acme"))
    assert levels(found) == ["ok", "ok", "ok", "warning", "ok"]
    assert "sees no repository of acme" in found[3].what


async def test_a_wrong_token_is_a_problem_of_credentials():
    async with running(Options()) as sim:
        found = await look(sim, token=TOKEN)
    assert [(one.level, one.code) for one in found] == [("problem", 4), ("ok", 0)]
    assert "401" in found[0].what
    assert TOKEN not in str(found)


async def test_a_repository_that_is_not_there_is_said_once():
    async with running(Options()) as sim:
        found = await look(sim, scope=Scope("github", "repo:acme/other"))
    assert (found[0].level, found[0].code) == ("problem", 4)
    assert "check that repo:acme/other exists" in found[0].what


@pytest.mark.parametrize(
    ("ahead", "level", "words"),
    [(60, "warning", "60 s ahead of"), (-60, "warning", "s behind"), (-HOUR, "problem", "s behind")],
)
async def test_clocks_that_differ(ahead, level, words):
    async with running(Options()) as sim:
        found = await look(sim, ahead=ahead)
    clock = found[-1]
    assert clock.level == level
    assert words in clock.what.replace("61 s", "60 s").replace("59 s", "60 s")
    assert "chrony" in clock.todo


async def test_little_budget_is_a_warning():
    ends = str(int(time.time() + HOUR))
    told = {"x-ratelimit-limit": "5000", "x-ratelimit-remaining": "300", "x-ratelimit-reset": ends}
    body = {"total_count": 0, "runners": [], "workflow_runs": []}
    async with server(lambda asked: Reply(201 if asked.method == "POST" else 200, body, told)) as scripted:
        forge = make_forge("github", url=scripted.url, token=TOKEN)
        try:
            found = await diagnose(forge, [SCOPE])
        finally:
            await forge.close()
    assert set(levels(found)) == {"ok", "warning"}, "a limit ends by itself"
    assert "300 of 5000 requests (core)" in found[-1].what
    assert found[-1].todo


@pytest.mark.parametrize(
    ("administration", "scope", "wanted"),
    [
        ("write", "repo:acme/app", ["ok"] * 4),
        ("read", "repo:acme/app", ["ok", "problem", "ok", "ok"]),
        ("write", "repo:other/app", ["problem"]),
    ],
)
async def test_the_rights_of_an_app(administration, scope, wanted):
    async with running(Options()) as sim:
        app, key = sim.site.apps.create({"administration": administration, "actions": "read"}, ("acme",))
        forge = make_forge("github", url=sim.url, app_id=app.id, private_key=key)
        try:
            found = await diagnose(forge, [Scope("github", scope)])
        finally:
            await forge.close()
    assert levels(found) == wanted, found
    assert {one.code for one in found if one.level == "problem"} <= {4}
    assert "PRIVATE KEY" not in str(found)


async def test_a_token_that_may_only_read():
    def answer(request: Received) -> object:
        if request.method == "POST":
            return Reply(403, {"message": "Resource not accessible by personal access token"})
        return Reply(200, {"total_count": 0, "runners": [], "workflow_runs": []})

    async with server(answer) as scripted:
        forge = make_forge("github", url=scripted.url, token=TOKEN)
        try:
            found = await diagnose(forge, [SCOPE])
        finally:
            await forge.close()
    assert [(one.level, one.code) for one in found] == [("ok", 0), ("problem", 4), ("ok", 0)]
    assert "Resource not accessible" in found[1].what


async def test_where_nothing_listens_it_is_the_environment():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # not listening: refused at once
        forge = make_forge("github", url=f"http://127.0.0.1:{taken.getsockname()[1]}", token=TOKEN)
        try:
            found = await diagnose(forge, [SCOPE])
        finally:
            await forge.close()
    assert [(one.level, one.code) for one in found] == [("problem", 5)]
    assert "url" in found[0].todo


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[ForgeSim]:
    """A look-alike in a thread of its own, with the runner's folder and both secrets in files."""
    for name in ("token", "hook"):
        (tmp_path / name).write_text(f"{name}-for-tests-only")
        (tmp_path / name).chmod(0o600)
    options = Options(
        token_file=tmp_path / "token",
        webhook_secret_file=tmp_path / "hook",
        write_runner_dir=tmp_path / "application",
    )
    loop, came, ended, found = asyncio.new_event_loop(), threading.Event(), asyncio.Event(), []

    async def serve() -> None:
        async with running(options) as made:
            found.append(made)
            came.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert came.wait(60)
        yield found[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(60)
        loop.close()


def configuration(folder: Path, url: str, port: int = 0) -> Path:
    path = folder / "config.toml"
    path.write_text(
        f"""
[forge.github]
url = "{url}"
scope = "repo:acme/app"
token_file = "{folder}/token"
webhook_secret_file = "{folder}/hook"

[pools.linux]
labels = ["self-hosted", "linux", "x64"]
runtime = "process"

[runner]
application = "{folder}/application"
work_dir = "{folder}/state/runners"
allow_root = {"true" if os.geteuid() == 0 else "false"}

[server]
webhook_listen = "127.0.0.1:{port}"
api_socket = "{folder}/api.sock"
metrics_listen = "none"
store = "sqlite:///{folder}/state/state.db"
"""
    )
    return path


def test_the_command_says_ok_warning_or_problem_for_each_line(sim, tmp_path, capsys):
    config = configuration(tmp_path, sim.url)
    assert run(["doctor", "--config", str(config), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["code"] == 0
    places = {one["where"] for one in told["findings"] if one["level"] == "ok"}
    wanted = {
        "configuration",
        "forge.github",
        "state folder",
        "store",
        "runner.application",
        "process runtime",
    }
    assert wanted | {"server.webhook_listen"} <= places
    assert {one["level"] for one in told["findings"]} <= {"ok", "warning"}
    assert all(one["todo"] for one in told["findings"] if one["level"] != "ok")
    assert not (tmp_path / "state").exists(), "it changes nothing"

    assert run(["doctor", "--config", str(config)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.split(":")[0] in {"ok", "warning", "  better"} for line in lines)
    assert "for-tests-only" not in "".join(lines)


def test_the_lowest_code_of_the_problems_is_the_exit_code(sim, tmp_path, capsys):
    (tmp_path / "token").write_text("wrong-token")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = configuration(tmp_path, sim.url, taken.getsockname()[1])
        # Nobody accepts there: closed for reading, so that the question of doctor ends at once.
        taken.shutdown(socket.SHUT_RDWR)
        assert run(["doctor", "--config", str(config)]) == 4
    told = capsys.readouterr()
    assert "problem: forge.github: GitHub answered 401" in told.out
    assert "  fix: " in told.out
    assert " problem" in told.err
    assert "wrong-token" not in told.out + told.err


def test_offline_asks_no_forge(tmp_path, sim, capsys):
    config = configuration(tmp_path, "http://127.0.0.1:1")
    assert run(["doctor", "--config", str(config), "--offline", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert not any(one["where"] == "forge.github" for one in told["findings"])


def test_a_configuration_that_cannot_be_used(tmp_path, capsys):
    config = tmp_path / "config.toml"
    config.write_text("[forge.github]\n")
    assert run(["doctor", "--config", str(config)]) == 3
    out = capsys.readouterr().out
    assert "problem: " in out
    assert "ok: configuration" not in out


def configured(folder: Path, sim: ForgeSim, more: str = "") -> Effective:
    (folder / "token").write_text(sim.token)
    (folder / "token").chmod(0o600)
    text = f"""
[forge.github]
url = "{sim.url}"
scope = "repo:acme/app"
token_file = "token"
discovery = "poll"
[pools.linux]
labels = ["linux"]
runtime = "process"
[runner]
application = "download"
work_dir = "state/runners"
{more}
"""
    (folder / "ephemerd.toml").write_text(text)
    return load_settings(folder / "ephemerd.toml", {"HOME": str(folder)})


@pytest.mark.parametrize(
    ("knobs", "more", "level", "words"),
    [
        ({}, "", "ok", "the forge expects version 2.336.0; at hand: none"),
        ({"systems": ["win"]}, "", "problem", "the forge offers none for"),
        ({"checksum": "none"}, "", "problem", "states no checksum for"),
        ({"checksum": "none"}, "download = { unverified = true }", "ok", "expects version 2.336.0"),
    ],
)
async def test_the_runner_application_that_the_forge_expects(tmp_path, knobs, more, level, words):
    async with running(Options()) as sim:
        sim.world.applications.change(knobs)
        found = await look_at_forges(configured(tmp_path, sim, more))
    (one,) = [one for one in found if one.where == "runner.application for repo:acme/app"]
    assert (one.level, words in one.what) == (level, True), one
    assert bool(one.todo) == (level == "problem")


async def test_a_list_of_applications_that_is_not_to_be_had(tmp_path):
    async with running(Options()) as sim:
        effective = configured(tmp_path, sim)
    found = await look_at_forges(effective)
    (one,) = [one for one in found if one.where == "runner.application for repo:acme/app"]
    assert (one.level, one.code) == ("problem", 5)
