"""Which runs need not be read, by what is known of their jobs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ephemerd.app.ledger import LATE, SLACK, Judge, Ledger
from ephemerd.domain.ids import JobKey
from ephemerd.domain.job import ENDED_STATUSES, Job, JobStatus
from ephemerd.domain.pool import MINUTE
from ephemerd.ports.forge import RunSeen

T0 = 1_796_000_000_000
NOW = T0 + 10 * MINUTE
NAME = "acme/app"


def job(
    number: int, status: JobStatus = JobStatus.QUEUED, at: int = T0, run: int = 7, name: str = NAME
) -> Job:
    return Job(JobKey("github", name, number), ("linux",), 0, status, at, at, at, run_id=run)


def told(*rows: Job) -> Ledger:
    ledger = Ledger()
    for row in rows:
        ledger.note(row)
    return ledger


def seen(number: int, changed: int, *, over: bool = False) -> RunSeen:
    return RunSeen(number, over, NOW - changed)


def explains(ledger: Ledger, *, over: bool = False, updated: int = T0, run: int = 7) -> bool:
    """Whether it explains a run that changed at `updated`."""
    return ledger.explains(NAME, seen(run, updated, over=over), NOW)


def test_a_run_of_which_nothing_is_known_is_read_unless_it_is_over():
    assert not explains(told())
    assert explains(told(), over=True)
    assert not explains(told(job(1, run=0)), run=0)


def test_a_run_with_an_open_job_is_explained_up_to_the_last_word_on_it():
    for status in (JobStatus.QUEUED, JobStatus.WAITING, JobStatus.RUNNING):
        ledger = told(job(1, status))
        assert explains(ledger, updated=T0 + SLACK)
        assert not explains(ledger, updated=T0 + SLACK + 1), "something happened of which nothing was told"
        assert not ledger.explains(NAME, RunSeen(7, False), NOW), "when is not known"
        assert not ledger.explains("acme/lib", seen(7, T0), NOW)


def test_a_run_that_goes_on_although_all_its_known_jobs_are_over_is_read():
    for status in ENDED_STATUSES:
        assert not explains(told(job(1, status)))
    assert not explains(told(job(1), job(1, JobStatus.DONE)))
    assert explains(told(job(1, JobStatus.DONE), job(2)))


def test_a_run_that_is_over_is_read_where_the_end_of_one_of_its_jobs_was_missed():
    ledger = told(job(1, JobStatus.DONE), job(2, JobStatus.RUNNING))
    assert not explains(ledger, over=True)
    ledger.note(job(2, JobStatus.DONE))
    assert explains(ledger, over=True)


def test_a_word_on_any_job_of_it_counts_and_one_that_is_no_word_of_the_forge_does_not():
    ledger = told(job(1), job(2, at=T0 + MINUTE))
    assert explains(ledger, updated=T0 + MINUTE)
    ledger.note(replace(job(1), asked=T0 + 2 * MINUTE))
    assert not explains(ledger, updated=T0 + 2 * MINUTE)
    ledger.note(replace(job(1), confirmed=T0 + 2 * MINUTE))
    assert explains(ledger, updated=T0 + 2 * MINUTE)


def test_names_are_compared_in_lower_case():
    ledger = told(job(1, name="Acme/App"))
    assert explains(ledger)
    assert ledger.open(NAME, T0 + 1) == {7}


def test_the_runs_that_are_believed_to_be_open():
    ledger = told(
        job(1, at=T0 - 1), job(2, run=8), job(3, JobStatus.DONE, run=9), job(4, run=5, name="acme/lib")
    )
    assert ledger.open(NAME, T0) == {7}
    assert ledger.open(NAME, T0 + 1) == {7, 8}
    ledger.note(job(1, JobStatus.DONE))
    assert ledger.open(NAME, T0 + 1) == {8}
    assert ledger.open("acme/none", T0 + 1) == set()


@given(
    st.lists(
        st.tuples(
            st.integers(1, 9), st.sampled_from(JobStatus), st.integers(1, 4), st.sampled_from(["a/a", "a/b"])
        ),
        max_size=60,
    )
)
def test_what_is_remembered_is_bounded_and_its_open_runs_are_those_with_open_jobs(rows):
    ledger, kept = Ledger(most=3), dict[tuple[str, int], dict[int, JobStatus]]()
    for number, status, run, name in rows:
        ledger.note(job(number, status, run=run, name=name))
        jobs = kept.pop((name, run), {}) | {number: status}
        if any(status not in ENDED_STATUSES for status in jobs.values()):
            kept[name, run] = jobs
        kept = dict(list(kept.items())[-3:])
        assert len(ledger) == len(kept), "what is over is kept by nobody"
    for name in ("a/a", "a/b"):
        assert ledger.open(name, T0 + 1) == {run for of, run in kept if of == name}


# -- a judge of one audit ------------------------------------------------------------------------------------


def test_a_run_that_is_believed_open_and_not_shown_is_missed_unless_it_is_quite_new():
    ledger = told(job(1, at=T0), job(2, at=T0 + LATE, run=8))
    judge = Judge(ledger, "Acme/App", lambda: T0 + LATE + 1)
    assert judge.misses()
    assert judge(RunSeen(7, False, LATE + 1))
    assert not judge.misses(), "the list may lag behind a delivery"
    assert not judge(RunSeen(9, False, LATE + 1))
    assert (judge.strange, judge.newest) == (1, 9)


def test_how_far_back_an_audit_goes():
    judge = Judge(told(), NAME, lambda: NOW)
    assert judge.newest == 0
    assert judge.reaches(0, T0)
    judge(seen(20, T0))
    judge(seen(12, T0 - SLACK))
    assert judge.reaches(12, 0)
    assert not judge.reaches(11, T0 - 1)
    assert judge.reaches(11, T0)
    judge(RunSeen(10, True))
    assert not judge.reaches(9, T0)
