"""Pools of containers: what is read, what is refused, what the machine lacks, and what the runtime gets of it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ephemerd.config import environment
from ephemerd.placing import container_options
from tests.unit.config.conftest import GOOD

CONTAINERS = GOOD.replace('"process"', '"docker"')
FULL = (
    CONTAINERS
    + """
[pools.linux.container]
image = "image:1"
pull = "never"
runner_root = "/runner/"
application = "mount"
network = "bridge"
allow = ["10.1.2.3", "fd00::/64"]
dns = ["10.1.2.4"]
subnets = "10.200.0.0/16"
memory = "4GiB"
cpus = 1.5
pids = 100
shm = "1GiB"
disk = "20GiB"
work_tmpfs = "2GiB"
tool_cache = "tools"
capabilities = ["CHOWN"]
new_privileges = true

[runner]
application = "application"
extra_env = {A = "b"}
"""
)


def test_every_key_reaches_the_runtime(bench):
    effective = bench.load(FULL)
    options = container_options(effective, effective.to_setup(), "local")["linux"]
    assert (options.image, options.pull, options.runner_root) == ("image:1", "never", "/runner")
    assert options.application == bench.folder / "application"
    assert options.tool_cache == bench.folder / "tools"
    assert (options.network, options.allow, options.dns) == (
        "bridge",
        ("10.1.2.3", "fd00::/64"),
        ("10.1.2.4",),
    )
    assert (options.subnets, options.memory, options.cpus) == ("10.200.0.0/16", 4 << 30, 1.5)
    assert (options.pids, options.shm, options.disk, options.work_tmpfs) == (100, 1 << 30, 20 << 30, 2 << 30)
    assert (options.capabilities, options.new_privileges) == (("CHOWN",), True)
    assert (options.extra_env, options.most, options.stop_wait) == ({"A": "b"}, 4, 30.0)
    assert options.logs_dir != options.files_dir
    assert container_options(effective, effective.to_setup(), "elsewhere") == {}


def test_what_is_safe_is_the_default(bench):
    effective = bench.load(CONTAINERS)
    options = container_options(effective, effective.to_setup(), "local")["linux"]
    assert (options.network, options.capabilities, options.new_privileges) == ("isolated", (), False)
    assert (options.application, options.tool_cache, options.allow) == (None, None, ())


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('network = "open"', "network"),
        ('allow = ["somewhere"]', "allow"),
        ('dns = ["10.0.0.0/8"]', "dns"),
        ('subnets = "10.0.0.1/16"', "subnets"),
        ('subnets = "10.0.0.0/30"', "subnets"),
        ('subnets = "fd00::/64"', "subnets"),
        ('runner_root = "runner"', "runner_root"),
        ('runner_root = "/a/../b"', "runner_root"),
        ("pids = 0", "pids"),
        ("cpus = 0", "cpus"),
        ('memory = "much"', "memory"),
        ('image_name = "x"', "image_name"),
    ],
)
def test_what_cannot_be_is_refused_at_its_key(bench, line, key):
    (found,) = (one for one in bench.findings(f"{CONTAINERS}\n[pools.linux.container]\n{line}\n") if one.code)
    assert found.where.startswith(f"pools.linux.container.{key}")


@pytest.mark.parametrize(
    "url", ["docker.sock", "unix://docker.sock", "tcp://box", "http://box:1", "ssh://", "ssh://me:secret@box"]
)
def test_an_engines_address_has_one_of_three_forms(bench, url):
    found = bench.findings(f'{CONTAINERS}\n[hosts.local]\nengine = "{url}"\n')
    assert [one.where.split(" ")[0] for one in found if one.code] == ["hosts.local.engine"]
    assert "secret" not in str(found)


def test_more_spares_than_runners_is_said(bench):
    found = bench.only(GOOD.replace("runtime", "min_idle = 9\nruntime"))
    assert "max_concurrent (4)" in found.what


# The machine


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """A socket where an engine would listen, as root on Linux with everything installed."""
    monkeypatch.setattr(environment, "is_root", lambda: True)
    monkeypatch.setattr("ephemerd.config.environment.sys.platform", "linux")
    monkeypatch.setattr("ephemerd.config.environment.shutil.which", lambda name: f"/usr/bin/{name}")
    path = Path(tmp_path) / "e.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        yield f"unix://{path}"


def lacks(bench, engine: str, more: str = "") -> list[tuple[str, str]]:
    text = f'{CONTAINERS}{more}\n[hosts.local]\nengine = "{engine}"\n'
    findings = bench.examine(text, environment=True).findings
    return [(one.where.split(" ")[0], one.what) for one in findings if one.code]


def test_an_engine_and_root_with_nft_are_enough(bench, engine):
    """No application and no account of this machine is asked for."""
    assert lacks(bench, engine) == []


def test_an_engine_that_is_away_is_no_reason_to_end(bench, engine):
    """It is started after the daemon at boot, or restarted under it."""
    assert lacks(bench, "unix:///nowhere.sock") == []
    text = f'{CONTAINERS}\n[hosts.local]\nengine = "unix:///nowhere.sock"\n'
    (found,) = (one for one in bench.examine(text, environment=True).findings if "engine" in one.where)
    assert "no engine is there at the moment" in found.what


def test_a_file_that_is_no_socket(bench, engine):
    (Path(bench.folder) / "file").write_text("")
    ((key, what),) = lacks(bench, f"unix://{bench.folder}/file")
    assert key == "hosts.local.engine"
    assert "is no socket" in what
    ((_, what),) = lacks(bench, f"unix://{bench.folder}/file/below")
    assert "cannot be reached" in what


@pytest.mark.parametrize("lacking", ["root", "nft", "linux"])
def test_isolation_needs_root_nft_and_linux(bench, engine, monkeypatch, lacking):
    if lacking == "root":
        monkeypatch.setattr(environment, "is_root", lambda: False)
    elif lacking == "nft":
        monkeypatch.setattr("ephemerd.config.environment.shutil.which", lambda name: None)
    else:
        monkeypatch.setattr("ephemerd.config.environment.sys.platform", "darwin")
    ((key, _),) = lacks(bench, engine)
    assert key == "pools.linux.container.network"
    assert lacks(bench, engine, '\n[pools.linux.container]\nnetwork = "bridge"\n') == []


def test_runners_of_an_engine_elsewhere_cannot_be_isolated(bench, engine):
    ((key, what),) = lacks(bench, "ssh://me@box")
    assert key == "pools.linux.container.network"
    assert "another machine" in what


def test_a_mounted_application_has_to_be_there(bench, engine):
    more = '\n[pools.linux.container]\napplication = "mount"\n[runner]\napplication = "gone"\n'
    assert [key for key, _ in lacks(bench, engine, more)] == ["runner.application"]


@pytest.mark.parametrize(
    ("lines", "key", "code"),
    [
        ('docker = "sidecar"', "docker_rights", 3),
        ('docker = "sidecar"\ndocker_rights = "capabilities"', "docker_rights", 0),
        ('docker = "sidecar"\ndocker_rights = "privileged"\nnetwork = "host"', "network", 3),
        ('docker = "sidecar"\ndocker_rights = "privileged"\nwork_tmpfs = "1GiB"', "work_tmpfs", 3),
    ],
)
def test_an_engine_for_jobs_is_never_there_by_accident(bench, lines, key, code):
    found = bench.findings(f"{CONTAINERS}\n[pools.linux.container]\n{lines}\n")
    assert [
        one
        for one in found
        if one.where.startswith(f"pools.linux.container.{key}") and bool(one.code) is bool(code)
    ]


def test_without_an_engine_for_jobs_its_rights_do_not_matter(bench):
    found = bench.findings(f'{CONTAINERS}\n[pools.linux.container]\nwork_tmpfs = "1GiB"\nnetwork = "host"\n')
    assert not [one for one in found if "docker" in one.where]
