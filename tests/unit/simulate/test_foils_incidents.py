"""The recorded kills reappear under the design of their time, at their instant, and under `gate` they do not."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from ephemerd.testing.simulate.foils import POLICIES
from ephemerd.testing.simulate.incidents import Report, Variant, replay_adopt

JOURNALS = Path(__file__).parents[2] / "data" / "incidents"
JULY = "2026-07-10-intent-keyed-kill.jsonl"
AUGUST = "2026-08-12-same-label-burst.jsonl"
VETOES = "2026-08-13-three-vetoes-and-late-start.jsonl"
MODES = [Variant(), Variant(follow=True), Variant(with_offer=True)]
modes = pytest.mark.parametrize("mode", MODES, ids=["probed", "followed", "offer seen"])


def replayed(journal: str, policy: str, mode: Variant | None = None) -> Report:
    return replay_adopt(JOURNALS / journal, mode, policy=POLICIES[policy])


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


@modes
def test_the_kill_of_2026_07_10_under_intent(mode):
    report = replayed(JULY, "intent", mode)
    assert report.killed == [(at("2026-07-10T12:20:16.000Z"), "kind_cope", 86444761252)]


@modes
@pytest.mark.parametrize("policy", ["sweep", "veto"])
def test_it_is_mended_by_going_by_the_assignment(policy, mode):
    assert replayed(JULY, policy, mode).killed == []


@modes
def test_the_kill_of_2026_08_12_under_sweep(mode):
    report = replayed(AUGUST, "sweep", mode)
    assert report.killed == [(at("2026-08-12T23:39:48.403Z"), "warm_ride", 94297174551)]


@modes
def test_it_is_mended_by_the_veto(mode):
    report = replayed(AUGUST, "veto", mode)
    assert report.killed == []
    (first, *_) = [decision for decision in report.decisions if decision.runner == "warm_ride"]
    assert (first.outcome, first.verdict, first.via) == ("vetoed", "busy", "probe")


@modes
def test_three_vetoes_and_the_honest_limit_of_2026_08_13_under_veto(mode):
    """Three were saved by the worker that was seen; the fourth had a job and no worker yet."""
    report = replayed(VETOES, "veto", mode)
    decided = {decision.runner: decision.outcome for decision in report.decisions}
    assert decided == {
        "steady_hopper": "vetoed",
        "sure_darwin": "vetoed",
        "sure_sagan": "vetoed",
        "sharp_ada": "reaped",
    }
    # The probe answers 10 ms after the sweep.
    assert report.killed == [(at("2026-08-13T01:21:01.443Z"), "sharp_ada", 94313900001)]


@modes
@pytest.mark.parametrize("journal", [JULY, AUGUST, VETOES])
def test_none_of_them_under_gate(journal, mode):
    report = replayed(journal, "gate", mode)
    assert report.killed == []
    assert [text for text, held in report.expectations if not held] == []


@modes
@pytest.mark.parametrize("journal", [JULY, AUGUST, VETOES])
@pytest.mark.parametrize("check", ["probe", "log", "fence", "settle", "revalidate"])
def test_nor_with_one_check_taken_out(journal, check, mode):
    """The incidents of the past do not tell the checks apart: several catch each of them."""
    assert replayed(journal, f"gate-no-{check}", mode).killed == []
