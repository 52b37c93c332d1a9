"""Every table fits 80 columns, whatever its cells hold, and loses nothing but by a mark that it did."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from ephemerd.cli import screen, tables
from ephemerd.cli.output import Page, Table
from ephemerd.ports.views import HealthView, RateView
from ephemerd.testing.simulate import front
from tests.unit.cli import views

LONG = "a-pool-with-quite-a-long-name-for-heavy-builds"
RUNNER = f"eph-k3v9-{LONG}-x7-12345"
REPOSITORY = "an-organization-of-some-size/its-monorepo-for-everything-that-it-does"
JOB = f"github/{REPOSITORY}/48213377105"
SENTENCE = "host local has no free slot, and " * 6
LONG_PAGES = {
    "status": tables.status_page(
        views.status(
            health=HealthView("degraded", (SENTENCE, SENTENCE)),
            cordoned=(LONG, LONG),
            reconciled={f"github/repo:{REPOSITORY}": views.NOW},
            rates=(RateView("github", "core", 5000, 480, views.NOW, REPOSITORY, 500),),
            needs_restart=("server.api_listen",),
        )
    ),
    "pools": tables.pools_page(
        [
            views.pool(name=LONG, host=LONG, labels=(LONG, LONG), cordoned=True, cordoned_by=SENTENCE),
            views.pool(),
        ]
    ),
    "hosts": tables.hosts_page([views.host(name=LONG, slots=1000, cordoned=True, cordoned_by=SENTENCE)]),
    "runners": tables.runners_page(
        [
            views.runner(12, id=RUNNER, pool=LONG, job=JOB, stuck=SENTENCE, vetoes=3, since_s=90_000.0),
            *views.RUNNERS,
        ]
    ),
    "jobs": tables.jobs_page(
        [views.job(48213377105, repository=REPOSITORY, name=LONG, why=SENTENCE), *views.JOBS]
    ),
    "decisions": tables.decisions_page(
        [
            views.decision(1, runner=RUNNER, rule="registration-lost", reason=SENTENCE, via="forge-flag"),
            *views.DECISIONS,
        ]
    ),
}
SHORT_PAGES = {
    "runners": tables.runners_page(views.RUNNERS),
    "jobs": tables.jobs_page(views.JOBS),
    "decisions": tables.decisions_page(views.DECISIONS),
    "pools": tables.pools_page([views.pool()]),
    "hosts": tables.hosts_page([views.host()]),
}


def drawn(page: Page, width: int) -> list[str]:
    target = io.StringIO()
    console = Console(file=target, width=width, highlight=False, markup=False, emoji=False)
    console.print(screen.render(page, width))
    return target.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 100, 60])
@pytest.mark.parametrize("name", LONG_PAGES)
def test_a_page_with_long_values_fits_and_is_whole(name, width):
    lines = drawn(LONG_PAGES[name], width)
    assert [line for line in lines if len(line) > width] == []
    if width >= 80:
        assert "\N{HORIZONTAL ELLIPSIS}" not in "".join(lines)


@pytest.mark.parametrize("name", SHORT_PAGES)
def test_what_fits_keeps_its_line(name):
    (table,) = SHORT_PAGES[name].parts
    assert isinstance(table, Table)
    text = "\n".join(drawn(SHORT_PAGES[name], 80))
    fixed = [column for column in range(len(table.titles)) if column not in table.wraps]
    assert [row[column] for row in table.rows for column in fixed if row[column] not in text] == []


def test_a_long_id_is_folded_and_not_cut():
    lines = drawn(LONG_PAGES["runners"], 80)
    first = "".join(line.split("  ")[0] for line in lines[1:] if line[:1].strip())
    assert RUNNER in re.sub(r"\s", "", first)


def test_health_has_a_colour():
    target = io.StringIO()
    console = Console(file=target, width=80, force_terminal=True, color_system="standard")
    console.print(screen.render(LONG_PAGES["status"], 80))
    assert "\x1b[1;33mdegraded\x1b[0m" in target.getvalue()


def test_a_comparison_with_long_titles_fits():
    titles = front.titles()
    cells = ["gate-no-revalidate", "hostile", *("35,480",) * (len(titles) - 2)]
    table = Table(titles, [tuple(cells)] * 3, frozenset(range(2, len(titles))))
    lines = drawn(Page([table]), 80)
    assert [line for line in lines if len(line) > 80] == []
    text = "\n".join(lines)
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    assert all(word in text for title in titles for word in title.split())


CELLS = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=120).map(
    lambda text: text.strip() or "x"
)


@st.composite
def tables_of_any_kind(draw: st.DrawFn) -> Table:
    """Up to seven columns: numbers on the right, any texts elsewhere."""
    columns = draw(st.integers(1, 7))
    right = draw(st.frozensets(st.integers(0, columns - 1), max_size=3))
    wraps = draw(st.frozensets(st.integers(0, columns - 1))) - right
    number = st.integers(0, 99_999).map(str)
    row = st.tuples(*(number if column in right else CELLS for column in range(columns)))
    titles = tuple(f"TITLE{column}" for column in range(columns))
    return Table(titles, draw(st.lists(row, min_size=1, max_size=4)), right, wraps)


@given(tables_of_any_kind())
@settings(max_examples=100, deadline=None)
def test_any_table_fits_and_nothing_of_it_is_lost(table):
    lines = drawn(Page([table]), 80)
    assert [line for line in lines if len(line) > 80] == []
    text = re.sub(r"\s", "", "".join(lines))
    wanted = re.sub(r"\s", "", "".join(cell for row in table.rows for cell in row))
    assert sorted(text) == sorted(wanted + "".join(table.titles))


@given(tables_of_any_kind(), st.integers(10, 200))
@settings(max_examples=100, deadline=None)
def test_any_table_has_one_line_a_row_where_that_is_asked_for(table, width):
    lines = screen.lines(table, width)
    assert len(lines) == len(table.rows) + 1
    assert all(line.cell_len <= width for line in lines)
