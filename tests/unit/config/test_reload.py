"""What a configuration that is read again changes: key by key, now or at the next start, never a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from ephemerd.config.effective import Effective, load_settings
from ephemerd.config.reload import Change, Compared, compare, running

CONFIG = """
[forge.github]
url = "http://127.0.0.1:9"
scope = "repo:acme/app"
token_file = "{folder}/token"
webhook_secret_file = "{folder}/hook"

[pools.linux]
labels = ["linux"]
runtime = "process"
max_concurrent = 2

[policy]
settle = "5s"

[runner]
work_dir = "{folder}/runners"

[server]
store = "sqlite://{folder}/state.db"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("token", "hook"):
        (tmp_path / name).write_text(f"the-{name}-of-tests")
        (tmp_path / name).chmod(0o600)
    return tmp_path


def load(folder: Path, *changes: tuple[str, str], more: str = "") -> Effective:
    text = CONFIG.format(folder=folder) + more
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "config.toml").write_text(text)
    return load_settings(folder / "config.toml", {"HOME": str(folder)})


def after(folder: Path, *changes: tuple[str, str], more: str = "") -> Compared:
    return compare(running(load(folder)), load(folder, *changes, more=more))


def by_key(found: Compared) -> dict[str, Change]:
    return {change.key: change for change in found.changes}


def test_nothing_differs(folder):
    assert after(folder).changes == ()


def test_sizes_and_durations_are_applied(folder):
    found = after(folder, ("max_concurrent = 2", "max_concurrent = 7"), ('settle = "5s"', 'settle = "1s"'))
    changes = by_key(found)
    assert changes["pools.linux.max_concurrent"] == Change("pools.linux.max_concurrent", "2", "7", True)
    assert changes["hosts.local.slots"].after == "7", "what is derived from it is told too"
    assert changes["policy.settle"].applied
    assert found.setup.pools[0].max_concurrent == 7
    assert found.setup.hosts[0].slots == 7
    assert found.setup.policy.settle == 1_000


RESTART = [
    ("server", 'webhook_listen = "127.0.0.1:1234"', "server.webhook_listen"),
    ("server", 'metrics_listen = "none"', "server.metrics_listen"),
    ("server", 'api_socket = "/tmp/x.sock"', "server.api_socket"),
    ("server", 'loop_limit = "none"', "server.loop_limit"),
]


@pytest.mark.parametrize(("table", "line", "key"), RESTART)
def test_where_it_listens_needs_a_restart(folder, table, line, key):
    changes = by_key(after(folder, (f"[{table}]", f"[{table}]\n{line}")))
    assert not changes[key].applied
    assert "began" in changes[key].note


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("127.0.0.1:9", "127.0.0.1:10", "forge.github.url"),
        ("{folder}/runners", "{folder}/elsewhere", "runner.work_dir"),
        ("{folder}/state.db", "{folder}/other.db", "server.store"),
        ("max_concurrent = 2", 'max_concurrent = 2\nhost = "big"\n[hosts.big]', "pools.linux.host"),
    ],
)
def test_what_it_was_built_from_needs_a_restart(folder, old, new, key):
    change = by_key(after(folder, (old.format(folder=folder), new.format(folder=folder))))[key]
    assert (change.applied, bool(change.note)) == (False, True)


@pytest.mark.parametrize("line", ['disk_reserve = "9GiB"', 'images_unused = "3d"', 'images_size = "9GiB"'])
def test_how_an_engine_is_kept_needs_a_restart(folder, line):
    key, pool = f"hosts.local.{line.split()[0]}", '\n[pools.boxes]\nlabels = ["box"]\nruntime = "docker"\n'
    before, wanted = load(folder, more=pool), load(folder, more=f"{pool}[hosts.local]\n{line}\n")
    change = by_key(compare(running(before), wanted))[key]
    assert (change.applied, bool(change.note)) == (False, True)


def test_what_waits_for_a_restart_is_said_again_and_what_was_applied_is_not(folder):
    first = after(folder, ("127.0.0.1:9", "127.0.0.1:10"), ("max_concurrent = 2", "max_concurrent = 3"))
    again = compare(
        first.running,
        load(folder, ("127.0.0.1:9", "127.0.0.1:10"), ("max_concurrent = 2", "max_concurrent = 3")),
    )
    assert [(change.key, change.applied) for change in again.changes] == [("forge.github.url", False)]
    assert compare(again.running, load(folder, ("max_concurrent = 2", "max_concurrent = 3"))).changes == ()


def test_how_much_is_kept_is_applied(folder):
    (change,) = after(folder, more='\n[retention]\nhistory = "3d"\n').changes
    assert (change.key, change.applied) == ("retention.history", True)


def test_pools_come_and_go(folder):
    more = '\n[pools.gpu]\nlabels = ["gpu"]\nruntime = "process"\n'
    came = after(folder, more=more)
    assert {change.note for change in came.changes if change.key.startswith("pools.gpu")} == {"added"}
    assert all(change.applied for change in came.changes)
    assert [pool.name for pool in came.setup.pools] == ["linux", "gpu"]
    went = compare(came.running, load(folder))
    notes = {change.note for change in went.changes if change.key.startswith("pools.gpu")}
    assert notes == {"removed; its runners are drained"}
    assert [pool.name for pool in went.setup.pools] == ["linux"]
    assert went.running.texts == running(load(folder)).texts


def test_a_pool_of_a_forge_that_is_not_connected_waits_for_the_restart(folder):
    more = (
        f'\n[forge.other]\nurl = "http://127.0.0.1:8"\nscope = "repo:b/c"\ntoken_file = "{folder}/token"\n'
        f'webhook_secret_file = "{folder}/hook"\n'
        '[pools.far]\nlabels = ["far"]\nruntime = "process"\nforge = "other"\n'
    )
    found = after(folder, ('labels = ["linux"]', 'labels = ["linux"]\nforge = "github"'), more=more)
    assert [pool.name for pool in found.setup.pools] == ["linux"]
    changes = by_key(found)
    assert not changes["pools.far.labels"].applied
    assert not changes["forge.other.url"].applied
    assert "pools.far.labels" not in found.running.texts


def test_a_new_webhook_secret_is_applied_and_not_shown(folder):
    before = running(load(folder))
    (folder / "hook").write_text("another-hook-secret")
    found = compare(before, load(folder))
    (change,) = found.changes
    assert (change.key, change.applied) == ("forge.github.webhook_secret", True)
    assert "another" not in repr(found)
    assert compare(found.running, load(folder)).changes == ()


def test_a_new_token_in_its_file_is_found_without_a_reload(folder):
    before = running(load(folder))
    (folder / "token").write_text("another-token")
    assert compare(before, load(folder)).changes == ()


def test_a_limit_of_the_loop_below_its_rest_is_refused(folder):
    from ephemerd.config.findings import ConfigError

    with pytest.raises(ConfigError) as caught:
        load(folder, ("[server]", '[server]\nloop_limit = "20s"'))
    assert "loop_limit" in str(caught.value)


def test_who_may_use_the_machines_holds_at_once(folder):
    found = after(folder, ("scope =", 'forks = ["acme/app"]\nscope ='))
    assert by_key(found)["forge.github.forks"].applied
    assert found.setup.access[0].forks == ("acme/app",)


def test_how_jobs_are_heard_of_waits_for_a_restart_and_so_does_what_silence_means(folder):
    found = after(folder, ("scope =", 'discovery = "poll"\nscope ='))
    assert not by_key(found)["forge.github.discovery"].applied
    assert found.setup.pools[0].observed
    polled = load(folder, ("scope =", 'discovery = "poll"\nscope ='))
    again = compare(running(polled), load(folder))
    assert not again.setup.pools[0].observed


def test_a_scope_that_is_polled_beside_others_stays_so_until_a_restart(folder):
    polled = load(folder, ("scope =", 'polled = ["repo:acme/app"]\nscope ='))
    assert not polled.to_setup().pools[0].observed
    again = compare(running(polled), load(folder))
    assert not by_key(again)["forge.github.polled"].applied
    assert not again.setup.pools[0].observed
    first = compare(running(load(folder)), polled)
    assert first.setup.pools[0].observed
