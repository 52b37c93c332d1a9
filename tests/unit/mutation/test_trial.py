"""A change is tried on what is loaded: the function keeps its identity and gets other code."""

from __future__ import annotations

import sys
from importlib import util
from pathlib import Path

import pytest

from ephemerd.core import decision, line
from ephemerd.domain.verdict import Verdict
from tests.mutation import trial
from tests.mutation.mutants import Mutant, mutants


def change_of(module: str, text: str) -> Mutant:
    source = trial.source_of(module).read_text(encoding="utf-8")
    (found,) = [one for one in mutants(module, source) if text in one.name]
    return found


def test_every_module_of_the_core_is_there_to_be_changed() -> None:
    assert {"gate", "decision", "provisioning"} <= set(trial.all_modules())
    assert all(trial.source_of(name).is_file() for name in trial.all_modules())


def test_a_live_function_is_found_by_file_name_and_line() -> None:
    live = trial.functions()
    mutant = change_of("decision", "hard_bound: return policy.job_bound")
    assert mutant.function is not None
    assert live[str(trial.source_of("decision")), *mutant.function] is decision.hard_bound
    assert line.Line.__len__ in live.values()


def test_given_other_code_a_function_does_another_thing(monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = change_of("decision", "age_of: return 0 => return 1")
    function = decision.age_of
    monkeypatch.setattr(function, "__code__", function.__code__)  # given back at the end
    trial.give(mutant, trial.changed(mutant), trial.functions())
    assert decision.age_of is function
    assert function(Verdict.IDLE, None, 5) == 1  # type: ignore[arg-type]  # nothing of it is read


def test_a_change_at_import_is_made_by_the_import() -> None:
    mutant = change_of("decision", "escape=False, outcome='vetoed') => VETO = Ruling(destroys=True")
    finder = trial.Changed(mutant)
    assert finder.find_spec("ephemerd.core.gate") is None
    spec = finder.find_spec("ephemerd.core.decision")
    assert spec is not None
    changed = util.module_from_spec(spec)
    sys.modules["ephemerd.core.decision"], kept = changed, sys.modules["ephemerd.core.decision"]
    try:
        finder.exec_module(changed)
    finally:
        sys.modules["ephemerd.core.decision"] = kept
    assert changed.VETO.destroys
    assert not decision.VETO.destroys


# which tests, and in which order

OWN, OTHER = "tests/unit/core/test_line.py", "tests/unit/core/test_jobs.py"
SECONDS = {
    f"{OWN}::test_slow": 0.75,
    f"{OWN}::test_quick": 0.25,
    f"{OTHER}::test_near": 0.125,
    f"{OTHER}::test_far": 0.0625,
    f"{OTHER}::test_long": 0.375,
    f"{OWN}::test_endless": trial.SLOW + 1,
}


def trials(tmp_path: Path, seconds: float | None) -> tuple[trial.Trials, Mutant]:
    """Every test but the one far away reaches the change."""
    source = trial.source_of("line").read_text(encoding="utf-8")
    change = next(one for one in mutants("line", source) if one.function is not None)
    plan = {"folder": str(tmp_path), "workers": 1, "modules": ["line"], "functions": True}
    found = trial.Trials(plan | {"seconds": seconds, "tried": [], "measure": []})
    names = [name for name in SECONDS if "far" not in name]
    found.reach = {"seconds": SECONDS, "lines": {"line": {str(change.line): names}}}
    return found, change


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        (None, ["test_quick", "test_slow", "test_near", "test_long"]),
        (1.125, ["test_quick", "test_slow", "test_near"]),
        (0.75, ["test_quick", "test_near", "test_long"]),
        (0.15, ["test_near"]),
    ],
)
def test_own_tests_come_first_and_the_quick_ones_before_the_slow(
    tmp_path: Path, seconds: float | None, chosen: list[str]
) -> None:
    found, change = trials(tmp_path, seconds)
    assert [name.partition("::")[2] for name in found.tests_for(change)] == chosen


def test_own_tests_that_do_not_reach_a_change_come_last(tmp_path: Path) -> None:
    """A cache may be filled by the first test that wants what it keeps, so that no other reaches its making."""
    found, change = trials(tmp_path, 1.125)
    found.reach = {"seconds": SECONDS, "lines": {"line": {str(change.line): [f"{OTHER}::test_near"]}}}
    assert [name.partition("::")[2] for name in found.tests_for(change)] == [
        "test_near",
        "test_quick",
        "test_slow",
    ]


def test_what_noticed_a_change_of_the_function_is_tried_first_the_next_time(tmp_path: Path) -> None:
    found, change = trials(tmp_path, 1.125)
    before = found.tests_for(change)
    found.hits[change.module, change.function].update({f"{OTHER}::test_near": 1, f"{OTHER}::test_long": 9})
    after = found.tests_for(change)
    assert next(iter(after)) == f"{OTHER}::test_near"
    assert after == before, "which tests are run does not depend on other trials"


def test_a_forked_process_says_which_test_failed(tmp_path: Path) -> None:
    found, change = trials(tmp_path, None)
    one = trial.Trial(change, found.tests_for(change))
    assert one.noticed_by() == ""
    one.say(f"{OTHER}::test_near")
    assert one.noticed_by() == f"{OTHER}::test_near"


def test_what_changed_files_reach_takes_the_place_of_what_they_reached() -> None:
    old = {
        "seconds": {f"{OWN}::a": 1.0, f"{OWN}::gone": 1.0, f"{OTHER}::b": 2.0},
        "lines": {"line": {"5": [f"{OWN}::a", f"{OTHER}::b"], "6": [f"{OWN}::gone"]}},
    }
    new = {"seconds": {f"{OWN}::a": 3.0}, "lines": {"line": {"6": [f"{OWN}::a"], "7": [f"{OWN}::a"]}}}
    assert trial.merged(old, new, ["test_line.py"]) == {
        "seconds": {f"{OTHER}::b": 2.0, f"{OWN}::a": 3.0},
        "lines": {"line": {"5": [f"{OTHER}::b"], "6": [f"{OWN}::a"], "7": [f"{OWN}::a"]}},
    }


def test_what_tests_reach_is_packed_and_back_and_only_what_is_wanted() -> None:
    reach = {"seconds": {"a": 1.0, "b": 2.0}, "lines": {"line": {"5": ["b", "a"]}, "jobs": {"7": ["b"]}}}
    assert trial.unpacked(trial.packed(reach), ["line", "jobs"]) == reach
    assert trial.unpacked(trial.packed(reach), ["jobs"])["lines"] == {"jobs": {"7": ["b"]}}


def spin() -> None:
    while True:
        pass


def test_a_test_that_takes_too_long_is_ended() -> None:
    with pytest.raises(trial.TooSlow), trial.ended_after(0.02) as ended:
        spin()
    assert len(ended) == 1
    with trial.ended_after(60) as ended:
        pass
    assert ended == []
