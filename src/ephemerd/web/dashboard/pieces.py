"""The small pieces that pages repeat in every row, as markup: hundreds a page, so that templates do not make them.

What a piece says of a name, a word or a moment never changes, and rows of one page are rows of the next: most are
remembered. Everything given is escaped.
"""

from __future__ import annotations

from functools import lru_cache

from markupsafe import Markup

from ephemerd.web.dashboard.words import (
    clock,
    iso,
    job_url,
    runner_url,
    short_job,
    short_runner,
    span,
    tag,
)

NOTHING = Markup('<span class="none">–</span>')
FEW, MANY = 256, 4096
"""Pieces that are remembered of a kind: words, and names or moments."""


@lru_cache(FEW)
def shape(name: str) -> Markup:
    """Return a shape of the sheet of shapes."""
    return Markup('<svg class="shape" aria-hidden="true" focusable="false"><use href="#s-{}"/></svg>').format(
        name
    )


@lru_cache(FEW)
def tagged(word: str) -> Markup:
    """Return a state, status, outcome or verdict with its shape, colour and meaning."""
    found = tag(word)
    title = Markup(' title="{}"').format(found.meaning) if found.meaning else ""
    return Markup('<span class="tag tone-{}"{}>{}{}</span>').format(
        found.tone, title, shape(found.shape), word
    )


@lru_cache(MANY)
def at(ms: int | None, *, fine: bool = False) -> Markup:
    """Return a moment; scripts turn it into the reader's own time."""
    if ms is None:
        return NOTHING
    exact = Markup(" data-fine") if fine else ""
    return Markup('<time datetime="{}" data-at="{}"{}>{}</time>').format(
        iso(ms), ms, exact, clock(ms, fine=fine)
    )


def since(ms: int | None, now: int) -> Markup:
    """Return for how long something lasts; scripts count on."""
    if ms is None:
        return NOTHING
    return Markup('<span data-since="{}">{}</span>').format(ms, span((now - ms) / 1000))


@lru_cache(MANY)
def runner(name: str) -> Markup:
    """Return a link to a runner's page."""
    return _link(runner_url(name), name, short_runner(name))


@lru_cache(MANY)
def job(name: str) -> Markup:
    """Return a link to a job's page."""
    return _link(job_url(name), name, short_job(name))


def _link(url: str, name: str, text: str) -> Markup:
    return Markup('<a class="id" href="{}" title="{}">{}</a>').format(url, name, text)
