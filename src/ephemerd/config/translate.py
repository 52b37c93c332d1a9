"""Turns what the model refuses into findings that a person can act on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ephemerd.config.findings import Code, Finding
from ephemerd.config.keys import field_at, is_leaf, is_secret, kind_of, nearest
from ephemerd.config.layers import Layers
from ephemerd.config.secrets import looks_secret
from ephemerd.config.tomlfile import KeyPath

_TABLE_ERRORS = {"dict_type", "model_type", "model_attributes_type"}


# The model's words for what is no text, number, …, in the words of a configuration file.
_WORDS = {
    "string": "must be a text in quotes",
    "int": "must be a whole number",
    "float": "must be a number",
    "bool": "must be true or false",
    "tuple": "must be a list",
    "list": "must be a list",
    "path": "must be a path",
    "dict": "must be a table",
}
# What a required key that was refused is taken to be, so that the rest of its table can be checked too.
STAND_INS: dict[str, Any] = {"scope": ["repo:nobody/nothing"], "labels": ["none"], "runtime": "process"}


def findings_of(error: ValidationError, layers: Layers) -> list[Finding]:
    """Return one finding for each thing that the model refuses, with key, place and next step."""
    found: list[Finding] = []
    for detail in error.errors(include_url=False):
        finding = _finding(detail, layers)
        if finding not in found:
            found.append(finding)
    return found


def prune(error: ValidationError, layers: Layers) -> None:
    """Take away what was refused, or put a stand-in there, so that the rest can be checked too."""
    for detail in error.errors(include_url=False):
        path = key_path(detail["loc"], layers)
        field = field_at(path)
        if field is not None and field.is_required():
            layers.stand_in(path, STAND_INS[path[-1]])
        else:
            layers.drop(path)


def key_path(loc: tuple[int | str, ...], layers: Layers) -> KeyPath:
    """Return the key that a location of the model means: without list positions and validator names."""
    path: KeyPath = ()
    for part in loc:
        if not isinstance(part, str) or part == "[key]":
            break
        path = (*path, part)
        if is_leaf(path) and not isinstance(layers.get(path), Mapping):
            break
    return path


def _finding(detail: Any, layers: Layers) -> Finding:
    path = key_path(detail["loc"], layers)
    where, kind = layers.where(path), detail["type"]
    if kind == "extra_forbidden":
        return Finding(Code.CONFIGURATION, where, "unknown key", f"the nearest known key is {nearest(path)}")
    if kind == "missing":
        enclosing = layers.where(path[:-1])
        what = f"{path[-1]} is required and not set"
        return Finding(Code.CONFIGURATION, enclosing, what, f"set {'.'.join(path)}{_form(path)}")
    if kind in _TABLE_ERRORS:
        what = "must be a table"
        return Finding(Code.CONFIGURATION, where, what, f"write it as [{'.'.join(path)}]")
    return Finding(Code.CONFIGURATION, where, _message(detail, path), f"correct it{_form(path)}")


def _message(detail: Any, path: KeyPath) -> str:
    text = _WORDS.get(str(detail["type"]).removesuffix("_type"), str(detail["msg"]))
    text = text.removeprefix("Value error, ").removeprefix("Input should ")
    text = text if text.startswith(("must", "holds", "names")) else f"must {text}"
    field, value = field_at(path), detail.get("input")
    hidden = path[-1:] and (field is None or is_secret(field.annotation) or "env" in path[-1])
    return text if hidden or isinstance(value, Mapping) else f"{text}; it is {_shown(value)}"


def _shown(value: object) -> str:
    text = repr(value)
    if looks_secret(text):
        return "what looks like a secret"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _form(path: KeyPath) -> str:
    field = field_at(path)
    kind = kind_of(field) if field is not None else ""
    return f", as {kind}" if kind else ""
