"""Numbered migrations: each file once, in order, in one transaction with the note that it was applied."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from ephemerd.adapters.stores.sqlite import words
from ephemerd.adapters.stores.sqlite.copying import before_upgrade
from ephemerd.ports.errors import Broken, NewerStore

APPLICATION = 1701865572  # "ephd", as 0001_initial.sql sets it
_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    sql: str


def migrations() -> tuple[Migration, ...]:
    """Return the shipped migrations in their order; their numbers are 1, 2, 3, …"""
    folder = resources.files("ephemerd.adapters.stores.sqlite.migrations")
    found = [
        Migration(int(match[1]), match[2], file.read_text(encoding="utf-8"))
        for file in folder.iterdir()
        if (match := _NAME.fullmatch(file.name))
    ]
    found.sort(key=lambda migration: migration.number)
    assert [migration.number for migration in found] == list(range(1, len(found) + 1)), "a number is missing"
    return tuple(found)


def check(connection: sqlite3.Connection, path: Path, known: tuple[Migration, ...]) -> int:
    """Return the version of the database (0: empty) without touching it.

    Raises `NewerStore` for one of a newer program, `Broken` for one that is not ours.
    """
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    application: int = connection.execute("PRAGMA application_id").fetchone()[0]
    tables: int = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application != APPLICATION and (tables or version or application):
        raise Broken(words.foreign(path))
    if version > len(known):
        raise NewerStore(
            f"{path} was written by a newer ephemerd (its version {version}, this program knows {len(known)})."
            f" Install that program again, or go back to {_copy(path, len(known))}."
        )
    if application == APPLICATION:
        applied = connection.execute("SELECT max(number), count(*) FROM schema_migrations").fetchone()
        if applied != (version, version):
            raise Broken(words.damaged(path, "its notes about migrations contradict each other"))
    return version


def _copy(path: Path, version: int) -> str:
    kept = before_upgrade(path, version)
    if kept.exists():
        return f"the copy from before the upgrade, {kept}: what happened since is lost then"
    return "a backup from before the upgrade"


def apply(connection: sqlite3.Connection, version: int, known: tuple[Migration, ...]) -> None:
    """Bring the database from that version to the newest."""
    for migration in known[version:]:
        script = (
            f"BEGIN IMMEDIATE;\n{migration.sql}\n;\n"
            f"INSERT INTO schema_migrations (number, name) VALUES ({migration.number}, '{migration.name}');\n"
            f"PRAGMA user_version = {migration.number};\nCOMMIT;"
        )
        try:
            connection.executescript(script)
        finally:
            if connection.in_transaction:
                connection.rollback()
