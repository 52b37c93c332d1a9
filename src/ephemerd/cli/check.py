"""`check`: the effective configuration with the origin of each value, and everything that is wrong."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ephemerd.cli import output
from ephemerd.cli.failure import Exit, Failure, complain
from ephemerd.cli.options import Config, Json, Set

if TYPE_CHECKING:
    from ephemerd.config.effective import Effective, Examined
    from ephemerd.config.findings import Finding


def check(config: Config = None, override: Set = None, as_json: Json = False) -> int:
    """Check the configuration and this machine; print every value with its origin."""
    from ephemerd.config.findings import exit_code

    found = examined(config, override or [])
    if as_json:
        output.emit_json(_plain(found))
    elif found.effective is not None:
        print("\n".join(table(found.effective)))
    report(found.findings)
    if not as_json and not exit_code(found.findings):
        output.note("the configuration can be used")
        if found.effective is not None and (there := _applications(found.effective)):
            output.note(f"runner applications at hand: {there}")
    return exit_code(found.findings)


def _applications(effective: Effective) -> str:
    """Return which downloaded runner applications there are, with their age."""
    if effective.settings.runner.application != "download":
        return ""
    import asyncio

    from ephemerd.joining import applications_at_hand

    return asyncio.run(applications_at_hand(effective))


def examined(config: Path | None, override: list[str]) -> Examined:
    """Read configuration, environment and --set, and look at this machine."""
    from ephemerd.config.effective import examine

    return examine(config, os.environ, flags(override))


def flags(override: list[str]) -> dict[str, Any]:
    """Return --set KEY=VALUE as flags; Failure 2 where one has another form."""
    found: dict[str, Any] = {}
    for text in override:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise Failure(
                Exit.USAGE,
                f"--set {text.partition('=')[0]!r} is not KEY=VALUE",
                "e.g. --set policy.settle=2s",
            )
        found[key.strip()] = value
    return found


def report(findings: tuple[Finding, ...]) -> None:
    """Write all findings to stderr, two lines each."""
    for finding in findings:
        word = "error" if finding.code else "warning"
        complain(f"{finding.where}: {finding.what}", finding.todo, word=word)


def table(effective: Effective) -> list[str]:
    """Return the configuration as lines that look like TOML, the origin behind each value; each table once, though
    the model has other tables between its keys."""
    from ephemerd.config.show import toml_value

    sections: dict[str, list[tuple[str, str, str]]] = {}
    for key, value, origin in effective.rows():
        section, _, name = key.rpartition(".")
        sections.setdefault(section, []).append((name, toml_value(value), origin))
    rows = [row for found in sections.values() for row in found]
    width = min(44, max(len(f"{name} = {value}") for name, value, _ in rows))
    lines = [f"# from {effective.path or 'defaults, environment and flags'}"]
    for section, found in sections.items():
        lines += ["", f"[{section}]"]
        for name, value, origin in found:
            mark = "# " if value == "unset" or value.startswith("(") else ""
            lines.append(f"{output.clean(f'{mark}{name} = {value}'):<{width}}  # {output.clean(origin)}")
    return lines


def _plain(found: Examined) -> dict[str, Any]:
    from ephemerd.config.findings import exit_code

    return {
        "path": str(found.path) if found.path else None,
        "usable": found.effective is not None and not exit_code(found.findings),
        "exit_code": exit_code(found.findings),
        "findings": [
            {
                "code": int(finding.code),
                "level": "error" if finding.code else "warning",
                "where": finding.where,
                "what": finding.what,
                "todo": finding.todo,
            }
            for finding in found.findings
        ],
        "settings": [
            {"key": key, "value": value, "origin": origin} for key, value, origin in found.effective.rows()
        ]
        if found.effective is not None
        else [],
    }
