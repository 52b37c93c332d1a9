"""Where things are when nobody says."""

from __future__ import annotations

from pathlib import Path

import pytest

from ephemerd.config import paths

HOME = {"HOME": "/home/ann"}


def test_configuration_is_looked_for_in_the_order_of_the_documentation():
    assert paths.config_candidates(HOME, root=False) == [
        Path("/home/ann/.config/ephemerd/config.toml"),
        Path("/etc/ephemerd/config.toml"),
        Path("ephemerd.toml"),
    ]


def test_root_never_reads_the_current_folder():
    assert Path("ephemerd.toml") not in paths.config_candidates(HOME, root=True)


def test_xdg_is_honoured_where_it_is_absolute():
    assert paths.config_candidates({**HOME, "XDG_CONFIG_HOME": "/x"}, root=False)[0] == Path(
        "/x/ephemerd/config.toml"
    )
    assert paths.config_candidates({**HOME, "XDG_CONFIG_HOME": "x"}, root=False)[0] == Path(
        "/home/ann/.config/ephemerd/config.toml"
    )


@pytest.mark.parametrize(
    ("env", "root", "folder"),
    [
        ({"STATE_DIRECTORY": "/s:/t"}, True, "/s"),
        ({"STATE_DIRECTORY": "/s"}, False, "/s"),
        ({}, True, "/var/lib/ephemerd"),
        ({}, False, "/home/ann/.local/state/ephemerd"),
        ({"XDG_STATE_HOME": "/x"}, False, "/x/ephemerd"),
    ],
)
def test_the_state_folder(env, root, folder):
    assert paths.state_folder({**HOME, **env}, root=root) == Path(folder)


@pytest.mark.parametrize(
    ("env", "root", "folder"),
    [
        ({"RUNTIME_DIRECTORY": "/r"}, True, "/r"),
        ({}, True, "/run/ephemerd"),
        ({"XDG_RUNTIME_DIR": "/run/user/7"}, False, "/run/user/7/ephemerd"),
        ({}, False, "/home/ann/.local/state/ephemerd/run"),
        ({"RUNTIME_DIRECTORY": "relative"}, True, "/run/ephemerd"),
    ],
)
def test_the_runtime_folder(env, root, folder):
    assert paths.runtime_folder({**HOME, **env}, root=root) == Path(folder)


def test_a_client_prefers_its_own_socket_to_the_system_one(tmp_path, monkeypatch):
    system = tmp_path / "system"
    own = tmp_path / "own"
    for folder in (system, own):
        folder.mkdir()
    monkeypatch.setattr(paths, "SYSTEM_RUN", system)
    env = {"RUNTIME_DIRECTORY": str(own)}
    assert paths.default_socket(env) == own / "api.sock"
    (system / "api.sock").touch()
    assert paths.default_socket(env) == system / "api.sock"
    (own / "api.sock").touch()
    assert paths.default_socket(env) == own / "api.sock"
