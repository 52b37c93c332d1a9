"""What the program says is what the page explains: each phrase stands in the source and in the document."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "TROUBLESHOOTING.md").read_text(encoding="utf-8")
SOURCE = " ".join(
    re.sub(r'"\s*\n?\s*f?"', "", file.read_text(encoding="utf-8"))
    for file in sorted((ROOT / "src" / "ephemerd").rglob("*.py"))
    if "testing" not in file.parts
)


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def phrases(title: str) -> list[str]:
    """What stands as code in the first column of a section's table, in pieces between `…`."""
    cells = re.findall(r"^\| (.*?) \|", section(title), flags=re.MULTILINE)
    codes = [code for cell in cells for code in re.findall(r"`([^`]+)`", cell)]
    return [piece.strip() for code in codes for piece in code.split("…") if len(piece.strip()) > 3]


@pytest.mark.parametrize(
    "phrase", [*phrases("A job waits"), *phrases("Health sentences"), *phrases("Log lines")]
)
def test_the_program_says_so(phrase):
    assert phrase in SOURCE


def sentences(file: str, function: str) -> list[str]:
    """The longest fixed piece of each sentence that a function of the core gives."""
    text = (ROOT / "src" / "ephemerd" / "core" / file).read_text(encoding="utf-8")
    joined = re.sub(r'"\s*\n\s*f?"', "", text)
    found = re.findall(function, joined)
    pieces = [max(re.split(r"\{[^}]*\}", one), key=len).strip(" :.;,") for one in found]
    return [piece for piece in pieces if len(piece) > 8]


WAITING = sentences("waiting.py", r'return f?"([^"]+)"')
HEALTH = sentences("health.py", r'yield \(?\s*f?"([^"]+)"')


def explained(piece: str, where: str) -> bool:
    """Whether a phrase of the page is part of the sentence."""
    return any(phrase in piece or piece in phrase for phrase in phrases(where))


@pytest.mark.parametrize("piece", WAITING)
def test_each_reason_to_wait_is_explained(piece):
    fine = {"the forge holds it for an approval or a wait timer", "a runner for it is about to be planned"}
    if piece not in fine and "is not configured any more" not in piece:
        assert explained(piece, "A job waits")


def test_the_reasons_were_found():
    assert len(WAITING) >= 15
    assert len(HEALTH) >= 8


@pytest.mark.parametrize("piece", HEALTH)
def test_each_health_sentence_is_explained(piece):
    whole = next(one for one in re.split(r"yield", re.sub(r'"\s*\n\s*f?"', "", _health())) if piece in one)
    assert any(phrase in whole for phrase in phrases("Health sentences")), piece


def _health() -> str:
    return (ROOT / "src" / "ephemerd" / "core" / "health.py").read_text(encoding="utf-8")
