"""A change is tried on what is loaded: the function keeps its identity and gets other code."""

from __future__ import annotations

import sys
from importlib import util

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
    assert {"gate", "decision", "plan"} <= set(trial.all_modules())
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
    trial.give(mutant, trial.functions())
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
