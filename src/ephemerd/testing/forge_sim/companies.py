"""Organizations and enterprises as scopes of runners, with their runner groups (github.md, section 6)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ephemerd.testing.forge_sim.model import Hook, Repository, Runner

HOSTED_GROUP = 2
"""The group of GitHub-hosted runners, which takes no others [field]."""
Kind = Literal["org", "enterprise"]


@dataclass(slots=True)
class Group:
    """A runner group. ``public`` is ``allows_public_repositories``, off unless asked for [doc]."""

    id: int
    name: str
    visibility: str = "all"
    default: bool = False
    public: bool = False
    repositories: set[int] = field(default_factory=set)
    workflows: tuple[str, ...] = ()

    def lets_in(self, repository: Repository) -> bool:
        """Whether jobs of a repository may run on the group's runners."""
        if not repository.private and not self.public:
            return False
        if self.visibility == "private":
            return repository.private
        return self.visibility == "all" or repository.id in self.repositories


@dataclass(slots=True, eq=False)
class Company:
    """An organization, or an enterprise that holds every organization here."""

    kind: Kind
    login: str
    hooks: dict[int, Hook] = field(default_factory=dict)
    runners: dict[int, Runner] = field(default_factory=dict)
    registrations: deque[float] = field(default_factory=deque)
    groups: dict[int, Group] = field(default_factory=lambda: {1: Group(1, "Default", default=True)})

    @property
    def full_name(self) -> str:
        """What follows the site's address in the address that runners are registered at."""
        return self.login if self.kind == "org" else f"enterprises/{self.login}"

    def owns(self, repository: Repository) -> bool:
        """Whether a repository is one of its own."""
        return self.kind == "enterprise" or repository.owner.lower() == self.login.lower()

    def serves(self, repository: Repository, group: int) -> bool:
        """Whether runners of a group may be given the repository's jobs."""
        found = self.groups.get(group)
        return found is not None and self.owns(repository) and found.lets_in(repository)

    def add_group(self, name: str) -> Group:
        """Make a group; numbers are not used twice."""
        made = Group(max(HOSTED_GROUP, *self.groups) + 1, name)
        self.groups[made.id] = made
        return made

    def group_named(self, name: str) -> Group | None:
        """Find a group; names are compared without regard to case."""
        return next((group for group in self.groups.values() if group.name.lower() == name.lower()), None)
