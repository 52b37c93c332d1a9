"""Reads a TOML file, and knows on which line each key stands (the standard parser does not tell)."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ephemerd.config.findings import Code, Finding

KeyPath = tuple[str, ...]
MOST_BYTES = 1_000_000
_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_DOTTED = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_HEADER = re.compile(rf"\s*\[\[?\s*({_DOTTED})\s*\]")
_ASSIGN = re.compile(rf"\s*({_DOTTED})\s*=")
_TOKEN = re.compile(
    r'"""|\'\'\'' + r'|"(?:[^"\\]|\\.)*"' + r"|'[^']*'" + r"|[\[\]{}]|\#",
)


@dataclass(frozen=True, slots=True)
class TomlFile:
    """A parsed file: its tables, and the line (from 1) of each key and table that was found."""

    path: Path
    data: dict[str, Any]
    lines: dict[KeyPath, int] = field(default_factory=dict)

    def place(self, key: KeyPath) -> str:
        """Return `FILE:LINE` of the key, or of what encloses it."""
        while key and key not in self.lines:
            key = key[:-1]
        return f"{self.path}:{self.lines[key]}" if key else str(self.path)


def read_toml(path: Path) -> TomlFile | Finding:
    """Read the file, or say in a finding why it cannot be read."""
    try:
        raw = _read_bounded(path)
        text = raw.decode("utf-8")
        return TomlFile(path, tomllib.loads(text), key_lines(text))
    except FileNotFoundError:
        return Finding(Code.CONFIGURATION, str(path), "there is no such file", "check the path")
    except OSError as error:
        return Finding(
            Code.CONFIGURATION,
            str(path),
            f"cannot be read: {error.strerror}",
            "make it readable for the account that the daemon runs as",
        )
    except UnicodeDecodeError:
        return Finding(Code.CONFIGURATION, str(path), "is not UTF-8 text", "save it as UTF-8")
    except tomllib.TOMLDecodeError as error:
        return Finding(
            Code.CONFIGURATION, str(path), f"is not valid TOML: {error}", "mend the syntax at that place"
        )
    except ValueError as error:
        return Finding(Code.CONFIGURATION, str(path), str(error), "check that it is the right file")


def _read_bounded(path: Path) -> bytes:
    if path.is_dir():
        raise ValueError("is a folder, not a file")
    with path.open("rb") as file:
        raw = file.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise ValueError("is larger than a configuration can be (1 MB)")
    return raw


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line of each table header and key outside of values; inline tables count as one value."""
    found: dict[KeyPath, int] = {}
    table: KeyPath = ()
    quote, depth = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        rest = line
        if not quote and depth == 0:
            if header := _HEADER.match(line):
                table = _split(header[1])
                found.setdefault(table, number)
                continue
            if assign := _ASSIGN.match(line):
                found.setdefault(table + _split(assign[1]), number)
                rest = line[assign.end() :]
        quote, depth = _skip(rest, quote, depth)
    return found


def _split(dotted: str) -> KeyPath:
    return tuple(part.strip("\"'") for part in re.findall(_KEY, dotted))


def _skip(rest: str, quote: str, depth: int) -> tuple[str, int]:
    """Walk over a piece of a value; return the multi-line quote and bracket depth that stay open."""
    at = 0
    while at < len(rest):
        if quote:
            end = rest.find(quote, at)
            if end < 0:
                return quote, depth
            at, quote = end + len(quote), ""
            continue
        token = _TOKEN.search(rest, at)
        if token is None or token[0] == "#":
            break
        at = token.end()
        if token[0] in {'"""', "'''"}:
            quote = token[0]
        elif token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth = max(0, depth - 1)
    return quote, depth
