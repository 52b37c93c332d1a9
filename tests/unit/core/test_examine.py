"""A runner is looked at whenever something can be due for it, not a minute later, and what is due happens once."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.asking import WAITING_AGAIN
from ephemerd.core.examine import examine, next_look
from ephemerd.core.gate import QUESTION_LIMIT
from ephemerd.core.turn import Turn
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import JobKey, RunnerId
from ephemerd.domain.job import ForgeStatus, JobStatus
from ephemerd.domain.runner import Fence, GatePhase, GateRun, Order, Rule, Runner, RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.core.world import APP, DAY, HOUR, MINUTE, NO_ANSWER, SECOND, START, World, key, of, pool

S = RunnerState
AGO = 5 * MINUTE
WHO = RunnerId("eph-s1-e1-1")
NO_WORKER = "a job was announced, and no worker was ever seen"
ORDER = Order("ann", "cleaning up", False, 0)
GATE = GateRun(1, Rule.SURPLUS, "left over", GatePhase.PROBING, 0, 0, 0, deadline=0)


def runner(now: int, state: RunnerState, *, since: int = 0, **marks: Any) -> Runner:
    """Return a runner's row; `marks` are fields of it, whole numbers among them times in ms from `now`."""

    def later(times: dict[str, Any]) -> dict[str, Any]:
        return {name: now + value if type(value) is int else value for name, value in times.items()}

    if "fence" in marks:
        marks["fence"] = Fence(**later(marks["fence"]))
    if "gate" in marks:
        marks["gate"] = replace(GATE, **later(marks["gate"]))
    begun = now + since
    return Runner(WHO, "small", "here", APP, 1, state, begun, begun, **later(marks))


def wakes(state: RunnerState, **marks: Any) -> int | None:
    """Return in how many ms a runner is looked at."""
    world = World()
    moment = next_look(Turn(world.core.state, world.now), runner(world.now, state, **marks))
    return None if moment is None else moment - world.now


def look(
    state: RunnerState, world: World | None = None, **marks: Any
) -> tuple[Runner | None, tuple[cm.Command, ...]]:
    """Look at such a runner, which has an environment and a registration; return its row and what was sent."""
    world = world or World()
    turn = Turn(world.core.state, world.now + DAY)
    fields: dict[str, Any] = {"environment": "env", "registration": 7} | marks
    turn.put_runner(runner(turn.now, state, **fields))
    examine(turn, WHO)
    return turn.runner(WHO), turn.step().commands


def row_of(state: RunnerState, **marks: Any) -> Runner:
    """Return the row of a runner that was looked at and is still known."""
    row, _ = look(state, **marks)
    assert row is not None
    return row


def sent(state: RunnerState, **marks: Any) -> list[str]:
    """Return the kinds of the commands that a look at a runner sent."""
    return [type(command).__name__ for command in look(state, **marks)[1]]


@pytest.mark.parametrize(
    ("state", "marks", "ms"),
    [
        (S.PLANNED, {}, 30 * SECOND),
        (S.REGISTERING, {}, MINUTE),
        (S.STARTING, {}, 5 * MINUTE),
        (S.LISTENING, {}, None),
        (S.ASSIGNED, {}, 2 * MINUTE),
        (S.ASSIGNED, {"since": -AGO}, 10 * MINUTE),
        (S.ASSIGNED, {"since": -AGO, "soft_last": -MINUTE}, 14 * MINUTE),
        (S.RUNNING, {"hard": -MINUTE}, 14 * MINUTE),
        (S.RUNNING, {}, None),
        (S.FINISHING, {"since": -AGO, "over": -AGO}, 5 * MINUTE),
        (S.FINISHING, {"since": -AGO}, None),
        (S.RETIRING, {}, 70 * SECOND),
        (S.STUCK, {"leak": 0}, None),
        (S.GONE, {}, HOUR),
    ],
)
def test_the_limit_of_a_state_is_noticed_when_it_ends(
    state: RunnerState, marks: dict[str, Any], ms: int | None
) -> None:
    assert wakes(state, **marks) == ms


@pytest.mark.parametrize(
    ("marks", "ms"),
    [
        ({"asked": 0}, QUESTION_LIMIT),
        ({"consumes": True, "soft_last": -MINUTE}, MINUTE),
        ({"consumes": True, "hard": -MINUTE, "worker": -30 * SECOND}, 30 * SECOND),
        ({"unregister": True, "fence": {"retry": 7}}, 7),
        ({"fence": {"retry": 7}}, 7),
        ({"gate": {"deadline": 9}}, 9),
        ({"vetoed_until": 11}, 11),
        ({"lost": -SECOND}, 59 * SECOND),
        ({"fence": {"missing": -SECOND}}, 59 * SECOND),
        ({"vetoed_until": 0, "lost": -MINUTE}, None),
    ],
)
def test_what_a_runner_waits_for_is_noticed_when_it_comes(marks: dict[str, Any], ms: int | None) -> None:
    assert wakes(S.STUCK, leak=0, **marks) == ms


@pytest.mark.parametrize(
    ("marks", "ms"),
    [
        ({"unregister": True, "fence": {"retry": 7}}, 7),
        ({"fence": {"retry": 7}}, HOUR),
        ({"cleanup": True, "vetoed_until": 11}, 11),
        ({"leak": -SECOND}, 59 * SECOND),
        ({"leak": -MINUTE, "vetoed_until": 11}, 11),
        ({"vetoed_until": 11}, HOUR),
        ({"since": -MINUTE}, 59 * MINUTE),
        ({"since": -HOUR}, None),
    ],
)
def test_of_a_runner_that_is_gone_only_what_is_still_to_be_tidied_is(
    marks: dict[str, Any], ms: int | None
) -> None:
    assert wakes(S.GONE, **marks) == ms


# -- what a look does ----------------------------------------------------------------------------------


def test_a_soft_sign_stands_for_a_job_without_a_name_for_two_minutes() -> None:
    assert row_of(S.ASSIGNED, consumes=True, soft_last=1 - 2 * MINUTE).consumes
    assert not row_of(S.ASSIGNED, consumes=True, soft_last=-2 * MINUTE).consumes


def test_a_runner_that_was_only_planned_is_undone_after_half_a_minute() -> None:
    assert row_of(S.PLANNED, since=1 - 30 * SECOND).state is S.PLANNED
    assert row_of(S.PLANNED, since=-30 * SECOND).state is S.GONE
    assert sent(S.PLANNED, since=-30 * SECOND, registration=None, environment=None) == []


def test_only_one_that_never_listened_is_late() -> None:
    assert not row_of(S.STARTING, since=1 - 5 * MINUTE).late
    assert row_of(S.STARTING, since=-5 * MINUTE).late
    assert not row_of(S.LISTENING, since=-6 * MINUTE, listening=-6 * MINUTE).late


def test_one_that_is_late_is_said_to_be_so_once_and_what_is_said_of_it_later_stays() -> None:
    assert (
        row_of(S.STARTING, since=-HOUR, late=True, stuck="for another reason").stuck == "for another reason"
    )


@pytest.mark.parametrize(
    ("marks", "stuck"),
    [
        ({"hard": -15 * MINUTE}, NO_WORKER),
        ({"hard": 1 - 15 * MINUTE}, ""),
        ({"hard": -15 * MINUTE, "worker": -MINUTE}, ""),
        ({"hard": -15 * MINUTE, "job": key(1)}, ""),
        ({"hard": -15 * MINUTE, "stuck": "for another reason"}, "for another reason"),
        ({"hard": -HOUR, "stuck": NO_WORKER}, NO_WORKER),
        ({"hard": -HOUR, "stuck": NO_WORKER, "worker": -MINUTE}, ""),
        ({"hard": -HOUR, "stuck": NO_WORKER, "job": key(1)}, ""),
        ({"hard": -HOUR, "stuck": "for another reason", "job": key(1)}, "for another reason"),
    ],
)
def test_a_job_that_was_announced_and_shows_nothing_is_said_to_until_it_does(
    marks: dict[str, Any], stuck: str
) -> None:
    assert row_of(S.RUNNING, since=-HOUR, **marks).stuck == stuck


def test_one_look_at_a_time_and_an_order_waits_for_no_other_question() -> None:
    """Before it was looked into, its probe goes first; a question about its registration hinders nobody."""
    waiting = {"asked": -SECOND, "order_given": ORDER, "listening": 0}
    assert sent(S.LISTENING, adopted=True, seen_after_start=False, **waiting) == []
    assert sent(S.LISTENING, adopted=True, **waiting) == ["ProbeRunner"]


def test_what_was_looked_into_after_the_start_is_not_looked_into_at_every_turn() -> None:
    assert sent(S.LISTENING, adopted=True, seen_after_start=False, listening=0) == ["ProbeRunner"]
    assert sent(S.LISTENING, adopted=True, listening=0) == []


def test_nothing_is_looked_into_beside_a_gate_run_nor_where_a_pool_has_no_probe() -> None:
    marks = {"adopted": True, "seen_after_start": False, "listening": 0}
    assert sent(S.LISTENING, gate={"deadline": 1}, **marks) == []
    row, commands = look(S.LISTENING, World(pool(probes=False)), **marks)
    assert commands == ()
    assert row is not None
    assert row.seen_after_start


def test_a_look_inside_is_under_way_until_its_own_answer_comes() -> None:
    row, (probe,) = look(S.LISTENING, adopted=True, seen_after_start=False, listening=0)
    assert row is not None
    assert isinstance(probe, cm.ProbeRunner)
    assert probe == cm.ProbeRunner(WHO, "small", "env", probe.token)
    assert (row.asked, row.token) == (START + DAY, probe.token)


def test_an_order_does_not_wait_for_a_look_inside_where_there_is_nothing_to_look_into() -> None:
    marks = {"adopted": True, "seen_after_start": False, "environment": None, "order_given": ORDER}
    assert sent(S.STARTING, **marks) == ["LookUpRunner"]


@pytest.mark.parametrize(
    ("marks", "asks"),
    [
        ({"lost": 1 - MINUTE}, False),
        ({"lost": -MINUTE}, True),
        ({"lost": -MINUTE, "vetoed_until": 1}, False),
        ({"lost": -MINUTE, "vetoed_until": 0}, True),
        ({"lost": -2 * MINUTE, "lost_again": -MINUTE}, False),
        ({"listening": 1 - 30 * SECOND}, False),
        ({"listening": -30 * SECOND}, True),
        ({"listening": -30 * SECOND, "vetoed_until": 1}, False),
        ({"listening": -30 * SECOND, "vetoed_until": 0}, True),
        ({"listening": -30 * SECOND, "untaken": -SECOND}, False),
        ({"listening": -30 * SECOND, "surplus_since": -SECOND}, False),
    ],
)
def test_the_registration_of_a_listener_that_nobody_takes_is_asked_about(
    marks: dict[str, Any], asks: bool
) -> None:
    assert ("LookUpRunner" in sent(S.LISTENING, since=-HOUR, **({"listening": -5 * MINUTE} | marks))) is asks


@pytest.mark.parametrize(
    ("state", "marks"),
    [(S.STARTING, {}), (S.ASSIGNED, {"soft_last": 0}), (S.RUNNING, {"hard": -MINUTE})],
)
def test_only_of_one_that_listens_it_is_asked_whether_nobody_takes_it(
    state: RunnerState, marks: dict[str, Any]
) -> None:
    assert sent(state, since=-MINUTE, **marks) == []


@pytest.mark.parametrize(("until", "what"), [(1, []), (0, ["Destroy"])])
def test_remains_are_cleaned_up_when_the_pause_is_over(until: int, what: list[str]) -> None:
    assert sent(S.GONE, cleanup=True, vetoed_until=until) == what


@pytest.mark.parametrize(
    ("marks", "asks"),
    [
        ({"leak": 1 - MINUTE}, False),
        ({"leak": -MINUTE}, True),
        ({"leak": -MINUTE, "vetoed_until": 1}, False),
        ({"leak": -MINUTE, "vetoed_until": 0}, True),
        ({"leak": -2 * MINUTE, "leak_again": -MINUTE}, False),
    ],
)
def test_a_registration_without_an_environment_is_looked_at_twice(marks: dict[str, Any], asks: bool) -> None:
    assert ("LookUpRunner" in sent(S.GONE, environment=None, **marks)) is asks


@pytest.mark.parametrize(
    "marks",
    [
        {},
        {"environment": None, "cleanup": True},
        {"registration": None, "leak": -HOUR},
        {"leak": -2 * HOUR, "leak_again": -HOUR},
    ],
)
def test_a_row_is_forgotten_after_an_hour_when_nothing_of_it_is_owed(marks: dict[str, Any]) -> None:
    assert look(S.GONE, since=1 - HOUR, **marks)[0] is not None
    assert look(S.GONE, since=-HOUR, **marks)[0] is None


@pytest.mark.parametrize("owed", [{"cleanup": True}, {"unregister": True}, {"leak": -HOUR}])
def test_a_row_of_which_something_is_owed_is_kept(owed: dict[str, Any]) -> None:
    assert look(S.GONE, since=-DAY, **owed)[0] is not None


def test_a_row_is_kept_while_it_stands_for_a_job_that_the_forge_cannot_be_asked_about() -> None:
    world = World(pool(max_concurrent=0))
    world.queued(1)
    world.core.state.keep_scope(replace(world.core.state.scope(APP), silent=0, next_try=0))
    row, commands = look(S.GONE, world, since=-DAY, hard=-DAY, consumes=True)
    assert commands == ()
    assert row is not None
    assert row.consumes


def test_one_that_does_not_begin_to_listen_is_said_to() -> None:
    assert row_of(S.STARTING, since=-5 * MINUTE).stuck == "it does not begin to listen"


def test_an_unanswered_question_is_given_up_so_that_another_can_be_asked() -> None:
    assert row_of(S.STUCK, leak=0, asked=1 - QUESTION_LIMIT).asked is not None
    assert row_of(S.STUCK, leak=0, asked=-QUESTION_LIMIT).asked is None


def test_the_pause_after_a_veto_is_kept_to_its_end() -> None:
    assert sent(S.LISTENING, order_given=ORDER, listening=0, vetoed_until=1) == []
    assert sent(S.LISTENING, order_given=ORDER, listening=0, vetoed_until=0) == ["ProbeRunner"]


def test_a_registration_whose_answer_was_lost_is_asked_for_by_name_after_a_minute() -> None:
    assert sent(S.REGISTERING, since=1 - MINUTE) == []
    assert sent(S.REGISTERING, since=-MINUTE) == ["LookUpName"]


@pytest.mark.parametrize(
    ("marks", "state", "asks"),
    [
        ({"since": 1 - 2 * MINUTE}, S.ASSIGNED, False),
        ({"since": -2 * MINUTE}, S.ASSIGNED, True),
        ({"since": -2 * MINUTE, "stuck": "for another reason"}, S.ASSIGNED, False),
        ({"since": -20 * MINUTE, "soft_last": 1 - 15 * MINUTE}, S.ASSIGNED, True),
        ({"since": -20 * MINUTE, "soft_last": -15 * MINUTE}, S.LISTENING, False),
        ({"since": -20 * MINUTE, "soft_last": -15 * MINUTE, "hard": -HOUR}, S.ASSIGNED, True),
    ],
)
def test_a_job_that_was_offered_and_did_not_follow(
    marks: dict[str, Any], state: RunnerState, asks: bool
) -> None:
    """It is asked about once, and taken for no job a quarter of an hour after its last sign, not after its first."""
    marks = {"listening": -HOUR, "soft": -20 * MINUTE, "soft_last": -MINUTE, "untaken": 0} | marks
    row, commands = look(S.ASSIGNED, **marks)
    assert row is not None
    assert row.state is state
    assert ("LookUpRunner" in [type(command).__name__ for command in commands]) is asks
    assert (row.stuck == "a job was offered and acknowledged, and nothing followed") is asks


def test_a_job_that_was_announced_long_ago_counts_from_then() -> None:
    """From its announcement, however lately its row changed its state."""
    assert row_of(S.RUNNING, since=-MINUTE, hard=-15 * MINUTE).stuck == NO_WORKER


@pytest.mark.parametrize(
    ("marks", "stuck"),
    [
        ({"over": 1 - 10 * MINUTE}, ""),
        ({"over": -10 * MINUTE}, "its job is over at the forge, and its worker lives on"),
        ({"over": -10 * MINUTE, "stuck": "for another reason"}, "for another reason"),
        ({}, ""),
    ],
)
def test_a_worker_that_outlives_its_job_is_said_to(marks: dict[str, Any], stuck: str) -> None:
    assert row_of(S.FINISHING, since=-HOUR, hard=-DAY, vetoed_until=1, **marks).stuck == stuck


@pytest.mark.parametrize(
    ("marks", "state"),
    [
        ({"since": 1 - 70 * SECOND}, S.RETIRING),
        ({"since": -70 * SECOND}, S.ABANDONED),
        ({"since": -70 * SECOND, "gate": {"deadline": 1, "phase": GatePhase.DESTROYING}}, S.ABANDONED),
        ({"since": -70 * SECOND, "gate": {"deadline": 1, "phase": GatePhase.REPROBING}}, S.RETIRING),
        ({"since": -SECOND, "gate": {"deadline": 1, "phase": GatePhase.DESTROYING}}, S.RETIRING),
    ],
)
def test_what_does_not_end_is_given_up_unless_it_is_looked_at_once_more(
    marks: dict[str, Any], state: RunnerState
) -> None:
    row = row_of(S.RETIRING, **marks)
    assert row.state is state
    assert (row.stuck == "would not die: no end within the limit") is (state is S.ABANDONED)


def test_nothing_is_asked_of_one_that_is_being_destroyed() -> None:
    assert sent(S.RETIRING, lost=-MINUTE, listening=-HOUR) == []
    assert sent(S.RETIRING, adopted=True, seen_after_start=False) == []


# -- whose job is it -----------------------------------------------------------------------------------


def who(
    waiting: int, confirmed: tuple[int, ...] = (), *, worker: int = -MINUTE, **changes: Any
) -> tuple[list[JobKey], bool]:
    """Look at a runner with a worker and a job without a name while so many jobs wait, the first of which were
    confirmed at these times (ms from now); return the jobs asked about, and whether it still stands for one."""
    world = World(pool(max_concurrent=0))
    world.queued(*range(1, waiting + 1))
    state, now = world.core.state, world.now + DAY
    for number, at in enumerate(confirmed, 1):
        state.jobs[key(number)] = replace(world.job(number), confirmed=now + at)
    if "listed" in changes:
        state.keep_scope(replace(state.scope(APP), jobs_listed=changes["listed"]))
    if changes.get("silent"):
        state.keep_scope(replace(state.scope(APP), silent=0, next_try=0))
    if changes.get("asked"):
        state.jobs[key(1)] = replace(world.job(1), asked=now)
    row, commands = look(S.RUNNING, world, since=-HOUR, hard=-HOUR, worker=worker, consumes=True)
    assert row is not None
    return [command.job for command in commands if isinstance(command, cm.LookUpJob)], row.consumes


def test_the_oldest_job_that_could_be_its_own_is_asked_about() -> None:
    assert who(2) == ([key(1)], True)
    assert who(2, (-1,)) == ([key(1)], True)
    assert who(2, (0,)) == ([key(2)], True)
    assert who(2, worker=1 - MINUTE) == ([], True)


def test_a_job_that_is_asked_about_says_what_for() -> None:
    world = World(pool(max_concurrent=0))
    world.queued(1)
    look(S.RUNNING, world, since=-HOUR, hard=-HOUR, worker=-MINUTE, consumes=True)
    assert (world.job(1).asking, world.job(1).asked) == ("name", world.now + DAY)


def test_when_all_that_wait_are_known_to_wait_it_stands_for_none_of_them() -> None:
    assert who(2, (0, 0)) == ([], False)
    assert who(0) == ([], False)


def test_nothing_is_asked_twice_nor_of_a_forge_in_trouble() -> None:
    assert who(2, asked=True) == ([], True)
    assert who(2, silent=True) == ([], True)


def test_of_a_long_queue_only_the_first_are_asked_about_and_a_listing_tells_of_the_rest() -> None:
    first = (0,) * 16
    assert who(16, first, listed=None) == ([], False)
    assert who(17, first[1:]) == ([key(16)], True)
    assert who(17, first, listed=None) == ([], True)
    assert who(17, first, listed=START + DAY - 1) == ([], True)
    assert who(17, first, listed=START + DAY) == ([], False)


def asked_for_a_while(leaves: bool, **answer: Any) -> tuple[World, RunnerId, list[int]]:
    """Let a runner take a job without a name, answer each question about the one that waits so after 200 ms; return
    the runner, and when it was asked (ms from the first time)."""
    world = World(lists=False)
    (name,) = world.listening(1)
    world.sign(name, Sign.WORKER)
    if leaves:
        world.exited(name)
    asked: list[int] = []
    for _ in range(60):
        sent = world.wait(5 * SECOND)
        while questions := of(sent, cm.LookUpJob):
            asked.append(world.now)
            world.now += 200
            sent = world.feed(ev.JobLookedUp(key(1), questions[0].token, **answer)).commands
            assert len(asked) < 30
    return world, name, [at - asked[0] for at in asked]


@pytest.mark.parametrize("leaves", [True, False])
def test_a_job_that_the_forge_knows_no_more_is_asked_about_twice_and_no_runner_stands_for_it(leaves) -> None:
    """A second "not found" counts after a minute, so there is no use in asking before."""
    world, name, asked = asked_for_a_while(leaves, missing=True)
    assert len(asked) == 2
    assert asked[1] == pytest.approx(MINUTE, abs=10 * SECOND)
    assert world.job(1).status is JobStatus.GONE
    assert not world.knows(name) or not world.runner(name).consumes


@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize("fault", [Fault(Remedy.REFUSED, "the repository moved"), NO_ANSWER])
def test_a_forge_that_cannot_say_whose_job_it_is_is_asked_every_half_minute_at_most(leaves, fault) -> None:
    """A repository that was renamed answers each question with a redirect, for ever."""
    world, name, asked = asked_for_a_while(leaves, fault=fault)
    assert len(asked) > 1
    assert all(later - earlier >= WAITING_AGAIN for earlier, later in pairwise(asked))
    assert world.runner(name).consumes


@pytest.mark.parametrize("leaves", [True, False])
def test_once_it_can_the_runner_stands_for_the_job_no_more(leaves) -> None:
    world, name, _ = asked_for_a_while(leaves, fault=Fault(Remedy.REFUSED, "the repository moved"))
    (question,) = of(world.wait(31 * SECOND), cm.LookUpJob)
    world.job_answer(question, ForgeStatus.QUEUED)
    assert not world.knows(name) or not world.runner(name).consumes


@pytest.mark.parametrize("state", [S.STARTING, S.LISTENING, S.ASSIGNED, S.STUCK])
def test_a_registration_that_was_missed_is_looked_up_again_whatever_the_state(state: RunnerState) -> None:
    assert sent(state, lost=1 - MINUTE) == []
    assert sent(state, lost=-MINUTE) == ["LookUpRunner"]


def test_one_that_was_taken_over_and_works_is_not_asked_whether_anybody_takes_it() -> None:
    assert sent(S.RUNNING, since=-HOUR, hard=-HOUR, worker=-HOUR, adopted=True) == []


@pytest.mark.parametrize("state", [S.GONE, S.ABANDONED])
def test_what_is_over_is_looked_at_when_it_is_to_be_forgotten(state: RunnerState) -> None:
    assert wakes(state) == World().setup.policy.gone_kept
    assert wakes(state, cleanup=True, vetoed_until=SECOND) == SECOND
