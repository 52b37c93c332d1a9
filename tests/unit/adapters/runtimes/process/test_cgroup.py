"""Control groups, from the texts of several machines and on a folder that stands for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ephemerd.adapters.runtimes.process import cgroup

UNIFIED = "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
38 31 0:35 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
LEGACY = "".join(line for line in HYBRID.splitlines(keepends=True) if "cgroup2" not in line)


@pytest.mark.parametrize(
    ("mountinfo", "membership", "expected"),
    [
        (
            UNIFIED,
            "0::/system.slice/ephemerd.service\n",
            ["/sys/fs/cgroup/system.slice/ephemerd.service"],
        ),
        (UNIFIED, "0::/\n", ["/sys/fs/cgroup"]),
        (
            HYBRID,
            "9:name=systemd:/a\n8:pids:/b\n6:freezer:/\n2:cpu,cpuacct:/\n0::/c\n",
            [
                "/sys/fs/cgroup/unified/c",
                "/sys/fs/cgroup/pids/b",
                "/sys/fs/cgroup/systemd/a",
                "/sys/fs/cgroup/freezer",
            ],
        ),
        (LEGACY, "8:pids:/b\n0::/c\n", ["/sys/fs/cgroup/pids/b"]),
        (UNIFIED.replace(" / ", " /docker/ab ", 1), "0::/docker/ab/x\n", ["/sys/fs/cgroup/x"]),
        (UNIFIED.replace(" / ", " /docker/ab ", 1), "0::/docker/abc\n", []),
        (UNIFIED.replace("/sys/fs/cgroup", "/my\\040groups"), "0::/x\n", ["/my groups/x"]),
        ("", "0::/\n", []),
        (UNIFIED, "", []),
        ("nonsense\n - \n1 2 3 - cgroup2\n", "0::/\nnonsense\n", []),
    ],
)
def test_where_a_group_could_be(mountinfo, membership, expected):
    assert [str(path) for path in cgroup.candidates(mountinfo, membership)] == expected


@pytest.fixture
def group(tmp_path: Path) -> Path:
    made = tmp_path / "ephemerd-eph-1"
    (made / "below" / "deeper").mkdir(parents=True)
    (made / "cgroup.procs").write_text("7\n8\n")
    (made / "below" / "deeper" / "cgroup.procs").write_text("9\n")
    (made / "cgroup.kill").touch()
    return made


def test_pids_are_those_of_all_groups_below(group):
    assert cgroup.pids(group) == {7, 8, 9}
    assert cgroup.pids(None) == frozenset()
    assert cgroup.pids(group / "nowhere") == frozenset()


def test_killing_tells_the_kernel_once(group):
    cgroup.kill(group)
    assert (group / "cgroup.kill").read_text() == "1"
    (group / "cgroup.kill").unlink()
    cgroup.kill(group)
    assert not (group / "cgroup.kill").exists()
    cgroup.kill(None)


def test_only_a_group_that_we_named_is_touched(tmp_path):
    other = tmp_path / "system.slice"
    other.mkdir()
    (other / "cgroup.procs").write_text("7\n")
    (other / "cgroup.kill").touch()
    cgroup.kill(other)
    cgroup.remove(other)
    assert (other / "cgroup.kill").read_text() == ""
    assert cgroup.pids(other) == frozenset()


def test_removing_takes_the_empty_ones(tmp_path):
    group = tmp_path / "ephemerd-eph-1"
    (group / "a" / "b").mkdir(parents=True)
    cgroup.remove(group)
    assert not group.exists()
    cgroup.remove(group)
    (group / "held").mkdir(parents=True)
    (group / "held" / "x").touch()
    cgroup.remove(group)
    assert group.exists()


def test_where_none_may_be_made_there_is_none(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(cgroup, "_places", lambda: [tmp_path / "file", tmp_path / "nowhere"])
    assert cgroup.make("eph-1") is None
    assert cgroup.existing("eph-1") is None


def test_one_that_cannot_be_entered_is_taken_back(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroup, "_places", lambda: [tmp_path])
    assert cgroup.make("eph-1") is None
    assert list(tmp_path.iterdir()) == []


def test_one_that_is_there_already_is_used(tmp_path, group, monkeypatch):
    monkeypatch.setattr(cgroup, "_places", lambda: [tmp_path])
    assert cgroup.make("eph-1") == group
    assert cgroup.existing("eph-1") == group


def test_elsewhere_there_are_no_groups(monkeypatch):
    monkeypatch.setattr("sys.platform", "darwin")
    assert cgroup.make("eph-1") is None


def test_the_groups_of_a_stores_runners_are_found_by_their_names(tmp_path, monkeypatch):
    for name in ("ephemerd-eph-s-b-1", "ephemerd-eph-s2-b-1", "eph-s-b-2", "ephemerd-else", "system.slice"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(cgroup, "_places", lambda: [tmp_path / "away", tmp_path])
    assert cgroup.left("s") == [("eph-s-b-1", tmp_path / "ephemerd-eph-s-b-1")]
