"""Answers that may be asked for again by their ETag: a 304 costs nothing of the hourly limit (GitHub's REST best
practices). `max-age` is never honoured: each question is asked, and an answer is only re-used when GitHub says so.

An ETag depends on the token (github/docs#34689): under a new one every question is asked wholly once more.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, replace

from ephemerd.adapters.kit.answer import Answer

MOST = 16_384
MOST_BYTES = 32 * 1024 * 1024
"""What is kept at most, the least recently used going first: an answer that was forgotten is sent whole."""
_HEADERS = ("etag", "link")

Key = tuple[str, str]
"""Whose question it is (an account, or "" where all is one credential), and its URL."""


@dataclass(frozen=True, slots=True)
class _One:
    answer: Answer
    mark: bytes


def mark_of(token: str) -> bytes:
    """Return what tells tokens apart without showing them."""
    return hashlib.blake2s(token.encode(), digest_size=8).digest()


class Kept:
    """The last whole answer to each question that came with an ETag, and the mark of the token it was for."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._answers: OrderedDict[Key, _One] = OrderedDict()
        self._bytes = 0
        self._most = most
        self._most_bytes = most_bytes

    def find(self, key: Key, mark: bytes) -> Answer | None:
        """Return what is kept for a question under that token, as used just now."""
        found = self._answers.get(key)
        if found is None or found.mark != mark:
            return None
        self._answers.move_to_end(key)
        return found.answer

    def has(self, key: Key, mark: bytes) -> bool:
        """Say whether a question can be asked by its ETag."""
        found = self._answers.get(key)
        return found is not None and found.mark == mark

    def keep(self, key: Key, mark: bytes, answer: Answer, *, whole: bool = True) -> None:
        """Keep a whole answer that has an ETag, and forget an older one in any case; not `whole`: without its body."""
        self.forget(key)
        if answer.status != 200 or not answer.headers.get("etag"):
            return
        headers = {name: answer.headers[name] for name in _HEADERS if name in answer.headers}
        one = _One(replace(answer, headers=headers, body=answer.body if whole else b""), mark)
        self._answers[key] = one
        self._bytes += len(one.answer.body)
        while len(self._answers) > self._most or self._bytes > self._most_bytes:
            _, gone = self._answers.popitem(last=False)
            self._bytes -= len(gone.answer.body)

    def forget(self, key: Key) -> None:
        """Drop what nobody asks again."""
        old = self._answers.pop(key, None)
        self._bytes -= len(old.answer.body) if old is not None else 0
