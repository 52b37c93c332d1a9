"""What end-to-end tests share: one Docker Engine for a session, started when the first test needs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ephemerd.testing.engines.own import may_make_namespaces, why_not
from tests.conftest import ELSEWHERE
from tests.e2e.engine import IMAGE, NEEDED, TestEngine, busybox_image


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[TestEngine]:
    """The engine, with the image of the stand-in runner."""
    reason = why_not(NEEDED)
    if reason:
        pytest.skip(f"{reason} (make system installs it as root on Debian)")
    if not may_make_namespaces():
        pytest.skip(f"{ELSEWHERE}it needs a root that may make namespaces, as an engine does")
    engine = TestEngine()
    try:
        engine.start()
        engine.api.import_image(IMAGE, busybox_image(), "USER runner", "WORKDIR /runner")
        yield engine
    finally:
        engine.stop()
