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
from ephemerd.testing.forge_sim.main import ForgeSim, Options, running

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
