"""Copies of a container's files, and its output: what is followed, what is noticed, what is never followed."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from ephemerd.adapters.kit.evidence import Tail
from ephemerd.adapters.runtimes.docker import local
from ephemerd.adapters.runtimes.docker import output as output_module
from ephemerd.adapters.runtimes.docker.mirror import Copy, Mirror, only_file
from ephemerd.adapters.runtimes.docker.output import Output
from ephemerd.adapters.runtimes.docker.reference import Place
from ephemerd.domain.verdict import Listing


def take(copy: Copy, path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        copy.take(descriptor)
    finally:
        os.close(descriptor)


def archive(name: str, text: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        entry = tarfile.TarInfo(name)
        entry.type, entry.size, entry.linkname = kind, len(text), "/etc/passwd"
        tar.addfile(entry, io.BytesIO(text))
    return written.getvalue()


@pytest.fixture
def mirror(tmp_path) -> Mirror:
    return Mirror(Place(tmp_path / "copies", tmp_path / "x.log"), "/runner")


def test_a_growing_file_is_copied_as_it_grows(tmp_path):
    source, copy = tmp_path / "source", Copy(tmp_path / "copy")
    tail = Tail(copy.path)
    source.write_text("a\n")
    take(copy, source)
    assert tail.read() == ["a"]
    with source.open("a") as file:
        file.write("b\n")
    take(copy, source)
    assert tail.read() == ["b"]
    assert not tail.shrunk


@pytest.mark.parametrize("longer", [False, True])
def test_a_file_that_was_cut_or_exchanged_is_noticed_by_who_reads_the_copy(tmp_path, longer):
    source, copy = tmp_path / "source", Copy(tmp_path / "copy")
    tail = Tail(copy.path)
    source.write_text("first\n")
    take(copy, source)
    tail.read()
    if longer:
        other = tmp_path / "other"
        other.write_text("quite another one\n")
        other.replace(source)
    else:
        source.write_text("x\n")
    take(copy, source)
    tail.read()
    assert tail.shrunk


def test_a_file_that_went_is_a_fault_even_if_it_comes_back(tmp_path, mirror):
    mirror.sync_archive(archive("Runner.perf", b"SessionCreated:1\n"))
    assert mirror.fault == ""
    mirror.sync_archive(None)
    assert "no longer there" in mirror.fault
    mirror.sync_archive(archive("Runner.perf", b"SessionCreated:1\n"))
    assert mirror.fault


def test_what_was_copied_as_a_whole_is_not_copied_twice_when_it_is_followed_directly(tmp_path):
    """A runner is first read by the engine and then directly: an offer must not be seen twice."""
    source, copy = tmp_path / "source", Copy(tmp_path / "copy")
    source.write_bytes(b"a\nb\n")
    copy.take_whole(b"a\n")
    take(copy, source)
    assert copy.path.read_bytes() == b"a\nb\n"
    copy.take_whole(b"a\nb\nc\n")
    assert copy.path.read_bytes() == b"a\nb\nc\n"
    source.write_bytes(b"a\nb\nc\nd\n")
    take(copy, source)
    assert copy.path.read_bytes() == b"a\nb\nc\nd\n"


def test_an_archive_that_holds_no_plain_file_holds_nothing():
    assert only_file(archive("x", b"text")) == b"text"
    assert only_file(archive("x", b"", tarfile.SYMTYPE)) is None
    assert only_file(b"no archive") is None


def test_diagnostics_come_by_their_names_alone(tmp_path, mirror):
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for name in (
            "_diag/Runner_1-utc.log",
            "_diag/../../evil.log",
            "_diag/notes.txt",
            "_diag/Worker_2-utc.log",
        ):
            entry = tarfile.TarInfo(name)
            entry.size = 2
            tar.addfile(entry, io.BytesIO(b"x\n"))
    mirror.diag_archive(written.getvalue())
    found = sorted(path.name for path in (tmp_path / "copies" / "diag").iterdir())
    assert found == ["Runner_1-utc.log", "Worker_2-utc.log"]


def test_no_link_is_followed_below_a_root(tmp_path):
    (tmp_path / "root" / "runner").mkdir(parents=True)
    (tmp_path / "root" / "runner" / "_perf").symlink_to("/etc")
    (tmp_path / "root" / "plain").mkdir()
    root = os.open(tmp_path / "root", os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert local.open_below(root, "/runner/_perf") is None
        assert local.open_below(root, "/runner/../plain") is None
        assert local.open_below(root, "/nowhere") is None
        inside = local.open_below(root, "/plain")
        assert inside is not None
        os.close(inside)
    finally:
        os.close(root)


def test_a_pid_of_no_container_is_none():
    assert local.group_of(os.getpid(), "0" * 64) is None
    assert local.look(os.getpid(), "0" * 64) is None
    assert local.open_root(os.getpid(), "0" * 64) is None
    assert not local.interrupt(os.getpid(), "0" * 64)


ID = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("lines", "folder"),
    [
        (f"0::/system.slice/docker-{ID}.scope", f"system.slice/docker-{ID}.scope"),
        (f"0::/machine.slice/libpod-{ID}.scope/container", f"machine.slice/libpod-{ID}.scope"),
        (f"5:pids:/docker/{ID}\n4:cpu,cpuacct:/docker/{ID}\n0::/docker/{ID}", f"pids/docker/{ID}"),
        (f"5:name=systemd:/docker/{ID}\n0::/docker/{ID}/init.scope", f"unified/docker/{ID}"),
    ],
)
def test_each_layout_of_control_groups_is_read(tmp_path, monkeypatch, lines, folder):
    """Version 2 by systemd, Podman's, version 1, and both at once."""
    groups = tmp_path / "cgroup"
    for path in (f"{folder}/init.scope", ".", "unified"):
        (groups / path).mkdir(parents=True, exist_ok=True)
    if not folder.startswith(("pids", "unified")):
        (groups / "cgroup.procs").write_text("")
    (groups / "unified" / "cgroup.procs").write_text("")
    (groups / folder / "cgroup.procs").write_text("7\n")
    (groups / folder / "init.scope" / "cgroup.procs").write_text("8\n9\n")
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(lines + "\n")
    monkeypatch.setattr(local, "PROC", tmp_path)
    monkeypatch.setattr(local, "GROUPS", groups)
    found = local.group_of(7, ID)
    assert found is not None
    assert found == groups / folder
    assert local.pids_in(found) == [7, 8, 9]


def test_a_group_that_cannot_be_read_is_a_failed_listing(tmp_path, monkeypatch):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(f"0::/docker-{ID}\n")
    group = tmp_path / "cgroup" / f"docker-{ID}"
    (group / "cgroup.procs").mkdir(parents=True)
    (tmp_path / "cgroup" / "cgroup.procs").write_text("")
    monkeypatch.setattr(local, "PROC", tmp_path)
    monkeypatch.setattr(local, "GROUPS", tmp_path / "cgroup")
    seen = local.look(7, ID)
    assert seen is not None
    assert seen.listing is Listing.FAILED


# The output


def test_output_that_is_told_again_is_written_once(tmp_path):
    output = Output(tmp_path / "logs" / "x.log")
    output.begin()
    assert output.take(b"one\ntwo\n")
    output.begin()
    assert not output.take(b"one\n")
    assert output.take(b"two\nthree\n")
    assert (tmp_path / "logs" / "x.log").read_bytes() == b"one\ntwo\nthree\n"


def test_another_life_goes_on_where_the_file_ends(tmp_path):
    path = tmp_path / "x.log"
    path.write_bytes(b"one\n")
    output = Output(path)
    output.begin()
    assert output.take(b"one\ntwo\n")
    assert path.read_bytes() == b"one\ntwo\n"


def test_output_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(output_module, "MOST", 6)
    output = Output(tmp_path / "x.log")
    output.begin()
    output.take(b"one\ntwo\n")
    assert not output.take(b"three\n")
    assert (tmp_path / "x.log").read_bytes() == b"one\ntw"
