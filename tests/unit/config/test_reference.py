"""The reference in the documentation is the model's, whole, and the examples can be used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ephemerd.config.keys import kind_of, known_keys
from ephemerd.config.reference import reference

DOCS = Path(__file__).resolve().parents[3] / "docs"
KEYS = list(known_keys())


@pytest.mark.parametrize("key", [".".join(path) for path, _ in KEYS])
def test_each_key_is_documented_under_its_table(key):
    table, _, name = key.rpartition(".")
    section = reference().split(f"### `[{table}]`\n")[1].split("\n### ")[0]
    assert f"| `{name}` | " in section


@pytest.mark.parametrize(("path", "field"), KEYS, ids=[".".join(path) for path, _ in KEYS])
def test_each_key_says_its_form_and_why(path, field):
    assert field.description
    assert field.description.endswith(".")
    assert kind_of(field), path


@pytest.mark.parametrize("document", ["CONFIGURATION.md", "../README.md"])
def test_the_example_is_a_configuration_that_can_be_used(bench, document):
    text = (DOCS / document).read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(\[forge\.github\].*?)```", text, flags=re.DOTALL)
    for name in ("token", "webhook"):
        file = bench.folder / name
        file.write_text("hush")
        file.chmod(0o600)
        example = example.replace(f"/etc/ephemerd/{name}", str(file))
    effective = bench.load(example)
    assert effective.to_setup().pools[0].name == "linux"
    assert effective.findings == ()
