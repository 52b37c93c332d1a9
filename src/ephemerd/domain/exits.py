"""What the exit code of a listener says about why no job was run, and what to do about it.

The codes are those of the runner application's own constants (actions/runner, `Constants.cs`). A code decides
nothing: 0 is ambiguous, and a job is known by its signs alone.
"""

from __future__ import annotations

REFUSED_VERSION = 7
"""The code of a listener whose version the forge refuses (`RunnerVersionDeprecated`)."""

WORDS = {
    0: "it left in peace: its registration was gone, or it was asked to stop",
    1: "it could not begin: a root or work folder that cannot be used, or a session that the forge refused",
    2: "it gave up after errors in a row: look at the network between it and the forge",
    3: "it updated itself instead of working: update the runner application",
    4: "it updated itself instead of working: update the runner application",
    5: "another session with its name was open",
    REFUSED_VERSION: "its version is refused by the forge: update the runner application",
    126: "the runner application cannot be executed",
    127: "a program that the runner application needs was not found: install its dependencies",
    134: "it crashed: are the runner application's dependencies installed",
    137: "it was killed: by a person, or by the kernel for want of memory",
    139: "it crashed: is the runner application made for this machine",
}


def in_words(code: int | None) -> str:
    """Return what is known of an exit without a job, as half a sentence; "" says nothing."""
    if code is None:
        return "no exit code was recorded"
    words = WORDS.get(code, f"it was ended by signal {code - 128}" if 128 < code < 160 else "")
    return f"code {code}: {words}" if words else f"code {code}"
