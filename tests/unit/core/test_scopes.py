"""How a scope answers: silence, limits and refused credentials, each with its way back."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.core.health import assess
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import Scope
from ephemerd.domain.job import ForgeStatus
from ephemerd.domain.pool import Policy, Setup
from ephemerd.domain.runner import FenceAnswer, RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.core.world import APP, HOUR, LIB, MINUTE, NO_ANSWER, ORG, SECOND, World, key, of, pool, report

S = RunnerState
LIMITED = Fault(Remedy.LIMITED, "secondary rate limit", 60 * SECOND)
DENIED = Fault(Remedy.DENIED, "Bad credentials")
FORGE_CALLS = (
    cm.Register,
    cm.LookUpName,
    cm.LookUpRunner,
    cm.LookUpJob,
    cm.Deregister,
    cm.ListRegistrations,
    cm.ListJobs,
)


def calls(commands: tuple[cm.Command, ...] | list[cm.Command]) -> list[cm.Command]:
    """Return what goes to the forge."""
    return [command for command in commands if isinstance(command, FORGE_CALLS)]


def refuse(world: World, command: cm.Command, fault: Fault) -> None:
    """Answer a call of the forge with a fault."""
    event: ev.Event
    match command:
        case cm.Register():
            event = ev.RegistrationFailed(command.runner, fault)
        case cm.LookUpName():
            event = ev.NameLookedUp(command.runner, None, fault)
        case cm.LookUpRunner():
            event = ev.RunnerLookedUp(command.runner, command.token, fault=fault)
        case cm.LookUpJob():
            event = ev.JobLookedUp(command.job, command.token, fault=fault)
        case cm.Deregister():
            intent = command.intent
            event = ev.FenceAnswered(
                intent.runner, intent.registration, command.token, FenceAnswer.NO_ANSWER, fault
            )
        case cm.ListRegistrations():
            event = ev.RegistrationsListed(command.scope, (), fault)
        case cm.ListJobs():
            event = ev.JobsListed(command.scope, 0, fault)
        case _:
            raise AssertionError(command)
    world.feed(event)


def outage(world: World, fault: Fault, ms: int) -> list[tuple[int, cm.Command]]:
    """Let every call of the forge fail for a while; return when each one went out."""
    world.lists = False
    out: list[tuple[int, cm.Command]] = []
    done, until = len(world.sent), world.now + ms
    while world.now < until:
        while done < len(world.sent):
            command = world.sent[done]
            done += 1
            if isinstance(command, cm.ListEnvironments):
                world.feed(ev.EnvironmentsListed("here", tuple(world.environments.values()), True))
            elif isinstance(command, FORGE_CALLS):
                out.append((world.now, command))
                refuse(world, command, fault)
        world.wait(SECOND)
    return out


def test_fp_38_one_call_a_minute_tries_a_silent_scope_and_all_else_waits() -> None:
    world = World(slots=8)
    world.listening(1, 2)
    world.queued(3, 4, 5)
    world.feed(ev.JobsListed(APP, 0, NO_ANSWER))
    for command in of(world.sent, cm.Register)[2:]:
        world.feed(ev.RegistrationFailed(command.runner, NO_ANSWER))
    made = outage(world, NO_ANSWER, 40 * MINUTE)
    assert 38 <= len(made) <= 41
    gaps = [later[0] - earlier[0] for earlier, later in pairwise(made)]
    assert min(gaps) >= MINUTE
    assert world.count(cm.Destroy) == 0
    assert all(world.job(number).status.value == "queued" for number in range(1, 6))


def test_a_silent_scope_is_tried_each_minute_even_when_nothing_else_wants_it() -> None:
    """Else nobody would notice that it answers again before the next listing."""
    world = World()
    world.feed(ev.JobsListed(APP, 0, NO_ANSWER))
    world.lists = False
    assert calls(world.wait(MINUTE)) == []
    assert calls(world.wait(SECOND)) == [cm.ListRegistrations(APP)]


def test_the_minute_counts_from_the_try_although_its_answer_only_times_out() -> None:
    world = World()
    world.feed(ev.JobsListed(APP, 0, NO_ANSWER))
    world.lists = False
    assert calls(world.wait(MINUTE + SECOND)) == [cm.ListRegistrations(APP)]
    tried = world.now
    world.wait(10 * SECOND)
    world.feed(ev.RegistrationsListed(APP, (), NO_ANSWER))
    assert world.core.state.scopes[str(APP)].next_try == tried + MINUTE


def test_recovery_resumes_at_once() -> None:
    world = World(slots=8)
    world.feed(ev.JobsListed(APP, 0, NO_ANSWER))
    first = len(world.sent)
    assert world.planned(1) == []
    step = world.feed(ev.ScopeAnswered(APP))
    assert len(of(step.commands, cm.Register)) == 1
    assert first < len(world.sent)
    assert "the forge answers again" in world.notes
    assert world.core.state.scopes[str(APP)].silent is None


def test_one_scope_is_silent_and_another_works() -> None:
    world = World(pool(), pool("lib", scope=LIB))
    world.feed(ev.JobsListed(APP, 0, NO_ANSWER))
    assert world.planned(1) == []
    assert len(world.planned(2, repository="acme/lib")) == 1


def test_fp_36_a_limit_waits_for_its_reset_whatever_asks() -> None:
    world = World(slots=8)
    (name,) = world.planned(1)
    world.feed(ev.RegistrationFailed(name, LIMITED))
    world.queued(2, 3)
    assert calls(world.wait(60 * SECOND - 1)) == []
    sent = world.wait(1)
    assert len(of(sent, cm.Register)) == 3
    assert world.core.state.pools["small"].failures == 0


def test_the_longest_limit_counts_and_one_without_word_is_a_minute() -> None:
    world = World()
    world.feed(ev.ScopeAnswered(APP, limited_until=world.now + 10 * MINUTE))
    (until,) = [row.limited_until for row in world.core.state.scopes.values()]
    world.feed(ev.JobsListed(APP, 0, Fault(Remedy.LIMITED, "429")))
    assert world.core.state.scopes[str(APP)].limited_until == until
    other = World()
    other.feed(ev.JobsListed(APP, 0, Fault(Remedy.LIMITED, "429")))
    assert other.core.state.scopes[str(APP)].limited_until == other.now + MINUTE


def test_a_forge_that_limits_us_is_silent_no_more() -> None:
    """Else `status` would send people to their network for as long as the limit lasts."""
    world = World()
    world.feed(ev.JobsListed(APP, 0, NO_ANSWER))
    world.lists = False
    world.feed(ev.ScopeAnswered(APP, limited_until=world.now + 10 * MINUTE))
    row = world.core.state.scopes[str(APP)]
    assert (row.silent, row.why, row.next_try) == (None, "", 0)
    (reason,) = [text for text in assess(world.core.state, world.now).reasons if str(APP) in text]
    assert "limits our requests" in reason
    assert calls(world.wait(10 * MINUTE - 1)) == []
    assert calls(world.wait(1)) != []


def test_a_call_that_we_held_back_ourselves_ends_no_silence() -> None:
    world = World()
    world.feed(ev.JobsListed(APP, 0, NO_ANSWER))
    world.feed(ev.RegistrationsListed(APP, (), LIMITED))
    assert world.core.state.scopes[str(APP)].silent is not None


def test_fp_37_a_refused_credential_stops_the_scope_and_is_tried_rarely() -> None:
    world = World(slots=8)
    (listener,) = world.listening(1)
    world.queued(2)
    world.feed(ev.JobsListed(APP, 0, DENIED))
    made = outage(world, DENIED, HOUR)
    assert 5 <= len(made) <= 7
    assert world.count(cm.Destroy) + world.count(cm.Deregister) == 0
    assert world.runner(listener).state is S.LISTENING
    health = assess(world.core.state, world.now)
    assert any("refuses our credential (Bad credentials)" in reason for reason in health.reasons)


def test_a_credential_that_was_renewed_is_tried_at_the_start() -> None:
    world = World()
    world.queued(1)
    world.feed(ev.JobsListed(APP, 0, DENIED))
    world.lists = False
    step = world.restart(down=SECOND)
    assert len(calls(list(step.commands))) == 1
    world.feed(ev.JobsListed(APP, 0))
    assert world.core.state.scopes[str(APP)].denied == ""


def test_a_refused_request_is_an_answer() -> None:
    world = World()
    world.feed(ev.JobsListed(APP, 0, NO_ANSWER))
    world.feed(ev.JobsListed(APP, 0, Fault(Remedy.REFUSED, "422")))
    assert world.core.state.scopes[str(APP)].silent is None


def test_an_answer_is_written_down_at_most_every_ten_seconds() -> None:
    world = World()
    world.now += 20 * SECOND
    assert world.feed(ev.ScopeAnswered(APP)).changed != ()
    world.now += 9 * SECOND
    assert world.feed(ev.ScopeAnswered(APP)).changed == ()


def test_listings_come_every_five_minutes_and_one_that_is_lost_after_ten() -> None:
    world = World(lists=False)
    assert world.count(cm.ListJobs) == 1
    sent = of(world.wait(9 * MINUTE), cm.ListJobs)
    assert sent == []
    assert len(of(world.wait(MINUTE), cm.ListJobs)) == 1
    world.feed(ev.JobsListed(APP, 0))
    world.feed(ev.RegistrationsListed(APP, ()))
    assert len(of(world.wait(5 * MINUTE), cm.ListJobs)) == 1


@pytest.mark.parametrize("late", [0, 3])
def test_an_answer_that_comes_before_the_wakening_puts_no_listing_off(late: int) -> None:
    """A moment that is over and was not looked at yet stays: what was to be done at it is to be done."""
    world = World()
    world.now += 5 * MINUTE + late
    answered = world.core.handle(ev.ScopeAnswered(APP), world.now)
    assert answered.changed != ()
    assert (world.core.next_wake() or 0) <= world.now
    step = world.feed(ev.Woke())
    assert of(step.commands, cm.ListJobs) == [cm.ListJobs(APP)]
    assert of(step.commands, cm.ListRegistrations) == [cm.ListRegistrations(APP)]
    assert (world.core.next_wake() or 0) > world.now


def test_a_scope_is_listed_for_ever_whatever_comes_before_the_wakening() -> None:
    """Of a scope whose two listings were due, and which was answered just before, nothing was listed any more."""
    world = World()
    lists = 0
    for _ in range(6):
        world.now += 5 * MINUTE + 3
        for event in (ev.ScopeAnswered(APP), ev.Woke()):
            lists += len(of(world.feed(event).commands, cm.ListJobs))
        world.feed(ev.JobsListed(APP, world.now))
        world.feed(ev.RegistrationsListed(APP, ()))
    assert lists == 6


@pytest.mark.parametrize("lost", [cm.ListJobs, cm.ListRegistrations])
def test_one_listing_that_is_lost_is_asked_for_after_ten_minutes_whenever_the_other_comes(lost: type) -> None:
    def answer(world: World) -> None:
        world.feed(ev.RegistrationsListed(APP, ()) if lost is cm.ListJobs else ev.JobsListed(APP, 0))

    world = World(policy=Policy(reconcile_every=7 * MINUTE), lists=False)
    answer(world)
    assert of(world.wait(9 * MINUTE), lost) == []
    answer(world)
    assert of(world.wait(MINUTE - 1), lost) == []
    assert of(world.wait(1), lost) == [lost(APP)]


def test_a_listing_that_takes_longer_than_the_interval_is_followed_by_the_next() -> None:
    world = World(policy=Policy(reconcile_every=MINUTE), lists=False)
    assert of(world.wait(3 * MINUTE), cm.ListJobs) == []
    step = world.feed(ev.JobsListed(APP, 0))
    assert of(step.commands, cm.ListJobs) == [cm.ListJobs(APP)]
    step = world.feed(ev.RegistrationsListed(APP, ()))
    assert of(step.commands, cm.ListRegistrations) == [cm.ListRegistrations(APP)]


def test_a_scope_that_nobody_configured_any_more_is_not_listed_for_ever() -> None:
    world = World(pool(), pool("lib", scope=LIB))
    world.restart(setup=Setup((pool(),), world.setup.hosts, world.setup.policy))
    sent = world.wait(HOUR)
    assert {str(command.scope) for command in of(sent, cm.ListJobs)} == {str(APP)}
    assert {str(command.scope) for command in of(sent, cm.ListRegistrations)} == {str(APP)}


def test_its_old_troubles_are_no_reason_to_worry() -> None:
    world = World(pool(), pool("lib", scope=LIB))
    world.feed(ev.JobsListed(LIB, 0, DENIED))
    world.restart(setup=Setup((pool(),), world.setup.hosts, world.setup.policy))
    assert assess(world.core.state, world.now).status == "ok"


def test_a_fence_waits_for_the_scope_and_nothing_is_destroyed_without_it() -> None:
    world = World(pool(surplus_grace=0))
    (name,) = world.listening(1)
    world.feed(ev.ScopeAnswered(APP, limited_until=world.now + 5 * MINUTE))
    world.completed(1, how="cancelled")
    world.probed(world.last(cm.ProbeRunner))
    assert world.count(cm.Deregister) == 0
    assert world.decisions[-1].outcome == "vetoed"
    assert "cannot be asked" in world.decisions[-1].reason
    assert world.runner(name).state is S.LISTENING


def test_a_job_asked_about_while_silent_is_asked_later() -> None:
    world = World(pool(max_concurrent=0))
    world.queued(1)
    world.feed(ev.JobsListed(APP, 0, NO_ANSWER))
    step = world.told(report(1, ForgeStatus.WAITING))
    assert of(step.commands, cm.LookUpJob) == []
    world.feed(ev.ScopeAnswered(APP))
    assert len(of(world.wait(30 * SECOND), cm.LookUpJob)) == 1


def test_a_hard_sign_of_a_nameless_job_waits_for_an_open_scope() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.WORKER)
    world.feed(ev.ScopeAnswered(APP, limited_until=world.now + 3 * MINUTE))
    assert of(world.wait(2 * MINUTE), cm.LookUpJob) == []
    (question,) = of(world.wait(MINUTE), cm.LookUpJob)
    assert question.job == key(1)


def test_another_silence_after_the_minute_begins_a_new_one() -> None:
    world = World()
    world.feed(ev.JobsListed(APP, 0, NO_ANSWER))
    world.now += 5 * MINUTE  # nobody woke it meanwhile
    world.feed(ev.JobsListed(APP, 0, NO_ANSWER))
    assert world.core.state.scopes[str(APP)].next_try == world.now + MINUTE


def limited(world: World, ms: int) -> None:
    """The forge limits our requests for so long, which is no whole number of minutes."""
    assert ms % MINUTE
    world.feed(ev.ScopeAnswered(APP, limited_until=world.now + ms))


def test_a_registration_that_is_to_be_taken_back_is_so_when_the_limit_ends() -> None:
    world = World()
    (name,) = world.listening(1)
    limited(world, 90 * SECOND)
    world.exited(name)
    assert of(world.wait(90 * SECOND - 1), cm.Deregister) == []
    assert [command.intent.runner for command in of(world.wait(1), cm.Deregister)] == [name]


def test_whose_job_one_had_that_is_gone_is_asked_when_the_limit_ends() -> None:
    world = World()
    (name,) = world.listening(1)
    world.sign(name, Sign.WORKER)
    world.exited(name)
    limited(world, 90 * SECOND)
    assert of(world.wait(90 * SECOND - 1), cm.LookUpJob) == []
    assert [command.job for command in of(world.wait(1), cm.LookUpJob)] == [key(1)]


def test_a_registration_without_a_runner_is_looked_up_when_the_limit_ends() -> None:
    world = World()
    stray = ev.FoundRegistration("eph-s1-e0-7", 300, busy=False, online=True)
    world.feed(ev.RegistrationsListed(APP, (stray,)))
    limited(world, 90 * SECOND)
    assert of(world.wait(90 * SECOND - 1), cm.LookUpRunner) == []
    assert len(of(world.wait(1), cm.LookUpRunner)) == 1


def test_a_listener_is_looked_up_when_the_limit_ends() -> None:
    world = World()
    world.listening(1)
    limited(world, 90 * SECOND)
    assert of(world.wait(90 * SECOND - 1), cm.LookUpRunner) == []
    assert len(of(world.wait(1), cm.LookUpRunner)) == 1


def test_a_limit_is_said_once_with_how_long_it_is() -> None:
    world = World()
    until = world.now + 90 * SECOND
    step = world.feed(ev.ScopeAnswered(APP, limited_until=until))
    (note,) = step.notes
    assert (note.level, dict(note.fields)["wait_ms"]) == ("warning", "90000")
    assert world.feed(ev.ScopeAnswered(APP, limited_until=until)).notes == ()


def test_silence_and_its_end_are_said_once_each() -> None:
    world = World()
    for _ in range(2):
        world.feed(ev.JobsListed(APP, 0, NO_ANSWER))
    assert "the forge answers again" not in world.notes
    for _ in range(2):
        world.now += MINUTE
        world.feed(ev.ScopeAnswered(APP))
    assert world.notes.count("the forge gives no answer") == world.notes.count("the forge answers again") == 1


def test_a_refused_credential_is_said_once() -> None:
    world = World()
    for _ in range(2):
        world.feed(ev.JobsListed(APP, 0, DENIED))
    assert world.notes.count("the forge refuses our credential") == 1


def test_a_refused_credential_is_tried_when_its_time_has_come_and_counts_no_more_once_it_is_taken() -> None:
    world = World(lists=False)
    surroundings(world)
    world.feed(ev.JobsListed(APP, 0, DENIED))
    world.queued(1)
    assert calls(world.wait(10 * MINUTE - 1)) == []
    assert len(calls(world.wait(1))) == 1
    assert world.count(cm.Register) == 0
    assert len(of(world.feed(ev.ScopeAnswered(APP)).commands, cm.LookUpJob)) == 1, "all else goes on at once"


def surroundings(world: World) -> None:
    """Answer the listings of the start."""
    world.feed(ev.JobsListed(APP, 0))
    world.feed(ev.RegistrationsListed(APP, ()))
    world.feed(ev.EnvironmentsListed("here", (), complete=True))


def test_a_registration_that_is_to_be_taken_back_is_so_when_the_forge_answers_again() -> None:
    world = World()
    (name,) = world.listening(1)
    world.feed(ev.JobsListed(APP, 0, NO_ANSWER))
    world.lists = False
    assert of(world.exited(name).commands, cm.Deregister) == []
    step = world.feed(ev.ScopeAnswered(APP))
    assert [command.intent.runner for command in of(step.commands, cm.Deregister)] == [name]


def test_the_end_of_a_limit_is_no_reason_to_list_what_is_not_due() -> None:
    world = World()
    world.wait(SECOND)
    limited(world, 90 * SECOND)
    assert calls(world.wait(2 * MINUTE)) == []


def test_an_answer_vouches_for_a_minute_however_short_the_pauses_of_the_policy_are() -> None:
    """Answers are written down every ten seconds only."""
    world = World(policy=Policy(look_again=5 * SECOND))
    (name,) = world.listening(1)
    (question,) = of(world.wait(30 * SECOND), cm.LookUpRunner)
    world.feed(ev.RunnerLookedUp(name, question.token, missing=True))
    assert world.runner(name).lost == world.now


def test_an_answer_is_written_down_again_after_ten_seconds() -> None:
    world = World()
    world.feed(ev.ScopeAnswered(APP))
    before = world.core.state.scope(APP).answered
    assert before is not None
    world.now = before + 10 * SECOND
    assert world.feed(ev.ScopeAnswered(APP)).changed != ()


@pytest.mark.parametrize(
    ("fault", "pause"), [(NO_ANSWER, MINUTE), (DENIED, 10 * MINUTE)], ids=["silent", "denied"]
)
def test_scopes_of_one_forge_that_fall_into_trouble_together_take_turns(fault: Fault, pause: int) -> None:
    """Those of another forge have nothing to do with them."""
    other = Scope("gitlab", "repo:acme/app")
    world = World(
        pool(), pool("lib", scope=LIB), pool("org", scope=ORG), pool("other", scope=other), lists=False
    )
    for scope in (APP, LIB, ORG, other):
        world.feed(ev.JobsListed(scope, 0, fault))
    rows = [world.core.state.scope(scope) for scope in (APP, LIB, ORG, other)]
    tried = [(row.next_try if row.silent is not None else row.denied_until) - world.now for row in rows]
    assert tried == [pause, pause + 250, pause + 500, pause]


def test_what_went_wrong_last_is_kept_until_the_forge_answers_again() -> None:
    world = World()
    for detail in ("timed out", "503"):
        world.feed(ev.JobsListed(APP, 0, Fault(Remedy.RETRY, detail)))
        assert world.core.state.scope(APP).why == detail
    world.feed(ev.ScopeAnswered(APP))
    assert world.core.state.scope(APP).why == ""


def test_a_limit_that_an_answer_names_lasts_as_long_as_it_says() -> None:
    world = World()
    world.feed(ev.JobsListed(APP, 0, Fault(Remedy.LIMITED, "429", 90 * SECOND)))
    assert world.core.state.scope(APP).limited_until == world.now + 90 * SECOND
