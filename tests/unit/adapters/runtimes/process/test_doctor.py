"""What the process runtime finds on this machine, and what it says where something is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ephemerd.adapters.runtimes.process import cgroup, doctor


@pytest.mark.platform("linux")
def test_this_machine_can_be_looked_into():
    found = doctor.diagnose()
    assert len(found) == 3
    assert found[0].level == "ok"
    assert {one.level for one in found} <= {"ok", "warning"}
    assert all(one.todo for one in found if one.level == "warning")


@pytest.mark.platform("linux")
def test_without_proc_nothing_can_be_ended(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "PROC", tmp_path)
    found = doctor.diagnose()
    assert (found[0].level, found[0].code) == ("problem", 5)


@pytest.mark.platform("linux")
def test_without_pidfd_and_control_groups_there_are_stand_ins(monkeypatch):
    def refused(_: int) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "pidfd_open", refused)
    monkeypatch.setattr(cgroup, "make", lambda _: None)
    assert [one.level for one in doctor.diagnose()] == ["ok", "warning", "warning"]


@pytest.mark.platform("linux")
def test_the_control_group_that_was_tried_is_gone(monkeypatch, tmp_path):
    made = tmp_path / "ephemerd-doctor"
    made.mkdir()
    monkeypatch.setattr(cgroup, "make", lambda _: made)
    assert str(Path(tmp_path)) in doctor.diagnose()[2].what
    assert not made.exists()


def test_elsewhere_it_is_said(monkeypatch):
    monkeypatch.delattr("select.kqueue", raising=False)
    assert [one.level for one in doctor.diagnose("plan9")] == ["problem"]
    monkeypatch.setattr("select.kqueue", object, raising=False)
    assert [one.level for one in doctor.diagnose("darwin")] == ["ok"]
