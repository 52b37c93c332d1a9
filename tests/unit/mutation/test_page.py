"""The list of survivors: there and back, every one explained, and its page up to date."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.mutation.mutants import mutants
from tests.mutation.page import KINDS, NOTHING, PAGE, Survivors, all_modules, load, paged, save, tables
from tests.mutation.trial import source_of

KNOWN = Survivors(
    {"gate": {"mutants": 10, "survived": 2}, "supply": {"mutants": 5, "survived": 0}},
    {'gate.f: "a`\\" => b': "equivalent: same", "gate.f: é => x #2": "harmless: one ms"},
)


def test_the_list_goes_there_and_back(tmp_path: Path) -> None:
    save(KNOWN, tmp_path / "list.toml")
    assert load(tmp_path / "list.toml") == KNOWN


def test_the_tables_show_figures_and_reasons() -> None:
    text = tables(KNOWN)
    assert "| gate | 10 | 8 | 2 |" in text
    assert "| all of these | 15 | 13 | 2 |" in text
    assert '### Equivalent\n\n- Same.\n  - `gate.f: "a\'\\" => b`' in text
    assert "### Harmless\n\n- One ms.\n  - `gate.f: é => x #2`" in text


def test_a_module_that_was_not_run_is_named() -> None:
    first, second = [name for name in all_modules() if name not in KNOWN.figures][:2]
    assert f"Not run to the end yet: `{first}`, `{second}`" in tables(KNOWN)
    assert "`gate`," not in tables(KNOWN)
    every = Survivors({name: {"mutants": 1, "survived": 0} for name in all_modules()})
    assert "Not run" not in tables(every)


def test_where_nothing_can_be_changed_nothing_is_missed() -> None:
    for name in NOTHING:
        assert list(mutants(name, source_of(name).read_text(encoding="utf-8"))) == []


def test_every_survivor_is_explained() -> None:
    known = load()
    assert [name for name, reason in known.reasons.items() if not reason.startswith(KINDS)] == []
    listed = Counter(name.partition(".")[0] for name in known.reasons)
    assert listed == {name: row["survived"] for name, row in known.figures.items() if row["survived"]}


def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert paged(load(), text) == text, "run: .venv/bin/python -m tests.mutation.page"
