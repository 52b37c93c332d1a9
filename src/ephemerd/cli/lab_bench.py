"""`bench`: which benchmarks, and their figures as a table or JSON. `lab` holds the door to what runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ephemerd.cli import lab
from ephemerd.cli.failure import Exit, Failure
from ephemerd.cli.options import Json, common
from ephemerd.cli.output import Page, Points, Table, emit, emit_json, note, or_dash


def bench(
    context: typer.Context,
    only: Annotated[
        str, typer.Option("--only", metavar="NAME", help="One, or several by comma; else all of them.")
    ] = "",
    as_json: Json = False,
) -> int:
    """Measure speed and cost on this machine, each against a baseline of the same run where there is one."""
    front = lab.benchmarks()
    names = _names(only, tuple(front.BENCHMARKS))
    quiet = common(context).quiet
    figures = list(front.run(names, lambda name: note(f"measuring {name} …", quiet=quiet)))
    if as_json:
        emit_json({"benchmarks": [figure.plain() for figure in figures]}, line=True)
    else:
        emit(_table([figure.plain() for figure in figures]))
    return Exit.BROKEN_PROMISE if any(figure.met is False for figure in figures) else Exit.DONE


def _names(only: str, known: tuple[str, ...]) -> list[str]:
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise Failure(Exit.USAGE, f"--only {name!r} is not known", f"use one of {', '.join(known)}")
    return list(dict.fromkeys(names)) or list(known)


def _table(figures: list[dict[str, Any]]) -> Page:
    rows = [
        (
            one["name"],
            _number(one["value"]),
            one["unit"],
            _number(one["baseline"]),
            _number(one["ratio"]),
            _bound(one),
            {True: "yes", False: "NO", None: "-"}[one["met"]],
        )
        for one in figures
    ]
    titles = ("what", "value", "unit", "baseline", "ratio", "bound", "met")
    notes = [f"{one['name']}: {one['note']}" for one in figures if one["note"]]
    return Page([Table(titles, rows, right=frozenset({1, 3, 4})), *([Points(notes)] if notes else [])])


def _bound(figure: dict[str, Any]) -> str:
    if figure["target"] is None:
        return "-"
    least = "at least" if figure["least"] else "at most"
    what = " of it" if figure["of"] == "ratio" else ""
    return f"{least} {_number(figure['target'])}{what}"


def _number(value: float | None) -> str:
    return or_dash(value) if value is None else f"{value:,.4g}" if value < 1_000 else f"{value:,.0f}"
