"""The container runtime keeps the contract on Podman's compatible socket too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from ephemerd.testing.contracts.runtime import CHECKS
from ephemerd.testing.engines.own import may_make_namespaces, why_not
from tests.conftest import ELSEWHERE
from tests.e2e.docker_runtime import Lab
from tests.e2e.engine import IMAGE, TestEngine, busybox_image
from tests.e2e.podman import NEEDED, Podman

pytestmark = [pytest.mark.e2e, pytest.mark.platform("linux"), pytest.mark.account("root")]


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    reason = why_not((*NEEDED, "busybox"))
    if reason:
        pytest.skip(f"{reason} (make system installs it as root on Debian)")
    if not may_make_namespaces():
        pytest.skip(f"{ELSEWHERE}it needs a root that may make namespaces, as an engine does")
    engine = Podman()
    try:
        engine.start()
        name, _, tag = IMAGE.partition(":")
        engine.api.import_image(IMAGE, busybox_image(), "USER runner", "WORKDIR /runner")
        engine.call(
            "POST", f"/images/{name}:latest/tag?repo=docker.io/{name}&tag={tag}"
        )  # it knows no tag there
        yield engine
    finally:
        engine.stop()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_container_runtime_keeps_the_contract_on_podman(check, podman: Podman):
    lab = Lab(cast("TestEngine", podman))  # it has what the contract needs of one
    try:
        await check(lab)
    finally:
        await lab.close()
