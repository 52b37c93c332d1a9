"""Durations, sizes and addresses: what is read, what is refused, and that writing and reading agree."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerd.config.units import (
    format_duration,
    format_size,
    listen_address,
    parse_duration,
    parse_optional_duration,
    parse_size,
    store_path,
)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("10m", 600_000),
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        (" 2 h ", 7_200_000),
        ("250ms", 250),
        ("1.5s", 1_500),
        ("2d", 172_800_000),
        ("10M", 600_000),
        ("0s", 0),
        ("600", 600_000),
        ("0.25", 250),
        (5, 5_000),
        (0.25, 250),
        (0, 0),
    ],
)
def test_durations_that_are_read(text, ms):
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ten",
        "10x",
        "m",
        "10m5",
        "10 minutes",
        "-5s",
        "1h,30m",
        "5µs",
        True,
        None,
        -1,
        ["5s"],
        1e30,
        "none",
    ],
)
def test_durations_that_are_refused(text):
    with pytest.raises(ValueError, match="must"):
        parse_duration(text)


def test_a_duration_below_a_millisecond_is_no_zero():
    with pytest.raises(ValueError, match="shorter than one millisecond"):
        parse_duration(0.0001)


@given(st.integers(0, 2**52))
def test_a_written_duration_is_read_back(ms):
    assert parse_duration(format_duration(ms)) == ms


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "none"),
        (0, "0s"),
        (70_000, "1m10s"),
        (23_400_000, "6h30m"),
        (250, "250ms"),
        (432_000_000, "5d"),
    ],
)
def test_durations_that_are_written(ms, text):
    assert format_duration(ms) == text
    assert parse_optional_duration(text) == ms


def test_none_is_a_duration_only_where_it_may_be():
    assert parse_optional_duration("None ") is None
    assert parse_optional_duration("5s") == 5_000
    with pytest.raises(ValueError, match='or "none"'):
        parse_optional_duration("never")


@pytest.mark.parametrize(
    ("text", "size"),
    [("10GiB", 10 * 2**30), ("500MB", 500_000_000), ("1.5 kib", 1536), ("7", 7), ("7B", 7), (9, 9), (0, 0)],
)
def test_sizes_that_are_read(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "10 gigs", "-1", -1, 1.5, True, None])
def test_sizes_that_are_refused(text):
    with pytest.raises(ValueError, match="must be a size"):
        parse_size(text)


@given(st.integers(0, 2**50))
def test_a_written_size_is_read_back(size):
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("[::1]:9464", ("::1", 9464)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_addresses_that_are_read(text, address):
    assert listen_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "8080", ":8080", "host:", "host:http", "::1:80", "host:65536", "h:-1", "h:²"]
)
def test_addresses_that_are_refused(text):
    with pytest.raises(ValueError, match="HOST:PORT"):
        listen_address(text)


@pytest.mark.parametrize("url", ["sqlite:///var/lib/x.db", "sqlite:////var/lib/x.db"])
def test_a_store_is_always_absolute(url):
    assert store_path(url) == Path("/var/lib/x.db")


@pytest.mark.parametrize("url", ["sqlite://x.db", "sqlite:///", "x.db", "postgres://db", "sqlite:x"])
def test_stores_that_are_refused(url):
    with pytest.raises(ValueError, match="sqlite:///"):
        store_path(url)
