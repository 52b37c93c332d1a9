"""Log lines on stderr: JSON for machines or a console line for people, and never a secret.

The program logs through the standard library with `extra={"fields": {...}}`; structlog gives every line,
also a library's, the same shape.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import Processor

HIDDEN = "[hidden]"
SECRET_KEY = re.compile(
    r"token|secret|credential|password|authorization|private_?key|jit_?config|cookie", re.IGNORECASE
)
SECRET_TEXT = re.compile(
    r"gh[pousr]_[A-Za-z0-9_.-]{8,}"
    r"|github_pat_[A-Za-z0-9_]{8,}"
    r"|ephd_[A-Za-z0-9_-]{20,}"
    r"|(?<=bearer )[A-Za-z0-9._~+/=-]{8,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]*)?"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|[A-Za-z0-9+/]{200,}={0,2}",
    re.IGNORECASE | re.DOTALL,
)
"""GitHub's tokens, our own, bearer values, JWTs, private keys, and long base64 as a JIT configuration is."""
QUIET = ("httpx2", "httpcore2", "uvicorn.error", "uvicorn.access", "asyncio")
"""Libraries whose lines below warning say nothing about runners or jobs."""

Event = MutableMapping[str, Any]


def set_up_logging(
    level: str = "info", style: str = "console", *, color: bool = False, stream: TextIO | None = None
) -> None:
    """Send all log lines to `stream` (stderr by default), replacing what was set up before.

    level   debug, info, warning or error
    style   `json`: one object a line; `console`: for people
    color   colours in console lines; the caller knows the terminal and `NO_COLOR`
    """
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(_formatter(style, color))
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    set_level(level)


def set_level(level: str) -> None:
    """Log from this level on: debug, info, warning or error."""
    root = logging.getLogger()
    root.setLevel(level.upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def wants_color(stream: TextIO, env: Mapping[str, str]) -> bool:
    """Whether a stream is a terminal that may be coloured: `NO_COLOR` set to anything says no."""
    return stream.isatty() and not env.get("NO_COLOR") and env.get("TERM") != "dumb"


def _formatter(style: str, color: bool) -> logging.Formatter:
    shared: list[Processor] = [
        _take_fields,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        ProcessorFormatter.remove_processors_meta,
    ]
    last: list[Processor]
    if style == "json":
        last = [structlog.processors.format_exc_info, _redact, structlog.processors.JSONRenderer(default=str)]
    else:
        plain = structlog.dev.plain_traceback
        renderer = structlog.dev.ConsoleRenderer(colors=color, exception_formatter=plain, pad_event_to=0)
        last = [structlog.processors.format_exc_info, _redact, renderer]
    return ProcessorFormatter(processors=[*shared, *last])


def _take_fields(_: Any, __: str, event: Event) -> Event:
    """Make the record's `fields` keys of the line; they never replace the line's own."""
    record = event.get("_record")
    fields = getattr(record, "fields", None)
    if isinstance(fields, Mapping):
        for key, value in fields.items():
            event.setdefault(str(key), value)
    return event


def _redact(_: Any, __: str, event: Event) -> Event:
    """Hide what is named like a secret or looks like one, at any depth."""
    for key in list(event):
        event[key] = HIDDEN if _names_secret(key) and event[key] else redacted(event[key])
    return event


def redacted(value: Any) -> Any:
    """Return the value with everything that looks like a secret hidden."""
    if isinstance(value, str):
        return SECRET_TEXT.sub(HIDDEN, value)
    if isinstance(value, Mapping):
        return {
            key: HIDDEN if _names_secret(str(key)) and inner else redacted(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [redacted(inner) for inner in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return SECRET_TEXT.sub(HIDDEN, str(value))


def _names_secret(key: str) -> bool:
    return SECRET_KEY.search(key) is not None
