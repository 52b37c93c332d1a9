"""Exit codes of a listener in words."""

from __future__ import annotations

import pytest

from ephemerd.domain.exits import in_words


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (None, "no exit code was recorded"),
        (7, "code 7: its version is refused by the forge: update the runner application"),
        (137, "code 137: it was killed: by a person, or by the kernel for want of memory"),
        (143, "code 143: it was ended by signal 15"),
        (42, "code 42"),
        (255, "code 255"),
    ],
)
def test_a_code_is_said_in_words(code, words):
    assert in_words(code) == words
