"""What the demo says: plain lines where nobody watches, nothing on stdout that is not JSON, commands that work."""

from __future__ import annotations

import asyncio
import signal

import pytest

from ephemerd.testing.demo.clients import until
from ephemerd.testing.demo.driver import Curtain
from ephemerd.testing.demo.narrator import Narrator
from ephemerd.testing.demo.options import DemoReport
from ephemerd.testing.demo.settings import Places
from ephemerd.testing.demo.summary import summarise, where_to_look
from tests.unit.demo.test_measure import good, report


@pytest.mark.parametrize(("to_stderr", "stream"), [(True, "err"), (False, "out")])
def test_lines_are_plain_and_go_to_one_stream(capsys, to_stderr, stream):
    narrator = Narrator(to_stderr=to_stderr)
    narrator.title("Title")
    narrator.say("[bold]not markup[/bold]", "good")
    narrator.detail(["more"])
    got = capsys.readouterr()
    assert "[bold]not markup[/bold]" in getattr(got, stream)
    assert "\x1b" not in got.out + got.err
    assert (got.out == "") is to_stderr
    assert not narrator.live


def test_a_muted_narrator_says_nothing(capsys):
    Narrator(to_stderr=False, muted=True).say("anything")
    assert capsys.readouterr().out == ""


def test_the_summary_says_whether_promises_held(capsys):
    narrator = Narrator(to_stderr=False)
    summarise(good(), narrator)
    assert "every promise held" in capsys.readouterr().out
    summarise(report(failures=["it went wrong"]), narrator)
    out = capsys.readouterr().out
    assert "BROKEN PROMISE: it went wrong" in out
    assert "every promise held" not in out


@pytest.mark.parametrize("running", [True, False])
def test_commands_name_the_runner_and_the_socket(capsys, tmp_path, running):
    places = Places(tmp_path / "with blank")
    where_to_look(good(), Narrator(to_stderr=False), places, "eph-1", running=running)
    out = capsys.readouterr().out
    assert f"ephemerd explain eph-1 --socket '{places.socket}'" in out
    assert ("Ctrl-C" in out) is running
    assert ("ephemerd serve --config" in out) is not running


async def test_until_returns_the_value_or_none_in_the_end():
    answers = iter([None, 0, "yes"])

    async def ask() -> object:
        return next(answers)

    async def never() -> bool:
        return False

    assert await until(ask, 10, every=0) == "yes"
    assert await until(never, 0, every=0) is None


async def test_a_signal_cancels_the_play_and_later_ends_the_lingering():
    async def forever() -> DemoReport:
        await asyncio.Event().wait()
        return good()

    curtain = Curtain()
    curtain.fall(signal.SIGTERM)  # before anything plays
    assert curtain.signal is None
    curtain.play = asyncio.create_task(forever())
    curtain.fall(signal.SIGTERM)
    assert await asyncio.wait({curtain.play}) == ({curtain.play}, set())
    assert curtain.play.cancelled()
    assert vars(curtain)["signal"] == signal.SIGTERM
    curtain.lingering = True
    curtain.fall(signal.SIGINT)
    assert curtain.left.is_set()
