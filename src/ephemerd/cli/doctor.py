"""`doctor`: look at configuration, machine, forges and engines; one line what, one line what to do.

Changes nothing.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ephemerd.cli import output
from ephemerd.cli.check import examined
from ephemerd.cli.options import Config, Json, Set

STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}

if TYPE_CHECKING:
    from ephemerd.config.effective import Effective
    from ephemerd.config.findings import Finding
    from ephemerd.ports.views import FindingView


def doctor(
    config: Config = None,
    override: Set = None,
    offline: Annotated[bool, typer.Option("--offline", help="Ask no forge.")] = False,
    as_json: Json = False,
) -> int:
    """Check configuration, machine, forges and engines, with a fix for each finding."""
    from ephemerd.ports.views import FindingView

    examination = examined(config, override or [])
    found = [_view(one) for one in examination.findings]
    if not any(one.code for one in found):
        place = str(examination.path or "environment")
        found.insert(0, FindingView("ok", 0, "configuration", f"{place} can be used", ""))
    if examination.effective is not None:
        found += looked(examination.effective, offline=offline)
    code = min((one.code for one in found if one.level == "problem"), default=0)
    if as_json:
        output.emit_json({"findings": [asdict(one) for one in found], "code": code})
        return code
    _show(found)
    output.note(_sum(found))
    if examination.effective is None:
        output.note("machine, engines and forges were not looked at: mend that first, then run it again")
    return code


def _show(found: list[FindingView]) -> None:
    """Print each finding, with what to do; coloured on a terminal."""
    lines = []
    for one in found:
        lines.append((output.clean(f"{one.level}: {one.where}: {one.what}"), one.level))
        if one.todo and one.level != "ok":
            lead = "fix" if one.level == "problem" else "better"
            lines.append((output.clean(f"  {lead}: {one.todo}"), ""))
    if not sys.stdout.isatty():
        print("\n".join(text for text, _ in lines))
        return
    from ephemerd.cli import screen

    screen.print_lines((text, STYLES.get(level, "")) for text, level in lines)


def looked(effective: Effective, *, offline: bool) -> list[FindingView]:
    """Look at machine, runtimes and, unless `offline`, the forges."""
    from ephemerd import joining, placing
    from ephemerd.cli import examine

    found = [*examine.machine(effective), *asyncio.run(placing.diagnose(effective))]
    return found if offline else [*found, *asyncio.run(joining.look_at_forges(effective))]


def _view(finding: Finding) -> FindingView:
    from ephemerd.ports.views import FindingView

    level = "problem" if finding.code else "warning"
    return FindingView(level, int(finding.code), finding.where, finding.what, finding.todo)


def _sum(found: list[FindingView]) -> str:
    problems = sum(one.level == "problem" for one in found)
    warnings = sum(one.level == "warning" for one in found)
    if not problems and not warnings:
        return "nothing to mend"
    return f"{_count(problems, 'problem')}, {_count(warnings, 'warning')}"


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"
