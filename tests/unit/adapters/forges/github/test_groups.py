"""A runner group by its name: what is chosen, for how long it is believed, what is said where it is missing."""

from __future__ import annotations

import json

import pytest

from ephemerd.adapters.forges.github.groups import KEPT_S, Group, Groups, list_groups, read_groups
from ephemerd.adapters.kit.answer import Answer
from ephemerd.domain.ids import Scope
from ephemerd.ports.errors import Refused, RetryLater

ORG, REPO = Scope("github", "org:acme"), Scope("github", "repo:acme/app")
FOUND = [Group(5, "Fast", False, True), Group(3, "Everyone", True, False)]


@pytest.mark.parametrize(("name", "number"), [("Fast", 5), ("fAST", 5), ("Default", 3), ("Everyone", 3)])
def test_a_group_is_chosen_by_name_without_case_and_default_means_the_default_one(name, number):
    groups = Groups(name)
    assert groups.known(ORG, 0.0) is None
    assert groups.choose(ORG, FOUND, 100.0).id == number
    assert groups.known(ORG, 100.0 + KEPT_S) == number
    assert groups.known(ORG, 101.0 + KEPT_S) is None


def test_a_group_that_is_called_default_goes_before_the_one_that_is_marked_so():
    assert Groups().choose(ORG, [*FOUND, Group(9, "Default", False, None)], 0.0).id == 9


def test_a_repository_has_one_group_and_is_never_asked():
    assert Groups("Fast").known(REPO, 0.0) == 1


def test_after_a_refusal_it_is_asked_anew():
    groups = Groups("Fast")
    groups.choose(ORG, FOUND, 0.0)
    groups.forget(ORG)
    groups.forget(REPO)
    assert groups.known(ORG, 0.0) is None


def test_fp_20_a_group_that_is_missing_is_said_with_those_there_are():
    with pytest.raises(Refused, match=r"no runner group 'Slow'.*one of: Fast, Everyone"):
        Groups("Slow").choose(ORG, FOUND, 0.0)


def test_fp_20_whether_a_group_lets_public_repositories_in_is_read():
    def entry(**more: object) -> dict[str, object]:
        return {"id": 1, "name": "x", **more}

    body = {
        "runner_groups": [entry(allows_public_repositories=False, default=True), entry(), entry(default="?")]
    }
    found = read_groups(list_groups(ORG), Answer(200, {}, json.dumps(body).encode()))
    assert found == [Group(1, "x", True, False), Group(1, "x", False, None), Group(1, "x", False, None)]


@pytest.mark.parametrize("body", [b"", b"[]", b'{"runner_groups": [{"id": "1", "name": "x"}]}'])
def test_a_list_that_is_not_understood_is_for_later(body):
    with pytest.raises(RetryLater, match="not understood"):
        read_groups(list_groups(ORG), Answer(200, {}, body))
