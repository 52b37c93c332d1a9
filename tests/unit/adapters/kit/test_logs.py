"""Reading a runner's logs: those of a living one, those that were kept, and nothing that a job put in their way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ephemerd.adapters.kit.logs import files, read
from ephemerd.adapters.runtimes.process.identity import Place
from ephemerd.ports.errors import Gone


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path / "work" / "eph-s-1", tmp_path / "logs" / "eph-s-1.log")
    made.diag.mkdir(parents=True)
    made.log.parent.mkdir()
    made.log.write_text("listening\n")
    (made.diag / "Worker_1.log").write_text("a worker\n")
    (made.diag / "Runner_1.log").write_text("a runner\n")
    os.utime(made.diag / "Runner_1.log", (1, 1))
    return made


def test_output_first_then_the_newest_diagnostics(place):
    assert [(one.name, one.size) for one in files(place)] == [
        ("output", 10),
        ("Worker_1.log", 9),
        ("Runner_1.log", 9),
    ]
    assert read(place, "output", 0, 4) == b"list"
    assert read(place, "output", 4, 100) == b"ening\n"
    assert read(place, "output", 1000, 100) == b""
    assert read(place, "Worker_1.log", 2, 6) == b"worker"


def test_what_was_kept_is_read_when_the_folder_is_gone(place):
    place.folder.rename(place.folder.with_name("away"))
    place.kept.mkdir()
    (place.kept / "Worker_1.log").write_text("kept\n")
    assert [one.name for one in files(place)] == ["output", "Worker_1.log"]
    assert read(place, "Worker_1.log", 0, 100) == b"kept\n"


@pytest.mark.parametrize("name", ["../../token", "/etc/passwd", "", ".", "..", "x", ".hidden.log", "a\0.log"])
def test_names_that_lead_elsewhere(place, name):
    (place.folder / "token").write_text("secret")
    with pytest.raises(Gone):
        read(place, name, 0, 100)


def test_a_link_or_a_pipe_of_the_job_is_not_read(place, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (place.diag / "link.log").symlink_to(tmp_path / "secret")
    os.mkfifo(place.diag / "pipe.log")
    (place.diag / "folder.log").mkdir()
    assert {one.name for one in files(place)} == {"output", "Worker_1.log", "Runner_1.log"}
    for name in ("link.log", "pipe.log", "folder.log"):
        with pytest.raises(Gone):
            read(place, name, 0, 100)


def test_a_folder_that_the_job_made_a_link_is_not_entered(place, tmp_path):
    away = place.root / "moved"
    place.diag.rename(away)
    place.diag.symlink_to(away)
    assert [one.name for one in files(place)] == ["output"]


@pytest.mark.account("root")
def test_a_hard_link_to_another_accounts_file_is_not_read(place, tmp_path):
    os.chown(place.diag, 4242, 4242)
    (tmp_path / "secret").write_text("secret")
    os.link(tmp_path / "secret", place.diag / "hard.log")
    with pytest.raises(Gone):
        read(place, "hard.log", 0, 100)
