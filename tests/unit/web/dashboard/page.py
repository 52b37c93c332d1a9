"""Reading a page without a browser: its elements, its text, and what every page must have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "input", "br", "path", "circle", "rect", "line", "use", "polyline"}


@dataclass
class Element:
    name: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)

    def __iter__(self) -> Iterator[Element]:
        for child in self.children:
            if isinstance(child, Element):
                yield child
                yield from child

    @property
    def text(self) -> str:
        parts = [child if isinstance(child, str) else child.text for child in self.children]
        return " ".join(" ".join(parts).split())

    def all(self, name: str = "", /, **attributes: str) -> list[Element]:
        wanted = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
        return [
            one
            for one in self
            if (not name or one.name == name)
            and all(one.attributes.get(key) == value for key, value in wanted.items())
        ]

    def one(self, name: str = "", /, **attributes: str) -> Element:
        found = self.all(name, **attributes)
        assert len(found) == 1, f"{len(found)} of {name} {attributes}"
        return found[0]

    def id(self, name: str) -> Element:
        return self.one(id=name)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(made)
        if tag not in VOID:
            self.open.append(made)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        assert self.open[-1].name == tag, f"</{tag}> closes <{self.open[-1].name}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read(text: str) -> Element:
    """Return the root of a page; fails where elements are not closed in their order."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == [reader.root], f"left open: {[one.name for one in reader.open[1:]]}"
    return reader.root


def faults(root: Element, assets: set[str]) -> list[str]:
    """What keeps a page from being strict, whole and readable to all, as sentences."""
    found = []
    ids = [one.attributes["id"] for one in root if "id" in one.attributes]
    found += [f"id {name} is there twice" for name in sorted({name for name in ids if ids.count(name) > 1})]
    for one in root:
        where = f"<{one.name} {one.attributes}>"
        if "style" in one.attributes or any(name.startswith("on") for name in one.attributes):
            found.append(f"{where} has a style or script inside the page")
        if one.name == "style" or (one.name == "script" and "src" not in one.attributes):
            found.append(f"{where} is inside the page")
        source = one.attributes.get("src") or (one.attributes.get("href") if one.name == "link" else None)
        if source and source.rpartition("/")[2] not in assets:
            found.append(f"{where} is not shipped")
        if one.name == "table" and not one.all("caption"):
            found.append(f"{where} has no caption")
        if (
            one.name in {"input", "select"}
            and one.attributes.get("type") != "hidden"
            and not _labelled(root, one)
        ):
            found.append(f"{where} has no label")
        if one.name == "a" and not (one.text or one.attributes.get("aria-label")):
            found.append(f"{where} says nothing")
        if (
            one.name == "svg"
            and one.attributes.get("aria-hidden") != "true"
            and "aria-label" not in one.attributes
        ):
            found.append(f"{where} is neither hidden nor named")
    if root.all("html"):
        found += [f"{len(root.all(name))} of <{name}>" for name in ("h1", "main") if len(root.all(name)) != 1]
    return found


def _labelled(root: Element, one: Element) -> bool:
    name = one.attributes.get("id")
    return bool(
        one.attributes.get("aria-label")
        or (name and root.all("label", for_=name))
        or any(one in list(label) for label in root.all("label"))
    )
