"""Hooks of the documentation's site (`mkdocs.yml`).

The documents stay readable where they are: links lead from file to file in the repository. Here those that leave
`docs/` are made to lead to pages of the site, which are taken from the repository too (README, changelog, contrib), and
diagrams become tables, since drawing them would take a script from elsewhere. A page that the navigation does not name
is added to it under "More"; one that it names and that is not there is left out.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "contrib/README.md": "contrib/README.md",
}
"""Documents outside `docs/` -> where they stand in the site."""
BESIDES = ("LICENSE", "contrib/**/*.yml", "contrib/**/*.json")
"""Files that documents link to, copied as they are."""
LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EDGE = re.compile(r"^\s*(\[\*\]|\w+) --> (\[\*\]|\w+)", re.MULTILINE)


def on_config(config: Any) -> Any:
    """Leave out what is not there, and add what is not named."""
    there = {file.relative_to(DOCS).as_posix() for file in DOCS.rglob("*.md")} | set(PAGES.values())
    config.nav = _present(config.nav, there)
    more = sorted(there - _named(config.nav))
    if more:
        config.nav.append({"More": more})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the documents and files from outside `docs/`."""
    for source, target in PAGES.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    for pattern in BESIDES:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links between files of the repository into links between pages, and diagrams into tables."""
    place = page.file.src_uri
    source = next((one for one, target in PAGES.items() if target == place), f"docs/{place}")
    text = MERMAID.sub(lambda found: _as_table(found[1]), markdown)
    parts = FENCE.split(text)
    return "".join(
        part if FENCE.match(part) else LINK.sub(lambda link: _link(link, source, place), part)
        for part in parts
    )


def _link(link: re.Match[str], source: str, place: str) -> str:
    """Return a link of a document at `source` in the repository as one of its page at `place`."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[2]))
    there = PAGES.get(target, target.removeprefix("docs/"))
    return f"{link[1]}{posixpath.relpath(there, posixpath.dirname(place) or '.')}{link[3]}"


def _as_table(diagram: str) -> str:
    """Return a diagram of states as a table: each state with those that it may become."""
    following: dict[str, list[str]] = {}
    for one, other in EDGE.findall(diagram):
        following.setdefault(one, []).append(other)
    lines = ["| state | may become |", "| --- | --- |"]
    for one, others in following.items():
        shown = ", ".join("the end" if other == "[*]" else f"`{other}`" for other in others)
        lines.append(f"| {'the beginning' if one == '[*]' else f'`{one}`'} | {shown} |")
    return "\n".join(lines)


def _present(nav: list[Any], there: set[str]) -> list[Any]:
    found: list[Any] = []
    for item in nav:
        ((title, value),) = item.items()
        if isinstance(value, list):
            found += [{title: inner}] if (inner := _present(value, there)) else []
        elif value in there:
            found.append(item)
    return found


def _named(nav: list[Any]) -> set[str]:
    named: set[str] = set()
    for item in nav:
        (value,) = item.values()
        named |= _named(value) if isinstance(value, list) else {value}
    return named
