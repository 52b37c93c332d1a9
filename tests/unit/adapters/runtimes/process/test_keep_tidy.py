"""How long the logs of runners that are over are kept: by age and by size, on the file's own times."""

from __future__ import annotations

import os

import pytest

from ephemerd.adapters.runtimes.process.keep import tidy

DAY = 86_400.0
NOW = 1_800_000_000.0


@pytest.fixture
def logs(tmp_path):
    return tmp_path / "logs"


def log(logs, name: str, age: float, size: int = 10, diag: int = 0) -> None:
    """Write a runner's log, last written `age` seconds ago, with so many bytes of diagnostics beside it."""
    logs.mkdir(exist_ok=True)
    files = [logs / f"{name}.log"]
    files[0].write_bytes(b"x" * size)
    if diag:
        folder = logs / f"{name}.diag"
        folder.mkdir()
        files.append(folder / "Runner_1.log")
        files[1].write_bytes(b"x" * diag)
    for file in files:
        os.utime(file, (NOW - age, NOW - age))


def left(logs) -> list[str]:
    return sorted(path.name for path in logs.iterdir())


def test_old_logs_go_with_their_diagnostics(logs):
    log(logs, "a", 3 * DAY, diag=5)
    log(logs, "b", 1 * DAY, diag=5)
    tidy(logs, (), age=2 * DAY, size=10**9, now=NOW)
    assert left(logs) == ["b.diag", "b.log"]


def test_beyond_the_size_the_oldest_go(logs):
    for number in range(5):
        log(logs, f"r{number}", number * DAY, size=40, diag=60)
    tidy(logs, (), age=100 * DAY, size=250, now=NOW)
    assert left(logs) == ["r0.diag", "r0.log", "r1.diag", "r1.log"]


def test_logs_of_living_runners_stay_and_count(logs):
    log(logs, "lives", 50 * DAY, size=1000)
    log(logs, "over", 1 * DAY, size=10)
    tidy(logs, {"lives"}, age=DAY * 2, size=500, now=NOW)
    assert left(logs) == ["lives.log"]


def test_diagnostics_without_a_log_go_too_and_other_files_stay(logs):
    log(logs, "a", 9 * DAY, diag=5)
    (logs / "a.log").unlink()
    (logs / "notes.txt").write_text("mine")
    tidy(logs, (), age=DAY, size=10**9, now=NOW)
    assert left(logs) == ["notes.txt"]


def test_a_folder_that_does_not_exist_is_nothing(tmp_path):
    tidy(tmp_path / "none", (), age=1, size=1, now=NOW)


def test_a_link_is_never_followed(logs, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "a.txt").write_text("keep")
    log(logs, "a", 9 * DAY)
    (logs / "b.diag").symlink_to(mine)
    os.utime(logs / "b.diag", (NOW - 9 * DAY, NOW - 9 * DAY), follow_symlinks=False)
    tidy(logs, (), age=DAY, size=10**9, now=NOW)
    assert (mine / "a.txt").read_text() == "keep"
