"""The name of a boot."""

from __future__ import annotations

import re

import pytest

from ephemerd.adapters.kit.boot import BOOT_ID, boot_id, boot_session


@pytest.mark.platform("linux")
def test_the_kernel_names_the_boot():
    assert re.fullmatch(r"[0-9a-f-]{36}", boot_id())
    assert boot_id() == boot_id() == BOOT_ID.read_text().strip()


def test_macos_is_asked_by_a_program():
    assert boot_session(["echo", " 5B1A-77 "]) == "5B1A-77"


def test_a_macos_without_a_session_names_the_second_of_its_boot():
    """As `sysctl -n kern.boottime` prints it."""
    told = ["echo", "{ sec = 1764460800, usec = 123456 } Sun Nov 30 01:00:00 2025"]
    assert boot_session(["false"], told) == "booted-1764460800"
    assert boot_session(["echo", "5B1A"], told) == "5B1A"


@pytest.mark.parametrize("command", [["false"], ["true"], ["/nowhere/sysctl"], ["echo", "{ no second }"]])
def test_what_does_not_answer_is_an_error(command):
    with pytest.raises(OSError, match=r"cannot be read|No such file"):
        boot_session(["false"], command)
