"""The rows of the core's own as a store has them: what is usual is left out, so that no default may ever change."""

from __future__ import annotations

from typing import Any

import pytest

from ephemerd.core import codec
from ephemerd.core.rows import ClassRow, HostRow, PoolRow, ScopeRow
from tests.unit.core.world import APP, pool

USUAL: dict[str, tuple[type, dict[str, Any], dict[str, Any]]] = {
    "scope": (
        ScopeRow,
        {"scope": APP},
        {
            "answered": None,
            "silent": None,
            "why": "",
            "next_try": 0,
            "limited_until": 0,
            "denied_until": 0,
            "denied": "",
            "jobs_due": 0,
            "registrations_due": 0,
            "jobs_asked": None,
            "registrations_asked": None,
            "jobs_listed": None,
            "quiet": 0,
        },
    ),
    "pool": (
        PoolRow,
        {"pool": pool()},
        {
            "configured": True,
            "failures": 0,
            "exits": 0,
            "not_before": 0,
            "why": "",
            "left": "",
            "cordoned": "",
            "draining": False,
            "cordoned_at": 0,
            "missing": "",
            "refused": None,
        },
    ),
    "host": (
        HostRow,
        {"name": "here", "slots": 4},
        {
            "configured": True,
            "cordoned": "",
            "draining": False,
            "listed": None,
            "asked": None,
            "due": 0,
            "cordoned_at": 0,
        },
    ),
    "class": (ClassRow, {}, {"served": 0, "held": False, "credits": 0, "grant": 1}),
}


@pytest.mark.parametrize("kind", USUAL)
def test_what_is_usual_is_neither_written_nor_missed(kind: str) -> None:
    row, named, usual = USUAL[kind]
    full = row(**named, **usual)
    stored = codec.encode_row(kind, full)
    assert stored.keys() == named.keys()
    assert codec.decode_row(kind, stored) == full
