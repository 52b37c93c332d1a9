"""The recorded incidents, replayed on the core: what each journal expects holds, under its variants too."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from ephemerd.domain.job import JobStatus
from ephemerd.testing.simulate.incidents import Adoption, Line, Report, Variant, read, replay_adopt

JOURNALS = Path(__file__).parents[2] / "data" / "incidents"
KILL = JOURNALS / "2026-07-10-intent-keyed-kill.jsonl"
BURST = JOURNALS / "2026-08-12-same-label-burst.jsonl"
VETOES = JOURNALS / "2026-08-13-three-vetoes-and-late-start.jsonl"
CONTROL = JOURNALS / "control-idle-spare.jsonl"
ADOPTED = [KILL, BURST, VETOES, CONTROL]

WAYS = {
    "probe alone": Variant(),
    "followed": Variant(follow=True),
    "offer seen": Variant(with_offer=True),
    "offer followed": Variant(with_offer=True, follow=True),
    "no probe": Variant(probes=False),
    "no probe, followed": Variant(probes=False, follow=True),
}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
MAIN = ("probe alone", "followed", "no probe")
main_ways = pytest.mark.parametrize("way", [WAYS[name] for name in MAIN], ids=MAIN)


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def missed(report: Report, *, apart_from: str = "") -> list[str]:
    """The expectations that did not hold, but those whose text matches `apart_from`, and every problem."""
    texts: list[str] = [text for text, held in report.expectations if not held]
    return [text for text in texts if not (apart_from and re.search(apart_from, text))] + report.problems


def lines_of(path: Path) -> list[Line]:
    return read(path)[1]


def in_order(lines: list[Line]) -> list[Line]:
    return sorted(lines, key=lambda line: line["ms"])


def sweep(at: int) -> Line:
    return {"kind": "sweep_ran", "ms": at}


def test_every_journal_that_is_adopted_is_here():
    found = sorted(path for path in JOURNALS.glob("*.jsonl") if read(path)[0]["replay"] == "adopt")
    assert found == sorted(ADOPTED)


@ways
@pytest.mark.parametrize("path", ADOPTED, ids=lambda path: path.stem)
def test_as_recorded(path, way):
    report = replay_adopt(path, way)
    assert missed(report) == []
    assert len(report.expectations) == len(read(path)[0]["expect"])
    assert report.killed == []


@pytest.mark.parametrize("path", ADOPTED, ids=lambda path: path.stem)
def test_probe_that_never_answers_costs_a_slot_and_no_job(path):
    """Unknown is a fault where the runtime can probe: nothing goes before the hard bound."""
    report = replay_adopt(path, Variant(probe_fails=True))
    assert report.killed == []
    assert missed(report, apart_from="slim_hopper never|ctl_idle is|nothing|no environment") == []


# 2026-07-10: completion of job A destroys the runner started for A while it executes job B


def anonymous() -> list[Line]:
    lines = lines_of(KILL)
    for line in lines:
        if line["kind"] in ("job_in_progress", "job_completed"):
            line["runner"] = None
    return lines


@ways
def test_forge_that_names_no_runners(way):
    assert missed(replay_adopt(KILL, way, anonymous())) == []


@ways
def test_in_progress_in_reverse_order(way):
    lines = lines_of(KILL)
    first, second = [line for line in lines if line["kind"] == "job_in_progress"]
    first["ms"], second["ms"] = second["ms"], first["ms"]
    assert missed(replay_adopt(KILL, way, in_order(lines))) == []


@ways
def test_both_in_progress_dropped(way):
    lines = [line for line in lines_of(KILL) if line["kind"] != "job_in_progress"]
    assert missed(replay_adopt(KILL, way, lines)) == []


# 2026-08-12: a sibling's in_progress makes the busy runner look surplus

FROM, TO = ms("2026-08-12T23:39:48.000Z"), ms("2026-08-12T23:46:00.000Z")


@main_ways
@pytest.mark.parametrize(
    "at",
    [None, *range(FROM, FROM + 3_000, 300), *range(FROM + 5_000, TO, 41_000), TO],
    ids=lambda at: "never" if at is None else str(at - FROM),
)
def test_in_progress_at_any_time_or_never(way, at):
    lines = []
    for line in lines_of(BURST):
        if line["kind"] == "job_in_progress" and line["job"] == 94297174551:
            if at is None:
                continue
            line["ms"] = at
        lines.append(line)
    assert missed(replay_adopt(BURST, way, in_order(lines))) == []


@ways
def test_burst_with_a_grace_of_five_seconds(way):
    assert missed(replay_adopt(BURST, replace(way, grace_s=5))) == []


@ways
def test_burst_with_a_sweep_every_tenth_of_a_second(way):
    lines = lines_of(BURST)
    start = ms("2026-08-12T23:39:40Z")
    lines += [sweep(at) for at in range(start, start + 12_001, 100)]
    report = replay_adopt(BURST, way, in_order(lines))
    assert missed(report) == []


def test_busy_runner_is_nominated_and_the_probe_speaks_for_it():
    """The zero is the gate's doing: with a grace of 5 s and no in_progress it is nominated in mid-job."""
    lines = [x for x in lines_of(BURST) if x["kind"] != "job_in_progress" or x["runner"] != "warm_ride"]
    report = replay_adopt(BURST, Variant(grace_s=5), lines)
    assert missed(report) == []
    vetoes = [d for d in report.decisions if d.runner == "warm_ride"]
    assert (vetoes[0].rule, vetoes[0].outcome, vetoes[0].verdict) == ("expired", "vetoed", "busy")
    assert ms("2026-08-12T23:39:47.900Z") <= vetoes[0].at <= ms("2026-08-12T23:46:20.300Z")


# 2026-08-13: three vetoes within a second of the in_progress, one late start

ASSIGNED, FORKED = ms("2026-08-13T01:21:00.900Z"), ms("2026-08-13T01:21:01.620Z")


@main_ways
@pytest.mark.parametrize("at", range(ASSIGNED, FORKED + 1, 60), ids=lambda at: f"+{at - ASSIGNED}")
def test_late_start_with_the_sweep_at_any_instant(way, at):
    lines = lines_of(VETOES)
    (fatal,) = [line for line in lines if line["kind"] == "sweep_ran" and line["ms"] > ASSIGNED]
    fatal["ms"] = at
    assert missed(replay_adopt(VETOES, way, in_order(lines))) == []


@main_ways
@pytest.mark.parametrize("fence", ["500", "timeout"])
@pytest.mark.parametrize("at", [ASSIGNED, ASSIGNED + 533, FORKED - 1])
def test_late_start_while_the_forge_gives_no_answer(way, fence, at):
    lines = lines_of(VETOES)
    (fatal,) = [line for line in lines if line["kind"] == "sweep_ran" and line["ms"] > ASSIGNED]
    fatal["ms"] = at
    report = replay_adopt(VETOES, replace(way, fence=fence), in_order(lines))
    assert missed(report) == []


def test_late_start_is_saved_by_the_fence_alone():
    """The probe looks at 01:21:01.433, finds no worker, and is right."""
    report = replay_adopt(VETOES)
    first = next(d for d in report.decisions if d.runner == "sharp_ada")
    assert (first.outcome, first.verdict, first.via) == ("vetoed", "busy", "fence")
    assert [evidence.verdict.value for evidence in first.evidence] == ["idle", "busy"]


@main_ways
def test_job_assigned_only_later_lets_the_idle_runner_go(way):
    """Idle, and the forge agrees: it may go, and a forge that agreed gives it no job any more.

    So the assignment at 01:21:05 falls away with all that followed, and the job has to get another runner.
    """
    lines = [
        line
        for line in lines_of(VETOES)
        if line["kind"] == "sweep_ran"
        or line["ms"] < ASSIGNED
        or (line.get("runner") != "sharp_ada" and line.get("job") != 94313900001)
    ]
    replayed = Adoption(VETOES, way, lines)
    report = replayed.run()
    assert missed(report, apart_from="sharp_ada|94313900001") == []
    (gone,) = [at for at, name in report.destroyed if name == "sharp_ada"]
    assert ms("2026-08-13T01:21:06Z") <= gone < ms("2026-08-13T01:21:20Z")
    (decision,) = [d for d in report.decisions if d.runner == "sharp_ada" and d.outcome == "reaped"]
    assert (decision.verdict, decision.rule) == ("idle", "expired")
    (job,) = [job for job in replayed.core.state.jobs.values() if job.key.id == 94313900001]
    assert job.status is JobStatus.QUEUED
    (group,) = replayed.core.state.index.groups.values()
    assert group.unmatched == 1


# the control: one really is idle and must go


def test_without_a_probe_the_idle_one_goes_by_flag_and_accepted_fence_together():
    report = replay_adopt(CONTROL, Variant(probes=False))
    assert missed(report) == []
    (decision,) = [d for d in report.decisions if d.runner == "ctl_idle" and d.outcome == "reaped"]
    assert [(e.via.value, e.verdict.value) for e in decision.evidence] == [
        ("forge", "unknown"),
        ("fence", "idle"),
        ("forge", "idle"),
    ]
    assert [name for _, name in report.destroyed] == ["ctl_idle"]
