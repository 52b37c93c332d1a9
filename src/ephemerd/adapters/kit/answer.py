"""What an HTTP exchange gave, as plain data: adapters' pure parts read it without knowing the client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. Header names are lower-case; headers and body, which may hold secrets, are in no repr."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class NoAnswer(Exception):
    """No complete answer came; the request may have been carried out.

    `broken` says that an open connection was lost, so that a read may be worth one more try. The text quotes
    neither what was sent nor what was received.
    """

    def __init__(self, text: str, *, broken: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.broken = broken
