"""The container runtime keeps the contract of every runtime, with a real engine."""

from __future__ import annotations

import pytest

from ephemerd.testing.contracts.runtime import CHECKS
from tests.e2e.docker_runtime import Lab
from tests.e2e.engine import TestEngine

pytestmark = [pytest.mark.e2e, pytest.mark.platform("linux"), pytest.mark.account("root")]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_container_runtime_keeps_the_contract(check, docker_engine: TestEngine):
    lab = Lab(docker_engine)
    try:
        await check(lab)
    finally:
        await lab.close()
