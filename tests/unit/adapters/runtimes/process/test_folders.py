"""Making a runner's folder, removing it, and what is kept of it."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ephemerd.adapters.runtimes.process import roots
from ephemerd.adapters.runtimes.process.identity import Place, place_of
from ephemerd.adapters.runtimes.process.keep import PER_FILE, keep_diagnostics, prune
from ephemerd.adapters.runtimes.process.options import Account, ProcessOptions, account_of, environment_of
from ephemerd.adapters.runtimes.process.removal import remove_tree
from ephemerd.adapters.runtimes.process.roots import (
    Builder,
    build,
    check_application,
    copy_content,
    make_folder,
    out_of_reach,
    writable_by,
)
from ephemerd.ports.errors import Broken

ME = Account("me", os.geteuid(), os.getegid(), (), "/home/me", False)
OTHER = Account("other", 4242, 4242, (4343,), "/home/other", False)
NEVER = float("inf")


def no_reflink(source: int, target: int) -> bool:
    return False


def reflink(source: int, target: int) -> bool:
    """As FICLONE does it, by copying."""
    os.write(target, os.pread(source, 1 << 20, 0))
    return True


@pytest.fixture
def application(tmp_path: Path) -> Path:
    app = tmp_path / "app"
    (app / "bin" / "sub").mkdir(parents=True)
    for name in ("Runner.Listener", "Runner.Worker"):
        (app / "bin" / name).write_text(name)
        (app / "bin" / name).chmod(0o755)
    (app / "bin" / "sub" / "lib").write_text("lib")
    (app / "bin" / "link").symlink_to("sub/lib")
    os.mkfifo(app / "bin" / "fifo")
    (app / "externals" / "node").mkdir(parents=True)
    (app / "externals" / "node" / "x").write_text("x")
    return app


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = place_of("eph-1", tmp_path / "work", tmp_path / "logs")
    make_folder(made)
    return made


# Making


def test_the_daemons_part(place):
    assert place.folder.stat().st_mode & 0o777 == 0o711
    assert place.state.stat().st_mode & 0o777 == 0o700
    assert place.log.parent.is_dir()
    with pytest.raises(FileExistsError):
        make_folder(place)


class Filesystem:
    """What `ioctl` says of folders: `marks`, or that it knows none."""

    def __init__(self, marks: int | None) -> None:
        self.marks = marks

    def ioctl(self, descriptor: int, request: int, argument: bytes) -> bytes:
        if self.marks is None:
            raise OSError(errno.ENOTTY, "no such thing here")
        if request == roots.SET_FLAGS:
            (self.marks,) = roots.LONG.unpack(argument)
        return roots.LONG.pack(self.marks)


@pytest.mark.platform("linux")
@pytest.mark.parametrize(("marks", "after"), [(0x80000, 0xA0000), (0xA0000, 0xA0000), (None, None)])
def test_runners_of_a_new_work_folder_get_parts_of_the_disk_of_their_own(tmp_path, monkeypatch, marks, after):
    filesystem = Filesystem(marks)
    monkeypatch.setattr("fcntl.ioctl", filesystem.ioctl)
    make_folder(place_of("eph-1", tmp_path / "work", tmp_path / "logs"))
    assert filesystem.marks == after


@pytest.mark.platform("linux")
def test_a_work_folder_that_somebody_made_is_left_as_it_is(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    filesystem = Filesystem(0)
    monkeypatch.setattr("fcntl.ioctl", filesystem.ioctl)
    make_folder(place_of("eph-1", tmp_path / "work", tmp_path / "logs"))
    assert filesystem.marks == 0


@pytest.mark.parametrize("clone", [no_reflink, reflink])
def test_a_copy_is_apart_from_the_template(application, place, clone):
    build(place, application, ME, Builder(ME, clone, NEVER), share=False)
    copy = place.root / "bin" / "Runner.Listener"
    assert copy.read_text() == "Runner.Listener"
    assert copy.stat().st_mode & 0o777 == 0o755
    assert copy.stat().st_ino != (application / "bin" / "Runner.Listener").stat().st_ino
    assert (place.root / "bin" / "link").readlink() == Path("sub/lib")
    assert (place.root / "bin" / "sub" / "lib").read_text() == "lib"
    assert not (place.root / "bin" / "fifo").exists()
    assert (place.root / "externals" / "node" / "x").read_text() == "x"
    assert not (place.root / "externals").is_symlink()
    assert place.perf.is_dir()
    assert place.root.stat().st_mode & 0o777 == 0o700


@pytest.mark.account("root")
def test_who_can_touch_nothing_shares(application, place):
    """Links to files of others are root's to make (fs.protected_hardlinks)."""
    assert out_of_reach(application / "externals", OTHER)
    build(place, application, OTHER, Builder(OTHER, no_reflink, NEVER), share=True)
    shared = place.root / "bin" / "Runner.Worker"
    assert shared.stat().st_ino == (application / "bin" / "Runner.Worker").stat().st_ino
    assert (place.root / "externals").readlink() == (application / "externals").resolve()


def test_without_links_there_are_copies(application, place, monkeypatch):
    def refuses(source: str, target: Path) -> None:
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(os, "link", refuses)
    build(place, application, OTHER, Builder(OTHER, no_reflink, NEVER), share=False)
    assert (place.root / "bin" / "Runner.Worker").read_text() == "Runner.Worker"


def part_of_it(reading: int, writing: int, size: int) -> int:
    return os.write(writing, os.read(reading, min(size, 3)))


def fails_half_way(reading: int, writing: int, size: int) -> int:
    if os.lseek(reading, 0, os.SEEK_CUR):
        raise OSError(errno.EXDEV, "between two filesystems")
    return part_of_it(reading, writing, size)


@pytest.mark.parametrize("kernel", [getattr(os, "copy_file_range", None), part_of_it, fails_half_way, None])
@pytest.mark.parametrize("size", [0, 4, 12, 100])
def test_content_is_copied_whole_whatever_the_kernel_does_of_it(tmp_path, monkeypatch, kernel, size):
    """`size` is what the file was said to hold: it may have grown or shrunk since."""
    if kernel is None:
        monkeypatch.delattr(os, "copy_file_range", raising=False)
    else:
        monkeypatch.setattr(os, "copy_file_range", kernel, raising=False)
    (tmp_path / "source").write_bytes(b"twelve bytes")
    with (tmp_path / "source").open("rb") as source, (tmp_path / "copy").open("wb") as copy:
        copy_content(source.fileno(), copy.fileno(), size)
    assert (tmp_path / "copy").read_bytes() == b"twelve bytes"


def test_copying_has_a_deadline(application, place):
    with pytest.raises(Broken, match="took too long"):
        build(place, application, ME, Builder(ME, no_reflink, time.monotonic() - 1), share=False)


@pytest.mark.parametrize(
    ("mode", "owner", "group", "writable"),
    [
        (0o755, 0, 0, False),
        (0o775, 0, 0, False),
        (0o757, 0, 0, True),
        (0o400, 4242, 0, True),
        (0o775, 0, 4242, True),
        (0o775, 0, 4343, True),
        (0o757, 0, 4343, False),
    ],
)
def test_who_can_write(mode, owner, group, writable):
    status = os.stat_result((mode, 1, 1, 1, owner, group, 0, 0, 0, 0))
    assert writable_by(status, OTHER) is writable
    assert writable_by(status, replace(OTHER, uid=0)) is True


@pytest.mark.parametrize("name", [".", "node", "node/x"])
def test_one_writable_part_puts_a_tree_within_reach(application, name):
    assert not out_of_reach(application / "externals", ME)
    (application / "externals" / name).chmod(0o777)
    assert not out_of_reach(application / "externals", OTHER)


def test_an_application_that_is_none(tmp_path, application):
    check_application(application)
    with pytest.raises(Broken, match=r"no bin/Runner.Listener in .*set runner.application"):
        check_application(tmp_path / "nowhere")


# Accounts and environments


def options(tmp_path: Path, **changes) -> ProcessOptions:
    return replace(ProcessOptions(tmp_path, tmp_path, tmp_path, allow_root=True), **changes)


def test_without_a_user_it_is_the_daemons_own(tmp_path):
    account = account_of(options(tmp_path))
    assert (account.uid, account.gid, account.switch) == (os.geteuid(), os.getegid(), False)


def test_proxies_go_on_and_nothing_can_take_the_promised_ones_place(tmp_path, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://p")
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    extra = {"RUNNER_PERFLOG": "/elsewhere", "EPHEMERD_RUNNER": "other", "HOME": "/h", "X": "1"}
    made = environment_of(options(tmp_path, extra_env=extra), ME, "eph-1", tmp_path / "_perf", "blob")
    assert "GITHUB_TOKEN" not in made
    assert made["HTTPS_PROXY"] == "http://p"
    assert (made["RUNNER_PERFLOG"], made["EPHEMERD_RUNNER"]) == (str(tmp_path / "_perf"), "eph-1")
    assert (made["HOME"], made["X"], made["USER"]) == ("/h", "1", "me")


@pytest.mark.parametrize("extra", [{"": "x"}, {"A=B": "x"}, {"A": "x\0y"}])
def test_what_no_environment_can_hold(tmp_path, extra):
    with pytest.raises(Broken, match="extra_env"):
        environment_of(options(tmp_path, extra_env=extra), ME, "eph-1", tmp_path, "blob-secret")


# Removing


def test_links_are_removed_and_never_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    folder = tmp_path / "f"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "link").symlink_to(outside)
    (folder / "broken").symlink_to("nowhere")
    os.mkfifo(folder / "fifo")
    (folder / "a" / "b").chmod(0)
    assert remove_tree(folder) == []
    assert not folder.exists()
    assert (outside / "precious").exists()


def test_a_folder_that_is_a_link_is_left(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert len(remove_tree(tmp_path / "link")) == 1
    assert (tmp_path / "real").is_dir()
    assert remove_tree(tmp_path / "nowhere") == []


def test_any_depth(tmp_path):
    folder = tmp_path / "f"
    folder.mkdir()
    at = os.open(folder, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    assert remove_tree(folder) == []
    assert not folder.exists()


def test_what_cannot_be_removed_is_named_and_the_tag_stays(tmp_path, monkeypatch):
    folder = tmp_path / "f"
    (folder / ".ephemerd").mkdir(parents=True)
    (folder / ".ephemerd" / "runner.json").touch()
    (folder / "busy").touch()
    (folder / "free").touch()
    unlink = os.unlink

    def refuses(name: str, **where) -> None:
        if name == "busy":
            raise PermissionError(1, "Operation not permitted")
        unlink(name, **where)

    monkeypatch.setattr(os, "unlink", refuses)
    assert remove_tree(folder, last=".ephemerd") == ["busy: Operation not permitted"]
    assert sorted(path.name for path in folder.iterdir()) == [".ephemerd", "busy"]
    monkeypatch.undo()
    assert remove_tree(folder, last=".ephemerd") == []


def test_another_filesystem_is_left(tmp_path, monkeypatch):
    folder = tmp_path / "f"
    (folder / "mounted").mkdir(parents=True)
    (folder / "mounted" / "precious").touch()
    device = folder.stat().st_dev
    lstat = os.lstat

    def elsewhere(name: str, **where) -> os.stat_result:
        status = lstat(name, **where)
        return os.stat_result((*status[:2], device + 1, *status[3:])) if name == "mounted" else status

    monkeypatch.setattr(os, "lstat", elsewhere)
    assert remove_tree(folder)[0].startswith("mounted: another filesystem")
    assert (folder / "mounted" / "precious").exists()


# Keeping


def test_the_ends_of_diagnostics_are_kept_and_links_not(place, tmp_path):
    place.diag.mkdir(parents=True)
    (place.diag / "Runner_1-utc.log").write_text("short")
    (place.diag / "Worker_1-utc.log").write_bytes(b"x" * PER_FILE + b"the end")
    (place.diag / "other.txt").write_text("no log")
    (tmp_path / "secret").write_text("secret")
    (place.diag / "link.log").symlink_to(tmp_path / "secret")
    os.mkfifo(place.diag / "fifo.log")
    keep_diagnostics(place)
    assert sorted(path.name for path in place.kept.iterdir()) == ["Runner_1-utc.log", "Worker_1-utc.log"]
    assert (place.kept / "Worker_1-utc.log").read_bytes()[-8:] == b"xthe end"
    assert (place.kept / "Worker_1-utc.log").stat().st_size == PER_FILE


@pytest.mark.account("root")
def test_files_of_others_in_the_diagnostics_are_not_read(place):
    """A hard link to somebody else's file is no log of the runner."""
    place.diag.mkdir(parents=True)
    (place.diag / "Runner_1-utc.log").write_text("foreign")
    os.chown(place.root, 4242, -1)
    keep_diagnostics(place)
    assert not place.kept.exists()


def test_without_diagnostics_nothing_is_kept(place, tmp_path):
    keep_diagnostics(place)
    place.root.mkdir()
    keep_diagnostics(place)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.log").write_text("x")
    place.diag.symlink_to(tmp_path / "elsewhere")
    keep_diagnostics(place)
    assert not place.kept.exists()


def test_the_oldest_logs_go_but_never_those_of_the_living(tmp_path):
    for number in range(5):
        path = tmp_path / f"r{number}.log"
        path.touch()
        os.utime(path, (number + 1, number + 1))
        path.with_suffix(".diag").mkdir()
    (tmp_path / "notes.txt").touch()
    prune(tmp_path, 2, {"r0"})
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [*(f"r{n}.{kind}" for n in (0, 3, 4) for kind in ("log", "diag")), "notes.txt"]
    )
    prune(tmp_path / "nowhere", 2, ())
