"""The API as the commands use it: views as plain data, pages joined, refusals as failures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from ephemerd.cli.credentials import token_file, token_for
from ephemerd.cli.failure import Exit, Failure
from ephemerd.cli.transport import Answer, Place, request
from ephemerd.config.paths import default_socket

PAGE = 1000
ORDER_DEADLINE = 40.0  # the daemon waits up to 20 s for the gate before it answers "pending"
Plain = dict[str, Any]


class NotKnown(Failure):
    """The daemon knows no such thing; `near` is what was perhaps meant."""

    def __init__(self, what: str, near: list[str]) -> None:
        todo = (
            f"did you mean {', '.join(near)}?" if near else "list what there is: 'ephemerd runners', 'jobs'"
        )
        super().__init__(Exit.USAGE, what, todo)
        self.near = near


class Client:
    """One daemon. Each call is one request, except where it says that it reads pages."""

    def __init__(self, place: Place, *, deadline: float = 10.0) -> None:
        self.place = place
        self.deadline = deadline

    def get(self, path: str, **query: object) -> Any:
        """Return a view; NotKnown for 404, Failure for other refusals."""
        given = {key: value for key, value in query.items() if value not in (None, "")}
        tail = f"?{urlencode(given)}" if given else ""
        answer = request(self.place, "GET", f"/api/v1/{path}{tail}", deadline=self.deadline)
        return _body(answer)

    def items(
        self, path: str, *, most: int = 100_000, first: int | None = None, **query: object
    ) -> Iterator[Plain]:
        """Yield the entries of a list, page after page, at most `most` of them; those after `first`, if given."""
        after, left = "" if first is None else str(first), most
        while left > 0:
            page = self.get(path, after=after, limit=min(left, PAGE), **query)
            yield from page["items"][:left]
            left -= len(page["items"])
            after = page.get("next") or ""
            if not after or not page["items"]:
                return

    def post(self, path: str, body: Plain) -> Plain:
        """Give an order; return the answer's body, also of a veto (its `outcome` says so)."""
        answer = request(self.place, "POST", f"/api/v1/{path}", body, deadline=ORDER_DEADLINE)
        if answer.status == 409 and isinstance(answer.body, dict) and "outcome" in answer.body:
            return answer.body
        found: Plain = _body(answer)
        return found

    def delete(self, path: str) -> None:
        """Have something removed."""
        _body(request(self.place, "DELETE", f"/api/v1/{path}", deadline=self.deadline))

    def story(self, subject: str) -> Plain:
        """Return the story of a runner's or a job's exact id."""
        kind = "jobs" if "/" in subject else "runners"
        found: Plain = self.get(f"{kind}/{quote(subject)}/story")
        return found


def _body(answer: Answer) -> Any:
    if 200 <= answer.status < 300:
        return answer.body
    problem = answer.body if isinstance(answer.body, dict) else {}
    what = str(problem.get("detail") or f"the daemon answered {answer.status}")
    if answer.status == 404:
        raise NotKnown(what, [str(near) for near in problem.get("near", [])])
    if answer.status == 401:
        todo = "give a token by --token-file or $EPHEMERD_TOKEN; 'ephemerd token create' makes one"
        raise Failure(Exit.CREDENTIALS, what, todo)
    if answer.status == 403:
        raise Failure(Exit.CREDENTIALS, what, "use an account or token that may do this")
    if answer.status == 429:
        raise Failure(Exit.CREDENTIALS, what, "check the token, and wait a minute")
    if answer.status == 409:
        raise Failure(Exit.REFUSED, what, "look at 'ephemerd decisions'")
    if 400 <= answer.status < 500:
        raise Failure(Exit.USAGE, what, "see --help of this command")
    if answer.status == 503:
        raise Failure(Exit.UNREACHABLE, what, "wait a moment and try again")
    raise Failure(Exit.UNEXPECTED, what, "look at the daemon's log")


def connect(socket: Path | None, url: str | None) -> Client:
    """Find the daemon: --socket, --url, $EPHEMERD_SOCKET, else the default socket. Nothing is sent yet."""
    if socket is not None and url is not None:
        raise Failure(Exit.USAGE, "--socket and --url are both given", "keep one of them")
    if url is not None:
        return Client(Place(url=url, token=token_for(url, os.environ, token_file.get())))
    if socket is not None:
        return Client(Place(socket=str(socket)))
    named = os.environ.get("EPHEMERD_SOCKET", "")
    return Client(Place(socket=named or str(default_socket(os.environ))))
