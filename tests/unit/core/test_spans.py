"""Durations in words: the two largest units, and fractions only where they matter."""

from __future__ import annotations

import pytest

from ephemerd.core.spans import span


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0, "0 s"),
        (1, "0.001 s"),
        (10, "0.01 s"),
        (500, "0.5 s"),
        (1_500, "1.5 s"),
        (9_000, "9 s"),
        (9_999, "9.999 s"),
        (10_000, "10 s"),
        (10_999, "10 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (61_000, "1 min 1 s"),
        (3_600_000, "1 h"),
        (3_661_000, "1 h 1 min"),
        (3_601_000, "1 h 1 s"),
        (86_400_000, "1 d"),
        (90_061_000, "1 d 1 h"),
        (-1, "-0.001 s"),
        (-500, "-0.5 s"),
        (-61_000, "-1 min 1 s"),
    ],
)
def test_span(ms: int, words: str) -> None:
    assert span(ms) == words
