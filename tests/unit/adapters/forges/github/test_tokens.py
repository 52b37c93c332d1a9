"""The token: one line, from one place, shown nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from ephemerd.adapters.forges.github.tokens import FileToken, FixedToken, token_source
from ephemerd.ports.errors import Denied


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("first\n", encoding="utf-8")
    return path


async def test_a_file_is_read_once_and_again_after_a_refusal(file):
    source = FileToken(file)
    assert await source.token("/repos/acme/app") == "first"
    file.write_text("second", encoding="utf-8")
    assert await source.token("/repos/acme/app") == "first"
    assert await source.refused("/repos/acme/app", "first") is True
    assert await source.token("/repos/acme/app") == "second"


async def test_a_refused_file_that_did_not_change_gives_no_other(file):
    source = FileToken(file)
    await source.token("/repos/acme/app")
    assert await source.refused("/repos/acme/app", "first") is False
    assert await source.token("/repos/acme/app") == "first"


async def test_a_late_refusal_of_an_older_token_does_not_read_again(file):
    source = FileToken(file)
    await source.token("/repos/acme/app")
    file.write_text("second", encoding="utf-8")
    assert await source.refused("/repos/acme/app", "first")
    file.write_text("third", encoding="utf-8")
    assert await source.refused("/repos/acme/app", "first") is True
    assert await source.token("/repos/acme/app") == "second"


async def test_a_file_that_vanished_says_so_after_a_refusal(file):
    source = FileToken(file)
    await source.token("/repos/acme/app")
    file.unlink()
    with pytest.raises(Denied, match=str(file)):
        await source.refused("/repos/acme/app", "first")


@pytest.mark.parametrize(
    "content", ["", "  \n", "two words", "two\nlines", "tökén", "x" * 70_000, "a\x00b", "\xff"]
)
async def test_what_is_no_token_is_denied_and_not_quoted(tmp_path, content):
    path = tmp_path / "token"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(Denied) as caught:
        await FileToken(path).token("/repos/acme/app")
    assert str(path) in caught.value.detail
    assert not content.strip() or content.strip()[:5] not in caught.value.detail.replace(str(path), "")


async def test_a_missing_or_unreadable_file_is_denied_with_its_path(tmp_path):
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(Denied, match=f"token_file {path} cannot be read: "):
            await FileToken(path).token("/repos/acme/app")


async def test_a_fixed_token_stays():
    source = FixedToken(" abc\n")
    assert await source.token("/repos/acme/app") == "abc"
    assert await source.refused("/repos/acme/app", "abc") is False


async def test_no_repr_shows_a_token(file):
    source = FileToken(file)
    await source.token("/repos/acme/app")
    assert "first" not in repr(source) + str(source)
    assert "abc" not in repr(FixedToken("abc"))


async def test_exactly_one_source_is_taken(file):
    assert await token_source("abc", None).token("/repos/acme/app") == "abc"
    assert await token_source("", file).token("/repos/acme/app") == "first"
    with pytest.raises(Denied, match="both"):
        token_source("abc", file)
    with pytest.raises(Denied, match="neither"):
        token_source("", None)
