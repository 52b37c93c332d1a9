"""The list of the changes that no test notices, and its page in the documentation.

`survivors.toml` holds the figures of each module that was run and, for each survivor, why it may live:
a reason begins with `equivalent:` (no behaviour differs) or `harmless:` (it differs where nothing rests on it).
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

LIST = Path(__file__).with_name("survivors.toml")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "MUTANTS.md"
BEGIN, END = (f"<!-- generated, mutants: {word} -->" for word in ("begin", "end"))
KINDS = ("equivalent", "harmless")
NOTHING = ("commands", "step")
"""Modules without a place that could be changed: names and types alone."""


@dataclass
class Survivors:
    """`figures`: module -> mutants and survived; `reasons`: the name of a change -> why it may live."""

    figures: dict[str, dict[str, int]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def load(path: Path = LIST) -> Survivors:
    """Read the list."""
    plain = tomllib.loads(path.read_text(encoding="utf-8"))
    return Survivors(plain.get("figures", {}), plain.get("reasons", {}))


def save(known: Survivors, path: Path = LIST) -> None:
    """Write the list, sorted."""
    lines = [
        "# Written by `make mutate`; the reasons are written by people. See docs/MUTANTS.md.",
        "[figures]",
    ]
    for module, row in sorted(known.figures.items()):
        lines.append(f"{module} = {{ mutants = {row['mutants']}, survived = {row['survived']} }}")
    lines += ["", "[reasons]"]
    for name, reason in sorted(known.reasons.items()):
        quoted, why = (json.dumps(text, ensure_ascii=False) for text in (name, reason))
        lines.append(f"{quoted} = {why}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def all_modules() -> list[str]:
    """Return the modules of the core in which something can be changed, by name."""
    core = Path(__file__).resolve().parents[2] / "src" / "ephemerd" / "core"
    return sorted(file.stem for file in core.glob("*.py") if file.stem not in ("__init__", *NOTHING))


def tables(known: Survivors) -> str:
    """Return the figures and the survivors as Markdown."""
    lines = ["| module | changes | noticed | survived |", "|---|---:|---:|---:|"]
    total = {"mutants": 0, "survived": 0}
    for module, row in sorted(known.figures.items()):
        lines.append(_figures(module, row))
        total = {name: total[name] + row[name] for name in total}
    lines.append(_figures("all of these", total))
    if missing := [f"`{name}`" for name in all_modules() if name not in known.figures]:
        lines += ["", f"Not run to the end yet: {', '.join(missing)}."]
    for kind in KINDS:
        lines += ["", f"### {kind.capitalize()}", ""]
        by_reason: dict[str, list[str]] = {}
        for name, reason in sorted(known.reasons.items()):
            if reason.startswith(f"{kind}: "):
                by_reason.setdefault(reason.removeprefix(f"{kind}: "), []).append(name)
        for reason, names in by_reason.items():
            lines += [f"- {reason[:1].upper()}{reason[1:]}.", *(f"  - `{_code(name)}`" for name in names)]
    return "\n".join(lines)


def _figures(name: str, row: dict[str, int]) -> str:
    return f"| {name} | {row['mutants']} | {row['mutants'] - row['survived']} | {row['survived']} |"


def _code(text: str) -> str:
    return text.replace("`", "'")


def paged(known: Survivors, document: str) -> str:
    """Return the page with its generated part made anew."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables(known)}\n\n{END}{after}"


def write_page(known: Survivors, path: Path = PAGE) -> None:
    """Write the page's generated part."""
    path.write_text(paged(known, path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write_page(load())
