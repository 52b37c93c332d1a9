"""The daemon as a program: deliveries that failed while it was away come back, each once, by each kind of hook."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import signal
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import jwt
import pytest

from ephemerd.app.trust import BELIEVED_AFTER
from tests.e2e.serving import CONFIG, LABELS, SECRET, Site, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
APP_ID = 800_001
POLICY = '\n[policy]\nreconcile_every = "1h"\n'
"""Nothing is repaired by a listing after the first one, so that what comes later came by a delivery."""
BY_REPOSITORY = (
    CONFIG.replace(
        "[pools.linux]", 'webhook_url = "http://127.0.0.1:{port}/webhooks/github"\n\n[pools.linux]'
    )
    + POLICY
)
BY_APP = (
    CONFIG.replace('"repo:acme/app"', '"org:acme"')
    .replace('token_file = "{folder}/token"', 'app_id = 800001\nprivate_key_file = "{folder}/app.pem"')
    .replace("[pools.linux]", 'webhook_owner = "app"\nrepositories_denied = ["acme/secret"]\n\n[pools.linux]')
    + POLICY
)


class LostSite(Site):
    """A site whose daemon can be stopped and started, and whose forge tells what it delivered."""

    def admin(self, path: str, /, **body: Any) -> Any:
        answer = self.web.post(f"{self.forge}/_admin/{path}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def stop(self) -> None:
        self.daemon.send_signal(signal.SIGTERM)
        assert self.daemon.wait(40) == 0, self.log()

    def truth(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        text = self.web.get(f"{self.forge}/_admin/truth", params={"kinds": kind}).text
        records = [json.loads(line) for line in text.splitlines()]
        return [one for one in records if all(one.get(key) == value for key, value in fields.items())]

    def recovered(self, result: str = "stored") -> float:
        found = re.search(
            rf'deliveries_recovered_total{{forge="github",result="{result}"}} (\S+)', self.api("metrics")
        )
        assert found is not None
        return float(found[1])


class AppSite(LostSite):
    """By the hook of an App, which is installed on another account too."""

    def _start_forge(self) -> str:
        self.forge = url = super()._start_forge()
        headers = {"Authorization": "Bearer token-for-tests", "User-Agent": "tests"}
        hook = f"{url}/repos/acme/app/hooks/400000001"
        assert self.web.delete(hook, headers=headers).status_code == 204
        for name in ("acme/secret", "other/tool"):
            self.admin("repositories", name=name)
        permissions = {
            "organization_self_hosted_runners": "write",
            "actions": "read",
            "administration": "write",
        }
        made = self.admin(
            "apps",
            permissions=permissions,
            accounts=["acme", "other"],
            hook_url=self.hook,
            hook_secret=SECRET,
        )
        assert made["app_id"] == APP_ID
        (self.folder / "app.pem").write_text(made["private_key"])
        (self.folder / "app.pem").chmod(0o600)
        return url


@pytest.fixture(params=["repository", "app"])
def site(request, tmp_path_factory) -> Iterator[LostSite]:
    folder = tmp_path_factory.mktemp("s")
    if request.param == "app":
        made: LostSite = AppSite(folder, BY_APP)
    else:
        made = LostSite(folder, BY_REPOSITORY)
    yield made
    made.close()


def test_jobs_that_were_queued_while_the_daemon_was_away_run_and_each_is_told_once(site):
    site.stop()
    jobs = site.queue(4)
    until(lambda: len(site.truth("delivery_sent", event="workflow_job", status=0)) >= 4)
    site.daemon = site.start()
    forged(site)
    outcomes = site.completed(4, 150)
    for name in ("killed", "disturbed", "lost", "leaked", "wasted"):
        assert outcomes[name] == 0, (name, outcomes)
    assert outcomes["dispatches"] == 4
    until(lambda: site.recovered() == 4)
    assert "failed deliveries were fetched from the forge" in site.log()
    journal = [one["event"] for one in site.api("api/v1/journal?limit=1000")["items"]]
    queued = [
        event["report"]["key"]["id"]
        for event in journal
        if event["kind"] == "JobReported" and event["report"]["status"] == "queued"
    ]
    assert sorted(queued) == sorted(jobs)
    # Asked for once more by somebody: the store knows the ids.
    again = redelivered(site, jobs[0])
    until(lambda: site.truth("delivery_sent", redelivery=True, guid=again, status=202))
    assert 'event="workflow_job",forge="github",result="duplicate"} 1.0' in site.api("metrics")
    assert site.outcomes()["dispatches"] == 4
    (view,) = site.api("api/v1/status")["recoveries"]
    assert (view["recovered"], view["problem"], view["failing"]) == (4, "", "")


def forged(site: LostSite) -> None:
    """What a stranger sends is not in the forge's list, whatever it pretends to be, and nothing is learnt from it."""
    [lost, *_] = site.truth("delivery_sent", event="workflow_job", status=0)
    body = json.dumps(
        {"action": "completed", "workflow_job": {"id": lost["job"], "status": "completed"}}
    ).encode()
    headers = {
        "x-github-event": "workflow_job",
        "x-github-delivery": lost["guid"],
        "content-type": "application/json",
        "x-hub-signature-256": "sha256=" + hmac.new(b"a guess", body, hashlib.sha256).hexdigest(),
    }
    assert httpx2.post(site.hook, content=body, headers=headers, timeout=10).status_code == 401


def redelivered(site: LostSite, job: int) -> str:
    """Ask the look-alike to deliver once more what it had tried about a job; return the delivery's id."""
    [first, *_] = site.truth("delivery_sent", job=job, action="queued")
    if isinstance(site, AppSite):
        now = int(time.time())
        claims = {"iat": now - 60, "exp": now + 300, "iss": str(APP_ID)}
        token = jwt.encode(claims, (site.folder / "app.pem").read_text(), algorithm="RS256")
        path = "/app/hook"
    else:
        token = "token-for-tests"
        path = "/repos/acme/app/hooks/400000001"
    answer = httpx2.post(
        f"{site.forge}{path}/deliveries/{first['delivery']}/attempts",
        headers={"Authorization": f"Bearer {token}", "User-Agent": "tests"},
        timeout=10,
    )
    assert answer.status_code == 202, answer.text
    guid: str = first["guid"]
    return guid


def test_what_is_not_allowed_or_not_ours_gets_no_runner_however_it_comes(tmp_path_factory):
    site = AppSite(tmp_path_factory.mktemp("s"), BY_APP)
    try:
        site.stop()
        [denied] = site.admin("jobs", repository="acme/secret", labels=LABELS, held=True)["jobs"]
        [strange] = site.admin("jobs", repository="other/tool", labels=LABELS, held=True)["jobs"]
        site.queue(1)
        until(lambda: len(site.truth("delivery_sent", event="workflow_job", status=0, action="queued")) == 3)
        site.daemon = site.start()
        outcomes = site.completed(1, 150)
        until(lambda: site.recovered("foreign") == 1)
        until(lambda: site.recovered() == 2)
        assert outcomes["dispatches"] == 1
        refused = site.api(f"api/v1/jobs/github/acme/secret/{denied}")
        assert "repositories_denied" in refused["why"]
        assert strange not in [job["number"] for job in site.api("api/v1/jobs")["items"]]
    finally:
        site.close()


def requests(site: LostSite, endpoint: str) -> float:
    """How many requests went to an endpoint, whatever the answer."""
    found = re.findall(
        rf'forge_requests_total{{endpoint="{re.escape(endpoint)}",[^}}]*}} (\S+)', site.api("metrics")
    )
    return sum(float(count) for count in found)


def rounds(site: LostSite, runs: str) -> None:
    """Wait until runs were listed some more times."""
    before = requests(site, runs)
    until(lambda: requests(site, runs) >= before + 6)


@pytest.mark.parametrize("vouched", [True, False])
def test_where_deliveries_are_vouched_for_the_jobs_of_runs_that_are_known_are_not_read(
    tmp_path_factory, vouched
):
    config = BY_REPOSITORY.replace('"1h"', '"1s"')
    if not vouched:
        config = re.sub(r"webhook_url = .*\n", "", config)
    site = LostSite(tmp_path_factory.mktemp("s"), config)
    runs = "GET /repos/{owner}/{repo}/actions/runs"
    try:
        [job] = site.admin("jobs", labels=LABELS, held=True, duration_s=0.5)["jobs"]
        until(lambda: site.api(f"api/v1/jobs/github/acme/app/{job}").get("status") == "queued")
        until(lambda: site.outcomes()["dispatches"] == 1)

        def is_read() -> bool:
            read = requests(site, f"{runs}/{{id}}/jobs")
            rounds(site, runs)
            return requests(site, f"{runs}/{{id}}/jobs") > read

        if vouched:
            until(lambda: not is_read())  # once the deliveries are believed
        else:
            assert all(is_read() for _ in range(BELIEVED_AFTER // 2 + 2))
        site.admin(f"jobs/{job}/unhold")
        assert site.completed(1)["killed"] == 0
    finally:
        site.close()
