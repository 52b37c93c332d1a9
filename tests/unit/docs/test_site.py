"""The site of the documents is built strictly, leads nowhere that is not there, and asks nobody for anything."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
# Tag -> attributes by which a browser loads something by itself; a link that is followed by hand is none.
LOADS = {
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "img": ("src", "srcset"),
    "input": ("src",),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "track": ("src",),
    "use": ("href", "xlink:href"),
    "video": ("src", "poster"),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Loads(HTMLParser):
    """Collects what a page loads from elsewhere, and the classes that make the theme's script load more."""

    def __init__(self) -> None:
        super().__init__()
        self.elsewhere: list[str] = []
        self.classes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.classes |= set(given.get("class", "").split())
        if tag == "link" and given.get("rel") in {"canonical", "alternate", "next", "prev"}:
            return
        for name in LOADS.get(tag, ()):
            if re.match(r"(https?:)?//", given.get(name, "")):
                self.elsewhere.append(f"<{tag} {name}={given[name]}>")
        if "style" in given and "//" in given["style"]:
            self.elsewhere.append(given["style"])


def test_no_page_loads_anything_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        found = Loads()
        found.feed(page.read_text(encoding="utf-8"))
        assert found.elsewhere == [], page
        assert "mermaid" not in found.classes, "the theme would fetch the script that draws it"


def test_no_style_loads_anything_from_elsewhere(site):
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert re.findall(r"url\(\s*['\"]?(?:https?:)?//[^)]*\)|@import[^;]*//[^;]*;", text) == [], sheet


def test_diagrams_are_tables(site):
    text = (site / "ARCHITECTURE" / "index.html").read_text(encoding="utf-8")
    assert "may become" in text
    assert "stateDiagram" not in text


def test_each_document_has_a_page_that_the_navigation_names(site):
    home = (site / "index.html").read_text(encoding="utf-8")
    for file in (ROOT / "docs").rglob("*.md"):
        name = file.relative_to(ROOT / "docs").with_suffix("").as_posix().removesuffix("README").rstrip("/")
        assert (site / name / "index.html").is_file(), name
        assert f'href="{name}/"' in home, name


def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "scripts" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("source", "place", "link", "there"),
    [
        ("README.md", "index.md", "](docs/GITHUB.md#x)", "](GITHUB.md#x)"),
        ("docs/OPERATIONS.md", "OPERATIONS.md", "](../contrib/README.md)", "](contrib/README.md)"),
        ("docs/foils/README.md", "foils/README.md", "](../../README.md#side-by-side)", "](../index.md#side-by-side)"),
        ("docs/reference/cli.md", "reference/cli.md", "](exit-codes.md)", "](exit-codes.md)"),
        ("contrib/README.md", "contrib/README.md", "](../docs/OPERATIONS.md)", "](../OPERATIONS.md)"),
    ],
)  # fmt: skip
def test_links_lead_to_pages(source, place, link, there):
    script = hooks()
    assert script.LINK.sub(lambda found: script._link(found, source, place), link) == there


def test_what_is_not_there_is_left_out_and_what_is_not_named_is_found():
    script = hooks()
    nav = [{"Home": "index.md"}, {"A": [{"B": "b.md"}, {"C": "c.md"}]}, {"D": [{"E": "e.md"}]}]
    there = script._present(nav, {"index.md", "c.md"})
    assert there == [{"Home": "index.md"}, {"A": [{"C": "c.md"}]}]
    assert script._named(there) == {"index.md", "c.md"}
