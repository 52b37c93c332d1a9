"""`ephemerd webhook` against the look-alike: our hook is made, mended, shown, tried and removed, others stay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ephemerd.cli.main import run
from ephemerd.testing.forge_sim.apps import App
from ephemerd.testing.forge_sim.main import ForgeSim, Options, running
from ephemerd.testing.forge_sim.world import JobSpec
from tests.unit.forge_sim.conftest import seen

pytestmark = pytest.mark.e2e
OTHER = "https://elsewhere.example/webhooks/github"
CONFIG = """
[forge.github]
url = "{forge}"
scope = "repo:acme/app"
token_file = "{folder}/token"
webhook_secret_file = "{folder}/hook"
webhook_url = "{url}"

[pools.linux]
labels = ["linux"]
runtime = "docker"
"""


@dataclass
class Site:
    sim: ForgeSim
    folder: Path
    capsys: Any

    @property
    def hooks(self) -> dict[str, Any]:
        return {hook.url: hook for hook in self.sim.world.repositories["acme/app"].hooks.values()}

    async def webhook(self, *words: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(run, ["webhook", *words, "--config", str(self.folder / "c.toml")])
        told = self.capsys.readouterr()
        return code, told.out, told.err


@asynccontextmanager
async def staged(folder: Path, url: str, capsys: Any) -> AsyncIterator[Site]:
    (folder / "token").write_text("token-for-tests")
    (folder / "token").chmod(0o600)
    options = Options(repository="acme/app", token_file=folder / "token")
    async with running(options) as sim:
        (folder / "c.toml").write_text(CONFIG.format(forge=sim.url, folder=folder, url=url))
        site = Site(sim, folder, capsys)
        sim.site.deliverer.add_hook(sim.world.repositories["acme/app"], OTHER, secret="theirs")
        yield site


async def test_install_makes_secret_and_hook_and_mends_what_is_wrong(tmp_path, capsys):
    url = "http://127.0.0.1:9/webhooks/github"
    async with staged(tmp_path, url, capsys) as site:
        code, out, err = await site.webhook("install")
        assert (code, out) == (0, f"github/repo:acme/app: {url}: made\n"), err
        secret = (tmp_path / "hook").read_text().strip()
        assert len(secret) == 64
        assert (tmp_path / "hook").stat().st_mode & 0o777 == 0o600
        hook = site.hooks[url]
        assert await site.sim.truth.wait_until(lambda: bool(hook.deliveries), 20)
        assert (hook.secret, hook.content_type, hook.events) == (secret, "json", ("workflow_job",))
        assert secret not in out + err
        hook.active, hook.events, hook.content_type, hook.secret = False, ("push",), "form", ""
        hook.insecure_ssl = "1"
        code, out, _ = await site.webhook("status")
        assert code == 5
        for wrong in ("switched off", "workflow_job", "content type", "no secret", "certificates"):
            assert wrong in out
        code, out, _ = await site.webhook("install")
        assert "brought up to date" in out
        assert (hook.secret, hook.active, hook.insecure_ssl) == (secret, True, "0")
        assert (tmp_path / "hook").read_text().strip() == secret
        code, out, _ = await site.webhook("status", "--json")
        (shown,) = json.loads(out)["hooks"]
        assert (code, shown["ok"]) == (5, False), "its ping did not arrive"
        hook.deliveries.clear()
        code, out, _ = await site.webhook("status", "--json")
        (shown,) = json.loads(out)["hooks"]
        assert (code, shown["ok"]) == (0, True)
        code, out, _ = await site.webhook("remove")
        assert (code, list(site.hooks)) == (0, [OTHER])
        assert site.hooks[OTHER].secret == "theirs"
        code, out, _ = await site.webhook("remove")
        assert "there was none" in out
        for word in ("status", "test"):
            code, out, _ = await site.webhook(word)
            assert (code, "webhook install" in out) == (5, True)


@pytest.mark.parametrize(("answer", "code"), [(200, 0), (401, 5)])
async def test_a_ping_shows_how_the_daemon_answers(tmp_path, capsys, answer, code):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {answer} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, staged(tmp_path, f"http://127.0.0.1:{port}/webhooks/github", capsys) as site:
        assert (await site.webhook("install"))[0] == 0
        got, out, _ = await site.webhook("test")
        assert (got, f"ping answered {answer}" in out) == (code, True)
        got, out, _ = await site.webhook("status")
        assert (got, f"answered {answer}" in out) == (code, True)


async def test_without_an_address_or_with_a_wrong_token_it_says_what_to_do(tmp_path, capsys):
    async with staged(tmp_path, "http://127.0.0.1:9/webhooks/github", capsys) as site:
        text = (tmp_path / "c.toml").read_text()
        (tmp_path / "token").write_text("a-wrong-token")
        code, _, err = await site.webhook("install")
        assert code == 4, err
        kept = "".join(line for line in text.splitlines(keepends=True) if "webhook_url" not in line)
        (tmp_path / "c.toml").write_text(kept)
        code, _, err = await site.webhook("status")
        assert (code, "forge.github.webhook_url" in err) == (3, True)


async def test_status_shows_the_latest_deliveries_and_what_failed(tmp_path, capsys):
    async with staged(tmp_path, "http://127.0.0.1:9/webhooks/github", capsys) as site:
        assert (await site.webhook("install"))[0] == 0
        [hook] = [one for url, one in site.hooks.items() if url != OTHER]
        site.sim.world.queue_run(site.sim.world.repositories["acme/app"], [JobSpec(labels=("x",))] * 3)
        assert await site.sim.truth.wait_until(lambda: len(hook.deliveries) == 4, 20)
        code, out, _ = await site.webhook("status")
        assert code == 5
        assert "not delivered: failed to connect" in out
        assert "of the last 4 4 failed" in out
        lines = [line for line in out.splitlines() if line.startswith("  ")]
        assert len(lines) == 4
        assert sum("workflow_job" in line for line in lines) == 3
        code, out, _ = await site.webhook("status", "--json")
        (shown,) = json.loads(out)["hooks"]
        assert {one["good"] for one in shown["deliveries"]} == {False}
        assert set(shown["deliveries"][0]) == {"id", "delivery", "event", "at", "status", "outcome", "good"}


async def test_an_organization_has_a_hook_of_its_own(tmp_path, capsys):
    url = "http://127.0.0.1:9/webhooks/github"
    async with staged(tmp_path, url, capsys) as site:
        text = (tmp_path / "c.toml").read_text().replace("repo:acme/app", "org:acme")
        (tmp_path / "c.toml").write_text(text)
        code, out, err = await site.webhook("install")
        assert (code, out) == (0, f"github/org:acme: {url}: made\n"), err
        organization = site.sim.world.company("org", "acme")
        assert organization is not None
        [hook] = organization.hooks.values()
        assert (hook.url, hook.events, hook.content_type) == (url, ("workflow_job",), "json")
        assert (tmp_path / "hook").read_text().strip() == hook.secret
        assert list(site.hooks) == [OTHER], "the repository's are left alone"
        assert await site.sim.truth.wait_until(lambda: bool(hook.deliveries), 20)
        code, out, _ = await site.webhook("status")
        assert (code, "not delivered" in out) == (5, True), "by its deliveries: it does not show its answers"
        code, out, _ = await site.webhook("test")
        assert (code, "ping not delivered" in out) == (5, True)
        hook.active = False
        code, out, _ = await site.webhook("status")
        assert (code, "switched off" in out) == (5, True)
        code, out, _ = await site.webhook("install")
        assert (code, hook.active) == (0, True)
        code, out, _ = await site.webhook("remove")
        assert (code, list(organization.hooks)) == (0, [])


APP_CONFIG = """
[forge.github]
url = "{forge}"
scope = ["org:acme", "repo:acme/app"]
app_id = {app}
private_key_file = "{folder}/app.pem"
webhook_secret_file = "{folder}/hook"
webhook_url = "{url}"
webhook_owner = "app"

[pools.linux]
scope = "org:acme"
labels = ["linux"]
runtime = "docker"
"""


@asynccontextmanager
async def staged_app(folder: Path, url: str, capsys: Any) -> AsyncIterator[tuple[Site, App]]:
    async with staged(folder, url, capsys) as site:
        app, key = site.sim.site.apps.create({"actions": "read"}, ("acme",))
        (folder / "app.pem").write_text(key)
        (folder / "app.pem").chmod(0o600)
        text = APP_CONFIG.format(forge=site.sim.url, app=app.id, folder=folder, url=url)
        (folder / "c.toml").write_text(text)
        yield site, app


async def test_an_apps_one_hook_is_led_here_and_what_no_program_may_do_is_said(tmp_path, capsys):
    url = "http://127.0.0.1:9/webhooks/github"
    async with staged_app(tmp_path, url, capsys) as (site, app):
        code, out, err = await site.webhook("install")
        assert code == 5, err
        assert "Workflow jobs" in out
        secret = (tmp_path / "hook").read_text().strip()
        assert (app.hook.url, app.hook.secret, app.hook.content_type) == (url, secret, "json")
        assert secret not in out + err
        app.hook.url = ""
        code, out, _ = await site.webhook("status")
        assert (code, "there is none" in out) == (5, True)
        await site.webhook("install")
        code, out, _ = await site.webhook("status")
        assert "does not send workflow_job" in out
        app.hook.events = ("workflow_job",)
        code, out, _ = await site.webhook("install")
        assert (code, out.startswith(f"github/app: {url}: brought up to date")) == (0, True)
        code, out, _ = await site.webhook("status")
        assert (code, "nothing was delivered yet" in out) == (0, True)
        code, out, _ = await site.webhook("test")
        assert (code, "has no ping" in out) == (5, True)
        site.sim.world.queue_run(site.sim.world.repositories["acme/app"], [JobSpec(labels=("x",))])
        await seen(site.sim, "delivery_sent", event="workflow_job", status=0)
        code, out, _ = await site.webhook("test")
        assert (code, "workflow_job of before, delivered again, not delivered" in out) == (5, True)
        assert len(app.hook.deliveries) == 2
        assert app.hook.deliveries[0].guid == app.hook.deliveries[1].guid
        code, out, _ = await site.webhook("remove")
        assert (code, "switch it off in the App's settings" in out) == (5, True)
        assert app.hook.url == url
        assert list(site.hooks) == [OTHER]


async def test_an_apps_hook_that_leads_elsewhere_is_left_alone(tmp_path, capsys):
    async with staged_app(tmp_path, "http://127.0.0.1:9/webhooks/github", capsys) as (site, app):
        app.hook.url, app.hook.secret = OTHER, "theirs"
        for word in ("install", "status", "test", "remove"):
            code, out, _ = await site.webhook(word)
            assert (code, f"leads to {OTHER}" in out) == (5, True), word
        assert (app.hook.url, app.hook.secret) == (OTHER, "theirs")
        (tmp_path / "app.pem").write_text("no key")
        code, _, err = await site.webhook("status")
        assert (code, "private_key_file" in err) == (4, True)


async def test_the_apps_hook_needs_an_app(tmp_path, capsys):
    async with staged(tmp_path, "http://127.0.0.1:9/webhooks/github", capsys) as site:
        text = (tmp_path / "c.toml").read_text().replace("webhook_url", 'webhook_owner = "app"\nwebhook_url')
        (tmp_path / "c.toml").write_text(text)
        code, _, err = await site.webhook("status")
        assert (code, "app_id" in err) == (3, True)
