"""The store on SQLite: one file, one writer thread, one reader thread, numbered migrations.

Owns the schema (`migrations/`), the lock beside the file and the words in which a broken file is explained.
Must not know what a row or an event means: everything that passes through is plain data.
"""

from ephemerd.adapters.stores.sqlite.backup import backup, clear_quarantine_of, put_aside, quarantine_of
from ephemerd.adapters.stores.sqlite.inspect import Survey, lines, survey
from ephemerd.adapters.stores.sqlite.offline import open_journal
from ephemerd.adapters.stores.sqlite.store import SqliteStore

__all__ = [
    "SqliteStore",
    "Survey",
    "backup",
    "clear_quarantine_of",
    "lines",
    "open_journal",
    "put_aside",
    "quarantine_of",
    "survey",
]
