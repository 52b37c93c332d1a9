"""The service of the daemon: what is written, what the service manager is asked to do, and what is refused."""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ephemerd.cli import install, service_launchd, service_systemd
from ephemerd.cli.service_systemd import Service, unit

PROGRAM = ("/opt/ephemerd/.venv/bin/ephemerd",)


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine whose units lie in a folder of the test and whose managers write down what they are asked."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name in ("systemctl", "launchctl"):
        program = bin_folder / name
        program.write_text(
            f'#!/bin/sh\necho "{name} $@" >> {tmp_path}/asked\n'
            f"if [ -e {tmp_path}/fails ]; then echo 'no manager' >&2; exit 1; fi\n"
        )
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(service_systemd, "SYSTEM_FOLDER", tmp_path / "units")
    monkeypatch.setattr(service_launchd, "SYSTEM_FOLDER", tmp_path / "daemons")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (tmp_path / "config.toml").write_text("")
    return tmp_path


def asked(machine: Path) -> list[str]:
    file = machine / "asked"
    return file.read_text().splitlines() if file.exists() else []


# -- systemd -------------------------------------------------------------------------------------------


def test_the_unit_says_what_runners_need():
    found = lines(unit(Service("ephemerd", PROGRAM, Path("/etc/ephemerd/config.toml"))))
    for line in (
        "Type=notify",
        "KillMode=process",
        "OOMPolicy=continue",
        "Delegate=yes",
        "Restart=always",
        "RestartPreventExitStatus=2 3 4",
        "WatchdogSec=60",
        "ExecReload=/bin/kill -HUP $MAINPID",
        "StateDirectory=ephemerd",
        "WantedBy=multi-user.target",
        "ExecStart=/opt/ephemerd/.venv/bin/ephemerd serve --config /etc/ephemerd/config.toml",
    ):
        assert line in found
    forbidden = (
        "NoNewPrivileges",
        "Private",
        "Protect",
        "ReadOnly",
        "SystemCallFilter",
        "MemoryDeny",
        "RestrictSUID",
    )
    assert [line for line in found if line.startswith(forbidden)] == [], "jobs would inherit it"


def test_hardening_is_for_jobs_that_never_become_root():
    found = lines(unit(Service("ephemerd", PROGRAM, harden=True)))
    assert "NoNewPrivileges=yes" in found
    (bounded,) = [line for line in found if line.startswith("CapabilityBoundingSet=")]
    assert "CAP_SETUID" in bounded
    assert "CAP_SYS_ADMIN" not in bounded
    assert not any(line.startswith(("PrivateTmp", "ProtectHome", "ProtectSystem")) for line in found), (
        "runners would lose their folders when the daemon starts again"
    )


def test_another_account_and_secrets():
    found = lines(
        unit(
            Service(
                "ephemerd",
                PROGRAM,
                user="ci",
                credentials=(("token", Path("/etc/a token")), ("hook", Path("/h"))),
            )
        )
    )
    assert "User=ci" in found
    assert "LoadCredential=token:/etc/a token" in found
    assert "LoadCredential=hook:/h" in found


def test_a_unit_of_ones_own_account():
    found = lines(unit(Service("ephemerd", PROGRAM, own=True)))
    assert "WantedBy=default.target" in found
    assert not any(
        line.startswith(("User=", "StateDirectory", "RuntimeDirectory", "After=", "CapabilityBoundingSet"))
        for line in found
    )


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("/opt/my runner/x", '"/opt/my runner/x"'),
        ("/opt/100%/x", "/opt/100%%/x"),
        ('/opt/a"b', '"/opt/a\\"b"'),
        ("/opt/$HOME/x", "/opt/$$HOME/x"),
        ("/opt/a\\b", '"/opt/a\\\\b"'),
    ],
)
def test_words_that_systemd_would_read_otherwise(word, written):
    assert f"ExecStart={written} serve" in unit(Service("ephemerd", (word,)))


KINDS = [
    Service("ephemerd", ("/bin/sh",), Path("/etc/ephemerd/config.toml")),
    Service("ephemerd", ("/bin/sh",), Path("/etc/a path/100%.toml"), harden=True),
    Service("ephemerd", ("/bin/sh",), user="daemon", credentials=(("token", Path("/etc/hostname")),)),
    Service("ephemerd", ("/bin/sh",), own=True),
]


@pytest.mark.platform("linux")
@pytest.mark.parametrize("service", KINDS)
def test_systemd_finds_nothing_wrong_with_the_unit(service, tmp_path):
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd is not here")
    file = tmp_path / "ephemerd.service"
    file.write_text(unit(service))
    scope = ["--user"] if service.own else []
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(
        [program, "verify", "--man=no", "--generators=no", "--recursive-errors=no", *scope, str(file)],
        capture_output=True,
        text=True,
        timeout=100,
        env=env,
    )
    assert (done.returncode, [line for line in done.stderr.splitlines() if "ephemerd.service" in line]) == (
        0,
        [],
    )


@pytest.mark.platform("linux")
def test_dry_run_prints_and_changes_nothing(cli, machine):
    done = cli("install", "--dry-run", "--enable", "--start", "-c", "conf.toml")
    assert done.code == 0
    assert f"--config {Path.cwd()}/conf.toml" in done.out
    assert done.out.splitlines()[-2:] == [
        "# then: systemctl enable ephemerd.service",
        "# then: systemctl restart ephemerd.service",
    ]
    assert not (machine / "units").exists()
    assert asked(machine) == []


@pytest.mark.platform("linux")
def test_it_is_written_and_neither_enabled_nor_started(cli, machine):
    done = cli("install", "-c", str(machine / "config.toml"))
    assert done.code == 0
    file = machine / "units" / "ephemerd.service"
    assert "KillMode=process" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o644
    assert asked(machine) == ["systemctl daemon-reload"]
    assert "systemctl enable --now ephemerd" in done.err


@pytest.mark.platform("linux")
def test_enabled_started_and_removed(cli, machine):
    assert cli("install", "--enable", "--start", "--name", "eph-two").code == 0
    assert asked(machine)[1:] == ["systemctl enable eph-two.service", "systemctl restart eph-two.service"]
    shown = cli("uninstall", "--dry-run", "--name", "eph-two").out.splitlines()
    assert shown[0] == "systemctl disable --now eph-two.service"
    assert (machine / "units" / "eph-two.service").exists()
    assert cli("uninstall", "--name", "eph-two").code == 0
    assert not (machine / "units" / "eph-two.service").exists()
    assert asked(machine)[-2:] == ["systemctl disable --now eph-two.service", "systemctl daemon-reload"]
    assert cli("uninstall", "--name", "eph-two").code == 2


@pytest.mark.platform("linux")
def test_a_service_of_ones_own(cli, machine, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert cli("install", "--user").code == 0
    assert (machine / "home" / ".config" / "systemd" / "user" / "ephemerd.service").exists()
    assert asked(machine) == ["systemctl --user daemon-reload"]
    assert cli("uninstall", "--user").code == 0


@pytest.mark.platform("linux")
def test_what_the_manager_refuses_is_told(cli, machine):
    (machine / "fails").touch()
    done = cli("install")
    assert done.code == 5
    assert "no manager" in done.err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--name", "Ephemerd"), 2),
        (("--name", "../x"), 2),
        (("--credential", "token"), 2),
        (("--credential", "a/b=/x"), 2),
        (("--user", "--run-as", "ci"), 2),
        (("-c", "/nowhere/config.toml"), 3),
    ],
)
def test_what_cannot_be_installed(cli, machine, arguments, code):
    done = cli("install", *arguments)
    assert done.code == code
    assert not (machine / "units").exists()


@pytest.mark.platform("linux")
def test_secrets_that_the_configuration_takes_from_systemd_have_to_be_given(cli, machine):
    config, token = machine / "config.toml", machine / "token"
    config.write_text('[forge.github]\ntoken_file = "credential:token"\nscope = ["repo:a/b"]\n')
    missing = cli("install", "-c", str(config))
    assert missing.code == 4
    assert "--credential token=FILE" in missing.err
    assert cli("install", "-c", str(config), "--credential", f"token={token}").code == 4, "no such file"
    token.write_text("x")
    assert cli("install", "-c", str(config), "--credential", f"token={token}").code == 0
    config.write_text("not toml [")
    assert cli("install", "-c", str(config)).code == 0, "what is wrong with it is for 'check' to tell"


def test_only_root_installs_for_the_system(cli, machine, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert cli("install").code == 5
    assert not (machine / "units").exists()


# -- launchd -------------------------------------------------------------------------------------------


@pytest.fixture
def mac(machine, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(os, "getuid", lambda: 501)
    return machine


def test_a_daemon_of_launchd(cli, mac):
    assert cli("install", "--enable", "--start", "-c", str(mac / "config.toml"), "--run-as", "ci").code == 0
    content = plistlib.loads((mac / "daemons" / "org.ephemerd.ephemerd.plist").read_bytes())
    assert content["AbandonProcessGroup"] is True, "otherwise its runners die with it"
    assert content["KeepAlive"] is True
    assert content["UserName"] == "ci"
    assert content["ProgramArguments"][-3:] == ["serve", "--config", str(mac / "config.toml")]
    assert asked(mac) == [
        "launchctl enable system/org.ephemerd.ephemerd",
        f"launchctl bootstrap system {mac}/daemons/org.ephemerd.ephemerd.plist",
    ]
    assert cli("uninstall").code == 0
    assert asked(mac)[-1] == "launchctl bootout system/org.ephemerd.ephemerd"
    assert not list((mac / "daemons").iterdir())


def test_an_agent_of_ones_own(cli, mac, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 501)
    assert cli("install", "--user", "--start").code == 0
    assert (mac / "home" / "Library" / "LaunchAgents" / "org.ephemerd.ephemerd.plist").exists()
    assert asked(mac)[0].startswith("launchctl bootstrap gui/501 ")


def test_launchd_keeps_no_secrets(cli, mac):
    assert cli("install", "--credential", "token=/etc/token").code == 2


def test_elsewhere_there_is_no_manager(cli, machine, monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    assert cli("install").code == 5


def test_the_program_is_named_whole():
    assert Path(install._program()[0]).is_absolute()
