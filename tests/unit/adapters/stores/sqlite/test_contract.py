"""The SQLite store keeps the contract."""

from __future__ import annotations

import pytest

from ephemerd.adapters.stores.sqlite import SqliteStore
from ephemerd.testing.contracts.store import CHECKS


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_contract(check, tmp_path):
    await check(lambda: SqliteStore(tmp_path / "store" / "state.db"))
