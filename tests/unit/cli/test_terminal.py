"""On a terminal of 80 columns: every line fits, and ids stay whole."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def on_terminal(*arguments: str, columns: int = 80, **env: str) -> str:
    """Run the program with a terminal as its stdout; return what it wrote, line ends as written."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-m", "ephemerd", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm", **env},
    ) as process:
        os.close(theirs)
        written = bytearray()
        while True:
            try:
                piece = os.read(ours, 65_536)
            except OSError:
                break
            if not piece:
                break
            written += piece
        assert process.wait(timeout=30) == 0
    os.close(ours)
    return written.decode()


@pytest.mark.parametrize("command", ["status", "pools", "hosts", "runners", "jobs", "decisions"])
def test_a_page_fits_the_terminal(daemon, command):
    text = COLOUR.sub("", on_terminal(command))
    assert [line for line in text.splitlines() if len(line) > 80] == []
    if command in {"runners", "decisions"}:
        assert "eph-k3v9-x7-7" in text


def test_a_story_is_wrapped(daemon):
    from tests.unit.cli import views

    words = "word " * 40
    daemon.story("eph-k3v9-x7-7", [views.line(0, "SignSeen", words, "", words)])
    lines = COLOUR.sub("", on_terminal("explain", "eph-k3v9-x7-7")).splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert " ".join(" ".join(lines).split()).count("word") == 80


def test_colour_on_a_terminal_unless_it_is_not_wanted(daemon):
    assert "\x1b[" in on_terminal("runners")
    assert "\x1b[3" not in on_terminal("runners", NO_COLOR="1")


def test_json_is_indented_on_a_terminal(daemon):
    assert on_terminal("status", "--json").startswith("{\r\n")
