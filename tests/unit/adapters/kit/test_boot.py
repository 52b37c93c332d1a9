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


@pytest.mark.parametrize("command", [["false"], ["true"], ["/nowhere/sysctl"]])
def test_what_does_not_answer_is_an_error(command):
    with pytest.raises(OSError, match=r"cannot be read|No such file"):
        boot_session(command)
