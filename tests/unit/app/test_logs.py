"""Logs in pieces: every line once and whole, a secret never in two halves, whatever the pieces are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerd.adapters.telemetry.logs import redacted
from ephemerd.app.logs import CUT, MOST, TOO_LONG, Logs, NoLogs, piece
from ephemerd.ports.errors import Broken, Gone
from ephemerd.ports.runtime import LogFile
from tests.unit.app.fakes import FakeRuntime

TOKEN = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\nabcdefgh\n-----END RSA PRIVATE KEY-----\n"
LINES = st.lists(
    st.sampled_from(["", "plain", f"token is {TOKEN} here", "ä€😀", "x" * 60, KEY.removesuffix("\n")]),
    max_size=12,
)


@given(lines=LINES, most=st.integers(150, 400), ended=st.booleans())
def test_pieces_make_the_whole_and_no_secret_is_cut(lines: list[str], most: int, ended: bool) -> None:
    raw = "".join(f"{line}\n" for line in lines).encode()
    shown, start = "", 0
    while start < len(raw):
        part = raw[start : start + most]
        text, used = piece(part, full=len(part) >= most, ended=ended, inside=False)
        if not used:
            break
        shown += redacted(text)
        start += used
    assert start == len(raw)
    assert shown == redacted(raw.decode())
    assert "abcdefgh" not in shown


def test_a_line_that_is_still_being_written_waits() -> None:
    assert piece(b"one\ntw", full=False, ended=False, inside=False) == ("one\n", 4)
    assert piece(b"tw", full=False, ended=False, inside=False) == ("", 0)
    assert piece(b"tw", full=False, ended=True, inside=False) == ("tw", 2)


def test_a_key_that_is_still_being_written_waits() -> None:
    half = KEY.encode()[:50]
    assert piece(b"before\n" + half, full=False, ended=False, inside=False) == ("before\n", 7)
    assert piece(half, full=False, ended=False, inside=False) == ("", 0)
    text, used = piece(half, full=False, ended=True, inside=False)
    assert used == len(half)
    assert "MIIE" not in redacted(text)


def test_a_line_without_an_end_is_passed_over() -> None:
    assert piece(b"x" * 1024, full=True, ended=False, inside=False) == (TOO_LONG, 1024)


def test_what_begins_in_the_middle_of_a_line_may_be_half_a_secret() -> None:
    assert piece(b"klmnop\nnext\n", full=False, ended=False, inside=True) == (f"{CUT}next\n", 12)


class Keeping(FakeRuntime):
    """A runtime with one runner's logs."""

    def __init__(self, text: bytes = b"", error: Exception | None = None) -> None:
        super().__init__()
        self.text, self.error = text, error

    async def log_files(self, runner):
        if self.error:
            raise self.error
        return [LogFile("output", len(self.text))]

    async def read_log(self, runner, name, start, most):
        if self.error:
            raise self.error
        return self.text[start : start + most]


class Daemon:
    """As much of the daemon as logs ask of it."""

    def __init__(self, *runtimes: FakeRuntime) -> None:
        self.ports = type("Ports", (), {"runtimes": {str(n): one for n, one in enumerate(runtimes)}})()
        self.core = type("Core", (), {"state": type("State", (), {"runners": {}})()})()


def logs(*runtimes: FakeRuntime) -> Logs:
    return Logs(Daemon(*runtimes), redacted)  # type: ignore[arg-type]


async def test_a_forgotten_runner_has_ended_and_its_logs_are_read() -> None:
    runtime = Keeping(f"one\n{TOKEN}\nlast".encode())
    found = await logs(FakeRuntime(), Keeping(error=Gone("not here")), runtime, runtime).files("eph-1")
    assert (found.runner, found.ended, found.files[0].name) == ("eph-1", True, "output")
    read = await logs(runtime).read("eph-1", "output", 0)
    assert (read.text, read.end, read.next) == ("one\n[hidden]\nlast", True, len(runtime.text))
    tail = await logs(runtime).read("eph-1", "output", 10)
    assert tail.text == f"{CUT}last"


async def test_a_long_log_comes_in_pieces() -> None:
    runtime = Keeping(b"a line of a log\n" * 40_000)
    start, whole = 0, ""
    while True:
        read = await logs(runtime).read("eph-1", "output", start)
        assert len(read.text) <= MOST
        whole, start = whole + read.text, read.next
        if read.end:
            break
    assert whole.encode() == runtime.text


@pytest.mark.parametrize("error", [Gone("no"), Broken("the disk is gone")])
async def test_logs_that_cannot_be_read(error: Exception) -> None:
    with pytest.raises(NoLogs):
        await logs(Keeping(error=error)).files("eph-1")
    with pytest.raises(NoLogs):
        await logs(Keeping(error=error)).read("eph-1", "output", 0)


async def test_no_runtime_keeps_logs() -> None:
    with pytest.raises(NoLogs):
        await logs(FakeRuntime()).files("eph-1")


def test_what_begins_inside_a_private_key_shows_nothing_of_it():
    """Whoever reads the end of a log may begin anywhere."""
    raw = b"c2VjcmV0\n-----END PRIVATE KEY-----\nafterwards\n"
    text, used = piece(raw, full=False, ended=True, inside=False)
    assert (text, used) == (f"{CUT}afterwards\n", len(raw))
