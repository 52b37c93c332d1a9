"""Joining the concrete classes: what a configuration becomes, and which exit code a start that fails has."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import signal
import socket
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ephemerd import bootstrap, joining
from ephemerd.adapters.forges.github.app import AppTokens
from ephemerd.adapters.forges.github.client import GitHubForge
from ephemerd.adapters.runtimes.process import ProcessRuntime
from ephemerd.bootstrap import StartError, Wishes, build
from ephemerd.config.effective import Effective, Examined, examine, load_settings
from ephemerd.core.machine import Core
from ephemerd.domain.pool import DAY
from ephemerd.ports.errors import Denied
from tests.unit.app.fakes import until

CONFIG = """
[forge.github]
url = "http://127.0.0.1:9"
scope = "repo:acme/app"
token_file = "token"
webhook_secret_file = "hook"

[pools.linux]
labels = ["linux"]
runtime = "process"

[pools.big]
labels = ["linux", "big"]
runtime = "process"
follow = "listening"

[policy]
retiring_limit = "7s"

[runner]
application = "application"
work_dir = "state/runners"
allow_root = true

[server]
webhook_listen = "127.0.0.1:0"
api_socket = "api.sock"
metrics_listen = "none"
store = "sqlite://{folder}/state.db"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("token", "hook"):
        Path(name).write_text("a-secret-of-tests")
    return tmp_path


def load(folder: Path, *changes: tuple[str, str]) -> Effective:
    text = CONFIG.format(folder=folder)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "ephemerd.toml"
    path.write_text(text)
    return load_settings(path, {"HOME": str(folder)})


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


def start(effective: Effective, **more: object) -> tuple[int, str]:
    """Run `serve` to its end and return its code and what it wrote."""
    stderr = io.StringIO()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.stderr", stderr)
        code = bootstrap.serve(effective, Wishes(log_level="error", **more))  # type: ignore[arg-type]
    return code, stderr.getvalue()


@pytest.fixture
def restored():
    """Logging and signals as they were, after `serve` has run here."""
    import logging

    import structlog

    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    root.handlers[:] = before
    root.setLevel(level)
    structlog.reset_defaults()
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("restored")
def test_a_port_that_is_taken_is_code_5_with_two_lines(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, text = start(load(folder, ("127.0.0.1:0", f"127.0.0.1:{port}")))
    assert code == 5
    assert text.splitlines() == [
        f"error: cannot listen on 127.0.0.1:{port}: the address is in use",
        "  fix: free the port or choose another in [server]",
    ]
    assert not Path("api.sock").exists()


@pytest.mark.usefixtures("restored")
def test_a_store_that_cannot_be_opened_is_code_5(folder):
    (folder / "state.db").write_bytes(b"this is no database, and quite long enough to be looked at" * 99)
    code, text = start(load(folder))
    assert code == 5
    assert "state.db" in text
    assert "Traceback" not in text


@pytest.mark.usefixtures("restored")
def test_an_open_api_beyond_loopback_is_refused(folder):
    code, text = start(load(folder), open_api="0.0.0.0:0")
    assert code == 5
    assert "without a token" in text


@pytest.mark.usefixtures("restored")
def test_a_core_that_cannot_begin_is_told_in_two_lines(folder, monkeypatch):
    def raising(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Core, "handle", raising)
    code, text = start(load(folder))
    assert code == 1
    assert "error: the core cannot begin with this store: a bug" in text


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_peace(folder, number):
    effective = load(folder)
    run = bootstrap._run

    async def run_and_end(daemon, *more):
        ending = asyncio.create_task(run(daemon, *more))
        await daemon.booted()
        os.kill(os.getpid(), number)
        await ending

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bootstrap, "_run", run_and_end)
        code, _ = start(effective)
    assert code == 0
    assert not Path("api.sock").exists()


@pytest.mark.usefixtures("restored")
def test_a_second_signal_does_not_wait(folder, monkeypatch):
    effective = load(folder)
    run = bootstrap._run

    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    async def run_and_end(daemon, *more):
        ending = asyncio.create_task(run(daemon, *more))
        await daemon.booted()
        daemon.executor._running.add(stuck := asyncio.create_task(hang()))
        stuck.add_done_callback(daemon.executor._ended)
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: daemon.stopping)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(ending, 10)

    monkeypatch.setattr(bootstrap, "_run", run_and_end)
    assert start(effective)[0] == 0


@pytest.mark.usefixtures("restored")
def test_a_hangup_reads_the_configuration_again_and_applies_it(folder, monkeypatch):
    effective = load(folder)
    run, seen = bootstrap._run, []
    changes = (('labels = ["linux"]\n', 'labels = ["linux"]\nmax_concurrent = 9\n'),)
    more = '\n[retention]\nhistory = "3d"\n'

    def again() -> Examined:
        text = CONFIG.format(folder=folder).replace(*changes[0], 1) + more
        path = folder / "again.toml"
        path.write_text(text)
        return examine(path, {"HOME": str(folder)}, environment=False)

    async def run_and_end(daemon, *rest):
        ending = asyncio.create_task(run(daemon, *rest))
        await daemon.booted()
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: daemon.upkeep.keep.age == 3 * DAY, 60)
        seen.append((daemon.core.state.pool("linux").max_concurrent, logging.getLogger().level))
        os.kill(os.getpid(), signal.SIGTERM)
        await ending

    monkeypatch.setattr(bootstrap, "_run", run_and_end)
    code, _ = start(effective, reread=again)
    assert code == 0
    assert seen == [(9, logging.ERROR)], "--log-level goes before the configuration"


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
