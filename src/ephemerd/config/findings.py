"""What is wrong with a configuration: one line what, one line what to do, and an exit code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class Code(IntEnum):
    """The class of a finding; the number is the exit code (INTERFACES: exit codes)."""

    WARNING = 0
    CONFIGURATION = 3
    CREDENTIALS = 4
    ENVIRONMENT = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to mend. `where` is a key or a place, `what` one sentence, `todo` the next step.

    No part of it ever holds a secret's value.
    """

    code: Code
    where: str
    what: str
    todo: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what} ({self.todo})"


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """Return those that stop a start."""
    return [finding for finding in findings if finding.code]


def exit_code(findings: Iterable[Finding]) -> int:
    """Return the lowest code among the errors, 0 where there is none."""
    return min((int(finding.code) for finding in findings if finding.code), default=0)


class ConfigError(Exception):
    """The configuration cannot be used; `findings` holds everything that was found, warnings too."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = list(findings)
        super().__init__("; ".join(str(finding) for finding in self.findings))

    @property
    def code(self) -> int:
        return exit_code(self.findings)
