"""Files that are followed, latched, cut and forged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerd.adapters.kit.evidence import CHUNK, LINE_LIMIT, Evidence, Tail, in_order
from ephemerd.adapters.runtimes.process.identity import Place
from ephemerd.domain.verdict import Sign

AT = "2026-11-29 13:58:12Z: "
PERF_AT = ":2026-11-29T13:58:12.1234567Z\n"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path / "r", tmp_path / "r.log")
    made.perf.mkdir(parents=True)
    made.diag.mkdir()
    return made


def log(place: Place, *lines: str) -> None:
    with place.log.open("a") as file:
        file.writelines(f"{AT}{line}\n" for line in lines)


def perf(place: Place, *names: str) -> None:
    with (place.perf / "Runner.perf").open("a") as file:
        file.writelines(name + PERF_AT for name in names)


def diag(place: Place, text: str, name: str = "Runner_1-utc.log") -> None:
    with (place.diag / name).open("a") as file:
        file.write(f"[2026-11-29 13:58:12Z INFO Runner] {text}\n")


def listening(place: Place) -> Evidence:
    perf(place, "RunnerProcessStarted", "SessionCreated")
    log(place, "Listening for Jobs")
    evidence = Evidence(place)
    assert signs(evidence, 1) == [Sign.LISTENING]
    assert evidence.faults() == []
    return evidence


def signs(evidence: Evidence, now: int) -> list[Sign]:
    return [sign for sign, _ in evidence.refresh(now)]


# One file


def test_lines_come_whole_and_once(tmp_path):
    path = tmp_path / "f"
    tail = Tail(path)
    assert (tail.read(), tail.exists, tail.changed()) == ([], False, False)
    path.write_bytes(b"one\ntw")
    assert tail.changed()
    assert tail.read() == ["one"]
    assert (tail.torn, tail.beginning, tail.changed()) == (True, "tw", False)
    with path.open("ab") as file:
        file.write(b"o\r\nthree\n")
    assert tail.read() == ["two", "three"]
    assert (tail.torn, tail.shrunk, tail.read()) == (False, False, [])


@given(st.lists(st.binary(max_size=20)))
def test_however_it_is_cut_the_lines_are_the_same(tmp_path_factory, parts):
    path = tmp_path_factory.mktemp("tail") / "f"
    path.touch()
    tail, found = Tail(path), []
    for part in parts:
        with path.open("ab") as file:
            file.write(part)
        found += tail.read()
    whole = b"".join(parts).split(b"\n")
    assert found == [line.decode(errors="replace").rstrip("\r") for line in whole[:-1]]
    assert tail.torn == bool(whole[-1])


@pytest.mark.parametrize("fate", ["shorter", "exchanged", "removed"])
def test_a_file_that_was_tampered_with_is_never_trusted_again(tmp_path, fate):
    path = tmp_path / "f"
    path.write_text("one\ntwo\n")
    tail = Tail(path)
    tail.read()
    if fate == "shorter":
        path.write_text("x\n")
    elif fate == "exchanged":
        other = tmp_path / "g"
        other.write_text("one\ntwo\nthree\n")
        other.replace(path)
    else:
        path.unlink()
    assert tail.changed()
    lines = tail.read()
    assert tail.shrunk
    assert lines == {"shorter": ["x"], "exchanged": ["one", "two", "three"], "removed": []}[fate]
    path.write_text("one\ntwo\nthree\nfour\n")
    tail.read()
    assert tail.shrunk


@pytest.mark.parametrize("what", ["link", "folder", "fifo"])
def test_only_a_plain_file_is_read(tmp_path, what):
    path = tmp_path / "f"
    if what == "link":
        (tmp_path / "g").write_text("x\n")
        path.symlink_to(tmp_path / "g")
    elif what == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    tail = Tail(path)
    assert tail.read() == []
    assert tail.failed


def test_a_line_without_end_is_told_by_its_beginning_and_its_rest_dropped(tmp_path):
    path = tmp_path / "f"
    path.write_text("Running job: " + "x" * (2 * LINE_LIMIT))
    tail = Tail(path)
    (line,) = tail.read()
    assert line.startswith("Running job: ")
    assert len(line) == LINE_LIMIT
    assert tail.torn
    with path.open("a") as file:
        file.write("y" * (2 * LINE_LIMIT))
    assert tail.read() == []
    with path.open("a") as file:
        file.write("end\nnext\n")
    assert tail.read() == ["next"]
    assert not tail.torn


def test_a_long_file_is_read_in_pieces(tmp_path):
    path = tmp_path / "f"
    line = "x" * 99 + "\n"
    path.write_text(line * (CHUNK // 100 + 10))
    tail = Tail(path)
    first = tail.read()
    assert (tail.behind, tail.changed()) == (True, True)
    second = tail.read()
    assert (tail.behind, tail.changed()) == (False, False)
    assert len(first) + len(second) == CHUNK // 100 + 10


# All files


def test_a_job_from_beginning_to_end(place):
    evidence = listening(place)
    perf(place, "MessageReceived_RunnerJobRequest")
    diag(place, "Acknowledging runner request 'a'.")
    assert evidence.changed()
    assert signs(evidence, 10) == [Sign.OFFERED, Sign.ACKNOWLEDGED]
    assert (evidence.offered_at, evidence.announced_at, evidence.ended_at) == (10, None, None)
    log(place, "Running job: a completed with result: Succeeded")
    assert signs(evidence, 20) == [Sign.ANNOUNCED]
    assert (evidence.announced_at, evidence.ended_at, evidence.bound) == (20, None, False)
    perf(place, "JobRequestRenewed_1", "StartingWorkerProcess")
    assert signs(evidence, 30) == [Sign.WORKER]
    assert evidence.bound
    log(place, "Job a completed with result: Succeeded completed with result: Failed")
    assert signs(evidence, 40) == [Sign.ENDED]
    assert (evidence.offered_at, evidence.announced_at, evidence.ended_at) == (10, 20, 40)
    assert not evidence.changed()
    assert signs(evidence, 50) == []
    assert evidence.faults() == []


def test_read_at_once_they_come_in_the_order_of_events(place):
    perf(place, "SessionCreated", "MessageReceived_RunnerJobRequest", "StartingWorkerProcess")
    diag(place, "Acknowledging runner request 'a'.")
    log(place, "Listening for Jobs", "Running job: a", "Job a completed with result: Succeeded")
    evidence = Evidence(place)
    assert signs(evidence, 5) == [
        Sign.LISTENING,
        Sign.OFFERED,
        Sign.ACKNOWLEDGED,
        Sign.ANNOUNCED,
        Sign.WORKER,
        Sign.ENDED,
    ]
    assert (evidence.announced_at, evidence.ended_at) == (5, 5)


def test_a_second_job_reopens_what_had_ended(place):
    evidence = listening(place)
    log(place, "Running job: a", "Job a completed with result: Succeeded", "Running job: b")
    assert signs(evidence, 10) == [Sign.ANNOUNCED, Sign.ENDED, Sign.ANNOUNCED]
    assert evidence.ended_at is None


def test_the_latest_offer_counts(place):
    """An offer that was skipped must not make a later one look old."""
    evidence = listening(place)
    perf(place, "MessageReceived_RunnerJobRequest")
    signs(evidence, 10)
    diag(place, "Skipping message Job. Job message not found 'a'.")
    assert signs(evidence, 20) == [Sign.SKIPPED]
    assert evidence.offered_at == 10
    perf(place, "MessageReceived_RunnerJobRequest")
    assert signs(evidence, 900_000) == [Sign.OFFERED]
    assert evidence.offered_at == 900_000


def test_an_end_without_an_announcement_says_nothing(place):
    evidence = listening(place)
    log(place, "Job a completed with result: Succeeded")
    assert signs(evidence, 10) == []
    assert evidence.ended_at is None


def test_one_worker_is_told_once_whoever_tells_first(place):
    evidence = listening(place)
    assert [sign for sign, _ in evidence.saw_worker((7, 1))] == [Sign.WORKER]
    assert evidence.saw_worker((7, 1)) == []
    perf(place, "StartingWorkerProcess")
    assert signs(evidence, 10) == []
    assert [sign for sign, _ in evidence.saw_worker((8, 1))] == [Sign.WORKER]
    perf(place, "StartingWorkerProcess", "StartingWorkerProcess")
    assert signs(evidence, 20) == [Sign.WORKER]


def test_listening_is_told_by_either_file_and_once(place):
    perf(place, "SessionCreated")
    evidence = Evidence(place)
    assert signs(evidence, 1) == [Sign.LISTENING]
    log(place, "Listening for Jobs", "Listening for Jobs")
    assert signs(evidence, 2) == []


def test_what_was_told_is_kept_for_who_asks_again(place):
    evidence = listening(place)
    log(place, "Running job: a")
    evidence.refresh(10)
    evidence.saw_worker((7, 1))
    assert [sign for sign, _ in evidence.history] == [Sign.LISTENING, Sign.ANNOUNCED, Sign.WORKER]


def test_diagnostics_are_read_page_by_page_and_only_the_listeners(place):
    evidence = listening(place)
    diag(place, "Acknowledging runner request 'a'.", "Worker_1-utc.log")
    diag(place, "Acknowledging runner request 'b'.", "Runner_1-utc.log")
    assert signs(evidence, 10) == [Sign.ACKNOWLEDGED]
    diag(place, "Acknowledging runner request 'c'.", "Runner_2-utc.log")
    assert evidence.changed()
    assert signs(evidence, 20) == [Sign.ACKNOWLEDGED]


def test_without_diagnostics_the_rest_is_enough(place):
    place.diag.rmdir()
    assert listening(place).faults() == []


# Health


def test_nothing_yet_proves_nothing(place):
    evidence = Evidence(place)
    evidence.refresh(1)
    assert evidence.faults() == ["there is no log yet", "there is no performance file yet"]


def test_a_performance_file_that_misses_the_session_was_not_written(place):
    """A failed append is only logged by the listener: a missing line is no proof then."""
    perf(place, "RunnerProcessStarted")
    log(place, "Listening for Jobs")
    evidence = Evidence(place)
    evidence.refresh(1)
    assert evidence.faults() == ["the performance file misses the session that the log shows"]


@pytest.mark.parametrize(
    ("file", "text", "healthy"),
    [
        ("perf", "MessageRec", False),
        ("log", "2026-11-29 13:58:12Z: Runn", False),
        ("log", "√ Conn", True),
    ],
)
def test_a_last_line_that_is_not_whole(place, file, text, healthy):
    evidence = listening(place)
    path = place.log if file == "log" else place.perf / "Runner.perf"
    with path.open("a") as opened:
        opened.write(text)
    evidence.refresh(2)
    assert (evidence.faults() == []) is healthy


def test_a_wiped_file_keeps_what_it_told_and_is_not_healthy(place):
    evidence = listening(place)
    log(place, "Running job: a")
    evidence.refresh(10)
    place.log.write_text("")
    evidence.refresh(20)
    assert evidence.announced_at == 10
    assert evidence.faults() == ["the log shrank or was exchanged"]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("WA", "AW"),
        ("EAW", "EAW"),
        ("AEAW", "AEAW"),
        ("AEW", "AWE"),
        ("WAL", "LAW"),
        ("", ""),
    ],
)
def test_order(told, expected):
    letters = {"L": Sign.LISTENING, "A": Sign.ANNOUNCED, "W": Sign.WORKER, "E": Sign.ENDED}
    assert in_order([(letters[x], "") for x in told]) == [(letters[x], "") for x in expected]


# A version that the forge refuses


def test_an_older_listener_that_leaves_with_1_since_its_version_is_refused_left_with_7(place):
    evidence = listening(place)
    assert (evidence.refused, evidence.exit_code(1)) == ("", 1)
    log(place, "An error occurred: Runner version v2.320.0 is deprecated and cannot receive messages.")
    evidence.refresh(2)
    assert evidence.refused == "2.320.0"
    assert [evidence.exit_code(code) for code in (0, 1, 7, 137, None)] == [0, 7, 7, 137, None]


def test_a_job_cannot_say_that_the_version_is_refused(place):
    evidence = listening(place)
    perf(place, "Runner version v2.320.0 is deprecated and cannot receive messages")
    diag(place, "Runner version v2.320.0 is deprecated and cannot receive messages")
    log(place, "Running job: Runner version v2.320.0 is deprecated and cannot receive messages")
    evidence.refresh(2)
    assert evidence.refused == ""
