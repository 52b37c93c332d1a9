"""Label sets: `label_keys.json` row by row."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerd.domain.labels import SEPARATOR, class_key, normalise, satisfies, usable

DATA = json.loads((Path(__file__).parents[2] / "data" / "label_keys.json").read_text("utf-8"))
LABELS = st.lists(st.sampled_from(["Linux", "linux ", "x64", "", " ", "gpu", "GPU", "ä", "Ä"]), max_size=6)


def test_data_is_whole():
    assert len(DATA["keys"]) == 42
    assert len(DATA["matches"]) == 32


@pytest.mark.parametrize("row", DATA["keys"], ids=lambda row: str(row["id"]))
def test_class_key(row):
    assert class_key(row["labels"]) == row["key"]


@pytest.mark.parametrize("row", DATA["matches"], ids=lambda row: str(row["id"]))
def test_subset_match(row):
    assert satisfies(row["runner_labels"], row["job_labels"]) is row["matches"]


@given(LABELS, st.randoms(use_true_random=False))
def test_order_doubles_and_blanks_mean_nothing(labels, rng):
    mixed = [*labels, *labels, " "]
    rng.shuffle(mixed)
    assert class_key(mixed) == class_key(labels)
    assert normalise(normalise(labels)) == normalise(labels)


@given(LABELS, LABELS)
def test_satisfies_is_the_subset_rule(runner, job):
    assert satisfies(runner, job) == (set(normalise(job)) <= set(normalise(runner)))
    assert satisfies([*runner, *job], job)


def test_a_label_that_could_forge_a_key_is_not_usable():
    assert usable("linux")
    assert usable(f"linux{SEPARATOR}")
    assert not usable(f"linux{SEPARATOR}x64")
