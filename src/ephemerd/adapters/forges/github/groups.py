"""Runner groups by name: a registration wants the number, people write the name; pure but for the cache.

Source: GitHub's REST reference, runner groups of organizations and enterprises. A repository has no groups of its
own; its runners are in group 1, "Default".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from ephemerd.adapters.forges.github.wire import DEFAULT_GROUP, PER_PAGE, Request, scope_path
from ephemerd.adapters.kit.answer import Answer
from ephemerd.domain.ids import Scope
from ephemerd.ports.errors import Refused, RetryLater

DEFAULT = "Default"
"""The name that stands for a scope's default group, whatever that is called there."""
KEPT_S = 900.0
"""Seconds for which a group's number is not asked for again."""
_NAMED = 10


@dataclass(frozen=True, slots=True)
class Group:
    """A runner group. `public` says whether jobs of public repositories can reach it; None where it is not told."""

    id: int
    name: str
    default: bool
    public: bool | None


class _Group(msgspec.Struct):
    id: int
    name: str
    default: Any = None
    allows_public_repositories: Any = None


class _Page(msgspec.Struct):
    runner_groups: list[_Group]


@dataclass(slots=True)
class Groups:
    """The numbers of one configured group name, by scope. Times are seconds of one monotonic clock."""

    name: str = DEFAULT
    _known: dict[str, tuple[int, float]] = field(default_factory=dict)

    def known(self, scope: Scope, now: float) -> int | None:
        """Return the number where it is known, which for a repository it always is."""
        if scope.kind == "repo":
            return DEFAULT_GROUP
        number, at = self._known.get(scope.path, (0, float("-inf")))
        return number if now - at <= KEPT_S else None

    def forget(self, scope: Scope) -> None:
        """Ask anew next time: a registration was refused."""
        self._known.pop(scope.path, None)

    def choose(self, scope: Scope, groups: list[Group], now: float) -> Group:
        """Return the group of our name; `Refused` with what there is where it does not exist."""
        wanted = self.name.lower()
        chosen = next((group for group in groups if group.name.lower() == wanted), None)
        if chosen is None and self.name == DEFAULT:
            chosen = next((group for group in groups if group.default), None)
        if chosen is None:
            names = ", ".join(group.name[:60] for group in groups[:_NAMED]) or "none"
            raise Refused(
                f"{scope.path} has no runner group {self.name!r}: create it, let this token see it, or set "
                f"runner_group to one of: {names}"
            )
        self._known[scope.path] = (chosen.id, now)
        return chosen


def list_groups(scope: Scope) -> Request:
    """Ask for the runner groups of an organization or enterprise."""
    return Request(
        "GET",
        f"{scope_path(scope)}/actions/runner-groups?per_page={PER_PAGE}",
        "GET {scope}/actions/runner-groups",
        f"the runner groups of {scope.path}",
        f"check that {scope.path} exists and that the token may administer its runners (an App: organization "
        "permission Self-hosted runners, read and write; a classic token: admin:org, manage_runners:enterprise)",
        account=scope_path(scope),
        reserved=True,
    )


def read_groups(request: Request, answer: Answer) -> list[Group]:
    """Read one page of groups."""
    try:
        page = msgspec.json.decode(answer.body, type=_Page)
    except (msgspec.DecodeError, RecursionError):
        page = None
    if page is None:
        raise RetryLater(f"GitHub's answer to {request.endpoint} on {request.about} is not understood")
    return [_group(entry) for entry in page.runner_groups]


def _group(entry: _Group) -> Group:
    public = entry.allows_public_repositories
    return Group(entry.id, entry.name, entry.default is True, public if isinstance(public, bool) else None)
