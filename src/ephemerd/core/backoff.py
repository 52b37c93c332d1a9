"""How long to wait after the n-th failure in a row; spread without a source of randomness."""

from __future__ import annotations

from collections.abc import Sequence


def _spread(seed: str) -> float:
    """Map a text to [-1, 1) by FNV-1a, so that equal histories wait equally long."""
    value = 0x811C9DC5
    for byte in seed.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    value ^= value >> 15
    value = (value * 0x2C1B3C6D) & 0xFFFFFFFF
    value ^= value >> 12
    return value / 0x80000000 - 1.0


def delay(steps: Sequence[int], failures: int, jitter: float, seed: str) -> int:
    """Return the pause in ms after `failures` (1, 2, …) in a row: the step, give or take `jitter`."""
    step = steps[min(failures, len(steps)) - 1]
    return max(0, int(step * (1.0 + jitter * _spread(f"{seed}:{failures}"))))


def doubling(first: int, most: int, times: int) -> int:
    """Return `first` doubled `times` times (0 = first), at most `most`; all ms."""
    return min(most, first << min(times, 30))
