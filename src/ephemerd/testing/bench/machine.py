"""`machine`: how fast this machine runs a fixed piece of Python just now. No figure of the program: what other figures
of two runs, or of two machines, are to be seen beside."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ephemerd.domain.value import Value
from ephemerd.testing.bench.figures import Figure, figure

ROUNDS = 15
ROWS = 20_000


class _Row(Value, frozen=True):
    number: int
    name: str
    before: int | None


def machine() -> Sequence[Figure]:
    """Rounds a second of the same work, which is of the kind that the daemon does: calls, dicts, short texts, rows."""
    rates = []
    for _ in range(ROUNDS):
        began = time.process_time()
        _round()
        rates.append(1.0 / (time.process_time() - began))
    return [
        figure("machine", "rounds/s", rates, note="a fixed piece of Python, to see the other figures beside")
    ]


def _round() -> None:
    rows: dict[str, _Row] = {}
    for number in range(ROWS):
        name = f"acme/app/{number % 512}"
        rows[name] = _changed(rows.get(name), number, name)


def _changed(old: _Row | None, number: int, name: str) -> _Row:
    return _Row(number, name, None if old is None else old.number)
