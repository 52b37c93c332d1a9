"""The forge may be holding back: what is not taken is not multiplied (DOMAIN.md 4.4)."""

from __future__ import annotations

from itertools import pairwise

from msgspec.structs import replace

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core import holding
from ephemerd.core.health import assess
from ephemerd.core.rows import ClassRow
from ephemerd.core.turn import Turn
from ephemerd.core.waiting import why_waiting
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.pool import FenceKind
from ephemerd.domain.runner import RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.core.field import Field
from tests.unit.core.world import APP, GPU, HOUR, MINUTE, SECOND, World, key, of, pool

S = RunnerState


def only(world: World) -> str:
    """Return the name of the one class of demand."""
    (name,) = world.core.state.index.groups
    return name


def listen(world: World, runner: RunnerId) -> None:
    world.registered(runner)
    world.started(runner)
    world.sign(runner, Sign.LISTENING)


def held_back(*, slots: int = 8) -> tuple[World, RunnerId]:
    """Return a world in which a listener was not taken for 30 s while its job waits."""
    world = World(slots=slots)
    (name,) = world.listening(1)
    world.wait(30 * SECOND)
    return world, name


def test_a_listener_not_taken_for_half_a_minute_holds_its_class() -> None:
    world = World()
    world.listening(1)
    world.wait(30 * SECOND - 1)
    assert len(world.planned(2)) == 1
    world, _ = held_back()
    assert world.planned(2, 3) == []
    assert world.core.state.classes[only(world)].held


def test_fp_20_the_reason_is_said_with_the_job() -> None:
    world, _ = held_back()
    world.queued(2)
    assert "seems to hold back" in why_waiting(world.core.state, key(2), world.now)
    world.wait(90 * SECOND)
    health = assess(world.core.state, world.now)
    assert health.status == "degraded"
    assert "github/acme/app/1 is matched but not taken" in health.reasons[0]


def test_a_listener_that_waits_is_looked_up_once() -> None:
    world, name = held_back()
    (command,) = of(world.sent, cm.LookUpRunner)
    assert command.runner == name
    world.feed(ev.RunnerLookedUp(name, command.token, busy=False, connected=True))
    assert of(world.wait(9 * MINUTE), cm.LookUpRunner) == []


def test_a_look_up_that_got_no_answer_is_repeated() -> None:
    world, name = held_back()
    assert [c.runner for c in of(world.wait(5 * MINUTE), cm.LookUpRunner)][:1] == [name]


def test_each_one_taken_doubles_the_allowance() -> None:
    world = World(slots=100)
    first, second = world.listening(1, 2)
    world.wait(30 * SECOND)
    assert world.planned(*range(3, 20)) == []
    waiting = [second]
    taken, made = first, []
    for number in (1, 2, 3):
        world.queued(*range(number + 1, 20))  # told anew, so that none wants confirming
        before = world.count(cm.Register)
        world.in_progress(number, taken)
        fresh = [c.runner for c in of(world.sent, cm.Register)[before:]]
        made.append(len(fresh))
        for name in fresh:
            listen(world, name)
        world.wait(31 * SECOND)
        waiting += fresh
        taken = waiting.pop(0)
    assert made == [1, 2, 4]


def test_the_class_is_let_go_when_no_listener_waits_any_more() -> None:
    world, name = held_back()
    world.queued(2, 3)
    step = world.in_progress(1, name)
    assert len(of(step.commands, cm.Register)) == 2
    assert not world.core.state.classes[only(world)].held


def test_it_is_let_go_as_well_when_the_listener_ends() -> None:
    world, name = held_back()
    world.queued(2)
    step = world.exited(name)
    assert len(of(step.commands, cm.Register)) == 2


def test_another_class_is_not_held() -> None:
    world = World(pool(), pool("big", labels=GPU))
    world.listening(1)
    world.wait(30 * SECOND)
    assert len(world.planned(2, labels=GPU)) == 1


def test_one_of_which_the_registration_was_missed_holds_nothing() -> None:
    """It is no supply: the forge cannot give it a job, so that its waiting says nothing."""
    world, name = held_back()
    (command,) = of(world.sent, cm.LookUpRunner)
    world.feed(ev.ScopeAnswered(APP))
    world.feed(ev.RunnerLookedUp(name, command.token, missing=True))
    assert world.count(cm.Register) == 2
    world.wait(30 * SECOND)
    assert not world.core.state.classes[only(world)].held
    assert len(world.planned(2)) == 1


def test_fp_22_a_ghost_is_no_supply_from_the_first_look_on_and_spent_from_the_second() -> None:
    world, name = held_back()
    (command,) = of(world.sent, cm.LookUpRunner)
    world.feed(ev.ScopeAnswered(APP))
    world.feed(ev.RunnerLookedUp(name, command.token, missing=True))
    assert world.runner(name).lost == world.now
    (again,) = of(world.wait(MINUTE), cm.LookUpRunner)
    world.feed(ev.ScopeAnswered(APP))
    step = world.feed(ev.RunnerLookedUp(name, again.token, missing=True))
    gate = world.runner(name).gate
    assert gate is not None
    assert gate.rule.value == "spent"
    assert [c.runner for c in of(step.commands, cm.ProbeRunner)] == [name]


def expire(world: World, name: RunnerId) -> None:
    """Let a listener expire: looked up, probed idle, deregistered, probed idle again, destroyed."""
    seen_until = world.now + 11 * MINUTE
    done = len(world.sent)
    while world.now < seen_until and world.runner(name).state is not S.GONE:
        for command in world.sent[done:]:
            done += 1
            if isinstance(command, cm.LookUpRunner) and command.runner == name:
                world.feed(ev.RunnerLookedUp(name, command.token, busy=False, connected=True))
            elif isinstance(command, cm.ProbeRunner) and command.runner == name:
                world.probed(command)
            elif isinstance(command, cm.Deregister) and command.intent.runner == name:
                world.deregistered(command)
            elif isinstance(command, cm.Destroy) and command.permit.runner == name:
                world.destroyed(command)
            elif isinstance(command, cm.LookUpJob):
                world.feed(ev.JobLookedUp(command.job, command.token, world.waiting[command.job]))
        world.wait(SECOND)
    assert world.runner(name).state is S.GONE
    assert world.runner(name).ending.startswith("expired")


def remakes(world: World) -> list[int]:
    """Let runner after runner expire for four hours; return the minutes at which one was made."""
    made = []
    began, done = world.now, 0
    while world.now - began < 4 * HOUR:
        fresh = of(world.sent, cm.Register)[done:]
        for command in fresh:
            made.append((world.runner(command.runner).created - began) // MINUTE)
            listen(world, command.runner)
            expire(world, command.runner)
        done += len(fresh)
        if not fresh:
            for question in of(world.wait(5 * SECOND), cm.LookUpJob):
                world.feed(ev.JobLookedUp(question.job, question.token, world.waiting[question.job]))
    return made


def test_what_expires_untaken_is_remade_at_once_and_then_once_an_hour() -> None:
    world = World(slots=8)
    world.queued(1)
    made = remakes(world)
    assert made[:2] == [0, 10]
    assert all(59 <= later - earlier <= 71 for earlier, later in pairwise(made[1:]))
    assert len(made) in (5, 6)


def test_the_same_holds_where_there_is_no_fence() -> None:
    world = World(pool(fence=FenceKind.NONE), slots=8)
    world.queued(1)
    made = remakes(world)
    assert made[:2] == [0, 10]
    assert len(made) in (5, 6)


def test_a_job_that_is_taken_in_the_end_owes_nothing() -> None:
    world = World()
    (name,) = world.listening(1)
    expire(world, name)
    world.queued(2)
    assert world.job(2).not_before == 0


def test_a_try_in_vain_says_when_the_next_one_is() -> None:
    world = World(slots=8)
    (name,) = world.listening(1)
    expire(world, name)
    again = world.last(cm.Register).runner
    listen(world, again)
    expire(world, again)
    assert world.job(1).not_before > world.now
    seconds = (world.job(1).not_before - world.now) // 1000
    assert why_waiting(world.core.state, key(1), world.now) == (
        f"its last try was in vain; next try in {seconds} s"
    )


# the rules themselves, asked directly


BEFORE = ClassRow(served=7, held=True, credits=3, grant=4)


def two_classes(**rows: ClassRow) -> tuple[World, RunnerId, dict[str, str]]:
    """One pool serves two classes, of which each has a job; one listener, for half a minute now.

    The class `gpu` comes first by name. `rows` says what is known of them.
    """
    world = World(pool("big", labels=GPU), slots=1)
    (runner,) = world.listening(1)
    world.queued(2, labels=GPU)
    world.now += 30 * SECOND
    names = {"gpu" if "gpu" in name else "plain": name for name in world.core.state.index.groups}
    for short, row in rows.items():
        settled(world).put_class(names[short], row)
    return world, runner, names


def settled(world: World) -> Turn:
    return Turn(world.core.state, world.now)


def test_one_taken_adds_to_the_allowance_of_each_held_class_of_its_pool() -> None:
    world, runner, names = two_classes(gpu=ClassRow(), plain=BEFORE)
    t = settled(world)
    holding.taken(t, t.state.runners[runner])
    assert t.state.classes[names["plain"]] == replace(BEFORE, credits=7, grant=8)


def test_a_class_for_which_nobody_waits_is_let_go_whole() -> None:
    free = ClassRow(served=7)
    world, runner, names = two_classes(gpu=BEFORE)
    world.now -= 1  # the listener has not waited for half a minute
    t = settled(world)
    holding.taken(t, t.state.runners[runner])
    assert t.state.classes[names["gpu"]] == free
    t.put_class(names["gpu"], BEFORE)
    holding.review(t, t.state.index.groups[names["gpu"]])
    assert t.state.classes[names["gpu"]] == free


def test_a_runner_that_is_only_on_its_way_does_not_wait() -> None:
    world, runner, names = two_classes(gpu=BEFORE)
    rows = world.core.state.runners
    rows[runner] = replace(rows[runner], state=S.STARTING, listening=None)
    t = settled(world)
    holding.review(t, t.state.index.groups[names["gpu"]])
    assert not t.state.classes[names["gpu"]].held


def test_a_class_that_is_not_held_is_left_alone() -> None:
    world, _, names = two_classes()
    world.now -= 1
    t = settled(world)
    holding.review(t, t.state.index.groups[names["gpu"]])
    assert t.step().changed == ()


def test_a_class_is_held_with_nothing_allowed_and_it_is_said() -> None:
    world, runner, names = two_classes(plain=replace(BEFORE, held=False))
    t = settled(world)
    holding.untaken(t, t.state.runners[runner])
    assert t.state.classes[names["plain"]] == ClassRow(served=7, held=True)
    said = {(note.text, dict(note.fields)["job_class"]) for note in t.step().notes}
    assert ("the forge may be holding back", names["plain"]) in said


def test_a_class_is_held_only_for_a_job_that_has_waited_as_long() -> None:
    """The first class has a job that came just now, and the next one a job that waits as the listener does."""
    world, runner, names = two_classes()
    jobs = world.core.state.jobs
    jobs[key(2)] = replace(jobs[key(2)], first_seen=world.now - 30 * SECOND + 1)
    t = settled(world)
    holding.untaken(t, t.state.runners[runner])
    assert not t.state.classes[names["gpu"]].held
    assert t.state.classes[names["plain"]].held


def test_a_dispatch_takes_a_credit_and_the_class_its_place_behind_the_others() -> None:
    world, _, names = two_classes(plain=BEFORE)
    t = settled(world)
    holding.spend(t, t.state.index.groups[names["plain"]])
    first = t.state.classes[names["plain"]]
    holding.spend(t, t.state.index.groups[names["gpu"]])
    second = t.state.classes[names["gpu"]]
    assert (first.credits, second.credits) == (2, 0)
    assert first.served < second.served


def test_one_taken_adds_nothing_for_a_held_class_that_it_does_not_serve() -> None:
    """That class comes first by name."""
    world = World(pool(), pool("arm", labels=("arm",)))
    (runner,) = world.listening(1)
    world.planned(2, labels=("arm",))
    world.now += 30 * SECOND
    other, plain = sorted(world.core.state.index.groups)
    t = settled(world)
    t.put_class(other, BEFORE)
    t.put_class(plain, BEFORE)
    holding.taken(t, t.state.runners[runner])
    assert t.state.classes == {other: BEFORE, plain: replace(BEFORE, credits=7, grant=8)}


def test_classes_that_are_both_held_back_do_not_take_the_slot_from_each_other() -> None:
    """Nobody would be made for the one that waits, and the one that left would be made anew, minute after minute."""
    world = World(pool(), pool("arm", labels=("arm",)), slots=2)
    names = world.listening(1) + world.listening(2, labels=("arm",))
    world.queued(3)
    world.queued(4, labels=("arm",))
    Field(world).run(9 * MINUTE)
    assert [world.runner(name).state for name in names] == [S.LISTENING, S.LISTENING]
    assert world.count(cm.Register) == 2


def test_what_expired_in_vain_takes_the_slot_from_nobody_before_its_next_try() -> None:
    world = World(pool(), pool("arm", labels=("arm",)), slots=1)
    (name,) = world.listening(1)
    expire(world, name)
    again = world.last(cm.Register).runner
    listen(world, again)
    expire(world, again)
    assert world.job(1).not_before > world.now + 9 * MINUTE
    (other,) = world.listening(2, labels=("arm",))
    Field(world).run(9 * MINUTE)
    assert world.runner(other).state is S.LISTENING
