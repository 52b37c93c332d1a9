"""Durations, sizes, addresses and store locations as people write them, and back.

Durations are kept as whole milliseconds, sizes as whole bytes.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path

_DURATION_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_SIZE_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
DURATION_FORM = 'a duration such as "10m", "90s", "1h30m", "250ms", or a number of seconds'
SIZE_FORM = 'a size such as "10GiB" or "500MB", or a number of bytes'


def parse_duration(value: object) -> int:
    """Return whole milliseconds; a bare number, also as text, is seconds. ValueError says the form."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"must be {DURATION_FORM}")
    if isinstance(value, int | float):
        return _whole_ms(float(value) * 1_000)
    text = value.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return _whole_ms(float(text) * 1_000)
    total, end = 0.0, 0
    while match := _DURATION_PART.match(text, end):
        total += float(match[1]) * _DURATION_UNITS[match[2]]
        end = match.end()
        while end < len(text) and text[end] == " ":
            end += 1
    if end == 0 or end != len(text):
        raise ValueError(f"must be {DURATION_FORM}")
    return _whole_ms(total)


def _whole_ms(ms: float) -> int:
    if not 0 <= ms < 2**53:
        raise ValueError(f"must be {DURATION_FORM}, not below zero")
    whole = round(ms)
    if ms and not whole:
        raise ValueError("must not be shorter than one millisecond")
    return whole


def parse_optional_duration(value: object) -> int | None:
    """Like `parse_duration`; "none" is None."""
    if value is None or (isinstance(value, str) and value.strip().lower() == "none"):
        return None
    try:
        return parse_duration(value)
    except ValueError as error:
        raise ValueError(f'{error}, or "none"') from None


def format_duration(ms: int | None) -> str:
    """Return the shortest text that `parse_duration` reads back to the same value."""
    if ms is None:
        return "none"
    if ms == 0:
        return "0s"
    parts, rest = [], ms
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(rest, _DURATION_UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def parse_size(value: object) -> int:
    """Return bytes; kB is 1000, KiB is 1024. ValueError says the form."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"must be {SIZE_FORM}")
    if isinstance(value, int):
        if value < 0:
            raise ValueError(f"must be {SIZE_FORM}, not below zero")
        return value
    match = _SIZE.fullmatch(value.strip().lower())
    if match is None or match[2] not in _SIZE_UNITS:
        raise ValueError(f"must be {SIZE_FORM}")
    return round(float(match[1]) * _SIZE_UNITS[match[2]])


def format_size(size: int) -> str:
    """Return the shortest text that `parse_size` reads back to the same value."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        scale = _SIZE_UNITS[unit.lower()]
        if size and size % scale == 0:
            return f"{size // scale}{unit}"
    return f"{size}B"


def listen_address(text: str) -> tuple[str, int]:
    """Split `HOST:PORT` or `[IPV6]:PORT`; port 0 lets the system choose. ValueError says the form."""
    host, colon, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not (colon and host and port.isascii() and port.isdigit() and int(port) <= 65_535):
        raise ValueError('must be "HOST:PORT", for example "127.0.0.1:8080" or "[::1]:8080"')
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether an address is one that this machine alone can reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def store_path(url: str) -> Path:
    """Return the file that `sqlite:///PATH` names; the path is always absolute. ValueError says the form."""
    scheme, separator, rest = url.partition("://")
    if scheme != "sqlite" or not separator:
        raise ValueError('must be "sqlite:///" and an absolute path; other stores come later')
    if not rest.startswith("/") or not rest.strip("/"):
        raise ValueError('must be "sqlite:///" and an absolute path, for example "sqlite:///var/lib/x.db"')
    return Path("/" + rest.lstrip("/"))
