"""From a probe's report to a verdict: idle needs everything read and everything quiet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerd.core.judge import judge, never_at_work, no_report
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.verdict import Files, Listing, Verdict, Via
from tests.unit.core.build import MINUTE, report

NOW = 100 * MINUTE
LIFE = 15 * MINUTE
FRESH, STALE = NOW - LIFE + 1, NOW - LIFE


def verdict_of(**changes):
    evidence = judge(report(**changes), NOW, LIFE)
    assert evidence.at == NOW
    return evidence.verdict, evidence.via


@pytest.mark.parametrize(
    ("changes", "verdict", "via"),
    [
        ({}, Verdict.IDLE, Via.PROBE),
        ({"listening": False}, Verdict.IDLE, Via.PROBE),
        ({"listener_alive": False}, Verdict.IDLE, Via.PROBE),
        ({"workers": 1}, Verdict.BUSY, Via.PROBE),
        ({"workers": 3}, Verdict.BUSY, Via.PROBE),
        ({"workers": 1, "listener_alive": False}, Verdict.BUSY, Via.PROBE),
        ({"workers": 1, "listing": Listing.PARTIAL}, Verdict.BUSY, Via.PROBE),
        ({"workers": 1, "files": Files.UNREADABLE, "ended_at": NOW}, Verdict.BUSY, Via.PROBE),
        ({"listing": Listing.FAILED}, Verdict.UNKNOWN, Via.PROBE),
        ({"listing": Listing.EMPTY}, Verdict.UNKNOWN, Via.PROBE),
        ({"listing": Listing.PARTIAL}, Verdict.UNKNOWN, Via.PROBE),
        ({"files": Files.UNREADABLE}, Verdict.UNKNOWN, Via.PROBE),
        ({"strangers": 1}, Verdict.UNKNOWN, Via.PROBE),
        ({"offered_at": FRESH}, Verdict.BUSY, Via.LOG),
        ({"offered_at": STALE}, Verdict.IDLE, Via.PROBE),
        ({"offered_at": STALE, "announced_at": STALE}, Verdict.BUSY, Via.LOG),
        ({"announced_at": 0}, Verdict.BUSY, Via.LOG),
        ({"announced_at": 0, "listing": Listing.FAILED}, Verdict.BUSY, Via.LOG),
        ({"offered_at": FRESH, "files": Files.UNREADABLE}, Verdict.BUSY, Via.LOG),
        ({"announced_at": 5, "ended_at": 4}, Verdict.BUSY, Via.LOG),
        ({"announced_at": 5, "ended_at": 5}, Verdict.IDLE, Via.PROBE),
        ({"offered_at": 3, "announced_at": 5, "ended_at": 9}, Verdict.IDLE, Via.PROBE),
        ({"offered_at": FRESH, "announced_at": 5, "ended_at": 9}, Verdict.BUSY, Via.LOG),
        ({"offered_at": STALE, "announced_at": 5, "ended_at": 9}, Verdict.IDLE, Via.PROBE),
        ({"ended_at": 9}, Verdict.IDLE, Via.PROBE),
    ],
    ids=str,
)
def test_verdict_of_a_report(changes, verdict, via):
    assert verdict_of(**changes) == (verdict, via)


@given(
    st.sampled_from(Listing),
    st.integers(0, 2),
    st.integers(0, 2),
    st.sampled_from(Files),
    st.none() | st.integers(0, NOW),
    st.none() | st.integers(0, NOW),
    st.none() | st.integers(0, NOW),
)
def test_idle_only_where_everything_is_read_and_quiet(
    listing, workers, strangers, files, offered, announced, ended
):
    verdict, _ = verdict_of(
        listing=listing,
        workers=workers,
        strangers=strangers,
        files=files,
        offered_at=offered,
        announced_at=announced,
        ended_at=ended,
    )
    open_job = announced is not None and (ended is None or ended < announced)
    if workers or open_job:
        assert verdict is Verdict.BUSY
    if verdict is Verdict.IDLE:
        assert (listing, workers, strangers, files) == (Listing.COMPLETE, 0, 0, Files.HEALTHY)
        assert not open_job
        assert offered is None or offered <= STALE or (ended is not None and ended >= offered)


def test_evidence_says_what_was_seen():
    assert "a worker runs" in judge(report(workers=1), NOW, LIFE).detail
    assert judge(report(workers=1, detail="pid 7"), NOW, LIFE).detail == "process: pid 7"
    assert "process list is partial" in judge(report(listing=Listing.PARTIAL), NOW, LIFE).detail
    assert "2 process(es) beside the listener" in judge(report(strangers=2), NOW, LIFE).detail
    assert "offered 1 min ago" in judge(report(offered_at=NOW - MINUTE), NOW, LIFE).detail


def test_a_probe_that_could_not_look_is_unknown():
    evidence = no_report(Fault(Remedy.BROKEN, "the engine is gone"), 7)
    assert (evidence.verdict, evidence.via, evidence.at) == (Verdict.UNKNOWN, Via.PROBE, 7)
    assert "the engine is gone" in evidence.detail
    assert no_report(None, 7).verdict is Verdict.UNKNOWN
    assert no_report(None, 7).detail == "probe failed: no answer"


@pytest.mark.parametrize(
    ("changes", "never"),
    [
        ({}, True),
        ({"files": Files.UNREADABLE, "listening": False}, True),
        ({"listing": Listing.PARTIAL}, False),
        ({"workers": 1}, False),
        ({"offered_at": 5}, False),
        ({"announced_at": 5}, False),
    ],
    ids=str,
)
def test_never_at_work_needs_a_whole_list_without_a_worker_and_no_sign_of_a_job(changes, never):
    assert never_at_work(report(**changes)) is never
