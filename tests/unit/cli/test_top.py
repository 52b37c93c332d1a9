"""`top`: a picture of any size fits, keys do what the last line says, a dumb terminal gets pages."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import signal
import struct
import subprocess
import sys
import termios

import pytest
from rich.console import Console, Group

from ephemerd.cli import top, top_screen
from ephemerd.cli.top import SORTS, Seen, Wish, pressed
from ephemerd.cli.top_screen import frame
from ephemerd.ports.views import HealthView
from tests.unit.cli import views

SENTENCE = "host local has no free slot, and " * 6


def seen(runners: int = 3, jobs: int = 2, pools: int = 1, **status) -> Seen:
    states = list(views.STATES)
    return Seen(
        views.status(**status),
        [views.pool(name=f"pool-{number}") for number in range(pools)],
        [views.job(number, why=SENTENCE, name="a\x1b[2Jb") for number in range(jobs)],
        [
            views.runner(number, state=states[number % len(states)], age_s=float(number), stuck=SENTENCE)
            for number in range(runners)
        ],
    )


def drawn(
    found: Seen, width: int = 80, height: int = 24, wish: Wish | None = None, notice: str = ""
) -> list[str]:
    target = io.StringIO()
    console = Console(file=target, width=width, highlight=False, markup=False, emoji=False)
    console.print(Group(*frame(found, wish or Wish(), notice, width, height)))
    return target.getvalue().splitlines()


@pytest.mark.parametrize("size", [(80, 24), (40, 10), (200, 60), (20, 5), (80, 3), (80, 1)])
@pytest.mark.parametrize("many", [0, 1, 5, 300])
def test_a_picture_fits_its_screen(size, many):
    width, height = size
    reasons = HealthView("degraded", (SENTENCE,) * min(many, 7))
    lines = drawn(seen(many, many, many, health=reasons), width, height, notice="gone; waiting for it")
    assert len(lines) <= height
    assert [line for line in lines if len(line) > width] == []
    assert "\x1b" not in "".join(lines)


def test_everything_is_on_one_screen():
    text = "\n".join(drawn(seen(health=HealthView("degraded", ("no answer of the forge",)))))
    for words in (
        "degraded  serving, up 1h 2m",
        "2/4",
        "- no answer of the forge",
        "pool-0   2/4",
        "host local has no free slot",
        "eph-k3v9-x7-2",
        "sorted by newest",
    ):
        assert words in text


def test_what_does_not_fit_is_counted():
    text = "\n".join(drawn(seen(300, 300, 30)))
    assert text.count(" more") == 3
    assert len(text.splitlines()) == 24
    hidden = sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("  and "))
    shown = len([line for line in text.splitlines() if line.startswith("eph-") or "acme/app  " in line])
    pools = len([line for line in text.splitlines() if line.startswith("pool-")])
    gone = len([row for row in seen(300).runners if row["state"] == "gone"])
    assert hidden + shown + pools == 630 - gone


def test_nothing_at_all():
    text = "\n".join(drawn(seen(0, 0, 0)))
    for words in ("nobody waits", "no runners", "no pools"):
        assert words in text


def test_scrolling_shows_the_last_runner():
    found = seen(100)
    wish = Wish()
    live = len([row for row in found.runners if row["state"] != "gone"])
    after = pressed(wish, "end", live)
    assert after is not None
    last = [row for row in found.runners if row["state"] != "gone"][-1]
    assert str(last["id"]) in "\n".join(drawn(found, wish=after))
    assert str(last["id"]) not in "\n".join(drawn(found, wish=wish))


@pytest.mark.parametrize(
    ("key", "wish"),
    [
        ("q", None),
        ("\x1b", None),
        ("\x03", None),
        ("down", Wish(first=6)),
        ("j", Wish(first=6)),
        ("up", Wish(first=4)),
        ("page down", Wish(first=9)),
        ("page up", Wish(first=0)),
        ("home", Wish(first=0)),
        ("end", Wish(first=9)),
        ("s", Wish(sort="state")),
        ("g", Wish(gone=True)),
        ("?", Wish(first=5)),
    ],
)
def test_keys(key, wish):
    assert pressed(Wish(first=5), key, 10) == wish


def test_sorting_goes_round():
    wish, names = Wish(), []
    for _ in SORTS:
        names.append(wish.sort)
        changed = pressed(wish, "s", 1)
        assert changed is not None
        wish = changed
    assert names == list(SORTS)
    assert wish == Wish()


def test_what_wants_attention_comes_first():
    rows = [views.runner(1), views.runner(2, state="running"), views.runner(3, state="stuck")]
    table = top.runners(rows, Wish(sort="state"))
    assert [row[2] for row in table.rows] == ["stuck", "running", "listening"]
    assert [
        row[4]
        for row in top.runners(
            [views.runner(1, age_s=1.0), views.runner(2, age_s=60.0)], Wish(sort="age")
        ).rows
    ] == ["1m", "1s"]


def test_without_a_terminal_pages_are_printed(cli, daemon, monkeypatch):
    pauses: list[float] = []
    monkeypatch.setattr("ephemerd.cli.top.time.sleep", pauses.append)
    done = cli("top", "--count", "2", "--every", "7")
    assert (done.code, pauses) == (0, [7.0])
    assert done.out.count("--- ") == 2
    assert done.out.count("daemon:     serving") == 2
    assert "\x1b" not in done.out


def test_pages_wait_out_a_restart(cli, daemon, monkeypatch):
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        away = {1: True, 2: True, 3: False}[len(pauses)]
        daemon.on("GET", "status", (503, {"detail": "it stops"}) if away else (200, views.status()))

    monkeypatch.setattr("ephemerd.cli.top.time.sleep", sleep)
    done = cli("top", "--count", "4")
    assert (done.code, done.out.count("--- "), done.err) == (0, 2, "it stops; waiting for it\n")


def test_no_daemon_is_code_6(cli, folder):
    assert cli("top", "--socket", str(folder / "none")).code == 6


class OnTerminal:
    """The program with a terminal as stdin and stdout."""

    def __init__(self, *arguments: str, **env: str) -> None:
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self.ours)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ephemerd", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.PIPE,
            env={**os.environ, "TERM": "xterm", **env},
            # A shell's background job ignores the interrupt, and so would whatever it starts.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )
        os.close(theirs)
        self.seen = b""

    def until(self, words: bytes) -> None:
        while words not in self.seen:
            piece = os.read(self.ours, 65_536)
            assert piece
            self.seen += piece

    def press(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def ended(self) -> int:
        while True:
            try:
                self.seen += os.read(self.ours, 65_536)
            except OSError:  # Linux says so that the other side is closed
                break
        assert termios.tcgetattr(self.ours) == self.before, "the terminal is as it was"
        os.close(self.ours)
        assert self.process.stderr is not None
        with self.process.stderr as errors:
            assert errors.read() == b""
        return self.process.wait(timeout=60)


def test_on_a_terminal_keys_work_and_q_gives_it_back(daemon):
    shown = OnTerminal("top", "--every", "3600")
    shown.until(b"sorted by newest")
    shown.press(b"s")
    shown.until(b"sorted by state")
    shown.press(b"\x1b[B\x1b[B")
    shown.press(b"q")
    assert shown.ended() == 0
    assert b"\x1b[?1049h" in shown.seen
    assert b"\x1b[?1049l" in shown.seen, "the screen from before is back"
    assert b"\x1b[?25h" in shown.seen, "the cursor is back"


def test_ctrl_c_gives_the_terminal_back(daemon):
    shown = OnTerminal("top", "--every", "3600")
    shown.until(b"sorted by newest")
    shown.process.send_signal(signal.SIGINT)
    assert shown.ended() == 130
    assert b"\x1b[?1049l" in shown.seen


def test_a_signal_that_came_before_the_wait_ends_it(monkeypatch):
    """Python's own handler has run or will run; what matters is that nobody sleeps on meanwhile."""
    ours, theirs = pty.openpty()
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with os.fdopen(theirs) as stdin:
            monkeypatch.setattr("sys.stdin", stdin)
            with top_screen._keys() as keys:
                os.kill(os.getpid(), signal.SIGUSR1)
                assert keys.wait(3600) == ""
                os.write(ours, b"s")
                assert keys.wait(3600) == "s"
    finally:
        signal.signal(signal.SIGUSR1, before)
        os.close(ours)
    assert signal.set_wakeup_fd(-1) == -1, "the place for signals is given back"


def test_a_dumb_terminal_gets_pages(daemon):
    shown = OnTerminal("top", "--count", "1", TERM="dumb")
    shown.until(b"RUNNER OR WHY NOT YET")
    assert shown.ended() == 0
    assert b"\x1b" not in shown.seen


def test_watching_on_a_terminal_changes_in_its_place(daemon):
    shown = OnTerminal("runners", "--watch", "--every", "0.1")
    shown.until(b"Ctrl-C ends")
    shown.until(b"\x1b[1A")
    shown.process.terminate()
    assert shown.ended() == 143
    assert b"\x1b[?25h" in shown.seen, "the cursor is back"
