"""The line of each key, and what is said of a file that cannot be read."""

from __future__ import annotations

import tomllib
from pathlib import Path

from ephemerd.config.findings import Code, Finding
from ephemerd.config.tomlfile import TomlFile, key_lines, read_toml

TEXT = '''\
top = 1            # [not.a.table]
[forge."git hub"]  # a comment
scope = ["repo:a/b",
  "x = 1",
  # y = 2
]
text = """
[pools.fake]
z = 1
"""
other = \'\'\'one line\'\'\'
a.b . 'c d' = { inner = 1, more = [1, 2] }

[pools.linux]
  labels = ["]", "#"]
last = "escaped \\" quote [ "
end = 1
[[many]]
one = 1
'''


def test_each_key_has_its_line():
    assert tomllib.loads(TEXT)
    assert key_lines(TEXT) == {
        ("top",): 1,
        ("forge", "git hub"): 2,
        ("forge", "git hub", "scope"): 3,
        ("forge", "git hub", "text"): 7,
        ("forge", "git hub", "other"): 11,
        ("forge", "git hub", "a", "b", "c d"): 12,
        ("pools", "linux"): 14,
        ("pools", "linux", "labels"): 15,
        ("pools", "linux", "last"): 16,
        ("pools", "linux", "end"): 17,
        ("many",): 18,
        ("many", "one"): 19,
    }


def test_the_place_of_a_key_is_its_line_or_that_of_what_encloses_it(tmp_path):
    file = TomlFile(tmp_path / "c.toml", {}, {("a",): 3, ("a", "b"): 4})
    assert file.place(("a", "b")) == f"{tmp_path}/c.toml:4"
    assert file.place(("a", "x", "y")) == f"{tmp_path}/c.toml:3"
    assert file.place(("z",)) == f"{tmp_path}/c.toml"


def read(path) -> Finding:
    found = read_toml(path)
    assert isinstance(found, Finding)
    assert found.code is Code.CONFIGURATION
    assert str(path) in found.where
    return found


def test_a_missing_file(tmp_path):
    assert read(tmp_path / "no.toml").what == "there is no such file"


def test_a_folder_is_no_file(tmp_path):
    assert read(tmp_path).what == "is a folder, not a file"


def test_bad_syntax_names_the_line(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("a = 1\nb = \n")
    assert "line 2" in read(file).what


def test_what_is_no_text(tmp_path):
    file = tmp_path / "c.toml"
    file.write_bytes(b"a = '\xff'")
    assert read(file).what == "is not UTF-8 text"


def test_what_is_too_large(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("#" * 1_000_001)
    assert "larger than a configuration" in read(file).what


def test_an_unreadable_file(tmp_path, monkeypatch):
    def refuse(self, *_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert read(tmp_path / "c.toml").what == "cannot be read: Permission denied"
