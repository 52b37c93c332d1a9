"""Generated parts are up to date; what the documents name exists."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from ephemerd.adapters.telemetry.reference import LATER
from ephemerd.cli.failure import Exit
from ephemerd.cli.main import ENTRIES
from ephemerd.config.keys import known_keys
from ephemerd.core.diagram import job_diagram, runner_diagram
from ephemerd.core.transitions import JOB_EDGES, RUNNER_EDGES
from ephemerd.domain.runner import Rule, RunnerState

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
FILES = {
    "README.md": ROOT / "README.md",
    **{file.relative_to(DOCS).as_posix(): file for file in sorted(DOCS.glob("*.md"))},
    **{file.relative_to(DOCS).as_posix(): file for file in sorted(DOCS.glob("reference/*.md"))},
}
TEXTS = {name: file.read_text(encoding="utf-8") for name, file in FILES.items()}


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("documentation", ROOT / "scripts" / "documentation.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DOCUMENTATION = script()


@pytest.mark.parametrize(("file", "name", "make"), DOCUMENTATION.PARTS, ids=lambda value: str(value)[:20])
def test_a_generated_part_is_up_to_date(file, name, make):
    assert TEXTS[file] == DOCUMENTATION.updated(TEXTS[file], name, make()), "run scripts/documentation.py"


@pytest.mark.parametrize(("file", "make"), DOCUMENTATION.WHOLE, ids=lambda value: str(value)[:20])
def test_a_generated_file_is_up_to_date(file, make):
    assert (DOCS / file).read_text(encoding="utf-8") == make(), "run scripts/documentation.py"


def test_the_metrics_that_come_later_are_those_that_the_core_counts():
    counted = set()
    for file in (ROOT / "src" / "ephemerd" / "core").glob("*.py"):
        counted |= set(re.findall(r'\.count\(\s*"([a-z_]+)"', file.read_text(encoding="utf-8")))
    page = set(re.findall(r"^\| `ephemerd_([a-z_]+)`", TEXTS["reference/metrics.md"], flags=re.MULTILINE))
    assert {name if name.endswith("_total") else f"{name}_total" for name in counted} - page == set()
    assert {name for name in LATER if name not in counted} == set()


def test_every_metric_of_the_contract_is_there():
    section = TEXTS["INTERFACES.md"].partition("## Metrics")[2].partition("\n## ")[0]
    promised = {name.partition("{")[0] for name in re.findall(r"`([a-z_]+(?:\{[a-z,]*\})?)`", section)}
    page = set(re.findall(r"^\| `ephemerd_([a-z_]+)`", TEXTS["reference/metrics.md"], flags=re.MULTILINE))
    assert len(promised) > 25
    assert promised - page == {"ephemerd_"}


def test_what_is_outside_the_marks_stays():
    begin, end = "<!-- generated, x: begin -->", "<!-- generated, x: end -->"
    document = f"before\n{begin}\nold\n{end}\nafter"
    assert DOCUMENTATION.updated(document, "x", "new\n") == f"before\n{begin}\n\nnew\n\n{end}\nafter"
    for broken in ("", begin, end, f"{end}{begin}"):
        with pytest.raises(ValueError, match="lacks the marks"):
            DOCUMENTATION.updated(broken, "x", "new")


@pytest.mark.parametrize(
    ("diagram", "edges"),
    [(runner_diagram(), RUNNER_EDGES), (job_diagram(), JOB_EDGES)],
    ids=["runner", "job"],
)
def test_a_diagram_holds_each_edge_once(diagram, edges):
    drawn = re.findall(r"^    (\w+) --> (\w+)$", diagram, flags=re.MULTILINE)
    assert sorted(drawn) == sorted((one.value, other.value) for one, many in edges.items() for other in many)
    assert diagram.count("[*] --> ") == 1


@pytest.mark.parametrize("name", TEXTS)
def test_each_link_into_the_repository_leads_somewhere(name):
    folder = FILES[name].parent
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)", TEXTS[name])
    assert [link for link in links if not (folder / link).exists()] == []


@pytest.mark.parametrize("name", TEXTS)
def test_each_command_that_is_shown_exists(name):
    shown = set(re.findall(r"(?<![./\w-])ephemerd ([a-z][a-z-]+)", "\n".join(_code(TEXTS[name]))))
    assert shown <= set(ENTRIES)


@pytest.mark.parametrize("name", TEXTS)
def test_each_dotted_key_that_is_shown_exists(name):
    tables = {path[0] for path, _ in known_keys()}
    keys = {".".join(path) for path, _ in known_keys()}
    shown = [code for code in _code(TEXTS[name]) if re.fullmatch(r"[a-z]+(\.[a-z_]+)+", code)]
    named = [key for key in shown if key.split(".")[0] in tables]
    generic = [re.sub(r"^(forge|pools|hosts)\.[a-z]+\.", r"\1.NAME.", key) for key in named]
    unknown = [key for key in generic if key not in keys and not any(k.startswith(f"{key}.") for k in keys)]
    assert unknown == []


def _code(text: str) -> list[str]:
    """The pieces of code in a document: blocks and inline."""
    return re.findall(r"```[a-z]*\n(.*?)```", text, flags=re.DOTALL) + re.findall(r"`([^`\n]+)`", text)


def test_the_exit_codes_are_all_explained():
    table = re.findall(r"^\| (\d+) \|", TEXTS["OPERATIONS.md"], flags=re.MULTILINE)
    assert sorted(map(int, table)) == sorted(map(int, Exit))


def test_each_rule_and_state_is_in_the_glossary():
    words = set(re.findall(r"\*\*([a-z]+)\*\*", TEXTS["GLOSSARY.md"]))
    assert {rule.value for rule in Rule} <= words
    assert {state.value for state in RunnerState} <= words


def test_the_picture_is_well_formed_and_stands_alone():
    text = (ROOT / "docs" / "picture.svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "viewBox" in root.attrib
    said = " ".join(" ".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text"))
    for step in ("nominate", "probe", "fence", "settle", "permit"):
        assert step in said
    assert "href" not in text
    assert "picture.svg" in TEXTS["README.md"]


@pytest.mark.parametrize("name", TEXTS)
def test_no_document_names_a_place_of_its_making(name):
    assert re.findall(r"(?<![\w.])/(?:root|work|tmp)/", TEXTS[name]) == []
