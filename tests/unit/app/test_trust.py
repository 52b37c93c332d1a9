"""How far the silence of deliveries is believed."""

from __future__ import annotations

import pytest

from ephemerd.app.trust import (
    BELIEVED_AFTER,
    DOUBTED_FOR,
    GRACE,
    HEARD_WITHIN,
    MOST_UNTOLD,
    READ_WITHIN,
    Standing,
    Trust,
)
from ephemerd.domain.ids import JobKey, Scope

T0 = 1_796_000_000_000
EVERY = 300_000
ORG, OTHER = Scope("github", "org:acme"), Scope("github", "repo:other/tool")
JOB = JobKey("github", "acme/app", 1)
NONE, QUIET, FLOWING = Standing.NONE, Standing.QUIET, Standing.FLOWING


@pytest.fixture
def trust() -> Trust:
    """The list of both scopes was first read long ago, and not since."""
    made = Trust()
    made.configure(EVERY, [ORG, OTHER])
    made.read_back([ORG, OTHER], T0 - 2 * BELIEVED_AFTER * EVERY, whole=True)
    return made


@pytest.mark.parametrize("again", [False, True])
def test_a_scope_is_believed_once_nothing_was_missing_for_a_while(again):
    """After a start, and where the list could not be read meanwhile."""
    trust = Trust()
    trust.configure(EVERY, [ORG])
    if again:
        trust.read_back([ORG], T0 - 2 * BELIEVED_AFTER * EVERY, whole=True)
        trust.closed([ORG])
    for number in range(BELIEVED_AFTER + 1):
        trust.read_back([ORG], T0 + number * EVERY, whole=True)
        trust.heard(JOB, T0 + number * EVERY)
    assert trust.of(ORG, T0 + BELIEVED_AFTER * EVERY - 1) is NONE
    assert trust.of(ORG, T0 + BELIEVED_AFTER * EVERY) is FLOWING


def test_without_the_forge_s_list_nothing_vouches_for_a_scope(trust):
    trust.heard(JOB, T0)
    assert trust.of(ORG, T0) is NONE
    trust.read_back([ORG], T0, whole=True)
    assert trust.of(ORG, T0) is FLOWING
    assert trust.of(OTHER, T0) is NONE


def test_up_to_when_a_scope_is_vouched_for(trust):
    assert trust.since(ORG, T0) == 0
    trust.read_back([ORG], T0, whole=True)
    assert trust.since(ORG, T0 + EVERY) == T0
    assert trust.since(ORG, T0 + READ_WITHIN * EVERY + 1) == 0
    assert trust.since(Scope("github", "org:unknown"), T0) == 0


def test_the_list_vouches_for_two_intervals_and_deliveries_flow_for_one(trust):
    trust.read_back([ORG], T0, whole=True)
    assert trust.of(ORG, T0) is QUIET
    trust.heard(JOB, T0)
    assert trust.of(ORG, T0 + HEARD_WITHIN * EVERY) is FLOWING
    assert trust.of(ORG, T0 + HEARD_WITHIN * EVERY + 1) is QUIET
    trust.heard(JOB, T0 + 2 * EVERY)
    assert trust.of(ORG, T0 + READ_WITHIN * EVERY) is FLOWING
    assert trust.of(ORG, T0 + READ_WITHIN * EVERY + 1) is NONE


def test_a_delivery_speaks_for_each_scope_that_it_is_of(trust):
    trust.configure(EVERY, [ORG, OTHER, Scope("github", "repo:acme/app")])
    for scope in (ORG, OTHER):
        trust.read_back([scope, Scope("github", "org:unknown")], T0, whole=True)
    trust.heard(JobKey("github", "Acme/App", 1), T0)
    assert (trust.of(ORG, T0), trust.of(OTHER, T0)) == (FLOWING, QUIET)


def test_a_list_that_cannot_be_read_vouches_no_more(trust):
    trust.read_back([ORG], T0, whole=True)
    trust.closed([ORG])
    assert trust.of(ORG, T0) is NONE


def test_a_delivery_that_could_not_be_fetched_is_repaired_by_listings(trust):
    trust.read_back([ORG], T0, whole=False)
    trust.read_back([ORG], T0 + DOUBTED_FOR * EVERY, whole=True)
    assert trust.of(ORG, T0 + DOUBTED_FOR * EVERY - 1) is NONE
    assert trust.of(ORG, T0 + DOUBTED_FOR * EVERY) is QUIET


def test_a_job_that_a_listing_shows_first_is_no_reason_for_doubt_where_its_delivery_follows(trust):
    trust.read_back([ORG], T0, whole=True)
    trust.untold(JOB, T0)
    assert trust.of(ORG, T0 + GRACE - 1) is QUIET
    trust.heard(JobKey("github", "Acme/APP", 1), T0 + GRACE - 1)
    assert trust.of(ORG, T0 + GRACE) is FLOWING


def test_a_job_that_no_delivery_ever_tells_of_is_one(trust):
    trust.read_back([ORG], T0, whole=True)
    trust.heard(JobKey("github", "acme/app", 2), T0)
    trust.untold(JOB, T0)
    trust.untold(JOB, T0 + GRACE - 1)
    assert trust.of(ORG, T0 + GRACE) is NONE
    later = T0 + GRACE + DOUBTED_FOR * EVERY
    trust.read_back([ORG], later, whole=True)
    assert trust.of(ORG, later - 1) is NONE
    assert trust.of(ORG, later) is QUIET, "and then it is tried anew"


def test_what_is_untold_is_bounded_and_of_the_scope_s_own(trust):
    for number in range(2 * MOST_UNTOLD):
        trust.untold(JobKey("github", "acme/app", number + 1), T0)
    trust.read_back([ORG, OTHER], T0 + GRACE, whole=True)
    assert trust.of(ORG, T0 + GRACE) is NONE
    assert trust.of(OTHER, T0 + GRACE) is QUIET


def test_a_scope_that_is_polled_is_never_vouched_for(trust):
    trust.read_back([ORG], T0, whole=True)
    trust.configure(EVERY, [OTHER])
    assert trust.of(ORG, T0) is NONE
    trust.configure(EVERY, [ORG, OTHER])
    assert trust.of(ORG, T0) is NONE, "what was known of it before is old"
