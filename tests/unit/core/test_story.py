"""A story has one sentence for every kind of event, in order, and says what a decision rests on."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ephemerd.core import events as ev
from ephemerd.core.sayings import say, spoken, subject_of
from ephemerd.core.spans import span
from ephemerd.core.story import Entry, tell
from ephemerd.domain.errors import Fault, Remedy
from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.job import ForgeStatus, JobReport, Origin, Told
from ephemerd.domain.pool import Host, Policy, Pool, Setup
from ephemerd.domain.runner import Decision, FenceAnswer
from ephemerd.domain.verdict import Evidence, Files, Listing, ProbeReport, Sign, Verdict, Via
from tests.unit.core.values import any_of

KINDS = get_args(ev.Event)
R = RunnerId("eph-s-1-7")
OTHER = RunnerId("eph-s-1-8")
JOB = JobKey("github", "acme/app", 41)
SCOPE = Scope("github", "repo:acme/app")
POOL = Pool("linux", SCOPE, ("linux",), "local", "process")
SETUP = Setup((POOL,), (Host("local", 4),), Policy())
TIMEOUT = Fault(Remedy.RETRY, "timed out")


def report(status: ForgeStatus, **more) -> JobReport:
    return JobReport(JOB, status, ("linux", "x64"), **more)


def looked(**more) -> ProbeReport:
    fields = {
        "listing": Listing.COMPLETE,
        "workers": 0,
        "strangers": 0,
        "listener_alive": True,
        "files": Files.HEALTHY,
        "listening": True,
        "offered_at": None,
        "announced_at": None,
        "ended_at": None,
        "probe": "process",
        "detail": "",
    }
    return ProbeReport(**{**fields, **more})


TWO = Setup((POOL, replace(POOL, name="mac", max_concurrent=2)), (Host("local", 4),), Policy())
SENTENCES: list[tuple[ev.Event, str]] = [
    (
        ev.Booted("s", "1", TWO),
        "the daemon started (store s, boot epoch 1, pools: linux, mac)",
    ),
    (
        ev.Reconfigured("ann", TWO),
        "ann had the configuration read again (pools: linux (at most 4), mac (at most 2))",
    ),
    (
        ev.Reconfigured("ann", Setup((), (), Policy())),
        "ann had the configuration read again (pools: none)",
    ),
    (
        ev.JobReported(report(ForgeStatus.COMPLETED, runner_name=R), Told.WEBHOOK),
        f"a delivery said that the job is completed without a conclusion on {R}",
    ),
    (
        ev.RunLookedUp(JOB, 3, Origin(branch="main")),
        "asked whose work its run is, the forge said: of a repository, branch main",
    ),
    (
        ev.RunnerLookedUp(R, 3, busy=True, connected=True),
        "the forge shows its registration: busy (the flag can veto, it cannot clear)",
    ),
    (
        ev.RunnerLookedUp(R, 3),
        "the forge shows its registration: no busy flag (the flag can veto, it cannot clear)",
    ),
    (
        ev.EnvironmentsListed("local", (), complete=True),
        "host local listed 0 environments of ours",
    ),
    (
        ev.Booted("s", "1", SETUP),
        "the daemon started (store s, boot epoch 1, pools: linux)",
    ),
    (
        ev.Booted("s", "1", Setup((), (), Policy()), same_boot=False),
        "the daemon started, after a reboot of the machine (store s, boot epoch 1, pools: none)",
    ),
    (
        ev.Reconfigured("ann", SETUP),
        "ann had the configuration read again (pools: linux (at most 4))",
    ),
    (ev.Woke(), "a deadline came due"),
    (ev.ClockStepped(-7_200_000), "the wall clock was moved back by 2 h; nothing ages by it"),
    (ev.MachineSlept(8 * 3_600_000), "the machine slept for 8 h; everything is looked at anew"),
    (ev.ClockStepped(1_500), "the wall clock was moved forward by 1.5 s; nothing ages by it"),
    (
        ev.JobReported(report(ForgeStatus.QUEUED), Told.WEBHOOK),
        "a delivery said that the job is queued, asking for linux, x64",
    ),
    (
        ev.JobReported(JobReport(JOB, ForgeStatus.QUEUED, (), name="build"), Told.LISTING),
        "the listing said that the job 'build' is queued, asking for no label",
    ),
    (
        ev.JobReported(report(ForgeStatus.WAITING), Told.LOOKUP),
        "the forge, asked directly, said that the job is waiting for approval",
    ),
    (
        ev.JobReported(report(ForgeStatus.IN_PROGRESS, runner_name="box-3"), Told.WEBHOOK),
        "a delivery said that the job is in progress on box-3",
    ),
    (
        ev.JobReported(report(ForgeStatus.IN_PROGRESS), Told.WEBHOOK),
        "a delivery said that the job is in progress on a runner that it does not name",
    ),
    (
        ev.JobReported(report(ForgeStatus.COMPLETED, conclusion="success", runner_name=R), Told.WEBHOOK),
        f"a delivery said that the job is completed as success on {R}",
    ),
    (
        ev.JobReported(report(ForgeStatus.COMPLETED, conclusion="cancelled"), Told.WEBHOOK),
        "a delivery said that the job is completed as cancelled and never had a runner",
    ),
    (
        ev.JobReported(report(ForgeStatus.OTHER), Told.WEBHOOK),
        "a delivery said that the job is in a status that we do not know",
    ),
    (
        ev.JobLookedUp(JOB, 1, report=report(ForgeStatus.QUEUED)),
        "asked about the job, the forge said that it is queued, asking for linux, x64",
    ),
    (
        ev.RunLookedUp(JOB, 1, Origin(public=True, fork=True, branch="wip")),
        "asked whose work its run is, the forge said: of a public repository, branch wip, its commit from a fork",
    ),
    (
        ev.RunLookedUp(JOB, 1, Origin(public=False)),
        "asked whose work its run is, the forge said: of a repository that is not public",
    ),
    (ev.RunLookedUp(JOB, 1, missing=True), "asked whose work its run is, the forge did not find the run"),
    (
        ev.RunLookedUp(JOB, 1, fault=TIMEOUT),
        (
            "asked whose work its run is, the forge gave no usable answer: timed out "
            "(no usable answer, it may have happened)"
        ),
    ),
    (
        ev.JobLookedUp(JOB, 1, missing=True),
        "asked about the job, the forge did not find it, though the repository answers",
    ),
    (
        ev.JobLookedUp(JOB, 1, fault=TIMEOUT),
        (
            "asked about the job, the forge gave no usable answer: timed out "
            "(no usable answer, it may have happened)"
        ),
    ),
    (ev.Registered(R, 17), "registered at the forge, registration 17"),
    (
        ev.RegistrationFailed(R, Fault(Remedy.LIMITED, "429", 61_000)),
        "registering failed: 429 (a rate limit, wait 1 min 1 s)",
    ),
    (
        ev.RegistrationFailed(R, Fault(Remedy.REFUSED, "409 name taken"), taken=9),
        "registering failed: 409 name taken (refused as it stands); the name belongs to registration 9",
    ),
    (ev.NameLookedUp(R, 17), "its name is registered at the forge, registration 17"),
    (ev.NameLookedUp(R, None), "its name is not registered at the forge"),
    (
        ev.NameLookedUp(R, None, Fault(Remedy.DENIED, "401")),
        "whether its name is registered could not be learned: 401 (the credential was not accepted)",
    ),
    (ev.EnvironmentStarted(R, "pid:9"), "its environment started (pid:9)"),
    (
        ev.StartFailed(R, Fault(Remedy.BROKEN, "no such user")),
        "its environment could not be started: no such user (this machine cannot do it)",
    ),
    (ev.SignSeen(R, Sign.LISTENING), "its listener is ready for a job"),
    (ev.EnvironmentExited(R, 0), "listener and worker are proven gone (exit code 0)"),
    (
        ev.EnvironmentExited(R, None, 2),
        "listener and worker are proven gone (an unknown exit code); 2 processes of its job still ran",
    ),
    (
        ev.Probed(R, 1, looked()),
        "the probe looked inside: no worker, listener alive, files readable, process list complete",
    ),
    (
        ev.Probed(R, 1, looked(workers=1, strangers=1, listener_alive=False, files=Files.UNREADABLE)),
        (
            "the probe looked inside: 1 worker, no listener, 1 unknown process, files not readable, "
            "process list complete"
        ),
    ),
    (
        ev.Probed(R, 1, None, TIMEOUT),
        "the probe could not look inside: timed out (no usable answer, it may have happened)",
    ),
    (ev.Probed(R, 1, None), "the probe could not look inside: no answer came"),
    (
        ev.RunnerLookedUp(R, 1, busy=False, connected=False),
        "the forge shows its registration: not busy; it never connected (the flag can veto, it cannot clear)",
    ),
    (ev.RunnerLookedUp(R, 1, missing=True), "the forge does not find its registration"),
    (
        ev.RunnerLookedUp(R, 1, fault=Fault(Remedy.GONE, "404")),
        "the forge gave no usable answer about its registration: 404 (not found)",
    ),
    (
        ev.FenceAnswered(R, 17, 1, FenceAnswer.ACCEPTED),
        "fence accepted: the forge deregistered 17 and can give it no job any more",
    ),
    (
        ev.FenceAnswered(R, 17, 1, FenceAnswer.REFUSED),
        "fence refused: the forge says that registration 17 holds a job",
    ),
    (
        ev.FenceAnswered(R, 17, 1, FenceAnswer.NOT_FOUND),
        "fence: the forge does not find registration 17, which by itself says nothing",
    ),
    (
        ev.FenceAnswered(R, 17, 1, FenceAnswer.NO_ANSWER, TIMEOUT),
        "fence: no usable answer, so it is held: timed out (no usable answer, it may have happened)",
    ),
    (
        ev.EnvironmentDestroyed(R, "pid:9"),
        "its environment was destroyed; nothing of it runs any more (pid:9)",
    ),
    (
        ev.DestroyFailed(R, "pid:9", Fault(Remedy.BROKEN, "would not die")),
        "its environment would not end (pid:9): would not die (this machine cannot do it)",
    ),
    (
        ev.EnvironmentsListed("local", (), complete=False),
        "host local listed 0 environments of ours, the list was not complete",
    ),
    (ev.RegistrationsListed(SCOPE, ()), "github/repo:acme/app listed 0 registrations of ours"),
    (
        ev.RegistrationsListed(SCOPE, (), TIMEOUT),
        (
            "the registrations of github/repo:acme/app could not be listed: timed out "
            "(no usable answer, it may have happened)"
        ),
    ),
    (
        ev.JobsRead(SCOPE, (report(ForgeStatus.QUEUED), report(ForgeStatus.WAITING))),
        "a listing of github/repo:acme/app showed 2 jobs",
    ),
    (ev.JobsListed(SCOPE, 1), "github/repo:acme/app listed 1 job of queued and running runs"),
    (
        ev.JobsListed(SCOPE, 2, repositories=("acme/app",)),
        "github/repo:acme/app listed 2 jobs of queued and running runs; 1 of its repositories were read",
    ),
    (
        ev.JobsListed(SCOPE, 0, Fault(Remedy.DENIED, "403")),
        "the jobs of github/repo:acme/app could not be listed: 403 (the credential was not accepted)",
    ),
    (ev.ScopeAnswered(SCOPE), "github/repo:acme/app answers"),
    (
        ev.ScopeAnswered(SCOPE, 99),
        "github/repo:acme/app reached a rate limit; calls wait for its reset",
    ),
    (ev.ApplicationTold("linux"), "the runner application of pool linux is there"),
    (ev.ApplicationTold("linux", "it is fetched"), "pool linux can start no runners: it is fetched"),
    (ev.CordonOrdered("ann", ev.Target.ALL, reason="new disk"), "ann cordoned everything: new disk"),
    (ev.UncordonOrdered("ann", ev.Target.POOL, "linux"), "ann lifted the cordon of pool linux"),
    (ev.DrainOrdered("ann", ev.Target.HOST, "local"), "ann drains host local"),
    (ev.KillOrdered("ann", R, "wedged"), "ann asked to end it: wedged"),
    (ev.KillOrdered("ann", R, "", even_if_busy=True), "ann asked to end it, even if it is busy"),
    (ev.SweepOrdered(), "all nomination rules were evaluated"),
]


def test_every_kind_of_event_has_a_sentence_and_nothing_else_has_one():
    assert sorted(cls.__name__ for cls in spoken()) == sorted(cls.__name__ for cls in KINDS)


def test_every_kind_of_event_is_shown_here():
    assert {type(event) for event, _ in SENTENCES} == set(KINDS)


@pytest.mark.parametrize(("event", "sentence"), SENTENCES, ids=lambda value: type(value).__name__)
def test_the_sentence(event, sentence):
    assert say(event).text == sentence


def test_a_part_of_a_listing_says_in_the_story_of_a_job_what_it_said_of_it():
    read = ev.JobsRead(SCOPE, (report(ForgeStatus.QUEUED),))
    alone = ev.JobReported(report(ForgeStatus.QUEUED), Told.LISTING)
    assert say(read, str(JOB)).text == say(alone).text


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=25)  # for each of many classes
@given(data=st.data(), subject=st.sampled_from(["", str(R)]))
def test_any_event_can_be_told(kind, data, subject):
    event = data.draw(any_of(kind))
    assert say(event, subject).text
    assert isinstance(subject_of(event), str)


def test_something_that_is_no_event_is_refused():
    with pytest.raises(TypeError, match="no sentence for str"):
        say("a text")  # type: ignore[arg-type]


@pytest.mark.parametrize("sign", list(Sign))
def test_each_sign_has_its_own_words(sign):
    texts = [say(ev.SignSeen(R, other)).text for other in Sign]
    assert len(set(texts)) == len(list(Sign))
    assert say(ev.SignSeen(R, sign, "Running job: build")).evidence == ("Running job: build",)


def test_hard_and_soft_signs_are_told_apart():
    assert "(hard sign)" in say(ev.SignSeen(R, Sign.ANNOUNCED)).text
    assert "(hard sign)" in say(ev.SignSeen(R, Sign.WORKER)).text
    assert "(soft sign)" in say(ev.SignSeen(R, Sign.OFFERED)).text
    assert "(soft sign)" in say(ev.SignSeen(R, Sign.ACKNOWLEDGED)).text


@pytest.mark.parametrize(
    ("event", "subject"),
    [
        (ev.Registered(R, 1), str(R)),
        (ev.JobReported(report(ForgeStatus.QUEUED), Told.WEBHOOK), str(JOB)),
        (ev.JobLookedUp(JOB, 1), str(JOB)),
        (ev.RunLookedUp(JOB, 1), str(JOB)),
        (ev.KillOrdered("ann", R, "x"), str(R)),
        (ev.Woke(), ""),
        (ev.JobsListed(SCOPE, 3), ""),
    ],
)
def test_whom_an_event_is_about(event, subject):
    assert subject_of(event) == subject


def test_a_listing_says_whether_it_held_the_subject():
    found = ev.EnvironmentsListed("local", (ev.FoundEnvironment(R, "pid:9", "linux", ended=False),), True)
    ended = ev.EnvironmentsListed("local", (ev.FoundEnvironment(R, "pid:9", "linux", ended=True),), True)
    known = ev.RegistrationsListed(SCOPE, (ev.FoundRegistration(R, 17, busy=True, online=False),))
    assert say(found, R).evidence == ("its own is among them, and it runs (pid:9)",)
    assert say(ended, R).evidence == ("its own is among them, and it has ended (pid:9)",)
    assert say(known, R).evidence == ("its own is among them: 17, offline, busy",)
    assert say(found, OTHER).evidence == say(known, OTHER).evidence == ()


def test_a_probe_shows_what_its_files_said():
    quiet = say(ev.Probed(R, 1, looked(detail="pid 9")))
    offered = say(ev.Probed(R, 1, looked(offered_at=5)))
    announced = say(ev.Probed(R, 1, looked(offered_at=5, announced_at=6)))
    ended = say(ev.Probed(R, 1, looked(offered_at=5, announced_at=6, ended_at=7)))
    assert quiet.evidence == ("process: pid 9",)
    assert offered.evidence == ("its files show an offered job",)
    assert announced.evidence == ("its log announces a job",)
    assert ended.evidence == ("its log announces a job and its end",)


def test_an_offer_of_which_the_files_show_the_end_is_told_with_it() -> None:
    told = say(ev.Probed(R, 3, looked(offered_at=5, ended_at=9)))
    assert told.evidence == ("its files show an offered job and its end",)


@pytest.mark.parametrize(
    ("online", "busy", "words"),
    [(True, True, "online, busy"), (True, False, "online, not busy"), (False, False, "offline, not busy")],
)
def test_a_list_of_registrations_shows_how_its_own_one_stands(online: bool, busy: bool, words: str) -> None:
    found = ev.FoundRegistration(R, 88, busy=busy, online=online)
    told = say(ev.RegistrationsListed(SCOPE, (found,)), R)
    assert told.evidence == (f"its own is among them: 88, {words}",)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 s"),
        (1, "0.001 s"),
        (250, "0.25 s"),
        (9_999, "9.999 s"),
        (10_000, "10 s"),
        (61_500, "1 min 1 s"),
        (3_600_000, "1 h"),
        (90_061_000, "1 d 1 h"),
        (-1_500, "-1.5 s"),
    ],
)
def test_spans_of_time(ms, text):
    assert span(ms) == text


def decision(number: int, at: int, outcome: str = "vetoed", **more) -> Decision:
    fields = {
        "id": number,
        "at": at,
        "runner": R,
        "pool": "linux",
        "nomination": 3,
        "rule": "surplus",
        "outcome": outcome,
        "verdict": "busy",
        "via": "probe",
        "reason": "a worker runs",
        "age": 5_000,
        "bound": 23_400_000,
        "evidence": (Evidence(Verdict.BUSY, Via.PROBE, at - 40, "Runner.Worker, pid 12"),),
    }
    return Decision(**{**fields, **more})


def test_a_veto_tells_rule_verdict_means_reason_and_evidence():
    (line,) = tell([], [decision(8, 1_000)])
    assert line.text == (
        "nominated as surplus (nomination 3): vetoed, so it stays (busy, by probe); a worker runs"
    )
    assert line.evidence == (
        "0.04 s before, probe said busy: Runner.Worker, pid 12",
        "its age for this verdict was 5 s, the bound 6 h 30 min",
    )
    assert (line.kind, line.subject, line.seq, line.at) == ("Decision", R, 8, 1_000)


def test_a_reap_needs_no_age():
    idle = (Evidence(Verdict.IDLE, Via.PROBE, 1_000, "quiet"),)
    (line,) = tell([], [decision(8, 1_000, "reaped", verdict="idle", via="fence", reason="", evidence=idle)])
    assert line.text == "nominated as surplus (nomination 3): proven idle, so it goes (idle, by fence)"
    assert line.evidence == ("then, probe said idle: quiet",)


@pytest.mark.parametrize("rule", ["operator", "overdue"])
def test_what_is_ended_on_purpose_is_not_called_idle(rule):
    (line,) = tell([], [decision(8, 1_000, "reaped", rule=rule)])
    assert f"nominated as {rule} (nomination 3): ended on purpose (busy, by probe)" in line.text


def test_an_escape_is_called_one():
    (line,) = tell([], [decision(8, 1_000, "escaped", verdict="unknown", via="none")])
    assert "ESCAPE: past its bound" in line.text
    assert "(unknown)" in line.text


def test_an_outcome_of_a_later_version_is_told_as_it_is():
    (line,) = tell([], [decision(8, 1_000, "postponed")])
    assert "(nomination 3): postponed (busy, by probe)" in line.text


def test_the_order_is_that_of_time_then_of_the_journal_and_a_decision_follows_its_cause():
    entries = [
        Entry(12, 200, ev.Probed(R, 1, looked(workers=1))),
        Entry(11, 200, ev.SignSeen(R, Sign.WORKER)),
        Entry(10, 100, ev.Registered(R, 17)),
    ]
    lines = tell(entries, [decision(2, 300), decision(1, 200)])
    assert [(line.at, line.seq, line.kind) for line in lines] == [
        (100, 10, "Registered"),
        (200, 11, "SignSeen"),
        (200, 12, "Probed"),
        (200, 1, "Decision"),
        (300, 2, "Decision"),
    ]


def test_nothing_happened():
    assert tell([], []) == []


def test_the_same_journal_gives_the_same_story():
    entries = [Entry(number, 5, event) for number, (event, _) in enumerate(SENTENCES)]
    assert tell(entries, [], R) == tell(list(reversed(entries)), [], R)


@pytest.mark.parametrize("via", ["", "none"])
def test_a_verdict_without_a_source_names_none(via):
    (line,) = tell([], [decision(8, 1_000, via=via)])
    assert "vetoed, so it stays (busy); " in line.text


def test_evidence_of_a_millisecond_before_is_not_of_the_same_moment():
    def when(age: int) -> str:
        seen = Evidence(Verdict.BUSY, Via.PROBE, 1_000 - age, "Runner.Worker, pid 12")
        (line,) = tell([], [decision(8, 1_000, evidence=(seen,))])
        return line.evidence[0].partition(", ")[0]

    assert (when(0), when(1)) == ("then", "0.001 s before")
