"""The page on performance, from measured figures: its table, what was missed, and its plots.

    python -m benchmarks.performance               make them anew from the figures that are kept
    python -m benchmarks.performance --take FILE   after taking the output of `ephemerd bench --json` in
    python -m benchmarks.performance --run         after measuring, which takes up to 14 minutes: on a quiet machine

The figures are kept in docs/pictures/bench.json with a description of the machine in general words; `--disk` says what
kind of disk it has, and beside `--take` `--load` how busy it was before the run. Figures of benchmarks that were not
run (`--only`) stay as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from benchmarks.plots import Bar, Curve, bars, curves

from ephemerd import __version__

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, PICTURES = DOCS / "PERFORMANCE.md", DOCS / "pictures"
KEPT = PICTURES / "bench.json"
DISK = "a virtual disk"

Figure = dict[str, Any]
Kept = dict[str, Any]


def machine(disk: str) -> dict[str, Any]:
    """Describe this machine in general words."""
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 1024**3),
        "disk": disk,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def merged(kept: Sequence[Figure], fresh: Sequence[Figure]) -> list[Figure]:
    """Put fresh figures in the place of those of the same benchmark, in the order of those that were there."""
    names = {_benchmark(one) for one in fresh}
    order = list(dict.fromkeys(_benchmark(one) for one in [*kept, *fresh]))
    every = [*(one for one in kept if _benchmark(one) not in names), *fresh]
    return sorted(every, key=lambda one: order.index(_benchmark(one)))


def _benchmark(figure: Figure) -> str:
    return str(figure["name"]).partition(".")[0]


def table(figures: Sequence[Figure]) -> str:
    """Return the table of all figures."""
    rows = ["| figure | value | unit | baseline | ratio | bound | met |", "|---|--:|---|--:|--:|---|---|"]
    for one in figures:
        cells = (
            f"`{one['name']}`",
            _number(one["value"]),
            one["unit"],
            _number(one["baseline"]),
            _number(one["ratio"]),
            _bound(one),
            {True: "yes", False: "**no**", None: ""}[one["met"]],
        )
        rows.append("| " + " | ".join(cells) + " |")
    notes = [f"- `{one['name']}`: {one['note']}" for one in figures if one["note"]]
    return "\n".join([*rows, "", *notes, ""])


def missed(figures: Sequence[Figure]) -> str:
    """Return in words which bounds were missed, and what was not measured."""
    lines = [
        f"- `{one['name']}`: {_number(one['ratio'] if one['of'] == 'ratio' else one['value'])}, bound {_bound(one)}."
        for one in figures
        if one["met"] is False and one["value"] is not None
    ]
    lines += [f"- `{one['name']}`: {one['note']}." for one in figures if one["value"] is None]
    return "\n".join(lines or ["Every bound was kept, and everything was measured."]) + "\n"


def _bound(figure: Figure) -> str:
    if figure["target"] is None:
        return ""
    of = " times the baseline" if figure["of"] == "ratio" else ""
    return f"{'at least' if figure['least'] else 'at most'} {_number(figure['target'])}{of}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.3g}" if abs(value) < 1_000 else f"{value:,.0f}"


def described(kept: Kept) -> str:
    """Return the machine and the time of the measurement in words."""
    found = kept["machine"]
    where = f"{found['cores']} cores, {found['memory_gib']} GiB of memory, {found['disk']}"
    what = f"{found['system']}, Python {found['python']}; {kept['measured']}, ephemerd {kept['version']}"
    words = [f"{where}; {what}."]
    if kept["load"] is not None:
        words.append(f"The machine's load before the run was {kept['load']}.")
    if kept["took_s"] is not None:
        words.append(f"The whole run took {kept['took_s'] / 60:.1f} minutes.")
    return " ".join(words) + "\n"


def pictures(figures: Sequence[Figure]) -> dict[str, str]:
    """Return the plots by the names of their files."""
    by_name = {one["name"]: one for one in figures if one["value"] is not None}
    drawn = {
        "bench-bounds.svg": bars(
            "Measured, as a part of the bound (1: the bound, less is better)", _bars(figures)
        )
    }
    ledgers = [
        (int(name.rpartition("_")[2]), 1e6 / one["value"])
        for name, one in by_name.items()
        if name.startswith("core.ledger_")
    ]
    if len(ledgers) > 1:
        flat = [(count, 2 * ledgers[0][1]) for count, _ in ledgers]
        found = [Curve("measured", ledgers), Curve("twice the first", flat, bound=True)]
        title = "Time of an event, by the entries of the ledger"
        drawn["bench-core.svg"] = curves(title, "entries", "µs", found)
    dispatched = _dispatched(by_name)
    if dispatched:
        title = "From a stored webhook to a runner that executes, p50"
        drawn["bench-dispatch.svg"] = curves(title, "jobs at once", "ms", dispatched)
    return drawn


def _dispatched(by_name: dict[str, Figure]) -> list[Curve]:
    found = []
    for kind, plain in (("process", "fork and exec"), ("docker", "docker run")):
        names = [name for name in by_name if name.startswith(f"dispatch.{kind}_")]
        sizes = sorted((int(name.rpartition("_")[2]), by_name[name]) for name in names)
        if sizes:
            found.append(Curve(kind, [(size, one["value"]) for size, one in sizes]))
            found.append(Curve(plain, [(size, one["baseline"]) for size, one in sizes]))
    return found


def _bars(figures: Sequence[Figure]) -> list[Bar]:
    found = []
    for one in figures:
        judged = one["ratio"] if one["of"] == "ratio" else one["value"]
        if one["target"] and judged is not None:
            share = one["target"] / judged if one["least"] and judged else judged / one["target"]
            found.append(Bar(one["name"], share))
    return found


def written(page: str, kept: Kept) -> str:
    """Return the page with its generated parts made anew; ValueError where the marks of one are missing."""
    figures = kept["benchmarks"]
    parts = {"machine": described(kept), "missed": missed(figures), "figures": table(figures)}
    for name, text in parts.items():
        begin, end = (f"<!-- generated, {name}: {word} -->" for word in ("begin", "end"))
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise ValueError(f"the page lacks the marks of its part {name!r}")
        page = f"{before}{begin}\n\n{text}\n{end}{after}"
    return page


def take(text: str, disk: str | None, took_s: float | None = None, load: float | None = None) -> None:
    """Keep the output of `bench --json`. `took_s`: of a run of all; `load`: the machine's before that run."""
    kept = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {"benchmarks": []}
    fresh = json.loads(text)["benchmarks"]
    every = merged(kept["benchmarks"], fresh)
    before = kept.get("machine", {}).get("disk", DISK)
    result: Kept = {
        "machine": machine(disk or before),
        "measured": time.strftime("%B %Y", time.gmtime()),
        "version": __version__,
        "load": load,
        "took_s": None if took_s is None else round(took_s),
        "benchmarks": every,
    }
    KEPT.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def measure(only: str) -> tuple[str, float]:
    """Run the benchmarks; return what they print and the seconds that it took."""
    began = time.monotonic()
    command = [sys.executable, "-m", "ephemerd", "bench", "--json", *(["--only", only] if only else [])]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if ran.returncode not in (0, 8):
        raise SystemExit(f"bench ended with code {ran.returncode}")
    return ran.stdout, time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--take", metavar="FILE", type=Path)
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--only", metavar="NAMES", default="")
    parser.add_argument("--disk", metavar="WORDS")
    parser.add_argument(
        "--load", metavar="NUMBER", type=float, help="the machine's before the run that is taken"
    )
    wanted = parser.parse_args()
    if wanted.run:
        load = round(os.getloadavg()[0], 1)
        text, took = measure(wanted.only)
        take(text, wanted.disk, None if wanted.only else took, load)
    elif wanted.take is not None:
        take(wanted.take.read_text("utf-8"), wanted.disk, load=wanted.load)
    kept = json.loads(KEPT.read_text("utf-8"))
    PAGE.write_text(written(PAGE.read_text("utf-8"), kept), encoding="utf-8")
    for name, picture in pictures(kept["benchmarks"]).items():
        (PICTURES / name).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
