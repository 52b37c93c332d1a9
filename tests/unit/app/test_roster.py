"""Which repositories there are and which are looked at next; no forge, no clock but the test's."""

from __future__ import annotations

from ephemerd.app.ledger import Judge, Ledger
from ephemerd.app.roster import (
    FAILED_FOR,
    GLANCE_EVERY,
    IDLE_WHOLE_EVERY,
    LIST_EVERY,
    LIST_EVERY_FLOWING,
    LIVELY_FOR,
    MOST_STRAYS,
    SPARING,
    STRAY_FOR,
    STRETCH,
    STRETCH_ALONE,
    TRUSTED_WHOLE_EVERY,
    WHOLE_EVERY,
    Entry,
    Kind,
    Pace,
    Roster,
)
from ephemerd.app.spending import Ease, Spending
from ephemerd.app.trust import Standing
from ephemerd.domain.ids import Scope
from ephemerd.domain.pool import HOUR, MINUTE, SECOND
from ephemerd.ports.forge import Audit, Glance, JobsSeen, Look, RepositorySeen, RunSeen

ORG = Scope("github", "org:acme")
T0 = 1_796_000_000_000
QUIET = JobsSeen((), complete=True, asked=4, charged=0)
BUSY = JobsSeen((), complete=True, open=2, asked=6, charged=2)


def seen(number: int, name: str = "", **fields: object) -> RepositorySeen:
    return RepositorySeen(name or f"Acme/r{number}", number, public=False, **fields)  # type: ignore[arg-type]


def roster(*found: RepositorySeen, pages: int = 1, now: int = T0) -> Roster:
    made = Roster.of(ORG)
    made.take_in(found, pages, lambda one: True, now)
    return made


def read(made: Roster, now: int, *names: str) -> None:
    for entry in made.entries.values():
        if not names or entry.name in names:
            entry.take_look(now, Look.WHOLE, QUIET)
            entry.take_glance(now, Glance(True, 1))


def chosen(
    made: Roster, now: int, spending: Spending | None = None, free: bool = True
) -> list[tuple[str, Kind]]:
    if spending is None:
        spending = Spending()
        spending.begin(now, None)
    return [(entry.name, kind) for entry, kind in made.choose(lambda: now, spending, lambda name: free)]


# -- which there are ----------------------------------------------------------------------------------------


def test_the_list_is_asked_for_again_by_its_length():
    assert roster(seen(1)).due == T0 + LIST_EVERY
    assert roster(seen(1), pages=7).due == T0 + 7 * LIST_EVERY
    assert roster(pages=0).due == T0 + LIST_EVERY


def test_what_may_not_use_the_machines_and_what_is_at_rest_is_not_asked_about():
    made = Roster.of(ORG)
    made.take_in([seen(1), seen(2), seen(3, dormant=True)], 1, lambda one: one.id != 2, T0)
    assert list(made.entries) == ["acme/r1"]
    assert made.names == {"acme/r1", "acme/r2", "acme/r3"}


def test_a_new_repository_is_read_first_of_all_those_that_are_quiet():
    made = roster(seen(1), seen(2))
    read(made, T0)
    later = T0 + 2 * MINUTE
    made.take_in([seen(1), seen(2), seen(3)], 1, lambda one: True, later)
    assert chosen(made, later)[0] == ("Acme/r3", Kind.FIRST)
    assert made.as_of(later) is None


def test_a_repository_that_was_pushed_to_is_lively():
    made = roster(seen(1, pushed="a"), seen(2, pushed="a"))
    read(made, T0)
    made.take_in([seen(1, pushed="b"), seen(2, pushed="a")], 1, lambda one: True, T0 + MINUTE)
    assert made.entries["acme/r1"].is_lively(T0 + 2 * MINUTE)
    assert not made.entries["acme/r2"].is_lively(T0 + 2 * MINUTE)
    assert not made.entries["acme/r1"].is_lively(T0 + MINUTE + LIVELY_FOR)


def test_a_renamed_repository_keeps_what_is_known_of_it_and_its_old_name_is_settled():
    made = roster(seen(1), seen(2))
    read(made, T0)
    made.take_in([seen(1, "Acme/Fresh"), seen(2)], 1, lambda one: True, T0 + MINUTE)
    assert made.entries["acme/fresh"].looked == T0
    assert made.entries["acme/fresh"].name == "Acme/Fresh"
    assert made.covered([], T0 + MINUTE) == ("acme/r1",)
    assert made.covered([], T0 + MINUTE) == ()


def test_a_removed_or_archived_repository_is_asked_about_once_more_by_its_jobs():
    made = roster(seen(1), seen(2), seen(3))
    made.take_in([seen(1, dormant=True), seen(3)], 1, lambda one: True, T0)
    assert made.covered([made.entries["acme/r3"]], T0) == ("acme/r1", "acme/r2", "acme/r3")


# -- what was heard -----------------------------------------------------------------------------------------


def test_what_is_heard_of_a_job_makes_its_repository_lively():
    made = roster(seen(1))
    read(made, T0)
    made.notice("acme/R1", T0)
    assert chosen(made, T0 + SECOND)[0] == ("Acme/r1", Kind.LIVELY)


def test_jobs_of_repositories_that_are_never_read_are_asked_about_now_and_then():
    made = Roster.of(ORG)
    made.take_in([seen(1)], 1, lambda one: False, T0)
    made.notice("acme/r1", T0)
    assert made.covered([], T0 + STRAY_FOR - 1) == ()
    assert made.covered([], T0 + STRAY_FOR) == ("acme/r1",)
    assert made.covered([], T0 + 2 * STRAY_FOR) == ()
    made.notice("acme/r1", T0 + STRAY_FOR)
    assert made.covered([], T0 + 2 * STRAY_FOR) == ("acme/r1",)


def test_an_unknown_repository_has_the_list_read_again_soon_but_never_more_often_than_it_may():
    made = roster(seen(1), pages=9)
    made.notice("acme/r1", T0)
    made.notice("acme/new", T0 + SECOND)
    assert made.due == T0 + LIST_EVERY
    for number in range(2 * MOST_STRAYS):
        made.notice(f"acme/x{number}", T0)
    assert len(made.strays) == MOST_STRAYS


# -- how much of one is read --------------------------------------------------------------------------------


def test_a_lively_repository_is_read_wholly_in_time_for_the_core_and_quickly_in_between():
    entry = Entry("Acme/r1")
    assert entry.depth(T0) is Look.WHOLE
    entry.take_look(T0, Look.WHOLE, QUIET)
    assert entry.depth(T0 + WHOLE_EVERY - 1) is Look.QUICK
    entry.take_look(T0 + 10, Look.QUICK, JobsSeen((), complete=False, open=1))
    assert entry.looked == T0
    assert entry.depth(T0 + WHOLE_EVERY) is Look.WHOLE
    assert WHOLE_EVERY + 10 * SECOND < MINUTE
    for ease in (Ease.FAIR, Ease.TIGHT):
        assert entry.depth(T0 + WHOLE_EVERY, ease) is Look.NEWEST
        assert entry.depth(T0 + WHOLE_EVERY * SPARING[ease] - 1, ease) is Look.NEWEST
        assert entry.depth(T0 + WHOLE_EVERY * SPARING[ease], ease) is Look.WHOLE
    assert SPARING[Ease.FAIR] < SPARING[Ease.TIGHT]


def test_a_look_that_was_cut_short_is_no_look_at_all_of_it():
    entry = Entry("Acme/r1")
    entry.take_look(T0, Look.WHOLE, JobsSeen((), complete=False, open=9))
    assert entry.looked is None
    assert entry.cut
    entry.take_look(T0, Look.WHOLE, QUIET)
    assert not entry.cut


def test_jobs_that_are_queued_or_run_keep_a_repository_lively():
    entry = Entry("Acme/r1")
    entry.take_look(T0, Look.WHOLE, BUSY)
    assert entry.is_lively(T0 + 10 * LIVELY_FOR)
    entry.take_look(T0 + LIVELY_FOR, Look.WHOLE, QUIET)
    assert not entry.is_lively(T0 + LIVELY_FOR)


def test_a_glance_tells_of_runs_that_are_not_over_and_of_new_ones():
    entry = Entry("Acme/r1")
    assert not entry.take_glance(T0, Glance(True, 7))
    assert not entry.take_glance(T0, Glance(True, 7)), "the same, asked by another token"
    assert not entry.take_glance(T0, Glance(False))
    assert entry.take_glance(T0, Glance(True, 8))
    assert entry.is_lively(T0 + 1)
    other = Entry("Acme/r2")
    assert other.take_glance(T0, Glance(True, 7, busy=True))


# -- which are asked about ----------------------------------------------------------------------------------


def test_lively_ones_come_first_the_longest_unseen_before_the_others():
    made = roster(*(seen(number) for number in (1, 2, 3)))
    read(made, T0)
    for number, at in ((1, 20), (2, 10)):
        made.notice(f"acme/r{number}", T0)
        made.entries[f"acme/r{number}"].seen = T0 + at
    assert chosen(made, T0 + 2 * MINUTE) == [
        ("Acme/r2", Kind.LIVELY),
        ("Acme/r1", Kind.LIVELY),
        ("Acme/r3", Kind.GLANCE),
    ]


def test_those_never_read_come_by_their_last_push():
    made = roster(seen(1, pushed="2025"), seen(2, pushed="2026"), seen(3, pushed="2024"))
    made.notice("acme/r3", T0)
    assert chosen(made, T0) == [("Acme/r3", Kind.FIRST), ("Acme/r2", Kind.FIRST), ("Acme/r1", Kind.FIRST)]


def test_idle_ones_are_glanced_at_in_turn_and_read_wholly_now_and_then():
    made = roster(*(seen(number) for number in (1, 2)))
    read(made, T0)
    made.entries["acme/r1"].glanced = T0 + SECOND
    assert chosen(made, T0 + GLANCE_EVERY - 1) == []
    later = T0 + GLANCE_EVERY + SECOND
    assert chosen(made, later) == [("Acme/r2", Kind.GLANCE), ("Acme/r1", Kind.GLANCE)]
    day = chosen(made, T0 + IDLE_WHOLE_EVERY)
    assert [kind for _, kind in day] == [Kind.GLANCE, Kind.GLANCE, Kind.IDLE, Kind.IDLE]


def test_glances_that_cost_something_wait_for_their_share():
    made = roster(*(seen(number) for number in range(150)))
    read(made, T0)
    spending = Spending()
    spending.begin(T0 + MINUTE, None)
    asked = []
    for entry, _kind in made.choose(lambda: T0 + MINUTE, spending, lambda name: name == "Acme/r149"):
        spending.saw_idle(T0 + MINUTE, 1, 0 if entry.name == "Acme/r149" else 1)
        asked.append(entry.name)
    assert len(asked) == 84
    assert asked[-1] == "Acme/r149"


def test_one_that_cannot_be_read_rests_and_does_not_keep_the_others_from_being_all():
    made = roster(seen(1), seen(2))
    read(made, T0, "Acme/r1")
    assert made.as_of(T0) is None
    made.entries["acme/r2"].failed_until = T0 + FAILED_FOR
    assert made.as_of(T0) == T0
    assert chosen(made, T0 + GLANCE_EVERY) == [("Acme/r1", Kind.GLANCE)]
    assert chosen(made, T0 + FAILED_FOR)[0] == ("Acme/r2", Kind.FIRST)


def test_where_none_can_be_read_nothing_can_be_said():
    made = roster(seen(1))
    made.entries["acme/r1"].failed_until = T0 + FAILED_FOR
    assert made.as_of(T0) is None
    assert roster().as_of(T0) == T0, "an organization without repositories has no jobs"


def test_what_is_open_was_read_anew_since_the_oldest_look_at_a_lively_one():
    made = roster(seen(1), seen(2), seen(3))
    read(made, T0)
    now = T0 + 5 * MINUTE
    for number, at in ((1, 3), (2, 4)):
        made.entries[f"acme/r{number}"].take_look(T0 + at * MINUTE, Look.WHOLE, BUSY)
    assert made.as_of(now) == T0 + 3 * MINUTE
    assert (made.open(), made.is_lively(now)) == (4, True)


def test_while_nothing_is_asked_the_scope_does_not_look_as_if_it_were():
    made = roster(seen(1))
    read(made, T0)
    assert made.as_of(T0 + 5 * MINUTE) == T0


def test_after_a_sleep_everything_is_read_anew():
    made = roster(seen(1))
    read(made, T0)
    made.forget()
    assert made.as_of(T0) is None
    assert chosen(made, T0) == [("Acme/r1", Kind.FIRST)]


def test_a_scope_that_is_one_repository_is_looked_at_in_every_round():
    made = Roster.of(Scope("github", "repo:Acme/App"))
    assert chosen(made, T0) == [("Acme/App", Kind.FIRST)]
    read(made, T0)
    assert chosen(made, T0 + 2 * IDLE_WHOLE_EVERY) == [("Acme/App", Kind.LIVELY)]
    made.notice("acme/other", T0)
    assert made.strays == {}


def test_what_another_round_has_is_left_to_it():
    made = roster(seen(1))
    made.entries["acme/r1"].busy = True
    assert chosen(made, T0) == []


# -- where deliveries are vouched for ------------------------------------------------------------------------

EVERY = 5 * MINUTE


def audits(
    made: Roster, now: int, standing: Standing, *, answered: bool = False, free: bool = True
) -> list[tuple[str, Kind]]:
    spending = Spending()
    spending.begin(now, None)
    pace = Pace(standing, EVERY, answered)
    return [
        (entry.name, kind)
        for entry, kind in made.choose_audits(lambda: now, spending, lambda name: free, pace)
    ]


def audited(made: Roster, now: int, *names: str, seen: Audit | None = None) -> None:
    for entry in made.entries.values():
        if entry.name in names:
            assert entry.take_audit(now, seen or Audit(False), Judge(Ledger(), entry.name, lambda: now))


def test_while_deliveries_flow_one_repository_a_round_is_audited_and_each_in_time():
    made = roster(*(seen(number) for number in range(1, 41)))
    read(made, T0)
    last: dict[str, int] = dict.fromkeys((entry.name for entry in made.entries.values()), T0)
    now, counts = T0, []
    for _ in range(3 * STRETCH):
        now += EVERY
        for entry in made.entries.values():
            entry.lively_until = now + MINUTE
        found = audits(made, now, Standing.FLOWING, answered=True)
        assert found, "a round asks something, so that what ails all of them is noticed soon"
        counts.append(len(found))
        for name, kind in found:
            assert kind is Kind.AUDIT
            assert now - last[name] <= STRETCH * EVERY
            last[name] = now
            audited(made, now, name)
    assert max(last.values()) - min(last.values()) <= STRETCH * EVERY
    assert sum(counts[STRETCH:]) <= 2 * 40 + 2 * STRETCH


def test_while_nothing_is_heard_lively_repositories_are_audited_in_each_round_and_others_as_they_are_due():
    made = roster(seen(1), seen(2), seen(3))
    read(made, T0)
    made.notice("acme/r2", T0)
    now = T0 + EVERY
    assert audits(made, now, Standing.QUIET) == [
        ("Acme/r2", Kind.AUDIT),
        ("Acme/r1", Kind.IDLE_AUDIT),
        ("Acme/r3", Kind.IDLE_AUDIT),
    ]
    audited(made, now, "Acme/r2")
    assert ("Acme/r2", Kind.AUDIT) in audits(made, now + EVERY, Standing.QUIET)


def test_a_repository_that_is_the_whole_scope_is_audited_less_while_the_forge_answers_anyway():
    made = Roster.of(Scope("github", "repo:acme/app"))
    made.entries["acme/app"].take_look(T0, Look.WHOLE, QUIET)
    now = T0 + EVERY
    assert audits(made, now, Standing.QUIET) == [("acme/app", Kind.AUDIT)]
    assert audits(made, now, Standing.FLOWING, answered=False) == [("acme/app", Kind.AUDIT)]
    assert audits(made, now, Standing.FLOWING, answered=True) == []
    now = T0 + STRETCH_ALONE * EVERY
    assert audits(made, now, Standing.FLOWING, answered=True) == [("acme/app", Kind.AUDIT)]


def test_a_round_without_lively_repositories_asks_only_where_nothing_else_was_answered():
    made = roster(seen(1), seen(2))
    read(made, T0)
    assert audits(made, T0 + EVERY, Standing.FLOWING, answered=True) == []
    assert len(audits(made, T0 + EVERY, Standing.FLOWING, answered=False)) == 1


def test_what_was_never_read_is_read_and_everything_once_a_day():
    made = roster(seen(1), seen(2))
    assert [kind for _, kind in audits(made, T0, Standing.FLOWING)] == [Kind.FIRST, Kind.FIRST]
    read(made, T0)
    late = T0 + TRUSTED_WHOLE_EVERY
    assert [kind for _, kind in audits(made, late, Standing.FLOWING)][:2] == [Kind.IDLE, Kind.IDLE]
    assert Kind.IDLE not in [kind for _, kind in audits(made, late - 1, Standing.QUIET)]


def test_audits_wait_like_every_look_when_little_is_left():
    made = roster(seen(1))
    read(made, T0)
    made.notice("acme/r1", T0)
    spending = Spending()
    spending.looked(T0, 1, 10_000)
    pace = Pace(Standing.FLOWING, EVERY, answered=False)
    assert list(made.choose_audits(lambda: T0 + EVERY, spending, lambda name: True, pace)) == []


def test_the_list_of_repositories_is_asked_for_once_an_hour_while_deliveries_flow_and_for_a_reason():
    made = roster(seen(1))
    soon = T0 + LIST_EVERY
    assert made.wants_list(soon, Standing.QUIET)
    assert not made.wants_list(soon, Standing.FLOWING)
    assert made.wants_list(T0 + LIST_EVERY_FLOWING, Standing.FLOWING)
    made.notice("acme/r1", T0)
    assert not made.wants_list(soon, Standing.FLOWING)
    made.notice("acme/new", T0)
    assert not made.wants_list(soon - 1, Standing.FLOWING)
    assert made.wants_list(soon, Standing.FLOWING), "a delivery told of one that the list lacks"


def run(number: int, changed: int = T0, over: bool = True) -> RunSeen:
    return RunSeen(number, over, T0 + HOUR - changed)


def judged(*shown: RunSeen) -> Judge:
    judge = Judge(Ledger(), "acme/r1", lambda: T0 + HOUR)
    for one in shown:
        judge(one)
    return judge


def test_an_audit_suffices_where_it_goes_back_to_the_one_before():
    entry = Entry("Acme/r1")
    entry.take_look(T0, Look.WHOLE, QUIET)
    few = Audit(True)
    assert entry.take_audit(T0 + MINUTE, few, judged(run(7, T0 + MINUTE), run(9, T0 + MINUTE)))
    full = Audit(True, more=True)
    assert entry.take_audit(T0 + 2 * MINUTE, full, judged(run(9, T0 + 2 * MINUTE), run(12, T0 + 2 * MINUTE)))
    assert not entry.take_audit(T0 + 3 * MINUTE, full, judged(run(13, T0 + 3 * MINUTE)))
    old = run(15, T0 + 3 * MINUTE - 6 * SECOND)
    assert entry.take_audit(T0 + 4 * MINUTE, full, judged(old, run(16, T0 + 4 * MINUTE)))
    assert (entry.checked, entry.looked) == (T0 + 4 * MINUTE, T0)


def test_what_an_audit_finds_makes_a_repository_lively_and_one_without_changes_says_nothing():
    entry = Entry("Acme/r1")
    entry.take_look(T0, Look.WHOLE, BUSY)
    entry.lively_until = 0
    assert entry.take_audit(T0 + MINUTE, Audit(False, asked=1), judged())
    assert (entry.open, entry.cost, entry.lively_until) == (2, 0, 0)
    assert entry.take_audit(T0 + MINUTE, Audit(True, open=1, asked=2, charged=2), judged(run(1, over=False)))
    assert (entry.open, entry.cost, entry.lively_until) == (1, 2, T0 + MINUTE + LIVELY_FOR)


def test_what_is_vouched_for_counts_as_read_once_everything_was():
    made = roster(seen(1), seen(2))
    assert made.as_of(T0 + HOUR, T0 + HOUR - MINUTE) is None
    read(made, T0)
    made.notice("acme/r1", T0 + HOUR)
    assert made.as_of(T0 + HOUR) == T0
    assert made.as_of(T0 + HOUR, T0 + HOUR - MINUTE) == T0 + HOUR - MINUTE
    assert made.as_of(T0 + HOUR, T0 - MINUTE) == T0
