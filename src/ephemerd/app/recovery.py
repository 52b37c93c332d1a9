"""The start of a process life: open the store, load the rows, go on with the clock, open a journal segment.

What really runs is found by the commands that the core gives on `Booted` (list environments and
registrations, read active jobs); their answers arrive like all others, merged with deliveries.
"""

from __future__ import annotations

import gc
import secrets
import string
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ephemerd.core import codec
from ephemerd.core.events import Booted
from ephemerd.core.machine import RULES, Core
from ephemerd.domain.pool import Setup
from ephemerd.ports.errors import Broken
from ephemerd.ports.store import Loaded, Store
from ephemerd.ports.system import Clock

EPOCH_ALPHABET = string.ascii_lowercase + string.digits
EPOCH_LENGTH = 4


@dataclass(frozen=True, slots=True)
class Life:
    """What a process life begins with. `same_boot` is false when the machine was rebooted since the last."""

    store: str
    core: Core
    same_boot: bool
    quarantined: int


def draw_epoch() -> str:
    """Return 4 random characters that no earlier life of this store is likely to have had."""
    return "".join(secrets.choice(EPOCH_ALPHABET) for _ in range(EPOCH_LENGTH))


def revive(loaded: Loaded) -> Core:
    """Build the core from the rows of the store; it waits for its `Booted`. Raises `Broken` for a row that this
    version cannot read."""
    return Core({kind: _read(kind, texts) for kind, texts in loaded.rows.items()})


def _read(kind: str, texts: dict[str, str]) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    key = ""
    try:
        read = codec.row_reader(kind)
        for key, text in texts.items():
            rows[key] = read(text)
    except (ValueError, KeyError, TypeError) as error:
        todo = "stop the daemon, run `ephemerd store check --set-aside`, or restore a backup"
        where = f"row {kind} {key}" if key else f"rows of kind {kind}"
        raise Broken(f"the store's {where} cannot be read ({error}): {todo}") from error
    return rows


async def recover(store: Store, clock: Clock) -> Life:
    """Open the store and begin a life. Raises `StoreHeld`, `NewerStore` or what the store raises."""
    await store.open()
    with without_collecting():
        loaded = await store.load()
        same_boot = clock.start(loaded.clock)
        core = revive(loaded)
    await store.open_segment(RULES)  # from the rows just read: nothing was written since
    return Life(loaded.store, core, same_boot, await store.quarantined())


@contextmanager
def without_collecting() -> Iterator[None]:
    """Look for no garbage meanwhile: what is made is there to stay, and each look would go through all of it."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def boot(life: Life, setup: Setup, *, again: bool = False, held: tuple[tuple[str, str], ...] = ()) -> Booted:
    """Return the first event of a life, under a fresh epoch. `again`: the memory was dropped and reloaded
    within one process, so that the machine is surely still the same boot. `held` as in the event."""
    return Booted(life.store, draw_epoch(), setup, life.same_boot or again, held)
