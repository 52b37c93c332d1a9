"""Mutation testing of the core, in a copy of the tree.

    python -m tests.mutation                          every module, in the order of what it can do to a job
    python -m tests.mutation gate decision            these modules
    python -m tests.mutation --folder kept gate       keep the copy and the results, and go on where it ended

Fails where a change survives that `survivors.toml` does not explain, or where one that it explains is noticed
or is no more. `--write` writes the figures of the modules that were run into that file and the page; reasons
are written by people.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.mutation.mutants import mutants
from tests.mutation.page import Survivors, load, save, write_page

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "src" / "ephemerd" / "core"
FIRST = (
    "gate",
    "decision",
    "matching",
    "judge",
    "verdicts",
    "nominate",
    "holding",
    "jobs",
    "lifecycle",
    "demand",
    "supply",
    "provisioning",
)
"""The order of modules: what can end a runner before what can only be late."""

COPIED = ("src/ephemerd", "tests/mutation", "tests/unit/core", "tests/data")
FILES = ("pyproject.toml", "tests/__init__.py", "tests/conftest.py", "tests/unit/__init__.py")


def main() -> int:
    wanted = _arguments()
    if wanted.folder is None:
        with tempfile.TemporaryDirectory(prefix="ephemerd-mutation-") as folder:
            return mutate(wanted, Path(folder))
    wanted.folder.mkdir(parents=True, exist_ok=True)
    return mutate(wanted, wanted.folder.resolve())


def _arguments() -> argparse.Namespace:
    everything = sorted(file.stem for file in CORE.glob("*.py") if file.stem != "__init__")
    ordered = [*FIRST, *(name for name in everything if name not in FIRST)]
    parser = argparse.ArgumentParser(prog="tests.mutation", description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="modules of the core; default: all")
    parser.add_argument("--folder", type=Path, help="keep copy and results here, and go on from them")
    parser.add_argument("--workers", type=int, default=1, help="trials at a time (default 1)")
    parser.add_argument("--again", action="store_true", help="try what survived once more")
    parser.add_argument(
        "--seconds", type=float, help="at most so much of tests a change, the quickest (default: all of them)"
    )
    parser.add_argument(
        "--functions", action="store_true", help="leave out what works at import: it takes long"
    )
    parser.add_argument("--write", action="store_true", help="write figures and survivors into the tree")
    wanted = parser.parse_args()
    if unknown := sorted(set(wanted.modules) - set(ordered)):
        parser.error(f"no such module in core: {', '.join(unknown)}")
    wanted.modules = [name for name in ordered if name in wanted.modules or not wanted.modules]
    return wanted


def mutate(wanted: argparse.Namespace, folder: Path) -> int:
    """Copy the tree, try the changes, compare with what is known; return an exit code."""
    tree = folder / "tree"
    _copy(tree)
    measure = _forget_what_changed(folder, tree, wanted)
    if measure != []:
        print("measuring which test reaches which line", flush=True)
        _pytest(folder, tree, [], wanted, measure)
        _remember(folder, tree)
    for name in wanted.modules:
        _pytest(folder, tree, [name], wanted, [])
        tally = Counter(line["outcome"] for line in _results(folder) if line["module"] == name)
        print(f"{name}: {sum(tally.values())} changes, {tally['survived']} survived", flush=True)
    results = [line for line in _results(folder) if line["module"] in wanted.modules]
    return _compare(wanted, results)


def _copy(tree: Path) -> None:
    shutil.rmtree(tree, ignore_errors=True)
    for name in COPIED:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, tree / name)


def _digest(*files: Path) -> str:
    return sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def _state(tree: Path) -> dict[str, Any]:
    """Return what results and measurements rest on: digests by module, by file of tests, and of the rest."""
    core, tests = tree / "src/ephemerd/core", tree / "tests/unit/core"
    rest = [*(tree / "src/ephemerd/domain").rglob("*.py"), *tests.rglob("*.py")]
    return {
        "modules": {file.stem: _digest(file) for file in sorted(core.glob("*.py"))},
        "tests": {file.name: _digest(file) for file in sorted(tests.glob("test_*.py"))},
        "rest": _digest(*sorted(file for file in rest if not file.name.startswith("test_"))),
    }


def _forget_what_changed(folder: Path, tree: Path, wanted: argparse.Namespace) -> list[str] | None:
    """Drop results whose module changed, with `again` also survivors; return what is to be measured anew.

    What a test reaches holds as long as neither it nor what it runs is another: the files of tests that
    changed are returned, or None where all have to be measured.
    """
    now, old = _state(tree), _read(folder / "state.json")
    results = [
        line
        for line in _results(folder)
        if _same(_read(folder / "tried.json"), now["modules"], line["module"])
        and not (wanted.again and line["module"] in wanted.modules and line["outcome"] == "survived")
    ]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in results)
    (folder / "results.jsonl").write_text(text, encoding="utf-8")
    (folder / "tried.json").write_text(json.dumps(now["modules"]))
    if old.get("modules") != now["modules"] or old.get("rest") != now["rest"]:
        (folder / "reach.json").unlink(missing_ok=True)
    if not (folder / "reach.json").exists():
        return None
    names = sorted({*old["tests"], *now["tests"]})
    return [name for name in names if not _same(old["tests"], now["tests"], name)]


def _same(old: dict[str, Any], new: dict[str, Any], name: str) -> bool:
    return old.get(name) == new.get(name)


def _remember(folder: Path, tree: Path) -> None:
    (folder / "state.json").write_text(json.dumps(_state(tree)))


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found


def _results(folder: Path) -> list[dict[str, str]]:
    file = folder / "results.jsonl"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def _pytest(
    folder: Path, tree: Path, modules: list[str], wanted: argparse.Namespace, measure: list[str] | None
) -> None:
    plan = folder / "plan.json"
    tried = [line["name"] for line in _results(folder)]
    wishes = {"workers": wanted.workers, "functions": wanted.functions, "seconds": wanted.seconds}
    work = {"folder": str(folder), "modules": modules, "tried": tried, "measure": measure}
    plan.write_text(json.dumps(wishes | work))
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "tests.mutation.trial"]
    command += ["--mutation-plan", str(plan), "-p", "no:cacheprovider", "-p", "no:randomly", "--no-header"]
    command += ["--assert=plain", "--tb=no", "-s", "-o", "timeout=0", "tests/unit/core"]
    paths = os.pathsep.join((str(tree / "src"), str(tree)))
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONHASHSEED": "0"}
    environment.pop("CI", None)
    done = subprocess.run(command, cwd=tree, env=environment, check=False, capture_output=True, text=True)
    if done.returncode not in (0, 5):
        sys.exit(f"the tests cannot be run:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")


def _compare(wanted: argparse.Namespace, results: list[dict[str, str]]) -> int:
    known = load()
    names = {
        name: {one.name for one in mutants(name, (CORE / f"{name}.py").read_text(encoding="utf-8"))}
        for name in wanted.modules
    }
    alive = [line["name"] for line in results if line["outcome"] == "survived"]
    new = [name for name in alive if name not in known.reasons]
    noticed = {line["name"] for line in results} - {*alive}
    gone = [
        name
        for name in known.reasons
        if (module := name.partition(".")[0]) in names and (name in noticed or name not in names[module])
    ]
    if wanted.write:
        _write(known, results, alive, gone)
    for name in new:
        print(f"survived, and nobody has explained it: {name}")
    for name in gone:
        print(f"explained in survivors.toml, but noticed or no more: {name}")
    print(f"{len(results)} changes, {len(alive)} survived, {len(alive) - len(new)} of these explained")
    return 1 if new or gone else 0


def _write(known: Survivors, results: list[dict[str, str]], alive: list[str], gone: list[str]) -> None:
    """Bring the figures of the modules that were run, and the list of names, up to date."""
    for module in sorted({line["module"] for line in results}):
        tally = Counter(line["outcome"] for line in results if line["module"] == module)
        known.figures[module] = {"mutants": sum(tally.values()), "survived": tally["survived"]}
    for name in gone:
        del known.reasons[name]
    for name in alive:
        known.reasons.setdefault(name, "")
    save(known)
    write_page(known)


if __name__ == "__main__":
    sys.exit(main())
