"""References and places."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerd.adapters.runtimes.process.identity import ProcessId, Reference, parse_reference, place_of

identities = st.none() | st.builds(ProcessId, st.integers(1, 2**22), st.integers(0, 2**62))
references = st.builds(
    Reference,
    st.from_regex(r"[a-z0-9][a-z0-9-]{0,62}", fullmatch=True),
    st.text(),
    st.text(),
    st.text(),
    identities,
    identities,
)


@given(references)
def test_a_reference_comes_back_from_its_text(reference):
    text = str(reference)
    assert parse_reference(text) == reference
    assert text.isascii()
    assert text.isprintable()


def test_it_reads_as_what_it_is():
    reference = Reference("eph-s-b-1", "my pool", "s", "0f-1", ProcessId(7, 70), None)
    assert str(reference) == "process:1:my%20pool:s:eph-s-b-1:0f-1:7.70:-"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "process:2:p:s:eph-1:b:1.1:2.2",
        "docker:1:p:s:eph-1:b:1.1:2.2",
        "process:1:p:s:../x:b:1.1:2.2",
        "process:1:p:s:eph-1:b:1.1",
        "process:1:p:s:eph-1:b:1.1:2.2:3.3",
        "process:1:p:s:eph-1:b:1:2.2",
        "process:1:p:s:eph-1:b:x.1:2.2",
        "process:1:p:s:EPH:b:1.1:2.2",
    ],
)
def test_what_is_no_reference(text):
    assert parse_reference(text) is None


def test_places():
    place = place_of("eph-1", Path("/w"), Path("/l"))
    assert (place.folder, place.root, place.state) == (
        Path("/w/eph-1"),
        Path("/w/eph-1/root"),
        Path("/w/eph-1/.ephemerd"),
    )
    assert (place.log, place.kept) == (Path("/l/eph-1.log"), Path("/l/eph-1.diag"))
    assert place.root not in place.state.parents


def test_relative_folders_are_meant_from_here():
    assert place_of("eph-1", Path("w"), Path("l")).folder == Path.cwd() / "w" / "eph-1"


@pytest.mark.parametrize("name", ["", "..", "a/b", "A", "-a", "a" * 64, "a\n", "a\0"])
def test_a_name_that_is_none(name):
    with pytest.raises(ValueError, match="no runner name"):
        place_of(name, Path("/w"), Path("/l"))
