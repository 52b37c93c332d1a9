"""Log lines: one shape for all loggers, the words people search for, and never a secret."""

from __future__ import annotations

import io
import json
import logging

import pytest
import structlog

from ephemerd.adapters.telemetry.logs import HIDDEN, QUIET, redacted, set_up_logging, wants_color
from ephemerd.app.tokens import Tokens
from ephemerd.ports.access import Role
from tests.unit.app.test_tokens import MemoryShelf


@pytest.fixture
def stream():
    """A place for log lines; puts the root logger back as it was."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    quiet = {name: logging.getLogger(name).level for name in QUIET}
    yield io.StringIO()
    root.handlers[:] = before
    root.setLevel(level)
    for name, old in quiet.items():
        logging.getLogger(name).setLevel(old)
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_json_line_holds_message_level_time_and_fields(stream):
    set_up_logging("info", "json", stream=stream)
    fields = {"runner": "eph-1", "busy_verdict": "busy", "probe": "process"}
    logging.getLogger("ephemerd.core").info("orphan sweep nomination vetoed", extra={"fields": fields})
    (line,) = lines(stream)
    assert line["event"] == "orphan sweep nomination vetoed"
    assert line["level"] == "info"
    assert line["logger"] == "ephemerd.core"
    assert str(line["timestamp"]).endswith("Z")
    assert {name: line[name] for name in fields} == fields


def test_fields_never_replace_the_lines_own(stream):
    set_up_logging("info", "json", stream=stream)
    fields = {"event": "other", "name": "n", "message": "m", "args": "a"}
    logging.getLogger("x").warning("the line", extra={"fields": fields})
    (line,) = lines(stream)
    assert line["event"] == "the line"
    assert line["name"] == "n"


def test_structlog_and_the_standard_library_look_alike(stream):
    set_up_logging("info", "json", stream=stream)
    structlog.get_logger("a").warning("by structlog", runner="r")
    logging.getLogger("b").warning("by logging", extra={"fields": {"runner": "r"}})
    first, second = lines(stream)
    assert set(first) == set(second)
    assert (first["logger"], second["logger"]) == ("a", "b")


def test_levels_are_kept(stream):
    set_up_logging("warning", "json", stream=stream)
    logging.getLogger("a").info("no")
    structlog.get_logger("b").info("no")
    logging.getLogger("a").warning("yes")
    assert [line["event"] for line in lines(stream)] == ["yes"]


def test_libraries_are_quiet_below_warning(stream):
    set_up_logging("debug", "json", stream=stream)
    for name in QUIET:
        logging.getLogger(name).info("GET https://…")
    logging.getLogger("ephemerd").debug("ours")
    assert [line["event"] for line in lines(stream)] == ["ours"]


def test_setting_up_again_replaces_what_was_there(stream):
    set_up_logging("info", "json", stream=io.StringIO())
    set_up_logging("info", "json", stream=stream)
    logging.getLogger("a").info("once")
    assert len(lines(stream)) == 1


def test_an_exception_is_part_of_its_line(stream):
    set_up_logging("info", "json", stream=stream)
    try:
        raise ValueError("token ghp_abcdefgh12345678")
    except ValueError:
        logging.getLogger("a").exception("it failed")
    (line,) = lines(stream)
    assert "ValueError" in str(line["exception"])
    assert "ghp_" not in stream.getvalue()


def test_console_lines_are_plain_without_color(stream):
    set_up_logging("info", "console", stream=stream)
    logging.getLogger("a").warning("ESCAPE: past its bound", extra={"fields": {"runner": "eph-1"}})
    text = stream.getvalue()
    assert "ESCAPE: past its bound" in text
    assert "runner=eph-1" in text
    assert "\x1b" not in text


def test_console_lines_may_be_coloured(stream):
    set_up_logging("info", "console", color=True, stream=stream)
    logging.getLogger("a").warning("hello")
    assert "\x1b[" in stream.getvalue()


@pytest.mark.parametrize("style", ["json", "console"])
@pytest.mark.parametrize(
    "fields",
    [
        {"token": "abc123"},
        {"authorization": "Basic abc123"},
        {"webhook_secret": "abc123"},
        {"jit_config": "abc123"},
        {"outer": {"credential": "abc123"}},
        {"header": "Authorization: Bearer abc123abc123"},
        {"detail": "refused github_pat_abc123abc123"},
        {"detail": ["ghs_abc123abc123"]},
    ],
)
def test_no_secret_reaches_a_line(stream, style, fields):
    set_up_logging("debug", style, stream=stream)
    logging.getLogger("a").info("something", extra={"fields": fields})
    structlog.get_logger("b").info("something", **fields)
    assert "abc123" not in stream.getvalue()
    assert stream.getvalue().count(HIDDEN) >= 2


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nMIIabc",
        "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJhYmMifQ.MIIabc",
        "A" * 4088,
    ],
)
def test_what_looks_like_a_secret_is_hidden(text):
    assert "MIIabc" not in redacted(text)
    assert "A" * 50 not in redacted(text)
    assert HIDDEN in redacted(text)


@pytest.mark.parametrize("value", ["eph-s1-abcd-12", "acme/app", 3, 2.5, None, True, "probe: no worker", ""])
def test_what_is_no_secret_stays(value):
    assert redacted(value) == value


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_needs_a_terminal_that_allows_it():
    assert wants_color(Terminal(), {})
    assert not wants_color(io.StringIO(), {})
    assert not wants_color(Terminal(), {"NO_COLOR": "1"})
    assert not wants_color(Terminal(), {"TERM": "dumb"})
    assert wants_color(Terminal(), {"NO_COLOR": ""})


def test_an_api_token_is_hidden_wherever_it_stands():
    token = Tokens(MemoryShelf(), lambda: 0).create("a", Role.READ, None).token
    for text in (token, f"curl -H 'x: {token}'", f"{token}\n"):
        assert token[5:] not in redacted(text)
