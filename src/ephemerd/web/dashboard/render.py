"""Templates to answers: one environment, everything escaped, headers that let nothing foreign in."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import Response

from ephemerd.web.dashboard import pieces, words
from ephemerd.web.dashboard.assets import assets

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
"""Content-Security-Policy: our own files alone, no script or style inside a page."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
    "vary": "HX-Request, Cookie",
}


@cache
def environment() -> Environment:
    """Return the templates' environment; a name that is not given is an error, not a blank."""
    made = Environment(
        loader=PackageLoader("ephemerd.web.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in (
        "tag",
        "span",
        "day",
        "size",
        "plural",
        "prose",
        "short_job",
        "short_runner",
        "runner_url",
        "job_url",
        "counted",
    ):
        made.globals[name] = getattr(words, name)
    made.globals["pieces"] = pieces
    made.globals["asset"] = assets().url
    return made


def rendered(template: str, values: dict[str, Any]) -> str:
    """Render a template."""
    return environment().get_template(template).render(values)


def page(text: str, status: int = 200) -> Response:
    """Answer with a page."""
    return Response(text, status, HEADERS, media_type="text/html; charset=utf-8")
