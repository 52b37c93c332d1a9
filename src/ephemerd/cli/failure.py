"""How a command fails: an exit code, one line what, one line what to do."""

from __future__ import annotations

import sys
from enum import IntEnum


class Exit(IntEnum):
    """The exit codes that scripts rely on."""

    DONE = 0
    UNEXPECTED = 1
    USAGE = 2
    CONFIGURATION = 3
    CREDENTIALS = 4
    ENVIRONMENT = 5
    UNREACHABLE = 6
    REFUSED = 7
    BROKEN_PROMISE = 8
    STANDSTILL = 9
    INTERRUPTED = 130
    TERMINATED = 143


class Failure(Exception):
    """A command cannot go on: `what` happened, and what the reader can do about it."""

    def __init__(self, code: int, what: str, todo: str) -> None:
        super().__init__(what)
        self.code = int(code)
        self.what = what
        self.todo = todo


LEADS = {"error": "fix", "to do": "how"}
"""What stands before the second line, by the word before the first."""


def complain(what: str, todo: str, *, word: str = "error") -> None:
    """Write the two lines to stderr. Line breaks inside are flattened, so that it stays two."""
    print(f"{word}: {_flat(what)}", file=sys.stderr)
    if todo:
        print(f"  {LEADS.get(word, 'better')}: {_flat(todo)}", file=sys.stderr)


def _flat(text: str) -> str:
    return " ".join(text.split())
