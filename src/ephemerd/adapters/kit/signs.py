"""What a line of the listener's output, performance file or diagnostics says. Pure.

runner.md sections 4 to 6. The job's name is free text of a workflow: lines are told apart by what stands
directly after the time stamp, names are never read.
"""

from __future__ import annotations

import re

from ephemerd.domain.verdict import Sign

STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ: ")
TRACE = re.compile(r"\[[^\]]{0,200}\] ")
RESULT = re.compile(r"Job .* completed with result: (\w+)")
OUTDATED = re.compile(
    r"(?:An error occurred: )?Runner version v?(\S{1,64}) is deprecated and cannot receive messages"
)
OFFERS = ("MessageReceived_RunnerJobRequest", "MessageReceived_PipelineAgentJobRequest")
SESSION = "SessionCreated"
DETAIL_LIMIT = 200


def log_sign(line: str) -> Sign | None:
    """Return the sign in a line of the listener's output."""
    stamp = STAMP.match(line)
    if stamp is None:
        return diag_sign(line)
    text = line[stamp.end() :]
    if text.startswith("Listening for Jobs"):
        return Sign.LISTENING
    if text.startswith("Running job:"):
        return Sign.ANNOUNCED
    if RESULT.fullmatch(text.rstrip()):
        return Sign.ENDED
    return diag_sign(text)


def diag_sign(line: str) -> Sign | None:
    """Return the sign in a line of the diagnostics, which the output can hold too."""
    trace = TRACE.match(line)
    text = line[trace.end() :] if trace else line
    if text.startswith("Acknowledging runner request"):
        return Sign.ACKNOWLEDGED
    if text.startswith("Skipping message Job"):
        return Sign.SKIPPED
    return None


def perf_sign(line: str) -> Sign | None:
    """Return the sign in a line of the performance file (`name:time`)."""
    name = line.partition(":")[0]
    if name in OFFERS:
        return Sign.OFFERED
    if name == SESSION:
        return Sign.LISTENING
    if name == "StartingWorkerProcess":
        return Sign.WORKER
    return None


def refused_version(line: str) -> str:
    """Return the version that the forge refuses, as a line of the listener's output says (runner.md, section 4)."""
    stamp = STAMP.match(line)
    found = OUTDATED.match(line[stamp.end() :] if stamp else line)
    return detail_of(found[1]) if found else ""


def may_become_sign(beginning: str) -> bool:
    """Say whether an output line that is not whole yet could turn out to be a sign."""
    return beginning[:1].isdigit() or beginning.startswith(("[", "A", "S"))


def detail_of(line: str) -> str:
    """Return a line as a short printable text."""
    return "".join(letter if letter.isprintable() else " " for letter in line[:DETAIL_LIMIT]).strip()
