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
    "plan",
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
    parser.add_argument("--again", action="store_true", help="try what survived or was unclear once more")
    parser.add_argument("--seconds", type=float, help="for a first look: end a trial after so many")
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
    _forget_what_changed(folder, tree, again=wanted.again)
    if not (folder / "reach.json").exists():
        print("measuring which test reaches which line", flush=True)
        _pytest(folder, tree, [], wanted)
    for name in wanted.modules:
        _pytest(folder, tree, [name], wanted)
        tally = Counter(line["outcome"] for line in _results(folder) if line["module"] == name)
        unclear = f", {tally['unclear']} unclear" if tally["unclear"] else ""
        print(f"{name}: {sum(tally.values())} changes, {tally['survived']} survived{unclear}", flush=True)
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


def _forget_what_changed(folder: Path, tree: Path, *, again: bool) -> None:
    """Keep the results of an earlier run whose module is as it was; `again`: only what was noticed."""
    digests = {file.stem: _digest(file) for file in sorted((tree / "src/ephemerd/core").glob("*.py"))}
    tests = _digest(*sorted((tree / "tests/unit/core").rglob("*.py")))
    state = folder / "state.json"
    old: dict[str, Any] = {"modules": {}, "tests": ""}
    if state.exists():
        old = json.loads(state.read_text())
    kept = [
        line
        for line in _results(folder)
        if old["modules"].get(line["module"]) == digests.get(line["module"])
        and not (again and line["outcome"] in ("survived", "unclear"))
    ]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept)
    (folder / "results.jsonl").write_text(text, encoding="utf-8")
    if old["tests"] != tests or old["modules"] != digests:
        (folder / "reach.json").unlink(missing_ok=True)
    state.write_text(json.dumps({"modules": digests, "tests": tests}))


def _results(folder: Path) -> list[dict[str, str]]:
    file = folder / "results.jsonl"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def _pytest(folder: Path, tree: Path, modules: list[str], wanted: argparse.Namespace) -> None:
    plan = folder / "plan.json"
    tried = [line["name"] for line in _results(folder)]
    wishes = {"workers": wanted.workers, "functions": wanted.functions, "seconds": wanted.seconds}
    plan.write_text(json.dumps(wishes | {"folder": str(folder), "modules": modules, "tried": tried}))
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
    unclear = [line["name"] for line in results if line["outcome"] == "unclear"]
    noticed = {line["name"] for line in results} - {*alive, *unclear}
    gone = [
        name
        for name in known.reasons
        if (module := name.partition(".")[0]) in names and (name in noticed or name not in names[module])
    ]
    if wanted.write and not unclear:
        _write(known, results, alive, gone)
    for name in new:
        print(f"survived, and nobody has explained it: {name}")
    for name in gone:
        print(f"explained in survivors.toml, but noticed or no more: {name}")
    for name in unclear:
        print(f"unclear, not noticed within --seconds: {name}")
    print(f"{len(results)} changes, {len(alive)} survived, {len(alive) - len(new)} of these explained")
    return 1 if new or gone or unclear else 0


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
