"""The kinds of values that settings are made of: parsed from text, shown as text, checked on the way in."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from ephemerd.config.units import (
    format_duration,
    format_size,
    listen_address,
    parse_duration,
    parse_optional_duration,
    parse_size,
    store_path,
)
from ephemerd.domain.labels import normalise, usable

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_SCOPE = re.compile(rf"repo:{_PART}/[A-Za-z0-9._-]+|org:{_PART}|enterprise:{_PART}")


class Kind:
    """Marks how a value is written, for the reference of keys."""

    def __init__(self, text: str) -> None:
        self.text = text


def _positive(ms: int) -> int:
    if ms < 1:
        raise ValueError("must be longer than zero")
    return ms


def _listen(text: str) -> str:
    listen_address(text)
    return text.strip()


def _unless_none(value: object) -> object:
    return None if isinstance(value, str) and value.strip().lower() == "none" else value


def _store(text: str) -> str:
    return f"sqlite://{store_path(text)}"


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise ValueError("must be 1 to 63 letters, digits, - or _, beginning with a letter or digit")
    return text


def _several(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _scope(text: str) -> str:
    if not _SCOPE.fullmatch(text):
        raise ValueError('must be "repo:OWNER/NAME", "org:NAME" or "enterprise:NAME"')
    return text


def _scopes(scopes: tuple[str, ...]) -> tuple[str, ...]:
    if not scopes:
        raise ValueError("must name at least one scope")
    if len({scope.lower() for scope in scopes}) < len(scopes):
        raise ValueError("names a scope twice")
    return scopes


MOST_LABELS, LONGEST_LABEL = 100, 256
"""What GitHub takes of one runner, and of one label (github.md, section 14)."""
LONGEST_SUFFIX = 34
"""Characters of a runner's name that are left after the longest id."""
_TEMPLATE = re.compile(r"\{id\}((?:[a-z0-9-]|\{pool\}|\{host\})*)")


def _runner_name(text: str) -> str:
    """A template of names: our id first, so that a sweep by it stays exact, then whatever people want to see."""
    if not _TEMPLATE.fullmatch(text):
        raise ValueError(
            'must begin with {id}, and go on with a-z, 0-9, -, {pool} and {host} alone, such as "{id}-{pool}"'
        )
    if len(text.removeprefix("{id}").replace("{pool}", "").replace("{host}", "")) > LONGEST_SUFFIX:
        raise ValueError(f"leaves names too long: after {{id}} there is room for {LONGEST_SUFFIX} signs")
    return text


def suffix_of(template: str, pool: str, host: str) -> str:
    """Return how the names of a pool's runners end, as the forge takes it."""
    filled = template.removeprefix("{id}").replace("{pool}", pool).replace("{host}", host)
    return re.sub(r"[^a-z0-9-]", "-", filled.lower())[:LONGEST_SUFFIX]


def _labels(labels: tuple[str, ...]) -> tuple[str, ...]:
    """Labels as written; matching is by the normalised set, so that must not be empty."""
    if len(normalise(labels)) > MOST_LABELS:
        raise ValueError(f"must hold at most {MOST_LABELS} labels")
    for label in labels:
        if len(label.strip()) > LONGEST_LABEL:
            raise ValueError(f"holds a label that is longer than {LONGEST_LABEL} signs: {label[:40]!r}…")
        if not usable(label) or "," in label or not label.isprintable():
            raise ValueError(f"holds a label that cannot be used: {label!r} (control sign or comma)")
    if not normalise(labels):
        raise ValueError("must hold at least one label that is not blank")
    return labels


Duration = Annotated[
    int,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    Kind("duration"),
]
PositiveDuration = Annotated[Duration, AfterValidator(_positive)]
OptionalDuration = Annotated[
    int | None,
    BeforeValidator(parse_optional_duration),
    PlainSerializer(format_duration, return_type=str),
    Kind('duration or "none"'),
]
Size = Annotated[
    int,
    BeforeValidator(parse_size),
    PlainSerializer(format_size, return_type=str),
    Kind("size"),
]
Count = Annotated[int, Field(ge=0), Kind("number")]
PositiveCount = Annotated[int, Field(ge=1), Kind("number")]
OptionalPositiveCount = Annotated[
    Annotated[int, Field(ge=1)] | None, BeforeValidator(_unless_none), Kind('number or "none"')
]
Share = Annotated[float, Field(ge=0, lt=1), Kind("share, 0 to 1")]
Rate = Annotated[float, Field(gt=0), Kind("number a second")]
Listen = Annotated[str, AfterValidator(_listen), Kind("HOST:PORT")]
OptionalListen = Annotated[
    Annotated[str, AfterValidator(_listen)] | None,
    BeforeValidator(_unless_none),
    Kind('HOST:PORT or "none"'),
]
StoreUrl = Annotated[str, AfterValidator(_store), Kind("sqlite:///PATH")]
Name = Annotated[str, AfterValidator(_name), Kind("name")]
Scopes = Annotated[
    tuple[Annotated[str, AfterValidator(_scope)], ...],
    BeforeValidator(_several),
    AfterValidator(_scopes),
    Kind("scope or list of scopes"),
]
ScopeText = Annotated[str, AfterValidator(_scope), Kind("scope")]
Labels = Annotated[tuple[str, ...], AfterValidator(_labels), Kind("list of labels")]
RunnerName = Annotated[str, AfterValidator(_runner_name), Kind("name with {id}")]


class Section(BaseModel):
    """A table of the configuration: unknown keys are errors, values do not change once read."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
