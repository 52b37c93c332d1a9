"""Who may use these machines: what a person allowed at one forge, and what of a job it is judged by."""

from __future__ import annotations

from ephemerd.domain.job import Job
from ephemerd.domain.value import Value, Word


class Refusal(Word):
    """Why no runner is made for a job, by the policy of its forge. UNKNOWN: what decides is not known yet."""

    REPOSITORY = "repository"
    WORKFLOW = "workflow"
    BRANCH = "branch"
    PUBLIC = "public"
    FORK = "fork"
    UNKNOWN = "unknown"


class Access(Value, frozen=True):
    """Who may use the runners of one forge. Repositories are OWNER/NAME and compare without case; in patterns
    `*` stands for any text, `/` included.

    repositories  patterns; none: every repository of the scopes. A public one has to be named without `*`
    denied        patterns that go before `repositories`
    forks         patterns of repositories whose pull requests from forks are served too
    workflows     patterns of a workflow's name (its path where it has none); none: all
    branches      patterns of the branch or tag; none: all. What comes from a fork is on none of them
    most          runners for one repository at a time; None: no limit but the pools'
    """

    forge: str
    repositories: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    forks: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    most: int | None = None

    def refuses(self, job: Job) -> Refusal | None:
        """Say why the job is not to be served, None where it is. What needs no question is looked at first."""
        repository = job.key.repository.lower()
        if _any(repository, self.denied) or (self.repositories and not _any(repository, self.repositories)):
            return Refusal.REPOSITORY
        if self.workflows and job.workflow and not _fits(job.workflow, self.workflows):
            return Refusal.WORKFLOW
        if self.branches and job.branch and not _fits(job.branch, self.branches):
            return Refusal.BRANCH
        named = repository in (pattern.lower() for pattern in self.repositories)
        if job.public and not named:
            return Refusal.PUBLIC
        if job.fork and self.branches:
            return Refusal.BRANCH
        forks = _any(repository, self.forks)
        if job.fork and not forks:
            return Refusal.FORK
        missing = (
            (job.public is None and not named)
            or (job.fork is None and (not forks or bool(self.branches)))
            or bool(self.workflows and not job.workflow)
            or bool(self.branches and not job.branch)
        )
        return Refusal.UNKNOWN if missing else None

    def lets_in(self, repository: str, *, public: bool | None) -> bool:
        """Say whether any job of a repository could be served; `public` None where that is not known."""
        name = repository.lower()
        if _any(name, self.denied) or (self.repositories and not _any(name, self.repositories)):
            return False
        return not public or name in (pattern.lower() for pattern in self.repositories)


def fits(text: str, pattern: str) -> bool:
    """Say whether a text is what a pattern says: `*` stands for any text, all else for itself."""
    first, *rest = pattern.split("*")
    if not rest:
        return text == pattern
    if not text.startswith(first):
        return False
    at = len(first)
    for part in rest[:-1]:
        found = text.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return text.endswith(rest[-1]) and at <= len(text) - len(rest[-1])


def _any(repository: str, patterns: tuple[str, ...]) -> bool:
    return any(fits(repository, pattern.lower()) for pattern in patterns)


def _fits(text: str, patterns: tuple[str, ...]) -> bool:
    return any(fits(text, pattern) for pattern in patterns)
