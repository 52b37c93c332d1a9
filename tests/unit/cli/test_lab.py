"""The door to the test tools: what is handed over, and what is refused before anything is started."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ephemerd.testing import demo as demo_package
from ephemerd.testing.demo import DemoOptions
from ephemerd.testing.forge_sim import main as forge_sim


@pytest.fixture
def asked(monkeypatch):
    """What the demo was asked for; it ends with code 8 as if a promise had been broken."""
    seen: list[DemoOptions] = []

    def play(options: DemoOptions) -> int:
        seen.append(options)
        return 8

    monkeypatch.setattr(demo_package, "main", play)
    return seen


def test_the_demo_without_options_is_the_demo_s_own_default(cli, asked):
    assert cli("demo").code == 8
    assert asked == [DemoOptions()]


def test_the_options_of_the_demo(cli, asked, tmp_path):
    line = "demo --headless --json --jobs 60 --burst 9 --seed 3 --weather calm --port 0"
    cli(*line.split(), "--folder", str(tmp_path))
    (options,) = asked
    assert (options.jobs, options.burst, options.seed, options.weather) == (60, 9, 3, "calm")
    assert (options.headless, options.as_json, options.port, options.folder) == (True, True, 0, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["demo", "--weather", "fog"], "no weather is called 'fog'"),
        (["demo", "--runtime", "vm"], "there is no runtime 'vm'"),
        (["demo", "--jobs", "0"], "--jobs"),
        (["forge-sim", "--weather", "fog"], "no weather is called 'fog'"),
        (["forge-sim", "--repository", "acme"], "write OWNER/NAME"),
        (["forge-sim", "--repository", "a/b/c"], "write OWNER/NAME"),
        (["forge-sim", "--time-scale", "0.5"], "--time-scale"),
    ],
)
def test_wrong_usage(cli, asked, arguments, what):
    done = cli(*arguments)
    assert done.code == 2
    assert what in done.err
    assert asked == []


def test_a_port_that_is_taken_is_code_5(cli):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = cli("forge-sim", "--port", str(taken.getsockname()[1]))
    assert done.code == 5
    assert "cannot listen on" in done.err
    assert "  fix: choose another port" in done.err


def test_a_token_file_that_is_missing_is_code_4(cli, tmp_path):
    done = cli("forge-sim", "--token-file", str(tmp_path / "no"))
    assert done.code == 4
    assert str(tmp_path / "no") in done.err


def test_the_options_of_the_look_alike(cli, monkeypatch, tmp_path):
    seen = []

    async def serve(options):
        seen.append(options)

    monkeypatch.setattr(forge_sim, "serve_async", serve)
    files = [f"--{name}={tmp_path / name}" for name in ("truth", "token-file", "webhook-secret-file")]
    line = "--port 9 --weather bursty --seed 4 --time-scale 25 --repository a/b --hook-url http://h/"
    assert cli("forge-sim", *line.split(), *files, "--write-runner", str(tmp_path / "runner")).code == 0
    assert seen == [
        forge_sim.Options(
            port=9,
            weather="bursty",
            seed=4,
            time_scale=25.0,
            repository="a/b",
            hook_url="http://h/",
            truth_path=tmp_path / "truth",
            token_file=tmp_path / "token-file",
            webhook_secret_file=tmp_path / "webhook-secret-file",
            write_runner_dir=tmp_path / "runner",
        )
    ]


def test_the_look_alike_as_a_program(tmp_path: Path):
    arguments = ["forge-sim", "--write-runner", str(tmp_path / "runner")]
    with subprocess.Popen(
        [sys.executable, "-m", "ephemerd", *arguments], stdout=subprocess.PIPE, env=dict(os.environ)
    ) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["runner"] == str(tmp_path / "runner")
        assert (tmp_path / "runner" / "bin" / "Runner.Listener").exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
