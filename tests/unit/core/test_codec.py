"""The record codec: every class that is kept goes there and back, also through JSON; the hash never moves."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import subprocess
import sys
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ephemerd.core import codec, commands, events, rows, step
from ephemerd.core.commands import Command, Deregister, Destroy, ListJobs, LookUpJob, Register, StartRunner
from ephemerd.core.events import Event, JobReported, Woke
from ephemerd.domain import errors, ids, job, permit, pool, runner, verdict
from ephemerd.domain.ids import JobKey, RunnerId, Scope
from ephemerd.domain.job import ForgeStatus, JobReport, Told
from ephemerd.domain.permit import FenceIntent, Permit, Warrant
from ephemerd.domain.runner import Decision, Runner, RunnerState
from ephemerd.domain.value import Value
from ephemerd.domain.verdict import Evidence, Verdict, Via
from tests.unit.core.values import any_of


def classes(*modules: ModuleType) -> list[type]:
    """All values and enums that the modules define."""
    return [
        cls
        for module in modules
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if cls.__module__ == module.__name__
        and (issubclass(cls, Value | Enum) and not cls.__name__.startswith("_"))
    ]


CARRIED = (ids, errors, job, permit, pool, runner, verdict, events, rows, commands, step)
KEPT = classes(ids, errors, job, pool, runner, verdict, events, rows)
SCOPE = Scope("github", "repo:acme/app")


def test_the_classes_are_found():
    names = {cls.__name__ for cls in KEPT}
    assert {"Runner", "Job", "Decision", "Booted", "SweepOrdered", "Policy", "Evidence", "ScopeRow"} <= names


@pytest.mark.parametrize("cls", KEPT, ids=lambda cls: cls.__name__)
@settings(max_examples=25)  # for each of many classes
@given(data=st.data())
def test_each_class_goes_there_and_back(cls, data):
    value = data.draw(any_of(cls))
    plain = codec.encode(value)
    assert codec.decode(cls, plain) == value
    assert codec.decode(cls, json.loads(json.dumps(plain))) == value


@pytest.mark.parametrize("cls", get_args(Event), ids=lambda cls: cls.__name__)
@settings(max_examples=25)  # for each of many classes
@given(data=st.data())
def test_each_event_goes_there_and_back_under_its_name(cls, data):
    event = data.draw(any_of(cls))
    plain = codec.encode_event(event)
    assert plain["kind"] == cls.__name__
    back = codec.decode_event(json.loads(json.dumps(plain)))
    assert back == event
    assert type(back) is cls


def test_an_event_as_the_journal_shows_it():
    report = JobReport(JobKey("github", "acme/app", 7), ForgeStatus.QUEUED, ("linux", "x64"))
    assert codec.encode_event(JobReported(report, Told.WEBHOOK)) == {
        "kind": "JobReported",
        "report": {
            "key": {"forge": "github", "repository": "acme/app", "id": 7},
            "status": "queued",
            "labels": ("linux", "x64"),
        },
        "told": "webhook",
    }
    assert codec.encode_event(Woke()) == {"kind": "Woke"}


def test_an_event_and_a_decision_are_read_again():
    report = JobReport(JobKey("github", "acme/app", 7), ForgeStatus.QUEUED, ("linux",))
    event = JobReported(report, Told.WEBHOOK)
    assert codec.decode_event(codec.encode_event(event)) == event
    seen = (Evidence(Verdict.IDLE, Via.PROBE, 900, "quiet"),)
    decision = Decision(
        7, 1_000, RunnerId("a"), "linux", 3, "surplus", "reaped", "idle", "probe", "why", 5, 9, seen
    )
    assert codec.decode_decision(codec.encode_decision(decision)) == decision


@pytest.mark.parametrize("plain", [{}, {"kind": "Register"}, {"kind": "Slept"}, {"kind": 3}, []])
def test_what_is_no_event_is_refused(plain):
    with pytest.raises(ValueError):
        codec.decode_event(plain)


def test_a_command_is_no_event():
    with pytest.raises(ValueError, match="Register"):
        codec.encode_event(Register(RunnerId("a"), SCOPE, ()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "event",
    [
        events.Registered(RunnerId("a"), "7"),  # type: ignore[arg-type]
        events.Registered(RunnerId("a"), True),
        events.Registered(None, 7),  # type: ignore[arg-type]
        events.SignSeen(RunnerId("a"), "listening", None),  # type: ignore[arg-type]
        JobReported(JobReport(JobKey("f", "a/b", 1), ForgeStatus.QUEUED, ("a", 1)), Told.WEBHOOK),  # type: ignore[arg-type]
        JobReported(JobReport(JobKey("f", "a/b", 1), ForgeStatus.QUEUED, ["a"]), Told.WEBHOOK),  # type: ignore[arg-type]
        JobReported(Woke(), Told.WEBHOOK),  # type: ignore[arg-type]
    ],
)
def test_an_event_that_could_not_be_read_again_never_reaches_the_store(event):
    with pytest.raises(ValueError, match=f"^{type(event).__name__}: "):
        codec.event_body(event)


def test_the_store_is_given_events_and_rows_as_json():
    event = JobReported(JobReport(JobKey("f", "a/b", 1), ForgeStatus.QUEUED, ("a",)), Told.WEBHOOK)
    assert codec.decode_event(msgspec.json.decode(msgspec.json.encode(codec.event_body(event)))) == event
    row = rows.ScopeRow(SCOPE, quiet=3)
    assert (
        codec.decode_row("scope", msgspec.json.decode(msgspec.json.encode(codec.row_body("scope", row))))
        == row
    )
    assert codec.row_body("counter", 3) == {"value": 3}


@pytest.mark.parametrize(
    "changes",
    [
        {"since": 1.5},
        {"since": True},
        {"labels": ["a"]},
        {"name": None},
        {"ours": {1}},
        {"since": 1.5, "name": "caf\udce9"},
        {"labels": ["a"], "name": "caf\udce9"},
    ],
)
def test_a_row_that_could_not_be_read_again_never_reaches_the_store(changes):
    """Else no daemon could begin with that store any more."""
    row = job.Job(JobKey("f", "a/b", 1), ("a",), 1, job.JobStatus.QUEUED, 1, 1, 1)
    assert codec.row_body("job", row)
    with pytest.raises(ValueError, match=r"^Job: "):
        codec.row_body("job", msgspec.structs.replace(row, **changes))


def test_a_row_for_the_store_is_one_of_its_kind():
    with pytest.raises(ValueError, match="no row is of kind 'jobs'"):
        codec.row_body("jobs", rows.ClassRow())
    with pytest.raises(ValueError, match="a row of kind 'job' is a Job, got ClassRow"):
        codec.row_body("job", rows.ClassRow())


def test_a_row_may_name_what_no_utf_8_says():
    row = rows.ScopeRow(SCOPE, why="no file caf\udce9")
    assert codec.row_body("scope", row) is row


def test_what_bears_a_kind_is_an_event_or_a_command():
    tagged = {
        cls for cls in classes(*CARRIED) if issubclass(cls, Value) and cls.__struct_config__.tag is not None
    }
    assert tagged == {*get_args(Event), *get_args(Command)}


def test_a_field_that_is_not_known_is_ignored():
    assert codec.decode_event({"kind": "Woke", "later": [1, 2]}) == Woke()


@pytest.mark.parametrize(
    ("cls", "plain"),
    [
        (Scope, {"forge": "github"}),
        (Scope, {"forge": "github", "path": 3}),
        (Scope, []),
        (JobKey, {"forge": "f", "repository": "a/b", "id": "1"}),
        (JobKey, {"forge": "f", "repository": "a/b", "id": True}),
        (JobReport, {"key": {}, "status": "x" * 10_000, "labels": []}),
    ],
)
def test_wrong_plain_data_is_refused_with_the_class_and_shortly(cls, plain):
    with pytest.raises(ValueError, match=f"^{cls.__name__}: ") as caught:
        codec.decode(cls, plain)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "cls", [Permit, FenceIntent, Destroy, Deregister, tuple[Permit, ...], Destroy | Woke]
)
def test_no_permit_is_ever_made_from_plain_data(cls):
    with pytest.raises(TypeError, match="is made by the gate alone"):
        codec.decode(cls, {})


@pytest.mark.parametrize("cls", classes(commands, permit, ids, verdict), ids=lambda cls: cls.__name__)
def test_what_commands_hold_has_defaults_that_are_one_object_each(cls):
    """Fields are left out where they *are* their default: a hash over commands must not hang on who made a number."""
    fields = msgspec.structs.fields(cls) if issubclass(cls, Value) else ()
    for default in (field.default for field in fields if not field.required):
        assert default in (None, "", ()) or type(default) is bool or isinstance(default, Enum)


ROWS = sorted(kind for kind, cls in codec.ROW_CLASSES.items() if cls is not None)


def test_the_kinds_of_rows():
    assert {"runner", "job", "scope", "pool", "host", "counter", "meta", "class"} <= set(codec.ROW_CLASSES)
    assert {"runner", "job"} <= set(ROWS)


@pytest.mark.parametrize("kind", ROWS)
@settings(max_examples=25)  # for each of many classes
@given(data=st.data())
def test_each_row_goes_there_and_back(kind, data):
    row = data.draw(any_of(codec.ROW_CLASSES[kind]))
    text = json.dumps(codec.encode_row(kind, row))
    assert codec.decode_row(kind, json.loads(text)) == row
    assert codec.row_reader(kind)(text) == row


@pytest.mark.parametrize("value", [3, "text", None, {"a": [1, 2]}, [1], 1.5, True])
def test_a_plain_row_is_wrapped(value):
    assert codec.encode_row("counter", value) == {"value": value}
    assert codec.decode_row("counter", {"value": value}) == value
    assert codec.row_reader("counter")(json.dumps({"value": value})) == value


def test_a_row_that_names_what_no_utf_8_says_is_read():
    row = rows.ScopeRow(SCOPE, why="no file caf\udce9")
    assert codec.row_reader("scope")(json.dumps(codec.encode_row("scope", row))) == row
    assert codec.row_reader("meta")(json.dumps({"value": row.why})) == row.why


@pytest.mark.parametrize("kind", ["scope", "job", "counter"])
@pytest.mark.parametrize(
    "plain",
    [{}, [], 3, None, {"scope": 3}, {"scope": {"forge": "f", "path": "p"}, "quiet": "3"}, {"key": []}],
)
def test_json_that_is_no_row_is_refused_as_its_plain_data_is(kind, plain):
    with pytest.raises((ValueError, TypeError)) as expected:
        codec.decode_row(kind, plain)
    with pytest.raises(type(expected.value)) as found:
        codec.row_reader(kind)(json.dumps(plain))
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("kind", ["job", "counter"])
@pytest.mark.parametrize(
    "text", ["", "{", '{"key": 1', "{}}", "'", '{"value": ' + "[" * 3_000 + "]" * 3_000 + "}"]
)
def test_a_row_that_is_no_json_is_refused(kind, text):
    with pytest.raises(ValueError, match=r"^no JSON: "):
        codec.row_reader(kind)(text)


def test_a_row_that_could_hold_what_the_gate_alone_makes_is_not_read(monkeypatch):
    class Kept(Value, frozen=True):
        leave: Permit | None = None

    monkeypatch.setitem(codec.ROW_CLASSES, "job", Kept)
    monkeypatch.setitem(codec._READ_ROW, "job", msgspec.json.Decoder(int).decode)
    with pytest.raises(TypeError, match="Permit is made by the gate alone"):
        codec.row_reader("job")


def test_rows_of_no_kind_are_not_read():
    with pytest.raises(ValueError, match="no row is of kind 'jobs'"):
        codec.row_reader("jobs")


def test_rows_that_do_not_fit_are_refused():
    one = rows.ClassRow()
    with pytest.raises(ValueError, match="a row of kind 'job' is a Job, got ClassRow"):
        codec.encode_row("job", one)
    with pytest.raises(ValueError, match="plain data"):
        codec.encode_row("counter", one)
    with pytest.raises(ValueError, match="no row is of kind 'jobs'"):
        codec.encode_row("jobs", one)
    with pytest.raises(ValueError, match="no row is of kind 'jobs'"):
        codec.decode_row("jobs", {})
    with pytest.raises(ValueError, match="without a value"):
        codec.decode_row("counter", {})
    with pytest.raises(ValueError, match=r"Runner: .*`id`"):
        codec.decode_row("runner", {})


def test_a_fresh_runner_is_a_small_row():
    fresh = Runner(RunnerId("eph-1"), "linux", "local", SCOPE, 1, RunnerState.PLANNED, 1000, 1000)
    assert set(codec.encode_row("runner", fresh)) == {
        "id", "pool", "host", "scope", "order", "state", "since", "created"
    }  # fmt: skip


@given(any_of(Decision))
def test_a_decision_goes_there_and_back(decision):
    plain = codec.encode_decision(decision)
    assert type(plain["id"]) is int
    assert codec.decode_decision(json.loads(json.dumps(plain))) == decision


def some_commands(at: int = 5) -> list[Command]:
    """Some commands, one of them with a permit (which outside the gate only a test may make)."""
    seen = (Evidence(Verdict.IDLE, Via.PROBE, at, "quiet ä"),)
    permit = Permit(
        RunnerId("r"), "e", Warrant.IDLE, "expired", Verdict.IDLE, 1, 2, "x", "accepted", (1, at), seen
    )
    return [Register(RunnerId("r"), SCOPE, ("linux", "x64")), Destroy(permit, "linux"), ListJobs(SCOPE)]


@given(st.lists(any_of(Command), max_size=3))
def test_every_command_has_a_hash(drawn):
    assert codec.command_hash(drawn) == codec.command_hash(tuple(drawn))
    assert all(codec.encode(command)["kind"] == type(command).__name__ for command in drawn)


def test_every_command_class_is_drawn_and_named_in_the_union():
    assert set(get_args(Command)) == set(classes(commands))


def test_the_hash_is_of_what_the_commands_say_and_of_their_order():
    one, two, three = some_commands()
    assert len(codec.command_hash([])) == 32
    hashes = [
        codec.command_hash(each)
        for each in ([], [one], [two], [one, two], [two, one], [one, two, three], some_commands(6))
    ]
    assert len(set(hashes)) == len(hashes)
    key = JobKey("github", "acme/app", 1)
    assert codec.command_hash([LookUpJob(key, SCOPE, 1)]) != codec.command_hash([LookUpJob(key, SCOPE, 2)])
    assert codec.command_hash([StartRunner(RunnerId("a"), "b")]) != codec.command_hash(
        [StartRunner(RunnerId("b"), "a")]
    )


def named_badly() -> list[Command]:
    """Commands that name what no UTF-8 says: a file may bear such a name, and evidence repeats it."""
    return [Register(RunnerId("r"), SCOPE, ("caf\udce9", "caf\u00e9"))]


def test_the_hash_of_what_is_no_ascii_is_of_its_escaped_form():
    """As older journals have it; a lone surrogate has no other form. DEL is ASCII, and was escaped all the same."""
    plain = (
        '{"kind":"Register","labels":["caf\\udce9","caf\\u00e9"],"runner":"r",'
        '"scope":{"forge":"github","path":"repo:acme/app"}}\n'
    )
    deleted = plain.replace('"caf\\udce9","caf\\u00e9"', '"a\\u007f"')
    digest = hashlib.blake2s(deleted.encode(), digest_size=16).hexdigest()
    assert codec.command_hash([Register(RunnerId("r"), SCOPE, ("a\x7f",))]) == digest
    assert codec.command_hash(named_badly()) == hashlib.blake2s(plain.encode(), digest_size=16).hexdigest()


def test_an_event_may_name_what_no_utf_8_says():
    event = events.ApplicationTold("small", missing="no file caf\udce9")
    assert codec.event_body(event) is event


@pytest.mark.parametrize(
    "command",
    [Destroy("no permit", "linux"), Deregister(some_commands()[1].permit, 3)],  # type: ignore[arg-type, union-attr]
)
def test_a_command_without_leave_is_not_hashed(command):
    with pytest.raises(ValueError, match=rf"^{type(command).__name__}: .* is no leave that the gate makes"):
        codec.command_hash([command])


@pytest.mark.parametrize("seed", ["0", "1", "4242"])
def test_the_hash_is_the_same_in_every_process(seed):
    code = (
        "from tests.unit.core.test_codec import some_commands\n"
        "from ephemerd.core.codec import command_hash\n"
        "print(command_hash(some_commands()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == codec.command_hash(some_commands())


def test_the_hash_is_the_one_that_older_journals_hold():
    """A change here breaks the replay of every journal that exists: it needs a new rules version."""
    register = Register(RunnerId("eph-abcdefgh-ab12-1"), SCOPE, ("linux", "x64"))
    assert codec.command_hash([register]) == "6a42804fb1ce79881c89c20cf78204cd"
