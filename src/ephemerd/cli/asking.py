"""Questions on a terminal: an answer that cannot be right is asked for again, nothing secret is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from ephemerd.cli.failure import Exit, Failure

Check = Callable[[str], str]
"""Takes an answer, returns what is wrong with it; mostly nothing."""


class Asking:
    """Asks on a terminal; without one, or where it is not `wanted`, takes the default or says which option is
    missing."""

    def __init__(self, wanted: bool) -> None:
        self.possible = wanted and sys.stdin.isatty()

    def text(self, question: str, *, default: str = "", option: str = "", check: Check | None = None) -> str:
        """Return the answer, which passed the check; Failure 2 without anybody to ask and without a default."""
        if not self.possible:
            if not option:
                return default
            what = f"{option} is not given, and there is nobody to ask"
            raise Failure(Exit.USAGE, what, f"add {option}, or run it on a terminal without --yes")
        while True:
            answer = str(typer.prompt(question, default=default or None, err=True)).strip()
            wrong = check(answer) if check is not None else ""
            if not wrong:
                return answer
            print(f"  {wrong}", file=sys.stderr)

    def choice(self, question: str, known: tuple[str, ...]) -> str:
        """Return one of the known words; the first is the default."""
        words = f"use one of {', '.join(known)}"
        return self.text(question, default=known[0], check=lambda answer: "" if answer in known else words)

    def optional(self, question: str, *, check: Check) -> str:
        """Return an answer that passed the check, or nothing."""
        while self.possible:
            answer = str(typer.prompt(question, default="", show_default=False, err=True)).strip()
            wrong = check(answer) if answer else ""
            if not wrong:
                return answer
            print(f"  {wrong}", file=sys.stderr)
        return ""

    def hidden(self, question: str) -> str:
        """Return an answer that is not shown; nothing without anybody to ask."""
        if not self.possible:
            return ""
        return str(typer.prompt(question, default="", hide_input=True, show_default=False, err=True)).strip()
