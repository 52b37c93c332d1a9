"""Field problems that bite at the store. Numbers are those of docs/FIELD-PROBLEMS.md."""

from __future__ import annotations

import pytest

from ephemerd.adapters.stores.sqlite import SqliteStore
from ephemerd.ports.errors import StoreHeld
from ephemerd.testing.contracts.store import opened


async def test_fp_60_a_second_program_beside_the_daemon_cannot_open_its_state(tmp_path):
    """(e) a repair command that runs beside the daemon refuses while it lives, and works afterwards."""
    path = tmp_path / "state.db"
    async with opened(lambda: SqliteStore(path)):
        with pytest.raises(StoreHeld):
            await SqliteStore(path).open()
    async with opened(lambda: SqliteStore(path)) as store:
        assert await store.quarantined() == 0
