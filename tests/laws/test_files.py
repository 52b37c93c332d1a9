"""The files beside the source: locks that name no place, copies that stay copies."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.laws.source import PACKAGE, ROOT

LOCKS = ["requirements.lock", "requirements-uv.lock"]


def loose_lines(lock: str) -> list[str]:
    """Lines of a lock file that name an address, an option or a path, and requirements without a hash."""
    found = []
    entries = re.sub(r"\\\n", " ", lock).splitlines()
    for entry in entries:
        if entry.lstrip().startswith("#"):
            if "://" in entry or re.search(r"(^|[\s=])[/~]", entry):
                found.append(entry)
        elif entry.strip() and not re.fullmatch(
            r"[a-z0-9-]+==[^\s]+( ;.*?)?(\s+--hash=sha256:[0-9a-f]{64})+\s*", entry
        ):
            found.append(entry)
    return found


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_pins_by_hash_and_names_no_place(name):
    assert loose_lines((ROOT / name).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://index.invalid/simple",
        "# made from https://index.invalid",
        "#    uv pip compile /home/me/pyproject.toml",
        "httpx2==2.0",
        "httpx2>=2.0 --hash=sha256:" + "0" * 64,
        "httpx2 @ file:///tmp/httpx2.whl",
    ],
)
def test_a_loose_line_is_found(line):
    assert loose_lines(line) == [line]


def test_the_lock_holds_what_the_project_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    asked = [
        *project["project"]["dependencies"],
        *(name for group in project["project"]["optional-dependencies"].values() for name in group),
        *(name for group in project["dependency-groups"].values() for name in group),
        *project["build-system"]["requires"],
    ]
    names = {re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower() for requirement in asked}
    locked = set(
        re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert names - locked == set(), "run make lock"


def test_both_copies_of_the_weather_are_the_same():
    ours = PACKAGE / "testing" / "data" / "weather.toml"
    assert ours.read_bytes() == (ROOT / "tests" / "data" / "weather.toml").read_bytes()


def test_the_package_and_the_project_have_one_version():
    import ephemerd

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert ephemerd.__version__ == project["project"]["version"]
