"""Every table fits 80 columns, whatever its cells hold, and loses nothing but by a mark that it did."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from ephemerd.cli import screen, tables
from ephemerd.cli.output import Page, Table
from ephemerd.ports.views import HealthView, RateView
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
