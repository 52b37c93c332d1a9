"""Says what happens: with colours on a terminal, as plain lines elsewhere, on stderr when stdout is for JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {"act": "bold cyan", "good": "green", "bad": "bold red", "quiet": "dim", "plain": ""}


class Narrator:
    """Prints lines with the time that has passed. ``muted`` says nothing at all, for tests.

    ``live``: a terminal watches; ``moves``: its cursor can be moved; ``last``: what was said last.
    """

    def __init__(self, *, to_stderr: bool, muted: bool = False) -> None:
        from rich.console import Console

        stream = sys.stderr if to_stderr else sys.stdout
        self.console: Console = Console(file=stream, highlight=False, markup=False, emoji=False, quiet=muted)
        self.live = self.console.is_terminal and not muted
        self.moves = self.live and not self.console.is_dumb_terminal
        self.last = ""
        self._zero = time.monotonic()

    def title(self, text: str) -> None:
        """A heading."""
        self.last = text
        self._print("")
        self._print(text, STYLES["act"])

    def say(self, text: str, style: str = "plain") -> None:
        """One line."""
        self.last = text
        passed = time.monotonic() - self._zero
        self._print(f"{passed:6.1f} s  {text}", STYLES[style])

    def detail(self, lines: Iterable[str]) -> None:
        """Lines that belong to the one before."""
        for line in lines:
            self._print(f"            {line}", STYLES["quiet"])

    def _print(self, text: str, style: str = "") -> None:
        """Print a line: wrapped on a terminal, where the board has to know how many lines there are, else whole.

        The style is the text's own: given to the console it would colour the board too.
        """
        from rich.text import Text

        self.console.print(Text(text, style=style), soft_wrap=not self.console.is_terminal)

    @contextmanager
    def board(self, rows: Callable[[], list[tuple[str, str]]]) -> Iterator[Callable[[], None]]:
        """Show rows, a line each, below what is said, while the context is open; gives what draws them anew."""
        from rich.console import Group
        from rich.live import Live
        from rich.text import Text

        def draw() -> None:
            lines = [Text("\N{BOX DRAWINGS LIGHT HORIZONTAL}" * 40, style=STYLES["quiet"])]
            for title, text in rows():
                line = Text.assemble((f"{title:<9}", STYLES["act"]), text, no_wrap=True)
                line.truncate(self.console.width - 1, overflow="ellipsis")
                lines.append(line)
            live.update(Group(*lines), refresh=True)

        with Live(console=self.console, auto_refresh=False, transient=True) as live:
            draw()
            yield draw

    def table(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Figures with what they mean: name, figure, remark."""
        from rich.table import Table

        table = Table(show_header=False, box=None, padding=(0, 2))
        table.add_column(justify="left")
        table.add_column(justify="right", style="bold" if self.live else "")
        table.add_column(style="dim" if self.live else "")
        for row in rows:
            table.add_row(*row)
        self.console.print(table, soft_wrap=not self.console.is_terminal)
