"""Tells what happened to a runner or a job: one sentence for each journalled event and each decision.

Pure: the same journal gives the same story. Times stay numbers (ms of the shell clock); who shows the story
formats them. `sayings.py` holds the sentence of each kind of event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ephemerd.core.events import Event
from ephemerd.core.sayings import say, subject_of
from ephemerd.core.spans import span
from ephemerd.domain.runner import Decision
from ephemerd.domain.value import Value
from ephemerd.domain.verdict import Evidence, Verdict

DECISION = "Decision"


class Entry(Value, frozen=True):
    """One journal entry with its event decoded: `seq` its number, `at` when it was handled (ms)."""

    seq: int
    at: int
    event: Event


class Line(Value, frozen=True):
    """One line of a story.

    at        ms of the shell clock
    seq       the journal's number of an event, the decision's number of a decision
    kind      the event's class name, or `Decision`
    subject   the runner or job that it is about, empty where it is about the daemon or a scope
    text      one sentence, in the words of the glossary
    evidence  what it rests on, one line each
    """

    at: int
    seq: int
    kind: str
    subject: str
    text: str
    evidence: tuple[str, ...] = ()


def tell(entries: Sequence[Entry], decisions: Iterable[Decision], subject: str = "") -> list[Line]:
    """Return the story of these entries and decisions in the order in which they happened.

    A decision follows the events of its own millisecond: they caused it. `subject` is whose story it is, so
    that a listing says whether it contained it.
    """
    lines = [(entry.at, 0, entry.seq, _event_line(entry, subject)) for entry in entries]
    lines += [(decision.at, 1, decision.id, _decision_line(decision)) for decision in decisions]
    return [line for *_, line in sorted(lines, key=lambda item: item[:3])]


def _event_line(entry: Entry, subject: str) -> Line:
    said = say(entry.event, subject)
    about = subject_of(entry.event)
    return Line(entry.at, entry.seq, type(entry.event).__name__, about, said.text, said.evidence)


def _decision_line(decision: Decision) -> Line:
    text = f"nominated as {decision.rule} (nomination {decision.nomination}): {_outcome(decision)}"
    if decision.reason:
        text += f"; {decision.reason}"
    evidence = tuple(_looked(item, decision.at) for item in decision.evidence)
    if decision.verdict != Verdict.IDLE.value:
        evidence += (f"its age for this verdict was {span(decision.age)}, the bound {span(decision.bound)}",)
    return Line(decision.at, decision.id, DECISION, decision.runner, text, evidence)


def _outcome(decision: Decision) -> str:
    seen = f"{decision.verdict}, by {decision.via}" if decision.via not in {"", "none"} else decision.verdict
    if decision.outcome == "vetoed":
        return f"vetoed, so it stays ({seen})"
    if decision.outcome == "reaped":
        why = "proven idle, so it goes" if decision.verdict == Verdict.IDLE.value else "ended on purpose"
        return f"{why} ({seen})"
    if decision.outcome == "escaped":
        return f"ESCAPE: past its bound, so it goes although not proven idle ({seen})"
    return f"{decision.outcome} ({seen})"


def _looked(evidence: Evidence, at: int) -> str:
    age = at - evidence.at
    when = "then" if age <= 0 else f"{span(age)} before"
    return f"{when}, {evidence.via.value} said {evidence.verdict.value}: {evidence.detail}"
