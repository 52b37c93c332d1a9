"""Writes the generated parts of the documentation anew: the references and the state diagrams.

    .venv/bin/python scripts/documentation.py

Each part stands between two marks of its own; what is outside them is written by people. A test fails while
a part or a whole file is out of date.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ephemerd.adapters.telemetry import reference as metrics
from ephemerd.cli import reference as commands
from ephemerd.config.reference import reference
from ephemerd.core.diagram import job_diagram, runner_diagram
from ephemerd.web import api

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def _fenced(diagram: Callable[[], str]) -> Callable[[], str]:
    return lambda: f"```mermaid\n{diagram()}```\n"


# File, name of the part, what makes it.
PARTS: tuple[tuple[str, str, Callable[[], str]], ...] = (
    ("API.md", "operations", api.reference),
    ("CONFIGURATION.md", "settings", reference),
    ("ARCHITECTURE.md", "runner states", _fenced(runner_diagram)),
    ("ARCHITECTURE.md", "job statuses", _fenced(job_diagram)),
    ("OPERATIONS.md", "exit codes", commands.exit_codes),
    ("reference/cli.md", "commands", commands.page),
    ("reference/exit-codes.md", "exit codes", commands.exit_codes),
    ("reference/metrics.md", "metrics", metrics.reference),
)
# Files that are generated whole.
WHOLE: tuple[tuple[str, Callable[[], str]], ...] = (("reference/ephemerd.1", commands.manual),)


def updated(document: str, name: str, text: str) -> str:
    """Return the document with that part made anew; ValueError where one of its marks is missing."""
    begin, end = (f"<!-- generated, {name}: {word} -->" for word in ("begin", "end"))
    before, found, rest = document.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"the document lacks the marks of its part {name!r}")
    return f"{before}{begin}\n\n{text}\n{end}{after}"


def main() -> None:
    for file, name, make in PARTS:
        path = DOCS / file
        path.write_text(updated(path.read_text(encoding="utf-8"), name, make()), encoding="utf-8")
    for file, whole in WHOLE:
        (DOCS / file).write_text(whole(), encoding="utf-8")


if __name__ == "__main__":
    main()
