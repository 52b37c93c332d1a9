"""Finds the runner or job that a person means: an id, a part that only one has, a job's number or key."""

from __future__ import annotations

from collections.abc import Iterable

from ephemerd.cli.client import Client, NotKnown, Plain
from ephemerd.cli.failure import Exit, Failure

MOST_SHOWN = 10


def find_story(client: Client, text: str) -> Plain:
    """Return the story of what `text` means; Failure 2 with near matches where that is nothing or several."""
    try:
        return client.story(text)
    except NotKnown as unknown:
        found = unique(text, _candidates(client, text, unknown.near))
        if found is None:
            raise NotKnown(f"nothing is known of {text!r}", unknown.near) from None
        return client.story(found)


def find_runner(client: Client, text: str) -> str:
    """Return the id of the live runner that `text` is or ends; Failure 2 where that is none or several.

    Stricter than `find_story`: of a gone runner `…-1` nobody means `…-12` instead.
    """
    ids = [str(row["id"]) for row in client.items("runners") if row["state"] not in {"gone", "abandoned"}]
    if text in ids:
        return text
    found = unique(text, [name for name in ids if name.endswith(f"-{text}")])
    if found is None:
        near = [name for name in ids if _alike(text, name)][:MOST_SHOWN]
        raise NotKnown(f"there is no live runner {text!r}", near)
    return found


def unique(text: str, known: Iterable[str]) -> str | None:
    """Return the one name that contains the text; of several the one that ends with it as a whole part.

    None where nothing contains it; Failure 2 where it stays unclear which one is meant.
    """
    inside = list(dict.fromkeys(name for name in known if text and text in name))
    ending = [name for name in inside if name.endswith((f"/{text}", f"-{text}"))]
    if text.startswith(("-", "/")):
        ending = [name for name in inside if name.endswith(text)]
    for names in (inside, ending):
        if len(names) == 1:
            return names[0]
    if not inside:
        return None
    shown = ", ".join(inside[:MOST_SHOWN]) + (", …" if len(inside) > MOST_SHOWN else "")
    raise Failure(Exit.USAGE, f"{text!r} is part of {len(inside)} ids", f"say which one: {shown}")


def _candidates(client: Client, text: str, near: list[str]) -> list[str]:
    """Everything that could be meant: what the daemon finds near, the runners and jobs that it still lists.

    A number alone is a job's: runner ids hold numbers everywhere.
    """
    jobs = [str(row["id"]) for row in client.items("jobs", most=20_000)]
    if text.isdigit():
        numbers = [*near, *jobs, *_near(client, f"/{text}")]
        exact = [name for name in numbers if "/" in name and name.endswith(f"/{text}")]
        if exact:
            return exact
    runners = [str(row["id"]) for row in client.items("runners")]
    return [*near, *runners, *jobs]


def _near(client: Client, text: str) -> list[str]:
    try:
        client.story(text)
    except NotKnown as unknown:
        return unknown.near
    return []


def _alike(text: str, name: str) -> bool:
    import difflib

    return text in name or difflib.SequenceMatcher(None, text, name).ratio() >= 0.5
