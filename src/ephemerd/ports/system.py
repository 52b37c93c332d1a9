"""Clock and meter: the two things of the machine that the shell needs besides forge and runtime."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """The shell clock: ms that never go back or jump.

    A restart on the same boot goes on by the monotonic difference; only a reboot reads the wall clock.
    """

    def start(self, last: tuple[int, str, int] | None) -> bool:
        """Begin from what was persisted; return whether this is still the same boot."""
        ...

    def now(self) -> int:
        """Current shell time, ms."""
        ...

    def mark(self) -> tuple[int, str, int]:
        """What to persist: (now, boot id, monotonic ms)."""
        ...

    def stepped(self) -> int:
        """By how many ms the wall clock moved against the monotonic one since the last call."""
        ...

    def slept(self) -> int:
        """For how many ms the machine was suspended since the last call."""
        ...


class Meter(Protocol):
    """Where the shell counts what is no part of the core's state (latencies, requests)."""

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a counter."""
        ...

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """Add an observation to a histogram."""
        ...
