"""The reference of the command line, made from the parser itself: a page, a manual page, the exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer

import ephemerd
from ephemerd.cli.failure import Exit
from ephemerd.cli.main import SECTIONS, app


@dataclass(frozen=True, slots=True)
class Parameter:
    """An option or argument: its names, what it takes (empty for a flag), its default, what it is for."""

    names: tuple[str, ...]
    takes: str
    default: str
    about: str
    required: bool
    is_option: bool


@dataclass(frozen=True, slots=True)
class Described:
    """One command: `words` after `ephemerd`, its help in paragraphs, its example, its parameters."""

    words: tuple[str, ...]
    about: tuple[str, ...]
    example: str
    parameters: tuple[Parameter, ...]
    is_group: bool

    @property
    def usage(self) -> str:
        """The line of its usage."""
        options = " [OPTIONS]" if any(one.is_option for one in self.parameters) else ""
        arguments = "".join(
            f" {one.takes}" if one.required else f" [{one.takes}]"
            for one in self.parameters
            if not one.is_option
        )
        more = " COMMAND" if self.is_group else ""
        return f"{' '.join(('ephemerd', *self.words))}{options}{arguments}{more}"


def described() -> Iterator[Described]:
    """Yield the program itself and every command in the order of its help, those of groups after their group."""
    yield from _described(typer.main.get_command(app), ())


def _described(command: Any, words: tuple[str, ...]) -> Iterator[Described]:
    inner = getattr(command, "commands", {})
    about = [" ".join(part.split()) for part in (command.help or "").split("\n\n")]
    example = (command.epilog or "").removeprefix("Example: ")
    parameters = [_parameter(one) for one in command.params if not getattr(one, "hidden", False)]
    yield Described(words, tuple(filter(None, about)), example, tuple(parameters), bool(inner))
    for name, one in inner.items():
        yield from _described(one, (*words, name))


def _parameter(one: Any) -> Parameter:
    is_option = one.param_type_name == "option"
    flag = bool(getattr(one, "is_flag", False))
    takes = "" if flag else (one.metavar or ("N" if isinstance(one.default, int) else one.name.upper()))
    return Parameter(
        names=(*one.opts, *one.secondary_opts) if is_option else (),
        takes=takes,
        default=_default(one.default) if not flag else "",
        about=(getattr(one, "help", None) or "").strip(),
        required=bool(one.required),
        is_option=is_option,
    )


def _default(value: Any) -> str:
    """Return a default as it would be typed; nothing for what is not said."""
    if callable(value) or value is None or value is ... or value == "" or value == []:
        return ""
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def page() -> str:
    """Return the reference as Markdown, without its title."""
    every = {one.words: one for one in described()}
    parts = ["### Before the command", "", *_table(every[()].parameters), ""]
    for title, entries in SECTIONS.items():
        parts += [f"### {title}", ""]
        for entry in entries:
            for words, one in every.items():
                if words[:1] == (entry.name,):
                    parts += _section(one)
    return "\n".join(parts).rstrip() + "\n"


def _section(one: Described) -> list[str]:
    lines = [f"#### `ephemerd {' '.join(one.words)}`", "", f"```text\n{one.usage}\n```", ""]
    for about in one.about:
        lines += [about, ""]
    if one.parameters:
        lines += [*_table(one.parameters), ""]
    if one.example:
        lines += ["```console", f"$ {one.example}", "```", ""]
    return lines


def _table(parameters: tuple[Parameter, ...]) -> list[str]:
    lines = ["| option | takes | default | what it does |", "| --- | --- | --- | --- |"]
    for one in parameters:
        names = ", ".join(f"`{name}`" for name in one.names) or f"`{one.takes}`"
        takes = f"`{_cell(one.takes)}`" if one.is_option and one.takes else ""
        default = "**required**" if one.required else f"`{_cell(one.default)}`" if one.default else ""
        lines.append(f"| {_cell(names)} | {takes} | {default} | {_cell(one.about)} |")
    return lines


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


MEANINGS: dict[Exit, tuple[str, str, str]] = {
    Exit.DONE: ("done", "", ""),
    Exit.UNEXPECTED: ("unexpected", "a defect", "run it again with `--debug` and report what it prints"),
    Exit.USAGE: ("wrong usage", "an unknown option, runner, job, pool", "`--help` of the command"),
    Exit.CONFIGURATION: (
        "configuration",
        "syntax, an unknown key (the nearest known one is named), a value that does not fit",
        "`ephemerd check` names file, key and what to write",
    ),
    Exit.CREDENTIALS: (
        "credentials",
        "a secret that is not set, missing or unreadable; its path is named",
        "put it there, readable for the daemon's account alone; `ephemerd doctor`",
    ),
    Exit.ENVIRONMENT: (
        "environment",
        "no runner application, no such account, a port that is taken, a second daemon on the store",
        "`ephemerd doctor` looks at this machine, with a fix for each finding",
    ),
    Exit.UNREACHABLE: (
        "daemon not reachable",
        "it does not run, or listens elsewhere",
        "start it, or name its socket by `--socket` or `$EPHEMERD_SOCKET`",
    ),
    Exit.REFUSED: (
        "refused",
        "a veto; a drain that was not done in time; a reload that was refused",
        "`ephemerd explain RUNNER` says what was seen",
    ),
    Exit.BROKEN_PROMISE: (
        "a promise did not hold",
        "`demo`, `simulate` or `replay` counted a job that was killed, lost or left over",
        "report it with the seed; the folder of the demo is kept",
    ),
    Exit.STANDSTILL: (
        "the main loop stood still",
        "the daemon ended itself; its log says where the loop stood",
        "start it again: its runners live on",
    ),
    Exit.INTERRUPTED: ("interrupted", "Ctrl-C", ""),
    Exit.TERMINATED: ("terminated", "SIGTERM", ""),
}


def exit_codes() -> str:
    """Return the table of exit codes as Markdown."""
    lines = ["| code | means | typically | what to do |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {int(code)} | {' | '.join(_cell(text) for text in texts)} |" for code, texts in MEANINGS.items()
    ]
    return "\n".join(lines) + "\n"


def manual() -> str:
    """Return the manual page, section 1, in roff."""
    every = list(described())
    lines = [
        f'.TH EPHEMERD 1 "" "ephemerd {ephemerd.__version__}" "User Commands"',
        ".SH NAME",
        "ephemerd \\- ephemeral CI runners on your own machines",
        ".SH SYNOPSIS",
        ".B ephemerd",
        "[OPTIONS] COMMAND [ARGUMENTS]",
        ".SH DESCRIPTION",
        *(_roff(about) for about in every[0].about),
        ".SH OPTIONS",
        *_roff_parameters(every[0].parameters),
        ".SH COMMANDS",
    ]
    for one in every[1:]:
        lines += [f".SS {_roff(one.usage)}"]
        for about in one.about:
            lines += [".PP", _roff(about)]
        lines += _roff_parameters(one.parameters)
        if one.example:
            lines += [".PP", f"Example: \\fB{_roff(one.example)}\\fR"]
    lines.append(".SH EXIT STATUS")
    for code, (means, typically, _) in MEANINGS.items():
        lines += [".TP", f"\\fB{int(code)}\\fR", _roff(f"{means}{f': {typically}' if typically else ''}")]
    lines += [
        ".SH ENVIRONMENT",
        *(".TP", "\\fBEPHEMERD_CONFIG\\fR", "The configuration file."),
        *(".TP", "\\fBEPHEMERD_SOCKET\\fR", "The daemon\\(aqs socket."),
        *(".TP", "\\fBNO_COLOR\\fR", "No colours."),
    ]
    return "\n".join(lines) + "\n"


def _roff_parameters(parameters: tuple[Parameter, ...]) -> list[str]:
    lines = []
    for one in parameters:
        names = ", ".join(one.names) or one.takes
        takes = f" \\fI{_roff(one.takes)}\\fR" if one.is_option and one.takes else ""
        default = f" Default: {one.default}." if one.default else ""
        lines += [".TP", f"\\fB{_roff(names)}\\fR{takes}", _roff(f"{one.about}{default}".replace("`", ""))]
    return lines


def _roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "")
    return f"\\&{escaped}" if escaped.startswith(".") else escaped
