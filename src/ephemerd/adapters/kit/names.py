"""What a process is called by, and whether any of it is the worker's or the listener's name. Pure.

A program can be started by itself, by an interpreter that runs it as a script, or by `dotnet`.
"""

from __future__ import annotations

from ephemerd.domain.worker import base_name, is_hosted_worker, is_listener, is_worker

# Programs that run a script: what counts then is the script's own name.
SCRIPTED = ("python", "sh", "bash", "dash", "zsh", "ksh", "busybox", "ruby", "perl", "node")


def names_worker(comm: str, argv: tuple[str, ...], exe: str = "") -> bool:
    """Say whether anything that a process is called by is the worker's name.

    comm   the kernel's name of it
    argv   its arguments, the program first; empty where they are not known
    exe    the program's path, where it is known
    """
    first = argv[0] if argv else ""
    if is_worker(comm) or is_worker(first) or is_worker(exe):
        return True
    if is_hosted_worker(first, argv[1:]) or is_hosted_worker(comm, argv[1:]):
        return True
    return is_worker(script_of(argv, exe))


def names_listener(comm: str, argv: tuple[str, ...]) -> bool:
    """Say whether anything that a process is called by is the listener's name."""
    return is_listener(comm) or bool(argv and is_listener(argv[0])) or is_listener(script_of(argv))


def script_of(argv: tuple[str, ...], exe: str = "") -> str:
    """Return the script that an interpreter runs; empty where the program is none."""
    first = argv[0] if argv else ""
    if base_name(first).startswith(SCRIPTED) or base_name(exe).startswith(SCRIPTED):
        return next((argument for argument in argv[1:] if not argument.startswith("-")), "")
    return ""
