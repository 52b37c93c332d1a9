"""Answers that may be asked for again by their ETag: a 304 costs nothing of the hourly limit (GitHub's REST best
practices). `max-age` is never honoured: each question is asked, and an answer is only re-used when GitHub says so.
"""

from __future__ import annotations

from collections import OrderedDict

from ephemerd.adapters.kit.answer import Answer

MOST = 1_024
MOST_BYTES = 32 * 1024 * 1024
"""What is kept at most, the least recently used going first: an answer that was forgotten is sent whole."""


class Kept:
    """The last whole answer of each URL that came with an ETag."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._answers: OrderedDict[str, Answer] = OrderedDict()
        self._bytes = 0
        self._most = most
        self._most_bytes = most_bytes

    def find(self, url: str) -> Answer | None:
        """Return what is kept of a URL, as used just now."""
        found = self._answers.get(url)
        if found is not None:
            self._answers.move_to_end(url)
        return found

    def keep(self, url: str, answer: Answer) -> None:
        """Keep a whole answer that has an ETag, and forget an older one in any case."""
        old = self._answers.pop(url, None)
        self._bytes -= len(old.body) if old is not None else 0
        if answer.status != 200 or not answer.headers.get("etag"):
            return
        self._answers[url] = answer
        self._bytes += len(answer.body)
        while len(self._answers) > self._most or self._bytes > self._most_bytes:
            _, gone = self._answers.popitem(last=False)
            self._bytes -= len(gone.body)
