"""A story as people read it: first the answer, then what happened, when, what was seen, and why it followed.

Pure: it takes the API's story and decisions as plain data, and gives lines with their styles.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ephemerd.cli import tables
from ephemerd.cli.output import clean, clock, span

Plain = dict[str, Any]
DECISION = "Decision"
RULES = {
    "expired": "it listened for its whole grace without a job",
    "surplus": "nobody needs it any more",
    "displaced": "demand that it cannot serve waits for its slot",
    "unborn": "it did not get ready in time",
    "finished": "its job is over, and it did not leave",
    "spent": "it has no job, and its registration is gone for good",
    "leaked": "it bears our mark, and the store does not know it",
    "overdue": "it runs longer than its job_timeout",
    "operator": "a person asked to end it",
    "cordoned": "nothing is to run there",
    "ended": "it was ending already",
}
"""What each rule that nominates says; a rule alone destroys nothing."""
VETOES = {
    "probe": "a look inside found it at work",
    "log": "its listener's log tells of a job",
    "sign": "a job had shown itself",
    "forge": "the forge says that it has a job",
    "fence": "the forge refused to deregister it, as it does for a runner that holds a job",
    "exit": "its processes are not proven gone",
}
ROUTINE = frozenset(
    {"EnvironmentsListed", "RegistrationsListed", "JobsRead", "JobsListed", "ScopeAnswered", "RunnerLookedUp"}
)
"""Events that come again and again; in a row they are told once while they show the same of this subject."""
SILENT = frozenset({"Woke"})
"""Events that only say that time passed."""
GAP = 5 * 60 * 1_000
"""ms without a line after which the pause is said."""
LEAD = 14
SINCE = 9
ID_IN_BRACKETS = re.compile(r" \([a-z]+:[^\s()]{24,}\)")


@dataclass(frozen=True, slots=True)
class Told:
    """One line on the screen: `style` is rich's, empty for plain."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Teller:
    """How to tell: `width` in columns, 0 for no wrapping; `full` for every event and whole ids; `now` in ms."""

    width: int = 0
    full: bool = False
    now: int = 0
    lines: list[Told] = field(default_factory=list)

    def say(self, text: str, style: str = "", *, lead: str = "", later: str = "") -> None:
        """Add a text, wrapped below `later`."""
        if self.width < LEAD + SINCE + 20:
            self.lines.append(Told(lead + text, style))
            return
        wrapped = textwrap.wrap(
            text,
            self.width,
            initial_indent=lead,
            subsequent_indent=later or " " * len(lead),
            break_long_words=False,
            break_on_hyphens=False,
        )
        self.lines.extend(Told(line, style) for line in wrapped or [""])


def narrate(story: Plain, decisions: Iterable[Plain], teller: Teller) -> list[Told]:
    """Return the whole narrative. `decisions` are those of its runner; one that is missing is told by its line."""
    known = {decision["id"]: decision for decision in decisions}
    names = _names(story)
    teller.say(f"{clean(story['kind']).capitalize()} {clean(story['subject'])}", "bold")
    for sentence in [*_runner(story, known), *_job(story)]:
        teller.say(sentence, lead="  ")
    if not story["runner"] and not story["job"]:
        teller.say("It is no longer in the daemon's lists; this is from the journal.", lead="  ")
    teller.say("")
    if not story["lines"]:
        teller.say("(its events are no longer in the journal)")
        return teller.lines
    _timeline(story, known, names, teller)
    return teller.lines


def _names(story: Plain) -> dict[str, str]:
    """Return what to call whom a line is about, other than the subject itself."""
    runner, job = story["runner"], story["job"]
    names: dict[str, str] = {}
    if runner:
        names[runner["intent"] or ""] = "the job it was made for"
        names[runner["job"] or ""] = "its job"
    if job and job["runner"]:
        names[job["runner"]] = "its runner"
    return names


# The answer


def _runner(story: Plain, known: dict[int, Plain]) -> list[str]:
    row = story["runner"]
    if not row:
        return []
    final = row["state"] in {"gone", "abandoned"}
    since = f"since {clock(row['since'], day=True)}, {span(row['since_s'])} ago"
    sentences = [
        f"It is {clean(row['state'])} {since}. Pool {clean(row['pool'])}, host {clean(row['host'])}."
    ]
    if row["job"] and row["job"] == row["intent"]:
        sentences.append(f"It was made for job {clean(row['job'])}, and got it.")
    else:
        made = f"It was made for job {clean(row['intent'])}" if row["intent"] else "It was made in advance"
        got = f"; the forge gave it job {clean(row['job'])}" if row["job"] else ""
        sentences.append(f"{made}{got}.")
    vetoes = [one for one in known.values() if one["outcome"] == "vetoed"]
    if vetoes:
        last = vetoes[-1]
        often = "Once" if len(vetoes) == 1 else f"{len(vetoes)} times"
        sentences.append(f"{often} a rule said that it could go, and it stayed: {_kept(last)}.")
    sentences.append(_why_gone(row, known) if final else _why_there(row))
    return sentences


def _why_gone(row: Plain, known: dict[int, Plain]) -> str:
    ended = [one for one in known.values() if one["outcome"] in {"reaped", "escaped"}]
    if row["state"] == "abandoned":
        return f"It would not end and was abandoned: {clean(row['stuck'] or row['ending'])}."
    if not ended:
        return f"Nobody destroyed it: it {clean(row['ending']) or 'ended'}."
    return f"Destroyed under rule {clean(ended[-1]['rule'])}: {_fate(ended[-1])}."


def _why_there(row: Plain) -> str:
    if row["stuck"]:
        return f"It is stuck: {clean(row['stuck'])}."
    if row["gate"]:
        gate = row["gate"]
        return f"Rule {clean(gate['rule'])} says that it could go; the gate is {clean(gate['phase'])}."
    if row["bound"] == "hard":
        return "It is at work, so nothing may end it."
    if row["bound"]:
        return "There are signs of a job, so it is not taken for idle."
    note = tables.runner_note(row)
    return f"No rule says that it could go{f' ({note})' if note != '-' else ''}."


def _job(story: Plain) -> list[str]:
    row = story["job"]
    if not row:
        return []
    state = f"{row['status']} ({row['conclusion']})" if row["conclusion"] else row["status"]
    name = f" {row['name']!r}" if row["name"] else ""
    asks = ", ".join(row["labels"]) or "no label"
    since_when = f"since {clock(row['since'], day=True)}, {span(row['since_s'])} ago"
    sentences = [f"The job{name} is {state} {since_when}. It asks for {asks}."]
    if row["started"] is not None:
        ran = f" and ran {span((row['ended'] - row['started']) / 1_000)}" if row["ended"] else ""
        sentences.append(f"It waited {span(row['waited_s'])}{ran}{_where(row)}.")
    elif row["why"]:
        sentences.append(f"It has waited {span(row['waited_s'])}: {row['why']}.")
    elif row["runner"]:
        sentences.append(f"Its runner is {row['runner']}.")
    return [clean(sentence) for sentence in sentences]


def _where(row: Plain) -> str:
    if not row["runner"]:
        return ""
    return f", on {row['runner']}" if row["ours"] else f", on {row['runner']}, which is not ours"


# What happened


def _timeline(story: Plain, known: dict[int, Plain], names: dict[str, str], teller: Teller) -> None:
    shown = story["lines"] if teller.full else [one for one in story["lines"] if one["kind"] not in SILENT]
    began = story["lines"][0]["at"]
    day, before = "", began
    for line, more in _grouped(shown, full=teller.full):
        today = clock(line["at"], day=True)[:10]
        if today != day:
            day = today
            ago = f", {span((teller.now - began) / 1_000)} ago" if line["at"] == began and teller.now else ""
            teller.say(f"{today}{ago}", "dim")
        elif line["at"] - before >= GAP:
            teller.say(f"... {span((line['at'] - before) / 1_000)} later", "dim", lead=" " * (LEAD + SINCE))
        before = more[-1]["at"] if more else line["at"]
        _line(line, more, story, names, known, began, teller)


def _grouped(lines: list[Plain], *, full: bool) -> list[tuple[Plain, list[Plain]]]:
    """Return each line with those after it that only say the same again."""
    found: list[tuple[Plain, list[Plain]]] = []
    for line in lines:
        if found and not full and _same(found[-1][0], line):
            found[-1][1].append(line)
        else:
            found.append((line, []))
    return found


def _same(one: Plain, other: Plain) -> bool:
    if one["kind"] == DECISION or (one["kind"], one["subject"]) != (other["kind"], other["subject"]):
        return False
    return one["evidence"] == other["evidence"] and (one["kind"] in ROUTINE or one["text"] == other["text"])


def _line(
    line: Plain,
    more: list[Plain],
    story: Plain,
    names: dict[str, str],
    known: dict[int, Plain],
    began: int,
    teller: Teller,
) -> None:
    lead = f"{clock(line['at'], fine=True):<{LEAD}}{'+' + since(line['at'] - began):<{SINCE}}"
    indent = " " * len(lead)
    decision = known.get(line["seq"]) if line["kind"] == DECISION else None
    who = _who(line, story, names)
    if decision is not None:
        _decided(decision, f"{lead}{who}", indent, teller)
        return
    text = clean(line["text"])
    if not teller.full:
        text = ID_IN_BRACKETS.sub("", text)
    if more:
        text += f" (and {len(more)} more until {clock(more[-1]['at'])})"
    style = "bold" if line["kind"] == DECISION else ""
    teller.say(text, style, lead=f"{lead}{who}", later=indent)
    for evidence in line["evidence"]:
        teller.say(clean(evidence), "dim", lead=f"{indent}  - ", later=f"{indent}    ")


def _who(line: Plain, story: Plain, names: dict[str, str]) -> str:
    subject = line["subject"]
    if not subject or subject == story["subject"]:
        return ""
    if subject in names:
        return f"{names[subject]}: "
    return f"[{clean(subject)}] "


def _decided(decision: Plain, lead: str, indent: str, teller: Teller) -> None:
    """Tell one pass through the gate: the rule, each look, and what followed."""
    rule = clean(decision["rule"])
    meaning = RULES.get(rule, "")
    teller.say(
        f"NOMINATED by rule {rule}, number {decision['nomination']}{f', which says: {meaning}' if meaning else ''}",
        "bold",
        lead=lead,
        later=indent,
    )
    for look in decision["evidence"]:
        age = decision["at"] - look["at"]
        when = "then" if age <= 0 else f"{since(age)} before"
        detail = f": {clean(look['detail'])}" if look["detail"] else ""
        teller.say(
            f"{clean(look['via'])} said {clean(look['verdict'])}, {when}{detail}",
            "dim",
            lead=f"{indent}  - ",
            later=f"{indent}    ",
        )
    word, style = {
        "vetoed": ("NOT DESTROYED", "bold yellow"),
        "reaped": ("DESTROYED", "bold green"),
        "escaped": ("ESCAPE, DESTROYED", "bold red"),
    }.get(decision["outcome"], (clean(decision["outcome"]).upper(), "bold"))
    said = [look["detail"] for look in decision["evidence"]]
    new = decision if decision["reason"] not in said else {**decision, "reason": ""}
    fate = _kept(new) if decision["outcome"] == "vetoed" else _fate(new)
    teller.say(f"{word}: {fate}", style, lead=f"{indent}  => ", later=f"{indent}     ")


def _kept(decision: Plain) -> str:
    """Return why a nominated runner was not destroyed."""
    via, verdict, reason = (clean(decision[key]) for key in ("via", "verdict", "reason"))
    if verdict == "unknown":
        return (
            f"whether it works could not be told{f' ({reason})' if reason else ''}, and not knowing is never "
            f"idle; that protects it for {span(decision['bound_s'])}, of which {span(decision['age_s'])} had passed"
        )
    if verdict == "busy":
        why = VETOES.get(via, "it was seen at work")
        return f"{why} (busy, by {via})" + (f": {reason}" if reason else "")
    return reason or f"the verdict was {verdict}, by {via}"


def _fate(decision: Plain) -> str:
    """Return why a nominated runner was destroyed."""
    via, verdict, reason = (clean(decision[key]) for key in ("via", "verdict", "reason"))
    because = f"; {reason}" if reason else ""
    if decision["outcome"] == "escaped":
        return (
            f"not proven idle ({verdict}, by {via}), but past its bound: {span(decision['age_s'])} of at most "
            f"{span(decision['bound_s'])}{because}"
        )
    if verdict != "idle":
        return f"ended on purpose ({verdict}, by {via}){because}"
    looks = [clean(look["via"]) for look in decision["evidence"] if look["verdict"] == "idle"]
    return f"proven idle by {', then '.join(looks) or via}{because}"


def since(ms: int) -> str:
    """Return a duration for a column: `0.4s`, `8.5s`, `3m 20s`."""
    return f"{ms / 1_000:.1f}s" if 0 <= ms < 59_950 else span(ms / 1_000)
