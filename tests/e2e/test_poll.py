"""Jobs without a single delivery: no port is open to the forge, and listings tell of all."""

from __future__ import annotations

import pytest

from tests.e2e.serving import POLLING, Site, until

pytestmark = pytest.mark.e2e


@pytest.fixture
def site(tmp_path_factory):
    made = Site(tmp_path_factory.mktemp("s"), POLLING)
    yield made
    made.close()


def test_jobs_are_run_without_a_webhook(site: Site):
    assert '"for": "webhooks"' not in site.log()
    site.queue(4)
    outcomes = site.completed(4)
    for name in ("killed", "disturbed", "lost", "leaked", "fence_breaches"):
        assert outcomes[name] == 0, (name, outcomes)
    until(lambda: len(site.api("api/v1/jobs?status=done")["items"]) == 4)
    until(lambda: 'status="304"' in site.api("metrics"))
