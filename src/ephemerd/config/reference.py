"""The reference of keys, made from the model; `scripts/documentation.py` writes it into `docs/CONFIGURATION.md`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ephemerd.config.keys import entries_of, kind_of, section_of
from ephemerd.config.model import Settings
from ephemerd.config.show import toml_value


def reference() -> str:
    """Return the Markdown of every table with all its keys, in the order of the model."""
    return "\n\n".join(_sections(Settings, "")) + "\n"


def _sections(section: type[BaseModel], prefix: str) -> list[str]:
    own = [
        (name, field)
        for name, field in section.model_fields.items()
        if entries_of(field.annotation) is None and section_of(field.annotation) is None
    ]
    found = [_table(section, prefix, own)] if own else []
    for name, field in section.model_fields.items():
        here = f"{prefix}.{name}" if prefix else name
        if (entry := entries_of(field.annotation)) is not None:
            found += _sections(entry, f"{here}.NAME")
        elif (inner := section_of(field.annotation)) is not None:
            found += _sections(inner, here)
    return found


def _table(section: type[BaseModel], prefix: str, fields: list[tuple[str, FieldInfo]]) -> str:
    about = (section.__doc__ or "").strip().partition(": ")[2] or (section.__doc__ or "").strip()
    lines = [
        f"### `[{prefix}]`",
        "",
        about[:1].upper() + about[1:],
        "",
        "| key | form | default | what it does, and why |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{name}` | {_cell(kind_of(field) or 'text')} | {_default(section, name, field)} | "
        f"{_cell(field.description or '')} |"
        for name, field in fields
    ]
    return "\n".join(lines)


def _default(section: type[BaseModel], name: str, field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "**required**"
    value: Any = section.model_construct().model_dump(mode="json", include={name}).get(name)
    return "–" if value is None or value == "" else f"`{_cell(toml_value(value))}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
