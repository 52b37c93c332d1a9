"""The process runtime keeps the contract of every runtime."""

from __future__ import annotations

import pytest

from ephemerd.testing.contracts.runtime import CHECKS
from tests.e2e.process_runtime import Lab

pytestmark = [pytest.mark.e2e, pytest.mark.platform("linux")]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_process_runtime_keeps_the_contract(check):
    lab = Lab()
    try:
        await check(lab)
    finally:
        await lab.close()
