from __future__ import annotations

import sqlite3

import pytest

from ephemerd.adapters.stores.sqlite.bulk import AT_ONCE, statements


@pytest.mark.parametrize("count", [0, 1, 2, 3, 31, AT_ONCE, AT_ONCE + 1, 3 * AT_ONCE + 7])
def test_every_row_is_in_one_statement_in_its_order(count):
    rows = [(number, f"name-{number}") for number in range(count)]
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE thing (number INTEGER, name TEXT)")
    for statement, values in statements("INSERT INTO thing VALUES {}", "(?, ?)", rows):
        connection.execute(statement, values)
    assert connection.execute("SELECT number, name FROM thing ORDER BY rowid").fetchall() == rows
    connection.close()


def test_few_texts_serve_for_any_number_of_rows():
    texts = {text for count in range(500) for text, _ in statements("VALUES {}", "(?)", [(None,)] * count)}
    assert sorted(text.count("?") for text in texts) == [*range(1, AT_ONCE + 1)]


def test_a_row_is_written_as_it_is_said():
    asked = statements(
        "INSERT INTO a VALUES {}", "(?, (SELECT id FROM b WHERE name = ?))", [(1, "x"), (2, "y")]
    )
    row = "(?, (SELECT id FROM b WHERE name = ?))"
    assert [*asked] == [(f"INSERT INTO a VALUES {row}, {row}", [1, "x", 2, "y"])]
