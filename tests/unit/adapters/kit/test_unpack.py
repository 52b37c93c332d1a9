"""Archives that come from elsewhere: whole ones, damaged ones, and those that mean harm."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ephemerd.adapters.kit.unpack import unpack
from ephemerd.ports.errors import Broken, Refused

Entry = tuple[str, bytes | None, dict[str, object]]


def member(name: str, content: bytes | None = b"", **fields: object) -> Entry:
    return name, content, fields


def tar(path: Path, *entries: Entry) -> Path:
    """Write a tar.gz; an entry without content is of the type that its fields say."""
    with tarfile.open(path, "w:gz") as made:
        for name, content, fields in entries:
            info = tarfile.TarInfo(name)
            info.mode = 0o755
            info.size = len(content or b"")
            for field, value in fields.items():
                setattr(info, field, value)
            made.addfile(info, io.BytesIO(content) if content is not None else None)
    return path


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> Entry:
    return member(name, None, type=kind, linkname=target)


def out(archive: Path, folder: Path, **bounds: int) -> int:
    deadline = time.monotonic() + 600
    return unpack(archive, archive.name, folder, deadline=deadline, **bounds)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "a.tar.gz"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_files_folders_links_and_modes_come_out_as_they_went_in(archive, folder):
    tar(
        archive,
        member("./", None, type=tarfile.DIRTYPE),
        member("./bin/Runner.Listener", b"program", mode=0o755),
        member("bin/data", b"data", mode=0o644),
        member("externals/node/lib/npm.js", b"npm", mode=0o755),
        link("externals/node/bin/npm", "../lib/npm.js"),
        link("bin/again", "bin/data", tarfile.LNKTYPE),
    )
    assert out(archive, folder) == len(b"program" + b"data" + b"npm" + b"data")
    assert stat.S_IMODE((folder / "bin/Runner.Listener").stat().st_mode) == 0o755
    assert stat.S_IMODE((folder / "bin/data").stat().st_mode) == 0o644
    assert (folder / "externals/node/bin/npm").readlink() == Path("../lib/npm.js")
    assert (folder / "externals/node/bin/npm").read_bytes() == b"npm"
    assert (folder / "bin/again").read_bytes() == b"data"
    assert (folder / "bin/again").stat().st_nlink == 1


def test_nobody_else_may_write_and_nothing_runs_as_its_owner(archive, folder):
    tar(archive, member("x", b"x", mode=0o6777), member("y", b"y", mode=0))
    out(archive, folder)
    assert stat.S_IMODE((folder / "x").stat().st_mode) == 0o755
    assert stat.S_IMODE((folder / "y").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "entries",
    [
        [member("../outside")],
        [member("bin/../../outside")],
        [member("/etc/outside")],
        [member("bin\\..\\outside")],
        [member("C:outside")],
        [member("x" * 2000)],
        [link("bin", "/etc")],
        [link("bin", "../..")],
        [link("a/b/c", "../../../outside")],
        [link("a", "."), link("b", "a/..")],
        [link("hard", "../outside", tarfile.LNKTYPE)],
        [link("hard", "/etc/passwd", tarfile.LNKTYPE)],
    ],
)
def test_nothing_leads_out_of_the_folder(archive, folder, entries):
    outside = folder.with_name("outside")
    tar(archive, *entries)
    with pytest.raises(Refused, match="out of its folder"):
        out(archive, folder)
    assert not outside.exists()


def test_a_file_is_never_written_through_a_link(archive, folder):
    """The link comes first in the archive and would lead elsewhere."""
    elsewhere = folder.with_name("elsewhere")
    elsewhere.mkdir()
    tar(archive, link("bin", str(elsewhere)), member("bin/evil", b"evil"))
    with pytest.raises(Refused):
        out(archive, folder)
    assert list(elsewhere.iterdir()) == []


def test_a_link_that_leads_round_in_circles_is_refused(archive, folder):
    tar(archive, link("a", "b"), link("b", "a"))
    with pytest.raises(Refused, match="circles"):
        out(archive, folder)


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_what_is_no_file_is_refused(archive, folder, kind):
    tar(archive, member("dev", None, type=kind))
    with pytest.raises(Refused, match="no file"):
        out(archive, folder)


def test_a_name_that_is_there_twice_is_refused(archive, folder):
    tar(archive, member("x", b"1"), member("x", b"2"))
    with pytest.raises(Refused, match="twice"):
        out(archive, folder)


def test_a_link_to_nothing_that_was_unpacked_is_refused(archive, folder):
    tar(archive, link("hard", "missing", tarfile.LNKTYPE))
    with pytest.raises(Refused, match="link to nothing"):
        out(archive, folder)


def test_there_are_bounds(archive, folder, tmp_path):
    tar(archive, member("a", b"x" * 5000), member("b", b"x" * 5000), link("c", "a", tarfile.LNKTYPE))
    with pytest.raises(Refused, match="more than 2 entries"):
        out(archive, folder, most_entries=2)
    with pytest.raises(Refused, match="more than 9000 bytes"):
        out(archive, tmp_path / "out2", most_bytes=9000)
    with pytest.raises(Refused, match="more than 14000 bytes"):
        out(archive, tmp_path / "out3", most_bytes=14_000)
    with pytest.raises(Broken, match="took too long"):
        unpack(archive, "a.tar.gz", tmp_path / "out4", deadline=time.monotonic() - 1)


@pytest.mark.parametrize(
    "damage", [lambda all_: all_[: len(all_) // 2], lambda all_: b"no archive", lambda all_: b""]
)
def test_what_is_damaged_is_refused(archive, folder, damage: Callable[[bytes], bytes]):
    tar(archive, member("x", os.urandom(100_000)))
    archive.write_bytes(damage(archive.read_bytes()))
    with pytest.raises(Refused, match="damaged"):
        out(archive, folder)


def test_a_kind_that_is_not_known_is_refused(tmp_path, folder):
    with pytest.raises(Refused, match="no archive of a known kind"):
        out(tmp_path / "a.rar", folder)


def test_a_disk_that_refuses_is_no_fault_of_the_archive(archive, folder):
    tar(archive, member("x", b"x"), member("x/y", b"y"))
    with pytest.raises((Broken, Refused)):
        out(archive, folder)


def zipped(path: Path, *entries: tuple[str, bytes, int]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content, mode in entries:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            made.writestr(info, content)
    return path


def test_a_zip_is_unpacked_by_the_same_rules(tmp_path, folder):
    path = zipped(
        tmp_path / "a.zip",
        ("bin/", b"", stat.S_IFDIR | 0o755),
        ("bin/Runner.Listener.exe", b"program", 0),
        ("bin/tool", b"tool", stat.S_IFREG | 0o755),
        ("bin/link", b"tool", stat.S_IFLNK | 0o777),
    )
    assert out(path, folder) == len(b"programtool")
    assert stat.S_IMODE((folder / "bin/Runner.Listener.exe").stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "bin/tool").stat().st_mode) == 0o755
    assert (folder / "bin/link").read_bytes() == b"tool"
    for number, name in enumerate(("../x", "/x", "a\\..\\x", "C:/x")):
        harmful = zipped(tmp_path / f"{number}.zip", (name, b"x", 0))
        with pytest.raises(Refused, match="out of its folder"):
            out(harmful, tmp_path / f"o{number}")
    for number, damage in enumerate((b"no zip", path.read_bytes()[:-30])):
        (tmp_path / f"d{number}.zip").write_bytes(damage)
        with pytest.raises(Refused, match="damaged"):
            out(tmp_path / f"d{number}.zip", tmp_path / f"do{number}")
