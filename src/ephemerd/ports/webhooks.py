"""Webhooks: verify over the raw bytes, then parse tolerantly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ephemerd.domain.job import JobReport


@dataclass(frozen=True, slots=True)
class Delivery:
    """One verified delivery: its id, the event's name, and a report where it carries one we use.

    `unused` says in a few words why there is no report (ping, another event, null job, …).
    """

    id: str
    event: str
    report: JobReport | None
    unused: str = ""


class BadSignature(Exception):
    """Signature missing or wrong: 401."""


class Malformed(Exception):
    """Not JSON, or no object: 400."""


class WrongType(Exception):
    """A content type that we do not take: 415."""


class Webhooks(Protocol):
    """Turns one request into a delivery for one configured forge."""

    name: str

    def receive(self, headers: Mapping[str, str], body: bytes) -> Delivery:
        """Verify and parse; header names are lower-case. Raises the three exceptions above only."""
        ...
