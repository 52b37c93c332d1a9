"""`logs`: whole, the end, all of them, or as they grow; nothing in them steers the terminal."""

from __future__ import annotations

import pytest

from ephemerd.cli import logs
from tests.unit.cli import views

RUNNER = str(views.RUNNERS[0]["id"])


def serve(daemon, runner: str, texts: dict[str, str], *, ended: bool = True, piece: int = 1000) -> None:
    sizes = [{"name": name, "size": len(text)} for name, text in texts.items()]
    daemon.on("GET", f"runners/{runner}/logs", (200, {"runner": runner, "ended": ended, "files": sizes}))
    for name, text in texts.items():

        def read(query, _, name=name, text=text):
            start = int(query.get("start", 0))
            part = text[start : start + piece]
            after = start + len(part)
            return 200, {
                "runner": runner,
                "name": name,
                "start": start,
                "next": after,
                "text": part,
                "end": after >= len(text),
                "ended": ended,
            }

        daemon.on("GET", f"runners/{runner}/logs/{name}", read)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(logs, "LOOK_EVERY", 0)


def test_the_output_piece_by_piece(cli, daemon):
    serve(daemon, RUNNER, {"output": "one\ntwo\nthree\n"}, piece=4)
    done = cli("logs", RUNNER)
    assert (done.code, done.out) == (0, "one\ntwo\nthree\n")


def test_the_end_of_an_id_is_enough(cli, daemon):
    serve(daemon, RUNNER, {"output": "one\n"})
    assert cli("logs", RUNNER.rpartition("-")[2]).out == "one\n"


def test_a_runner_that_only_its_logs_remember(cli, daemon):
    serve(daemon, "eph-old-1-1", {"output": "long ago\n"})
    assert cli("logs", "eph-old-1-1").out == "long ago\n"


def test_the_last_lines(cli, daemon):
    serve(daemon, RUNNER, {"output": "".join(f"{number}\n" for number in range(100))})
    assert cli("logs", RUNNER, "-n", "2").out == "98\n99\n"


def test_all_of_them_and_one_of_them(cli, daemon):
    serve(daemon, RUNNER, {"output": "one\n", "Worker_1.log": "two\n"})
    assert cli("logs", RUNNER, "--all").out == "==> output <==\none\n==> Worker_1.log <==\ntwo\n"
    assert cli("logs", RUNNER, "--file", "Worker_1.log").out == "two\n"
    assert cli("logs", RUNNER, "--all", "--json").json == {
        "runner": RUNNER,
        "ended": True,
        "logs": [{"name": "output", "text": "one\n"}, {"name": "Worker_1.log", "text": "two\n"}],
    }


def test_a_log_that_is_not_there_names_those_that_are(cli, daemon):
    serve(daemon, RUNNER, {"output": "one\n"})
    done = cli("logs", RUNNER, "--file", "x.log")
    assert done.code == 2
    assert "output" in done.err


def test_nobody_by_that_name(cli, daemon):
    done = cli("logs", "eph-nobody")
    assert done.code == 2
    assert "no " in done.err


def test_following_ends_when_the_runner_has(cli, daemon):
    texts = iter([("one\n", False), ("", False), ("two\n", False), ("three\n", True)])
    listed = {"runner": RUNNER, "ended": False, "files": [{"name": "output", "size": 0}]}
    daemon.on("GET", f"runners/{RUNNER}/logs", (200, listed))

    def read(query, _):
        text, ended = next(texts)
        start = int(query["start"])
        more = {"start": start, "next": start + len(text), "end": True, "ended": ended}
        return 200, {"runner": RUNNER, "name": "output", "text": text, **more}

    daemon.on("GET", f"runners/{RUNNER}/logs/output", read)
    assert cli("logs", RUNNER, "-f").out == "one\ntwo\nthree\n"


def test_following_shows_one_log(cli, daemon):
    assert cli("logs", RUNNER, "-f", "--all").code == 2


def test_control_signs_are_made_harmless(cli, daemon):
    serve(daemon, RUNNER, {"output": "\x1b[2Jgone\tx\r\nno end"})
    assert cli("logs", RUNNER).out == "\N{REPLACEMENT CHARACTER}[2Jgone    x\nno end"
