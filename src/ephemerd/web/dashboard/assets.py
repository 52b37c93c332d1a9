"""Static files under an address that bears the hash of all of them: kept by browsers for good, never stale."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ephemerd.web.answers import problem

KINDS: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "woff2": "font/woff2",
    "txt": "text/plain; charset=utf-8",
}
FOR_GOOD = "public, max-age=31536000, immutable"
TO_ASK = "no-cache"


@dataclass(frozen=True, slots=True)
class Assets:
    """The files by name, and the hash (16 hex digits) over names and contents."""

    files: dict[str, bytes]
    version: str

    def url(self, name: str) -> str:
        """Return the address of a file; KeyError where there is none of that name."""
        if name not in self.files:
            raise KeyError(name)
        return f"/assets/{self.version}/{name}"


@cache
def assets() -> Assets:
    """Read the files that are shipped with the package, once."""
    folder = resources.files(__package__) / "static"
    files = {item.name: item.read_bytes() for item in folder.iterdir() if item.is_file()}
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name}\0{len(files[name])}\0".encode() + files[name])
    return Assets(files, digest.hexdigest()[:16])


async def _serve(request: Request) -> Response:
    found = assets()
    name, version = request.path_params["name"], request.path_params["version"]
    body = found.files.get(name)
    kind = KINDS.get(name.rpartition(".")[2])
    if body is None or kind is None:
        return problem(404, f"there is no static file {name[:60]!r}")
    tag = f'"{found.version}"'
    fresh = version == found.version
    headers = {
        "content-type": kind,
        "cache-control": FOR_GOOD if fresh else TO_ASK,
        "etag": tag,
        "x-content-type-options": "nosniff",
    }
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers)


def asset_routes() -> list[Route]:
    """Build the route of the static files. They hold nothing of a daemon and are served to anybody."""
    return [Route("/assets/{version}/{name}", _serve)]
