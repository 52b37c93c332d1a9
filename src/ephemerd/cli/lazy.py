"""Commands that are loaded when they are asked for: `status` pays for its own module, and `--help` for none."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperGroup


@dataclass(frozen=True, slots=True)
class Entry:
    """One command or group of commands.

    name      the word on the command line
    place     `module:name` below `ephemerd.cli`: a function, or a `typer.Typer` for a group
    short     its line in the list of commands
    example   what may follow `ephemerd`, shown in its help
    """

    name: str
    place: str
    short: str
    example: str

    def load(self) -> Any:
        """Import the module, and return the function or group."""
        module, _, attribute = self.place.partition(":")
        return getattr(importlib.import_module(f"ephemerd.cli.{module}"), attribute)

    def command(self) -> Any:
        """Return the parser of its command line, made anew."""
        found = self.load()
        if not isinstance(found, typer.Typer):
            one = typer.Typer(add_completion=False, rich_markup_mode=None)
            one.command(self.name, short_help=self.short, epilog=f"Example: ephemerd {self.example}")(found)
            found = one
        return typer.main.get_command(found)


Sections = Mapping[str, tuple[Entry, ...]]
"""Title -> its entries, in the order of the help."""


class _Commands(dict[str, Any]):
    """Name -> parser, made at the first use; counting and listing make none."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        super().__init__(dict.fromkeys(entries))
        self._entries = entries

    def __getitem__(self, name: str) -> Any:
        found = super().__getitem__(name)
        if found is None:
            found = self[name] = self._entries[name].command()
        return found

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 - dict.get would not make it

    def items(self) -> Any:
        return [(name, self[name]) for name in self]

    def values(self) -> Any:
        return [self[name] for name in self]


def group(sections: Sections) -> type[TyperGroup]:
    """Return the class of a group that has these commands and shows them in sections."""
    entries = {entry.name: entry for part in sections.values() for entry in part}

    class Group(TyperGroup):
        def __init__(self, **named: Any) -> None:
            super().__init__(**{**named, "commands": {}})
            self.commands = _Commands(entries)

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            width = max(map(len, entries))
            for title, part in sections.items():
                with formatter.section(title):
                    formatter.write_dl([(entry.name.ljust(width), entry.short) for entry in part])

    return Group
