"""Versions of the runner application side by side: whole or not there, read only, ours alone."""

from __future__ import annotations

import gzip
import hashlib
import io
import platform
import shutil
import stat
import sys
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ephemerd.adapters.system import applications
from ephemerd.adapters.system.applications import ApplicationShelf, this_platform
from ephemerd.ports.applications import Offered, Use
from ephemerd.ports.errors import Broken, Refused, RetryLater

FILES = {"bin/Runner.Listener": 0o755, "bin/Runner.Worker": 0o755, "externals/node/README": 0o644}


def archive(files: dict[str, int] = FILES) -> bytes:
    made = io.BytesIO()
    # The time is in a compressed file: two of the same content, made in two seconds, would differ.
    with (
        gzip.GzipFile(fileobj=made, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name, mode in files.items():
            info = tarfile.TarInfo(name)
            info.mode, info.size = mode, len(name)
            tar.addfile(info, io.BytesIO(name.encode()))
    return made.getvalue()


def offer(version: str = "2.336.0", content: bytes | None = None, **changes: Any) -> Offered:
    content = archive() if content is None else content
    fields: dict[str, Any] = {
        "system": "linux",
        "architecture": "x64",
        "version": version,
        "url": "https://example.org/a.tar.gz",
        "file": f"actions-runner-linux-x64-{version}.tar.gz",
        "checksum": hashlib.sha256(content).hexdigest(),
    }
    return Offered(**{**fields, **changes})


class Fetched:
    """Stands in for the network: writes what it was told into the part and returns its sum."""

    def __init__(self) -> None:
        self.content: bytes | Exception = archive()
        self.asked: list[dict[str, Any]] = []

    async def __call__(self, source: Any, part: Path, **how: Any) -> str:
        self.asked.append({"source": source, **how})
        if isinstance(self.content, Exception):
            raise self.content
        part.write_bytes(self.content)
        return hashlib.sha256(self.content).hexdigest()


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Fetched:
    stands_in = Fetched()
    monkeypatch.setattr(applications, "fetch", stands_in)
    return stands_in


def shelf_in(folder: Path, **how: Any) -> ApplicationShelf:
    return ApplicationShelf(
        folder, user_agent="t", system="linux", architecture="x64", now=lambda: 1000.0, **how
    )


@pytest.fixture
async def shelf(tmp_path: Path) -> AsyncIterator[ApplicationShelf]:
    made = shelf_in(tmp_path / "applications")
    await made.open()
    yield made
    await made.close()


async def get(shelf: ApplicationShelf, offered: Offered) -> Any:
    return await shelf.fetch(offered, lambda done, total: None)


async def test_a_version_is_fetched_once_and_is_there_as_a_whole_and_read_only(shelf, network):
    found = await get(shelf, offer())
    assert (found.version, found.at, found.verified) == ("2.336.0", 1_000_000, True)
    assert (found.folder / "bin/Runner.Listener").read_text() == "bin/Runner.Listener"
    assert await shelf.unpacked() == [found]
    for path in (found.folder, *found.folder.rglob("*")):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o222, path
    assert stat.S_IMODE((found.folder / "bin/Runner.Listener").stat().st_mode) == 0o555
    assert not [path for path in found.folder.parent.iterdir() if path.name.endswith((".part", ".new"))]
    assert await get(shelf, offer()) == found
    assert len(network.asked) == 1
    assert network.asked[0]["resume"] is True


async def test_versions_lie_side_by_side_until_they_are_removed(shelf, network):
    old = await get(shelf, offer("2.335.0"))
    network.content = archive({**FILES, "bin/more": 0o644})
    new = await get(shelf, offer("2.336.0", network.content))
    assert await shelf.unpacked() == [old, new]
    await shelf.remove(old.key)
    await shelf.remove("nothing of that name")
    assert await shelf.unpacked() == [new]
    assert not old.folder.exists()


async def test_the_same_name_with_other_content_is_another_version(shelf, network):
    first = await get(shelf, offer())
    network.content = archive({**FILES, "bin/other": 0o644})
    second = await get(shelf, offer(content=network.content))
    assert first.folder != second.folder


async def test_a_wrong_checksum_is_never_used(shelf, network):
    with pytest.raises(Refused, match=r"has the SHA-256 .* and the forge states"):
        await get(shelf, offer(checksum="0" * 64))
    assert await shelf.unpacked() == []
    assert list(shelf.folder.glob(".*.part")) == []


async def test_without_a_checksum_it_is_refused_unless_that_is_allowed(shelf, network, tmp_path):
    with pytest.raises(Refused, match=r"runner\.download\.unverified"):
        await get(shelf, offer(checksum=""))
    assert network.asked == []
    other = shelf_in(tmp_path / "other", unverified=True)
    await other.open()
    found = await get(other, offer(checksum=""))
    assert not found.verified
    assert not (await other.unpacked())[0].verified
    assert network.asked[0]["resume"] is False
    with pytest.raises(Refused, match="no checksum and no https"):
        await get(other, offer("2.337.0", checksum="", url="http://example.org/a.tar.gz"))
    await other.close()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"version": "../2.336.0"}, "which is none"),
        ({"version": ".2"}, "which is none"),
        ({"file": "actions-runner-linux-x64-2.336.0.rar"}, "no archive of a known kind"),
    ],
)
async def test_what_the_forge_names_is_looked_at_first(shelf, network, changes, why):
    with pytest.raises(Refused, match=why):
        await get(shelf, offer(**changes))
    assert network.asked == []


@pytest.mark.parametrize(
    "files",
    [
        {"bin/Runner.Listener": 0o755},
        {"bin/Runner.Listener": 0o644, "bin/Runner.Worker": 0o755},
        {"README": 0o644},
    ],
)
async def test_an_archive_without_the_programs_is_no_runner_application(shelf, network, files):
    network.content = archive(files)
    with pytest.raises(Refused, match="that can be executed"):
        await get(shelf, offer(content=network.content))
    assert await shelf.unpacked() == []
    assert [path.name for path in shelf.folder.iterdir()] == [".lock"]


async def test_a_damaged_archive_with_the_right_sum_begins_anew(shelf, network):
    network.content = archive()[:120]
    with pytest.raises(Refused, match="damaged"):
        await get(shelf, offer(content=network.content))
    assert [path.name for path in shelf.folder.iterdir()] == [".lock"]


async def test_what_broke_off_stays_to_be_gone_on_with(shelf, network):
    (shelf.folder / f".{offer().key}.part").write_bytes(b"half")
    network.content = RetryLater("broke off")
    with pytest.raises(RetryLater):
        await get(shelf, offer())
    assert (shelf.folder / f".{offer().key}.part").exists()


async def test_a_full_disk_is_said_before_it_is_full(shelf, network, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: type("Usage", (), {"free": 10})())
    with pytest.raises(Broken, match="free space"):
        await get(shelf, offer())
    assert (shelf.folder / f".{offer().key}.part").exists(), "it need not be fetched again"


async def test_what_was_half_done_is_no_version_and_goes_at_the_next_start(tmp_path, network):
    folder = tmp_path / "applications"
    first = shelf_in(folder)
    await first.open()
    found = await get(first, offer())
    await first.close()
    for name in (".x.new", ".y.old"):
        (folder / name / "bin").mkdir(parents=True)
        (folder / name / "bin").chmod(0o555)
    (folder / "stray").mkdir()
    (folder / ".z.part").write_bytes(b"half")
    second = shelf_in(folder)
    await second.open()
    assert await second.unpacked() == [found]
    assert {path.name for path in folder.iterdir()} == {".lock", "stray", ".z.part", found.key}
    await second.close()


async def test_a_name_without_a_note_gives_way(shelf, network):
    (shelf.folder / offer().key).mkdir()
    found = await get(shelf, offer())
    assert await shelf.unpacked() == [found]


async def test_another_daemon_has_to_have_a_folder_of_its_own(shelf, tmp_path):
    with pytest.raises(Broken, match=r"another daemon .* runner\.work_dir"):
        await shelf_in(tmp_path / "applications").open()
    await shelf.open()  # what we have is ours


async def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    made = shelf_in(tmp_path / "file" / "applications")
    with pytest.raises(Broken, match="cannot be used"):
        await made.open()
    assert await made.unpacked() == []


async def test_which_version_was_used_from_when_on_is_kept(shelf):
    assert await shelf.uses() == {}
    uses = {"github/repo:acme/app": [Use("b", 2), Use("a", 1)], "github/org:acme": [Use("a", 1)]}
    await shelf.keep_uses(uses)
    assert await shelf.uses() == uses


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 2, "uses": {"a": [["k", 1]]}}',
        '{"version": 1, "uses": [1]}',
        "[" * 100_000,
    ],
)
async def test_a_note_that_is_not_understood_is_none(shelf, text):
    (shelf.folder / ".uses.json").write_text(text)
    assert await shelf.uses() == {}


async def test_what_of_a_note_is_understood_counts(shelf):
    (shelf.folder / ".uses.json").write_text(
        '{"version": 1, "uses": {"a": [["k", 1], ["k"], 3, [1, 2]], "b": 4}}'
    )
    assert await shelf.uses() == {"a": [Use("k", 1)], "b": []}


def test_this_platform_is_named_in_the_forges_words(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "AMD64")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert this_platform() == ("osx", "x64")
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    monkeypatch.setattr(sys, "platform", "freebsd14")
    assert this_platform() == ("freebsd14", "riscv64")
