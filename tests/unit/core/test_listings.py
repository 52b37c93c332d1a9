"""What really runs and what is really registered: adoption, losses, leaks; foreign things are not ours."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from ephemerd.core import commands as cm
from ephemerd.core import events as ev
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import RunnerId
from ephemerd.domain.job import ForgeStatus, JobStatus
from ephemerd.domain.permit import Warrant
from ephemerd.domain.pool import Host, Policy, Setup
from ephemerd.domain.runner import FenceAnswer, Rule, RunnerState
from ephemerd.domain.verdict import Sign
from tests.unit.core import build
from tests.unit.core.world import APP, HOUR, LIB, MINUTE, NO_ANSWER, SECOND, World, of, pool, report, seen

S = RunnerState
LOST = RunnerId("eph-s1-old-7")


def found(name: str = LOST, **changes: object) -> ev.FoundEnvironment:
    plain = ev.FoundEnvironment(RunnerId(name), f"env-{name}", "small", ended=False)
    return replace(plain, **changes)


def listed(world: World, *environments: ev.FoundEnvironment, complete: bool = True) -> tuple[cm.Command, ...]:
    return world.feed(ev.EnvironmentsListed("here", environments, complete)).commands


# -- environments -------------------------------------------------------------------------------------


def test_fp_27_an_unknown_environment_is_held_on_to_watched_and_counted() -> None:
    world = World(slots=1)
    sent = listed(world, found())
    row = world.runner(LOST)
    assert (row.state, row.adopted, row.leak) == (S.STUCK, True, world.now)
    assert world.held == 1
    assert of(sent, cm.WatchRunner) == [cm.WatchRunner(LOST, "small", f"env-{LOST}")]
    assert of(sent, cm.Destroy) == []
    assert world.planned(1) == []


def test_after_a_sleep_the_first_listing_has_each_that_runs_followed_anew() -> None:
    world = World()
    (name,) = world.listening(1)
    first = len(world.sent)
    world.now += HOUR
    world.feed(ev.MachineSlept(HOUR))
    assert of(world.sent[first:], cm.WatchRunner) == [cm.WatchRunner(name, "small", f"env-{name}")]


def gate_probe(world: World) -> cm.ProbeRunner:
    """Let time pass until a rule has the runner looked at, and return the probe."""
    for _ in range(16 * 60):
        for command in of(world.wait(SECOND), cm.ProbeRunner):
            return command
    raise AssertionError("nothing nominated it")


@pytest.mark.parametrize("ended", [False, True])
def test_the_scope_of_one_that_is_held_on_to_is_listed_though_nobody_used_it_until_then(ended: bool) -> None:
    """Its pool is configured no more, and the time at which its scope was to be listed is over for long."""
    world = World(pool(), pool("lib", scope=LIB))
    world.restart(setup=Setup((pool(),), world.setup.hosts, world.setup.policy))
    assert [
        command.scope for command in of(world.wait(HOUR), cm.ListRegistrations) if command.scope == LIB
    ] == []
    sent = listed(world, found(pool="lib", ended=ended))
    assert [command.scope for command in of(sent, cm.ListRegistrations)] == [LIB]
    assert [command.scope for command in of(sent, cm.ListJobs)] == [LIB]


def test_the_scope_of_one_that_is_held_on_to_is_listed_when_its_limit_ends() -> None:
    world = World(pool(), pool("lib", scope=LIB))
    world.restart(setup=Setup((pool(),), world.setup.hosts, world.setup.policy))
    world.wait(HOUR)
    world.feed(ev.ScopeAnswered(LIB, limited_until=world.now + MINUTE))
    assert of(listed(world, found(pool="lib")), cm.ListRegistrations) == []
    assert LIB in [command.scope for command in of(world.wait(MINUTE), cm.ListRegistrations)]


def test_fp_27_it_goes_when_it_was_seen_twice_and_is_proven_idle_twice() -> None:
    world = World()
    world.environments[LOST] = found()
    listed(world, found())
    world.probed(world.last(cm.ProbeRunner))
    world.wait(59 * SECOND)
    assert world.runner(LOST).leak_again is None
    command = gate_probe(world)
    gate = world.runner(LOST).gate
    assert gate is not None
    assert gate.rule is Rule.LEAKED
    world.probed(command)
    world.wait(5 * SECOND)
    world.probed(world.last(cm.ProbeRunner))
    destroy = world.last(cm.Destroy)
    assert (destroy.permit.warrant, destroy.permit.runner) == (Warrant.IDLE, LOST)
    world.destroyed(destroy)
    assert world.held == 0


def test_fp_27_one_with_a_worker_is_adopted_and_runs_on() -> None:
    world = World()
    world.environments[LOST] = found()
    listed(world, found())
    world.probed(world.last(cm.ProbeRunner), seen(workers=1))
    assert world.runner(LOST).state is S.RUNNING
    world.wait(2 * HOUR)
    assert world.runner(LOST).state is S.RUNNING
    assert world.count(cm.Destroy) == 0
    world.exited(LOST)
    assert world.held == 0


def test_its_registration_is_learnt_from_the_list_so_that_the_fence_can_be_asked() -> None:
    world = World()
    world.environments[LOST] = found()
    listed(world, found())
    world.feed(ev.RegistrationsListed(APP, (ev.FoundRegistration(LOST, 88, busy=False, online=True),)))
    assert (world.runner(LOST).registration, world.runner(LOST).state) == (88, S.STUCK)
    world.probed(world.last(cm.ProbeRunner))
    world.probed(gate_probe(world))
    assert world.last(cm.Deregister).intent.registration == 88


def test_an_ended_unknown_environment_is_cleaned_up_and_holds_nothing() -> None:
    world = World()
    sent = listed(world, found(ended=True, code=1))
    assert world.held == 0
    (destroy,) = of(sent, cm.Destroy)
    assert destroy.permit.warrant is Warrant.ENDED
    assert world.counter("ended_without_a_job_total|pool=small") == 0


def test_an_unknown_environment_of_an_unknown_pool_is_taken_by_any_pool_of_the_host() -> None:
    world = World()
    listed(world, found(pool="renamed"))
    assert world.runner(LOST).pool == "small"


def test_a_host_without_a_pool_keeps_its_environments() -> None:
    world = World(pool(), hosts=(Host("here", 1), Host("bare", 1)))
    world.feed(ev.EnvironmentsListed("bare", (found(pool="renamed"),), True))
    assert not world.knows(LOST)
    assert "an environment bears our tag and no pool is configured" in world.notes


def test_fp_54_what_two_complete_listings_a_minute_apart_miss_is_lost() -> None:
    world = World(lists=False)
    (name,) = world.listening(1)
    world.now += SECOND
    listed(world)
    assert (world.runner(name).absent, world.held) == (world.now, 1)
    world.now += 60 * SECOND - 1
    listed(world)
    assert world.held == 1
    world.now += 1
    sent = listed(world)
    assert of(sent, cm.WatchRunner) == [cm.WatchRunner(name, "small", f"env-{name}")]
    assert (world.runner(name).state, world.held) == (S.LISTENING, 1)
    sent = world.feed(ev.EnvironmentExited(name, None)).commands
    row = world.runner(name)
    assert (row.state, row.ending, world.held) == (S.GONE, "its environment was lost", 0)
    assert [command.intent.runner for command in of(sent, cm.Deregister)] == [name]
    assert len(of(sent, cm.Register)) <= 1


def test_what_no_listing_shows_keeps_its_slot_until_a_direct_look_proves_its_end() -> None:
    """The runtime or engine that it lives in may not be configured any more: then whole listings miss a job
    that runs."""
    world = World(lists=False, slots=1)
    (name,) = world.listening(1)
    world.sign(name, Sign.ANNOUNCED, "build")
    sent: list[cm.Command] = []
    for _ in range(60):
        world.now += MINUTE
        sent = list(listed(world))
    assert (world.runner(name).state, world.held) == (S.RUNNING, 1)
    assert of(sent, cm.WatchRunner) == [cm.WatchRunner(name, "small", f"env-{name}")]
    assert "an environment is gone without a word" not in world.notes
    listed(world, world.environments[name])
    assert world.runner(name).absent is None


def test_one_miss_then_seen_then_missed_again_is_not_twice() -> None:
    world = World(lists=False)
    (name,) = world.listening(1)
    world.now += SECOND
    listed(world)
    world.now += MINUTE
    listed(world, world.environments[name])
    assert world.runner(name).absent is None
    world.now += MINUTE
    listed(world)
    assert world.runner(name).state is S.LISTENING


def test_an_incomplete_listing_proves_nothing() -> None:
    world = World(lists=False)
    (name,) = world.listening(1)
    for _ in range(4):
        world.now += 5 * MINUTE
        listed(world, complete=False)
    assert world.runner(name).absent is None


def test_a_runner_that_still_registers_or_starts_is_not_missed() -> None:
    world = World(lists=False)
    (name,) = world.planned(1)
    for _ in range(3):
        world.now += 20 * SECOND
        listed(world)
    world.registered(name)
    for _ in range(3):
        world.now += 61 * SECOND
        listed(world)
    assert world.runner(name).state is S.STARTING


def test_a_host_whose_listing_takes_longer_than_the_time_between_two_is_asked_again() -> None:
    world = build.World(policy=Policy(reconcile_every=10 * SECOND), answers=False)
    world.wait(15 * SECOND)
    asked = world.environments().commands
    assert of(asked, cm.ListEnvironments) == [cm.ListEnvironments("local")]
    assert of(world.environments().commands, cm.ListEnvironments) == [], "that one came in time"
    assert of(world.wait(10 * SECOND), cm.ListEnvironments) == [cm.ListEnvironments("local")]


def test_after_a_miss_the_host_is_listed_again_within_a_minute() -> None:
    world = World(lists=False)
    world.listening(1)
    world.wait(5 * MINUTE)
    listed(world)
    assert len(of(world.wait(MINUTE), cm.ListEnvironments)) == 1


def test_an_environment_that_reappears_after_it_was_given_up_is_held_on_to_again() -> None:
    world = World(lists=False)
    (name,) = world.listening(1)
    for _ in range(2):
        world.now += MINUTE
        listed(world)
    world.feed(ev.EnvironmentExited(name, None))
    assert (world.runner(name).state, world.runner(name).cleanup) == (S.GONE, False)
    held = world.held
    listed(world, found(name))
    assert (world.runner(name).state, world.held) == (S.STUCK, held + 1)
    assert world.runner(name).registration is not None


def test_remains_that_are_being_removed_are_not_adopted() -> None:
    world = World(lists=False)
    (name,) = world.listening(1)
    world.exited(name)
    listed(world, found(name, ended=False))
    assert world.runner(name).state is S.GONE


def test_a_pool_that_moved_to_another_host_does_not_lose_its_runners() -> None:
    """The listing of the new host does not show what runs on the old one."""
    hosts = (Host("here", 2), Host("there", 2))
    world = World(pool(), hosts=hosts, lists=False)
    (name,) = world.listening(1)
    world.restart(setup=Setup((pool(host="there"),), hosts, world.setup.policy))
    for _ in range(3):
        world.now += MINUTE
        world.feed(ev.EnvironmentsListed("there", (), True))
        world.feed(ev.EnvironmentsListed("here", (world.environments[name],), True))
    assert world.runner(name).state is S.LISTENING


def test_a_host_nobody_knows_is_no_host() -> None:
    world = World()
    assert world.feed(ev.EnvironmentsListed("elsewhere", (found(),), True)).changed == ()


# -- registrations ------------------------------------------------------------------------------------


def registrations(world: World, *names: str, busy: bool = False) -> tuple[cm.Command, ...]:
    one = tuple(ev.FoundRegistration(name, 300 + at, busy, online=True) for at, name in enumerate(names))
    return world.feed(ev.RegistrationsListed(APP, one)).commands


def test_fp_21_a_registration_without_a_runner_goes_after_two_direct_looks() -> None:
    world = World()
    registrations(world, LOST)
    assert (world.runner(LOST).state, world.held) == (S.GONE, 0)
    assert of(world.wait(59 * SECOND), cm.LookUpRunner) == []
    (command,) = of(world.wait(SECOND), cm.LookUpRunner)
    assert command.registration == 300
    step = world.feed(ev.RunnerLookedUp(LOST, command.token, busy=False, connected=False))
    (back,) = of(step.commands, cm.Deregister)
    assert (back.intent.registration, back.intent.warrant) == (300, Warrant.ENDED)
    world.deregistered(back)
    assert not world.runner(LOST).unregister


def test_a_busy_registration_is_left_alone_as_long_as_it_is() -> None:
    world = World()
    registrations(world, LOST)
    for _ in range(5):
        (command,) = of(world.wait(MINUTE), cm.LookUpRunner)
        world.feed(ev.RunnerLookedUp(LOST, command.token, busy=True, connected=True))
    assert world.count(cm.Deregister) == 0


def test_one_that_is_gone_at_the_second_look_is_no_leak() -> None:
    world = World()
    registrations(world, LOST)
    (command,) = of(world.wait(MINUTE), cm.LookUpRunner)
    world.feed(ev.RunnerLookedUp(LOST, command.token, missing=True))
    assert world.runner(LOST).leak is None
    assert world.count(cm.Deregister) == 0
    world.wait(HOUR)
    assert not world.knows(LOST)


@pytest.mark.parametrize("fault", [NO_ANSWER, Fault(Remedy.BROKEN, "no"), Fault(Remedy.LIMITED, "429", 3)])
def test_a_look_without_an_answer_is_repeated_and_not_at_once(fault: Fault) -> None:
    world = World()
    registrations(world, LOST)
    looks: list[int] = []
    while len(looks) < 40 and world.now < 1_000_000 + 3 * HOUR:
        for command in of(world.wait(SECOND), cm.LookUpRunner):
            looks.append(world.now)
            world.feed(ev.RunnerLookedUp(LOST, command.token, fault=fault))
    assert len(looks) == 40
    assert min(later - earlier for earlier, later in pairwise(looks)) >= 59 * SECOND


def test_absence_from_the_list_of_registrations_proves_nothing() -> None:
    world = World(lists=False)
    (name,) = world.listening(1)
    for _ in range(4):
        world.now += 5 * MINUTE
        registrations(world)
    assert world.runner(name).lost is None
    assert world.runner(name).state is S.LISTENING


def test_a_live_runners_registration_is_no_leak() -> None:
    world = World()
    (name,) = world.listening(1)
    registrations(world, name)
    assert world.runner(name).leak is None


@pytest.mark.parametrize("name", ["eph-s2-e1-1", "eph-s1", "eph-s10-e1-1", "runner-of-acme", "EPH-S1-e1-1"])
def test_foreign_registrations_are_never_touched(name: str) -> None:
    world = World()
    before = world.core.checkpoint()["rows"]["runner"]
    registrations(world, name)
    assert world.core.checkpoint()["rows"]["runner"] == before
    world.wait(10 * MINUTE)
    assert world.count(cm.Deregister) + world.count(cm.LookUpRunner) == 0


def test_fp_24_a_zombie_is_retried_ever_more_slowly_and_names_do_not_come_back() -> None:
    world = World()
    (name,) = world.listening(1)
    step = world.exited(name)
    command = of(step.commands, cm.Deregister)[0]
    fresh = world.last(cm.Register).runner
    assert fresh != name
    times: list[int] = []
    while len(times) < 8:
        times.append(world.now)
        world.deregistered(command, FenceAnswer.REFUSED)
        while True:
            again = [c for c in of(world.wait(SECOND), cm.Deregister) if c.intent.runner == name]
            if again:
                command = again[0]
                break
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps == sorted(gaps)
    assert gaps[-1] >= 10 * MINUTE


# -- jobs ---------------------------------------------------------------------------------------------


def test_a_listing_of_jobs_lets_resting_rules_go_on() -> None:
    world = World(pool(observed=False), lists=False)
    (name,) = world.listening(1)
    world.completed(1, how="cancelled")
    assert of(world.wait(4 * MINUTE), cm.ProbeRunner) == []
    step = world.feed(ev.JobsListed(APP, 0))
    assert [command.runner for command in of(step.commands, cm.ProbeRunner)] == [name]


def test_an_adopted_listener_that_announces_itself_listens() -> None:
    world = World()
    world.environments[LOST] = found()
    listed(world, found())
    world.sign(LOST, Sign.LISTENING)
    assert world.runner(LOST).state is S.LISTENING


def test_an_answer_that_is_told_twice_is_one_look() -> None:
    """A runner ended while its registration was looked up: the second look is a minute after the first."""
    world = World()
    (name,) = world.listening(1)
    world.wait(30 * SECOND)
    command = world.last(cm.LookUpRunner)
    world.exited(name)
    world.deregistered(world.last(cm.Deregister), FenceAnswer.NOT_FOUND)
    answer = ev.RunnerLookedUp(name, command.token, busy=False, connected=True)
    world.feed(answer)
    leak = world.runner(name).leak
    assert leak == world.now
    world.feed(answer)
    assert (world.runner(name).leak, world.runner(name).leak_again) == (leak, None)
    assert not world.runner(name).unregister


def test_remains_that_come_back_are_removed_again() -> None:
    world = World()
    (name,) = world.listening(1)
    world.in_progress(1, name)
    world.exited(name)
    world.destroyed(world.last(cm.Destroy))
    assert not world.runner(name).cleanup
    ended = ev.FoundEnvironment(name, "again", "small", ended=True)
    step = world.feed(ev.EnvironmentsListed("here", (ended,), True))
    (command,) = of(step.commands, cm.Destroy)
    assert (command.permit.environment, command.permit.warrant) == ("again", Warrant.ENDED)
    assert world.runner(name).cleanup


def test_remains_that_are_being_removed_are_not_removed_twice() -> None:
    world = World()
    (name,) = world.listening(1)
    world.in_progress(1, name)
    world.exited(name)
    assert world.runner(name).cleanup
    ended = ev.FoundEnvironment(name, f"env-{name}", "small", ended=True)
    assert of(world.feed(ev.EnvironmentsListed("here", (ended,), True)).commands, cm.Destroy) == []


def test_what_a_list_shows_of_a_runner_that_cannot_have_started_is_not_it() -> None:
    world = World()
    (name,) = world.planned(1)
    found = ev.FoundEnvironment(name, "env", "small", ended=False)
    world.feed(ev.EnvironmentsListed("here", (found,), True))
    assert (world.runner(name).state, world.runner(name).environment) == (S.REGISTERING, None)


def test_an_end_that_is_only_listed_waits_for_whoever_watches_it() -> None:
    """The exit, with its code, comes from the one who watches; a list may be older than the start."""
    world = World()
    (name,) = world.listening(1)
    ended = ev.FoundEnvironment(name, f"env-{name}", "small", ended=True)
    world.feed(ev.EnvironmentsListed("here", (ended,), True))
    assert world.runner(name).state is S.LISTENING


def test_a_registration_in_a_scope_without_a_pool_is_nobodys() -> None:
    world = World()
    found = ev.FoundRegistration(LOST, 300, busy=False, online=True)
    world.feed(ev.RegistrationsListed(LIB, (found,)))
    assert not world.knows(LOST)


def test_a_listing_of_jobs_comes_in_parts_and_each_line_counts() -> None:
    world = World(slots=0)
    told = [report(number, ForgeStatus.QUEUED) for number in range(1, 2 * ev.READ_AT_ONCE + 2)]
    parts = list(ev.read_in_parts(APP, told))
    assert [len(part.reports) for part in parts] == [ev.READ_AT_ONCE, ev.READ_AT_ONCE, 1]
    assert [one for part in parts for one in part.reports] == told
    for part in parts:
        world.feed(part)
    assert len(world.core.state.jobs) == len(told)
    assert {job.status for job in world.core.state.jobs.values()} == {JobStatus.QUEUED}
    assert list(ev.read_in_parts(APP, [])) == []


def test_a_line_of_a_listing_confirms_a_job_that_runs() -> None:
    """A delivery that says so again does not: it may be an old one."""
    world = World()
    world.in_progress(1, "elsewhere")
    world.now += MINUTE
    said = report(1, ForgeStatus.IN_PROGRESS, runner_name="elsewhere")
    world.told(said)
    assert world.job(1).confirmed == world.now - MINUTE
    world.feed(ev.JobsRead(APP, (said,)))
    assert world.job(1).confirmed == world.now


# -- when a host is listed again -----------------------------------------------------------------------


def surroundings(world: World) -> None:
    """Answer what was asked when the process life began."""
    world.feed(ev.JobsListed(APP, 0))
    world.feed(ev.RegistrationsListed(APP, ()))


def relisted(world: World, ms: int) -> int:
    """Return how often the host is listed within so many ms, while no listing is answered."""
    return len(of(world.wait(ms), cm.ListEnvironments))


def followed() -> tuple[World, RunnerId, ev.FoundEnvironment]:
    """One works since a while; whoever follows it will tell its end."""
    world = World(lists=False)
    surroundings(world)
    (name,) = world.listening(1)
    world.in_progress(1, name)
    world.now += SECOND
    return world, name, world.environments[name]


def test_a_listing_that_shows_what_is_known_is_followed_by_the_next_in_its_time() -> None:
    world, _, known = followed()
    listed(world, known)
    assert relisted(world, 4 * MINUTE) == 0


def test_an_end_that_is_only_listed_brings_no_listing_nearer() -> None:
    world, _, known = followed()
    listed(world, replace(known, ended=True, code=0))
    assert relisted(world, 4 * MINUTE) == 0


def test_remains_bring_no_listing_nearer() -> None:
    world, name, known = followed()
    world.exited(name)
    listed(world, replace(known, ended=True, code=0))
    listed(world, known)
    world.destroyed(world.last(cm.Destroy))
    listed(world, replace(known, ended=True, code=0))
    assert relisted(world, 4 * MINUTE) == 0


def test_what_cannot_have_started_yet_brings_no_listing_nearer() -> None:
    world = World(lists=False)
    surroundings(world)
    (name,) = world.planned(1)
    listed(world, found(name))
    assert relisted(world, 2 * MINUTE) == 0


def test_what_was_abandoned_and_has_ended_brings_no_listing_nearer() -> None:
    world, _ = given_up()
    (name,) = world.environments
    listed(world, replace(world.environments[name], ended=True, code=137))
    assert relisted(world, 3 * MINUTE) == 0


def test_what_is_not_known_has_its_host_listed_again_within_a_minute_whatever_else_is_there() -> None:
    """It goes only when it was seen twice."""
    world, _, known = followed()
    listed(world, found(), known)
    assert relisted(world, MINUTE) == 1


def test_what_came_back_has_its_host_listed_again_within_a_minute() -> None:
    world, name, known = followed()
    world.exited(name)
    world.destroyed(world.last(cm.Destroy))
    listed(world, known)
    assert (world.runner(name).state, relisted(world, MINUTE)) == (S.STUCK, 1)


def test_an_end_that_nobody_in_this_life_had_followed_has_its_host_listed_again_within_a_minute() -> None:
    world, _, known = followed()
    world.restart(down=SECOND)
    surroundings(world)
    listed(world, replace(known, ended=True, code=0))
    assert relisted(world, MINUTE) == 1


def test_a_host_is_listed_again_within_a_minute_as_long_as_something_is_missed() -> None:
    world, _, _ = followed()
    for _ in range(3):
        listed(world)
        assert relisted(world, MINUTE) == 1


def test_a_listing_that_is_not_answered_is_asked_for_again_after_two_minutes() -> None:
    """However often it would be due; and not before, while it is out."""
    world = World(policy=Policy(reconcile_every=MINUTE), lists=False)
    assert relisted(world, 2 * MINUTE - 1) == 0
    assert relisted(world, 1) == 1


def test_only_the_hosts_that_are_configured_are_listed() -> None:
    hosts = (Host("here", 2), Host("there", 2))
    world = World(pool(), hosts=hosts)
    step = world.restart(setup=Setup((pool(),), hosts[:1], world.setup.policy))
    assert of(step.commands, cm.ListEnvironments) == [cm.ListEnvironments("here")]


# -- what is watched -----------------------------------------------------------------------------------


def test_what_this_life_started_is_not_watched_once_more_when_it_is_listed() -> None:
    world, _, known = followed()
    assert of(listed(world, known), cm.WatchRunner) == []


def test_what_an_earlier_life_started_is_watched_once() -> None:
    world, name, known = followed()
    world.restart(down=SECOND)
    for command in of(world.sent, cm.ProbeRunner):
        world.probed(command, seen(workers=1))
    assert len(of(listed(world, known), cm.WatchRunner)) == 1
    assert of(listed(world, known), cm.WatchRunner) == []
    assert world.runner(name).state is S.RUNNING


def test_what_the_first_listing_of_a_life_missed_is_watched_when_it_is_found() -> None:
    world, name, known = followed()
    world.restart(down=SECOND)
    listed(world)
    assert of(listed(world, known), cm.WatchRunner) == [cm.WatchRunner(name, "small", f"env-{name}")]


def test_what_was_looked_into_and_then_missed_by_the_first_listing_is_watched_when_it_is_found() -> None:
    """Its probe was answered before that listing; else its signs would go unheard, and its exit until a listing."""
    world, name, known = followed()
    world.restart(down=SECOND)
    for command in of(world.sent, cm.ProbeRunner):
        world.probed(command, seen(workers=1))
    listed(world)
    assert world.runner(name).absent is not None
    assert of(listed(world, known), cm.WatchRunner) == [cm.WatchRunner(name, "small", f"env-{name}")]
    assert of(listed(world, known), cm.WatchRunner) == []


def test_what_this_life_started_and_a_listing_missed_is_watched_already() -> None:
    world, name, known = followed()
    listed(world)
    assert world.runner(name).absent is not None
    assert of(listed(world, known), cm.WatchRunner) == []


def test_one_that_was_being_destroyed_begins_one_pass_through_the_gate_however_often_it_is_listed() -> None:
    world = build.World(answers=False)
    world.environments()
    world.list_jobs()
    name = world.retiring()
    world.restart()
    assert len(of(world.environments().commands, cm.ProbeRunner)) == 1
    assert of(world.environments().commands, cm.ProbeRunner) == []
    assert world.gate(name).evidence[0].detail == "this process life began while it was being destroyed"


def test_leftovers_that_outlived_a_life_and_would_not_die_are_ended_no_more_by_a_listing() -> None:
    world, name, known = followed()
    world.exited(name, leftovers=1)
    world.restart(down=SECOND)
    (destroy,) = of(listed(world, known), cm.Destroy)
    assert "when this process life began" in destroy.permit.evidence[0].detail
    world.wait(70 * SECOND)
    assert world.runner(name).state is S.ABANDONED
    assert of(listed(world, known), cm.Destroy) == []
    assert world.runner(name).state is S.ABANDONED


# -- what ended, and what is missed --------------------------------------------------------------------


def given_up() -> tuple[World, RunnerId]:
    """The leftovers of one would not die."""
    hosts = (Host("here", 4), Host("there", 4))
    world = World(
        pool(), pool("other", host="there", labels=(*build.LABELS, "other")), hosts=hosts, lists=False
    )
    surroundings(world)
    for host in hosts:
        world.feed(ev.EnvironmentsListed(host.name, (), True))
    (name,) = world.listening(1)
    world.in_progress(1, name)
    world.completed(1, name)
    world.exited(name, leftovers=1)
    world.wait(70 * SECOND)
    assert world.runner(name).state is S.ABANDONED
    return world, name


def test_an_abandoned_environment_that_is_listed_as_ended_is_gone() -> None:
    world, name = given_up()
    sent = listed(world, replace(world.environments[name], ended=True, code=137))
    row = world.runner(name)
    assert (row.state, row.exit_code, world.core.state.index.abandoned) == (S.GONE, 137, {})
    assert [command.permit.warrant for command in of(sent, cm.Destroy)] == [Warrant.ENDED]


def test_an_abandoned_environment_is_missed_by_the_listings_of_its_own_host_alone() -> None:
    world, name = given_up()
    (other,) = world.listening(2, labels=(*build.LABELS, "other"))
    world.in_progress(2, other)
    world.completed(2, other)
    world.exited(other, leftovers=1)
    world.wait(70 * SECOND)
    assert world.core.state.index.abandoned == {"here": 1, "there": 1}
    world.now += MINUTE
    listed(world)
    world.now += MINUTE
    sent = listed(world)
    assert [command.runner for command in of(sent, cm.WatchRunner)] == [name]
    assert world.runner(other).absent is None


def test_what_is_gone_is_missed_by_no_listing() -> None:
    """Its host is looked through for what was abandoned there."""
    world, name = given_up()
    (gone,) = world.listening(2)
    world.in_progress(2, gone)
    world.exited(gone)
    world.now += MINUTE
    listed(world)
    world.now += MINUTE
    sent = listed(world)
    assert [command.runner for command in of(sent, cm.WatchRunner)] == [name]
    assert world.runner(gone).absent is None


def test_each_that_a_listing_misses_is_noticed_whoever_else_is_there() -> None:
    world = World(lists=False)
    first, second = world.listening(1, 2)
    world.now += SECOND
    listed(world, world.environments[first])
    assert (world.runner(first).absent, world.runner(second).absent) == (None, world.now)


def test_what_two_listings_miss_is_looked_for_directly_only_when_they_are_a_minute_apart() -> None:
    world, _, _ = followed()
    listed(world)
    world.now += MINUTE - 1
    assert of(listed(world), cm.WatchRunner) == []


def never_started() -> tuple[World, RunnerId]:
    """A start was under way when the daemon died; what it is called was never told."""
    world = World(lists=False)
    (name,) = world.planned(1)
    world.registered(name)
    world.restart(down=SECOND)
    return world, name


def test_a_start_of_an_earlier_life_that_two_listings_miss_is_lost_and_its_registration_taken_back() -> None:
    world, name = never_started()
    listed(world)
    world.now += MINUTE - 1
    listed(world)
    assert world.runner(name).state is S.STARTING
    world.now += 1
    sent = listed(world)
    assert (world.runner(name).state, world.runner(name).ending) == (S.GONE, "its environment was lost")
    assert [command.intent.runner for command in of(sent, cm.Deregister)] == [name]
    assert "an environment is gone without a word" in world.notes


def test_one_that_had_a_job_and_is_lost_keeps_its_registration_to_the_forge() -> None:
    """The forge removes the registration together with the job."""
    world, name = never_started()
    world.in_progress(1, name)
    listed(world)
    world.now += MINUTE
    sent = listed(world)
    assert world.runner(name).state is S.GONE
    assert of(sent, cm.Deregister) == []


def test_remains_of_which_no_name_was_told_are_removed_when_a_listing_names_them() -> None:
    world = World(lists=False)
    (name,) = world.planned(1)
    world.registered(name)
    world.exited(name, 1)
    assert (world.runner(name).cleanup, world.runner(name).environment) == (True, None)
    (destroy,) = of(listed(world, found(name, ended=True, code=1)), cm.Destroy)
    assert (destroy.permit.environment, destroy.permit.warrant) == (f"env-{name}", Warrant.ENDED)


# -- registrations, once more --------------------------------------------------------------------------


def test_what_is_not_known_is_said() -> None:
    world = World()
    listed(world, found())
    assert "an environment that the store does not know is held on to" in world.notes
    registrations(world, "eph-s1-old-8")
    assert "a registration of ours has no runner" in world.notes


def test_a_listing_of_registrations_that_got_no_answer_is_the_scopes_trouble() -> None:
    world = World(lists=False)
    world.feed(ev.RegistrationsListed(APP, (), NO_ANSWER))
    assert world.core.state.scope(APP).silent == world.now


@pytest.mark.parametrize("busy", [True, False])
def test_a_worker_that_the_list_shows_as_not_busy_is_counted_as_a_contradiction(busy: bool) -> None:
    world, name, _ = followed()
    world.sign(name, Sign.WORKER)
    world.now += 2 * MINUTE
    registrations(world, name, busy=busy)
    assert world.counter("flag_contradictions_total|pool=small") == (0 if busy else 1)


def test_a_registration_that_is_being_taken_back_is_no_leak() -> None:
    world = World()
    (name,) = world.listening(1)
    world.exited(name)
    assert world.runner(name).unregister
    registrations(world, name)
    assert world.runner(name).leak is None


def test_a_registration_that_is_left_by_one_that_had_a_job_goes_after_two_looks() -> None:
    world = World(lists=False)
    (name,) = world.listening(1)
    world.in_progress(1, name)
    world.exited(name)
    world.destroyed(world.last(cm.Destroy))
    registrations(world, name)
    first = world.now
    world.now += 30 * SECOND
    registrations(world, name)
    assert world.runner(name).leak == first, "the minute counts from when it was first seen"
    (question,) = of(world.wait(30 * SECOND), cm.LookUpRunner)
    step = world.feed(ev.RunnerLookedUp(name, question.token, busy=False, connected=False))
    assert [command.intent.runner for command in of(step.commands, cm.Deregister)] == [name]


def test_a_registration_that_was_never_answered_is_learnt_from_the_list() -> None:
    """Nobody could say whether its name exists; the list does, after its runner was given up."""
    world = World(lists=False)
    (name,) = world.planned(1)
    world.wait(MINUTE)
    world.feed(ev.NameLookedUp(name, None, Fault(Remedy.REFUSED, "not today")))
    assert (world.runner(name).state, world.runner(name).registration) == (S.GONE, None)
    registrations(world, name)
    (question,) = of(world.wait(MINUTE), cm.LookUpRunner)
    assert (question.runner, question.registration) == (name, 300)


def test_a_list_gives_no_registration_to_one_whose_own_answer_is_still_to_come() -> None:
    """Its credential comes with that answer alone."""
    world = World()
    (name,) = world.planned(1)
    registrations(world, name)
    assert (world.runner(name).state, world.runner(name).registration) == (S.REGISTERING, None)


# -- jobs that a listing does not show -----------------------------------------------------------------


@pytest.mark.parametrize(("fault", "asked"), [(None, 1), (Fault(Remedy.REFUSED, "not today"), 0)])
def test_a_job_that_a_listing_does_not_show_is_asked_about_unless_the_listing_failed(
    fault: Fault | None, asked: int
) -> None:
    world = World(pool(max_concurrent=0), lists=False)
    surroundings(world)
    world.now += SECOND
    world.queued(1)
    assert of(world.wait(5 * MINUTE), cm.ListJobs) == [cm.ListJobs(APP)]
    sent = world.feed(ev.JobsListed(APP, 0, fault)).commands
    assert len(of(sent, cm.LookUpJob)) == asked


def test_a_listing_that_nobody_asked_for_has_no_job_asked_about() -> None:
    """Nothing says when it was begun: a job may be younger than it."""
    world = World(pool(max_concurrent=0), lists=False)
    surroundings(world)
    world.queued(1)
    world.now += MINUTE
    assert of(world.feed(ev.JobsListed(APP, 0)).commands, cm.LookUpJob) == []


def test_what_a_scope_is_said_to_have_been_read_as_of_counts_from_the_start_of_this_life_on() -> None:
    """What was queued while nobody was there is in no earlier listing."""
    world = World(lists=False)
    begun = world.now
    world.now += MINUTE
    world.feed(ev.JobsListed(APP, 0, repositories=("acme/app",), as_of=begun - 1))
    assert world.core.state.scope(APP).jobs_listed is None
    world.feed(ev.JobsListed(APP, 0, repositories=("acme/app",), as_of=begun))
    assert world.core.state.scope(APP).jobs_listed == begun


def test_two_sights_of_what_is_not_known_are_a_minute_apart() -> None:
    world = World(lists=False)
    listed(world, found())
    world.now += MINUTE - 1
    listed(world, found())
    assert world.runner(LOST).leak_again is None
    world.now += 1
    listed(world, found())
    assert world.runner(LOST).leak_again == world.now
