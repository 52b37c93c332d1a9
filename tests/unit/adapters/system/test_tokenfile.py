"""The file of API tokens: whole, private, and plain about what is wrong with it."""

from __future__ import annotations

import json
import stat

import pytest

from ephemerd.adapters.system.tokenfile import TokenFile
from ephemerd.ports.access import Role, TokenRecord
from ephemerd.ports.errors import Broken

RECORDS = [
    TokenRecord("a", Role.READ, b"\x01" * 32, 5, None),
    TokenRecord("b", Role.OPERATE, b"\x02" * 32, 6, 7),
]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "state.tokens.json"


def test_what_is_written_is_read(path):
    file = TokenFile(path)
    assert file.read() == []
    file.write(RECORDS)
    assert TokenFile(path).read() == RECORDS
    file.write(RECORDS[:1])
    assert file.read() == RECORDS[:1]
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_nobody_else_can_read_it(path):
    file = TokenFile(path)
    file.write(RECORDS)
    path.chmod(0o644)
    file.write(RECORDS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_refused(path, mode):
    file = TokenFile(path)
    file.write(RECORDS)
    path.chmod(mode)
    with pytest.raises(Broken, match="chmod 600"):
        file.read()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version": 2, "tokens": []}',
        '{"version": 1}',
        '{"version": 1, "tokens": [], "more": 1}',
        json.dumps({"version": 1, "tokens": [{"name": "a"}]}),
        *(
            json.dumps(
                {
                    "version": 1,
                    "tokens": [{"name": "a", "role": role, "sha256": digest, "created": 1, "expires": None}],
                }
            )
            for role, digest in (("root", "00" * 32), ("read", "00" * 31), ("read", "zz" * 32))
        ),
        "x" * (1024 * 1024 + 1),
    ],
)
def test_another_text_is_refused_with_a_way_out(path, text):
    path.parent.mkdir()
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(Broken, match="make new tokens"):
        TokenFile(path).read()


def test_a_folder_in_its_place_is_told(path):
    path.mkdir(parents=True)
    with pytest.raises(Broken, match="cannot be read"):
        TokenFile(path).read()
    with pytest.raises(Broken, match="cannot be written"):
        TokenFile(path).write(RECORDS)
    assert [one.name for one in path.parent.iterdir()] == [path.name]
