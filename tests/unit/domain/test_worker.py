"""Process identifiers: `worker_names.json` row by row, and the self-built runner under dotnet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ephemerd.domain.worker import base_name, is_hosted_worker, is_listener, is_worker

DATA = json.loads((Path(__file__).parents[2] / "data" / "worker_names.json").read_text("utf-8"))


def test_data_is_whole():
    assert len(DATA["names"]) == 50


@pytest.mark.parametrize("row", DATA["names"], ids=lambda row: str(row["id"]))
def test_is_it_the_worker(row):
    assert is_worker(row["identifier"]) is row["is_worker"]


@pytest.mark.parametrize("row", [r for r in DATA["names"] if r["is_worker"]], ids=lambda row: str(row["id"]))
def test_the_worker_is_not_the_listener(row):
    assert not is_listener(row["identifier"])


@pytest.mark.parametrize(
    "name",
    ["Runner.Listener", "/opt/r/bin/Runner.Listener", r"C:\r\bin\RUNNER.LISTENER.EXE", "runner.listener\n"],
)
def test_listener(name):
    assert is_listener(name)
    assert not is_worker(name)


@pytest.mark.parametrize(
    ("program", "arguments", "hosted"),
    [
        ("dotnet", ("/opt/r/bin/Runner.Worker.dll", "spawnclient", "3", "4"), True),
        ("/usr/bin/dotnet", ("Runner.Worker.dll",), True),
        (r"C:\dotnet\dotnet.EXE", ("exec", r"C:\r\RUNNER.WORKER.DLL"), True),
        ("dotnet", ("Runner.Listener.dll",), False),
        ("dotnet", (), False),
        ("python", ("Runner.Worker.dll",), False),
        ("dotnet", ("--log=Runner.Worker.dll.txt",), False),
    ],
)
def test_worker_under_dotnet(program, arguments, hosted):
    assert is_hosted_worker(program, arguments) is hosted


def test_base_name_takes_either_slash():
    assert base_name("a/b\\C.exe ") == "c.exe"
