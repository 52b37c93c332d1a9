"""`simulate` and `replay`: options in, figures, tables and stories out. `lab` holds the door to what runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from ephemerd.cli import lab
from ephemerd.cli.failure import Exit, Failure
from ephemerd.cli.options import Json, common
from ephemerd.cli.output import Page, Table, clock, emit, emit_json, note, or_dash

ALL = "all"
SUMMARY = (
    ("jobs", "jobs"),
    ("completed", "completed"),
    ("failed_by_weather", "failed by the weather"),
    ("killed", "killed"),
    ("disturbed", "disturbed"),
    ("lost", "lost"),
    ("leaked", "leaked"),
    ("wasted_pct", "wasted %"),
    ("escaped", "escaped"),
    ("gate_runs", "gate runs"),
    ("gate_runs_holding_job", "… on a runner that held a job"),
    ("vetoes", "vetoes"),
    ("reaped", "reaped"),
    ("fence_breaches", "fence breaches"),
    ("slot_utilisation", "slot utilisation"),
    ("api_calls_per_job", "API calls a job"),
    ("slot_error", "slot difference"),
    ("invariant_failures", "invariant failures"),
    ("virtual_hours", "hours simulated"),
    ("jobs_per_s", "jobs a second"),
    ("command_hash", "command hash"),
)


class Bar(Protocol):
    """Told how much of the whole is done."""

    def __call__(self, done: int) -> None: ...


@contextmanager
def progress(whole: int, *, quiet: bool) -> Iterator[Bar]:
    """A progress bar on stderr; plain lines, one a tenth, where that is no terminal."""
    if quiet:
        yield lambda done: None
    elif sys.stderr.isatty():
        with _bar(whole) as bar:
            yield bar
    else:
        yield _Lines(whole)


@contextmanager
def _bar(whole: int) -> Iterator[Bar]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("jobs", total=whole)

        def show(done: int) -> None:
            shown.update(task, completed=done)

        yield show


class _Lines:
    def __init__(self, whole: int) -> None:
        self._whole = max(1, whole)
        self._tenth = 0

    def __call__(self, done: int) -> None:
        tenth = 10 * done // self._whole
        if tenth > self._tenth:
            self._tenth = tenth
            note(f"simulated {done:,} of {self._whole:,} jobs")


def simulate(
    context: typer.Context,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=1_000_000, help="Jobs of one run.")] = 1_000,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="One run with this seed; else 1.")] = None,
    seeds: Annotated[str, typer.Option("--seeds", metavar="A-B", help="A run for each of these.")] = "",
    policy: Annotated[
        str, typer.Option("--policy", metavar="NAME", help="gate, a foil, several by comma, or all.")
    ] = "",
    weather: Annotated[
        str, typer.Option("--weather", metavar="NAME", help="One, several by comma, or all.")
    ] = "",
    compare: Annotated[
        bool, typer.Option("--compare", help="All policies (and weathers) side by side on the same seeds.")
    ] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the comparison as markdown; implies --compare.")
    ] = False,
    workers: Annotated[
        int, typer.Option("--workers", min=0, max=1_024, help="Processes; 0 takes one a core.")
    ] = 0,
    as_json: Json = False,
) -> int:
    """Run the real core against a modelled forge in virtual time, and judge it by the truth."""
    front = lab.simulator()
    beside = compare or markdown
    names = _names("--policy", policy or (ALL if beside else "gate"), front.policies())
    chosen = _names("--weather", weather or (ALL if beside else "bursty"), front.weathers())
    numbers = _seeds(seed, seeds)
    quiet = common(context).quiet
    with progress(len(names) * len(chosen) * len(numbers) * jobs, quiet=quiet) as bar:
        figures, rows, broken = front.run(
            jobs=jobs, seeds=numbers, policies=names, weathers=chosen, workers=workers, progress=bar
        )
    _print(front, figures, rows, beside=beside, markdown=markdown, as_json=as_json)
    return _verdict(front, figures, broken, quiet=quiet)


def _names(option: str, text: str, known: tuple[str, ...]) -> list[str]:
    """Return the names that an option lists, `all` for every known one."""
    names = list(known) if text == ALL else [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise Failure(Exit.USAGE, f"{option} {name!r} is not known", f"use one of {', '.join(known)}")
    if not names:
        raise Failure(Exit.USAGE, f"{option} names nothing", f"use one of {', '.join(known)}")
    return list(dict.fromkeys(names))


def _seeds(seed: int | None, seeds: str) -> list[int]:
    if not seeds:
        return [1 if seed is None else seed]
    if seed is not None:
        raise Failure(Exit.USAGE, "--seed and --seeds are both given", "give one of them")
    first, dash, last = seeds.partition("-")
    if not (dash and first.isdigit() and last.isdigit() and int(first) <= int(last)):
        raise Failure(Exit.USAGE, f"--seeds {seeds!r} has another form", "write it as 1-40")
    if int(last) - int(first) >= 100_000:
        raise Failure(Exit.USAGE, f"--seeds {seeds} are too many", "give at most 100,000 at once")
    return list(range(int(first), int(last) + 1))


def _print(
    front: Any,
    figures: dict[str, Any],
    rows: list[dict[str, Any]],
    *,
    beside: bool,
    markdown: bool,
    as_json: bool,
) -> None:
    if as_json:
        emit_json({**figures, "comparison": rows} if beside else figures, line=True)
    elif markdown:
        print(front.markdown(rows))
    elif beside:
        numbers = frozenset(range(2, len(front.titles())))
        emit(Page([Table(front.titles(), [front.cells(row) for row in rows], right=numbers)]))
    else:
        emit(_summary(figures))


def _summary(figures: dict[str, Any]) -> Page:
    whole = figures.get("total", figures)
    shown = [(title, _figure(whole[key])) for key, title in SUMMARY]
    waits = whole["queue_wait_s"]
    shown.insert(14, ("wait p50 / p95 / max s", " / ".join(_figure(waits[key]) for key in waits)))
    what = f"policy {_listed(whole['policy'])}, weather {_listed(whole['weather'])}"
    seeds = whole["seed"] if isinstance(whole["seed"], list) else [whole["seed"]]
    ran = f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds from {seeds[0]} to {seeds[-1]}"
    return Page([f"{what}, {ran}", Table(("", ""), shown, right=frozenset({1}))])


def _listed(value: str | list[str]) -> str:
    return value if isinstance(value, str) else ", ".join(value)


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return f"{value:,}" if isinstance(value, int) else or_dash(value)


def _verdict(front: Any, figures: dict[str, Any], broken: list[str], *, quiet: bool) -> int:
    """Say what was promised and did not hold, with the shortest story; return the exit code."""
    if not broken:
        return Exit.DONE
    for line in broken:
        print(f"broken promise: {line}", file=sys.stderr)
    entry = front.first_failure(figures)
    if entry is not None:
        note("looking for the shortest story …", quiet=quiet)
        for line in front.shortest_story(entry):
            print(line, file=sys.stderr)
    return Exit.BROKEN_PROMISE


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An incident, or an exported journal.")],
    policy: Annotated[str, typer.Option("--policy", metavar="NAME", help="Who decides.")] = "gate",
    as_json: Json = False,
) -> int:
    """Feed a recorded incident or journal to the scheduler and print what it would decide."""
    front = lab.simulator()
    (name,) = _names("--policy", policy, front.policies())
    if not file.is_file():
        raise Failure(Exit.USAGE, f"there is no file {file}", "give an incident or an exported journal")
    try:
        told = front.replay(file, name)
    except front.Unreadable as error:
        raise Failure(Exit.USAGE, f"{file}: {error}", "see 'ephemerd journal export --help'") from None
    if as_json:
        emit_json(told, line=True)
    else:
        emit(_replayed(told))
    held = all(entry["held"] for entry in told["expectations"])
    return Exit.DONE if held or name != "gate" else Exit.BROKEN_PROMISE


def _replayed(told: dict[str, Any]) -> Page:
    page = Page([f"{told['file']}, policy {told['policy']}: {told['events']} events"])
    titles = ("at", "runner", "outcome", "verdict", "via", "reason")
    decided = [
        (clock(one["at"], day=True, fine=True), *(one[name] for name in titles[1:]))
        for one in told["decisions"]
    ]
    page.parts.append(Table(titles, decided, wraps=frozenset({5}), empty="no decision"))
    for word, names in (("destroyed", ("at", "runner")), ("killed", ("at", "runner", "job"))):
        for one in told[word]:
            rest = ", ".join(str(one[name]) for name in names[1:])
            page.parts.append(f"{word} at {clock(one['at'], day=True, fine=True)}: {rest}")
    expected = [("held" if one["held"] else "NOT held", one["text"]) for one in told["expectations"]]
    page.parts.append(Table(("", "expected"), expected, wraps=frozenset({1}), empty="nothing was expected"))
    return page
