"""What keys the model knows: walked by name for the overlay, the errors and the reference."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from ephemerd.config.model import Settings
from ephemerd.config.tomlfile import KeyPath
from ephemerd.config.types import Kind


def bare(annotation: Any) -> Any:
    """Return the annotation without `| None` and without `Annotated`."""
    if hasattr(annotation, "__metadata__"):
        return bare(annotation.__origin__)
    if get_origin(annotation) in (Union, UnionType):
        kept = [part for part in get_args(annotation) if part is not NoneType]
        if len(kept) == 1:
            return bare(kept[0])
    return annotation


def section_of(annotation: Any) -> type[BaseModel] | None:
    """Return the table that an annotation stands for, None for a plain value."""
    plain = bare(annotation)
    return plain if isinstance(plain, type) and issubclass(plain, BaseModel) else None


def entries_of(annotation: Any) -> type[BaseModel] | None:
    """Return what the entries of a table of named tables (`[pools.NAME]`) are, None for anything else."""
    plain = bare(annotation)
    return section_of(get_args(plain)[1]) if get_origin(plain) is dict else None


def is_list(annotation: Any) -> bool:
    return get_origin(bare(annotation)) in (list, tuple)


def is_table_of_texts(annotation: Any) -> bool:
    plain = bare(annotation)
    return get_origin(plain) is dict and entries_of(annotation) is None


def is_secret(annotation: Any) -> bool:
    return bare(annotation) is SecretStr


def fields_at(path: KeyPath) -> dict[str, FieldInfo] | None:
    """Return the fields of the table at this path; None where the path is no table of fixed keys."""
    section: type[BaseModel] | None = Settings
    rest = list(path)
    while rest and section is not None:
        field = section.model_fields.get(rest.pop(0))
        if field is None:
            return None
        if (entry := entries_of(field.annotation)) is not None:
            if not rest:
                return None
            rest.pop(0)
            section = entry
        else:
            section = section_of(field.annotation)
    return None if section is None else dict(section.model_fields)


def holds_path(annotation: Any) -> bool:
    return bare(annotation) is Path


def field_at(path: KeyPath) -> FieldInfo | None:
    """Return the field of this key, None where there is no such key."""
    fields = fields_at(path[:-1]) if path else None
    return fields.get(path[-1]) if fields else None


def known_keys(
    section: type[BaseModel] = Settings, prefix: KeyPath = ()
) -> Iterator[tuple[KeyPath, FieldInfo]]:
    """Yield every key with its field; names that a person chooses appear as NAME."""
    for name, field in section.model_fields.items():
        here = (*prefix, name)
        if (entry := entries_of(field.annotation)) is not None:
            yield from known_keys(entry, (*here, "NAME"))
        elif (inner := section_of(field.annotation)) is not None:
            yield from known_keys(inner, here)
        else:
            yield here, field


def kind_of(field: FieldInfo) -> str:
    """Return how values of this key are written; empty where nothing marks it."""
    marks = [mark for mark in field.metadata if isinstance(mark, Kind)]
    return marks[0].text if marks else _kind_inside(field.annotation)


def _kind_inside(annotation: Any) -> str:
    for mark in getattr(annotation, "__metadata__", ()):
        if isinstance(mark, Kind):
            return mark.text
    if get_origin(annotation) in (Union, UnionType):
        return next((text for part in get_args(annotation) if (text := _kind_inside(part))), "")
    if annotation is bool:
        return "true or false"
    if get_origin(annotation) is Literal:
        return " | ".join(str(choice) for choice in get_args(annotation))
    return ""


def is_leaf(path: KeyPath) -> bool:
    """Say whether a value may stand at this path: a key, or an entry of a table of texts."""
    field = field_at(path)
    if field is not None:
        return section_of(field.annotation) is None and entries_of(field.annotation) is None
    parent = field_at(path[:-1])
    return parent is not None and is_table_of_texts(parent.annotation)


def is_table(path: KeyPath) -> bool:
    """Say whether the path is a table whose keys are known, or a table of named tables."""
    field = field_at(path)
    return fields_at(path) is not None or (field is not None and entries_of(field.annotation) is not None)


def nearest(path: KeyPath) -> str:
    """Name the known key that is nearest to an unknown one: a sibling first, else one elsewhere."""
    end = next((end for end in range(1, len(path)) if _is_wrong(path[:end])), len(path))
    table, wrong = path[: end - 1], path[end - 1].lower().replace("-", "_")
    siblings = fields_at(table) or {}
    if wrong in siblings:
        return ".".join((*table, wrong))
    for key, _ in known_keys():
        if key[-1] == wrong and siblings:
            return ".".join(key)
    if close := difflib.get_close_matches(wrong, siblings, n=1, cutoff=0.6):
        return ".".join((*table, close[0]))
    everywhere = {".".join(key): key[-1] for key, _ in known_keys()}
    for cutoff in (0.8, 0.0):
        if cutoff == 0.0 and siblings:
            return ".".join((*table, difflib.get_close_matches(wrong, siblings, n=1, cutoff=0.0)[0]))
        if close := difflib.get_close_matches(wrong, list(everywhere.values()), n=1, cutoff=cutoff):
            return next(dotted for dotted, last in everywhere.items() if last == close[0])
    return ", ".join(Settings.model_fields)


def _is_wrong(path: KeyPath) -> bool:
    fields = fields_at(path[:-1])
    return fields is not None and path[-1] not in fields
