"""Joining the concrete classes: what a configuration becomes, and what keeps it from becoming anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ephemerd import joining
from ephemerd.adapters.forges.github.app import AppTokens
from ephemerd.adapters.forges.github.client import GitHubForge
from ephemerd.adapters.runtimes.process import ProcessRuntime
from ephemerd.bootstrap import build
from ephemerd.ports.errors import Denied
from ephemerd.storing import StartError
from tests.unit.configured import folder, load

__all__ = ["folder"]


async def test_all_pools_of_this_machine_share_one_runtime(folder):
    parts = build(load(folder))
    runtimes = parts.daemon.ports.runtimes
    assert set(runtimes) == {"linux", "big"}
    assert runtimes["linux"] is runtimes["big"]
    runtime = runtimes["linux"]
    assert isinstance(runtime, ProcessRuntime)
    options = runtime._registry.options("big")
    assert (options.follow, options.stop_wait, options.kill_wait) == ("listening", 3.0, 3.0)
    assert options.work_dir == folder / "state" / "runners"
    assert options.logs_dir == folder / "state" / "logs"
    await parts.daemon.close()


async def test_a_reload_leaves_runners_in_the_folder_that_the_daemon_began_with(folder):
    """Elsewhere no listing would find what runs."""
    parts = build(load(folder))
    wanted = load(folder, ("state/runners", "other/runners"), ('"big"]', '"big"]\nuser = "nobody"'))
    parts.placing.prepared(wanted, wanted.to_setup())()
    runtime = parts.daemon.ports.runtimes["big"]
    assert isinstance(runtime, ProcessRuntime)
    options = runtime._registry.options("big")
    assert (options.user, options.work_dir) == ("nobody", folder / "state" / "runners")
    assert options.logs_dir == folder / "state" / "logs"
    await parts.daemon.close()


async def test_runners_are_made_from_the_version_that_is_downloaded(folder):
    """The folder is that of the moment: before the first version, after it, after the next one, and by hand again."""
    changes = ('application = "application"', 'application = "download"')
    parts = build(load(folder, changes))
    runtime = parts.daemon.ports.runtimes["big"]
    assert isinstance(runtime, ProcessRuntime)

    def used() -> Path:
        return runtime._registry.options("big").application

    where = folder / "state" / "applications"
    assert used() == where / "none"
    assert dict(parts.daemon.held()).keys() == {"linux", "big"}
    version = where / "2.336.0-key"
    version.mkdir(parents=True)
    (version / ".ephemerd.json").write_text('{"version": "2.336.0", "at": 1, "verified": true}')
    (where / ".uses.json").write_text(
        '{"version": 1, "uses": {"github/repo:acme/app": [["2.336.0-key", 1]]}}'
    )
    await parts.applications.open()
    assert used() == version
    assert parts.daemon.held() == ()
    wanted = load(folder)
    parts.placing.prepared(wanted, wanted.to_setup())()
    assert used() == folder / "application"
    await parts.daemon.close()


@pytest.mark.parametrize("application", ["application", "download"])
async def test_which_applications_are_at_hand_is_said(folder, application):
    effective = load(folder, ('application = "application"', f'application = "{application}"'))
    version = folder / "state" / "applications" / "2.336.0-key"
    version.mkdir(parents=True)
    assert await joining.applications_at_hand(effective) == ""
    (version / ".ephemerd.json").write_text('{"version": "2.336.0", "at": 1, "verified": true}')
    said = await joining.applications_at_hand(effective)
    assert said.startswith("2.336.0 (") if application == "download" else not said


async def test_what_is_known_beforehand_is_in_the_metrics_of_the_first_scrape(folder):
    parts = build(load(folder))
    await parts.daemon.open()
    text = parts.metrics.text("")[0].decode()
    assert 'ephemerd_webhooks_total{event="workflow_job",forge="github",result="stored"} 0.0' in text
    assert "a-secret-of-tests" not in text
    await parts.daemon.close()


async def test_an_empty_secret_is_a_matter_of_credentials(folder, monkeypatch):
    effective = load(folder)
    Path("token").write_text("two words")
    parts = build(effective)
    await parts.daemon.close()
    monkeypatch.setattr(joining, "make_webhooks", lambda *_, **__: (_ for _ in ()).throw(Denied("no secret")))
    with pytest.raises(StartError) as caught:
        build(effective)
    assert caught.value.code == 4


async def test_a_ca_file_that_is_none_is_a_matter_of_the_environment(folder):
    Path("ca.pem").write_text("nonsense")
    effective = load(
        folder, ('url = "http://127.0.0.1:9"', 'url = "https://127.0.0.1:9"\nca_file = "ca.pem"')
    )
    with pytest.raises(StartError) as caught:
        build(effective)
    assert caught.value.code == 5
    assert "ca.pem" in str(caught.value)


async def test_an_app_registers_runners_in_a_group_of_an_organization(folder):
    """The key's file is handed over by its path, so that a new key in it is found."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
    Path("app.pem").write_text(pem)
    Path("app.pem").chmod(0o600)
    organization = ("repo:acme/app", "org:acme")
    named = ('token_file = "token"', 'app_id = 7\nprivate_key_file = "app.pem"\nrunner_group = "ci"')
    parts = build(load(folder, organization, named))
    forge = parts.daemon.ports.forges["github"]
    assert isinstance(forge, GitHubForge)
    assert isinstance(forge._connection._tokens, AppTokens)
    assert forge._connection._tokens._key_file == folder / "app.pem"
    assert forge._groups.name == "ci"
    await parts.daemon.close()
