"""The daemon as a program: a GitHub App for an organization, a token for an enterprise, one set of slots."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.e2e.serving import CONFIG, LABELS, Site, until

pytestmark = pytest.mark.e2e

APP_ID = 800_001  # the first App of a look-alike
FORGES = """
[forge.github]
url = "{forge}"
scope = ["org:acme", "repo:acme/app"]
app_id = 800001
private_key_file = "{folder}/app.pem"
webhook_secret_file = "{folder}/hook"
runner_group = "fast ones"

[forge.second]
url = "{forge}/api/v3"
scope = "enterprise:big"
token_file = "{folder}/token"
webhook_secret_file = "{folder}/hook"

[pools.linux]
forge = "github"
scope = "org:acme"
labels = {labels}
runtime = "process"
max_concurrent = 2

[pools.second]
forge = "second"
labels = ["second"]
runtime = "process"
max_concurrent = 2

[hosts.local]
slots = 2
"""


class AppSite(Site):
    """A site whose forge has an App, a runner group and an enterprise, with a hook for each of two repositories."""

    def _start_forge(self) -> str:
        url = super()._start_forge()
        self.admin(url, "repositories", name="acme/lib")
        self.admin(url, "repositories", name="other/tool")
        self.admin(url, "enterprises", name="big")
        permissions = {
            "organization_self_hosted_runners": "write",
            "actions": "read",
            "administration": "write",
        }
        made = self.admin(url, "apps", permissions=permissions, accounts=["acme"])
        assert made["app_id"] == APP_ID
        (self.folder / "app.pem").write_text(made["private_key"])
        (self.folder / "app.pem").chmod(0o600)
        self.admin(url, "hooks", repository="acme/lib", url=self.hook)
        self.admin(url, "hooks", repository="other/tool", url=self.hook.replace("github", "second"))
        headers = {"Authorization": "Bearer token-for-tests", "User-Agent": "tests"}
        body = {"name": "Fast ones", "visibility": "all"}
        made = httpx2.post(f"{url}/orgs/acme/actions/runner-groups", json=body, headers=headers, timeout=10)
        assert made.status_code == 201, made.text
        return url

    @staticmethod
    def admin(url: str, path: str, /, **body: Any) -> Any:
        answer = httpx2.post(f"{url}/_admin/{path}", json=body, timeout=10)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def site(tmp_path_factory):
    rest = CONFIG[CONFIG.index("[runner]") :]
    made = AppSite(tmp_path_factory.mktemp("a"), f"{FORGES}\n{rest}")
    yield made
    made.close()


def test_several_scopes_and_forges_share_one_set_of_slots(site):
    for repository, labels in (("acme/app", LABELS), ("acme/lib", LABELS), ("other/tool", ["second"])):
        site.admin(site.forge, "jobs", repository=repository, labels=labels, count=2, duration_s=0.3)
    outcomes = site.completed(6)
    for name in ("killed", "disturbed", "lost", "leaked", "fence_breaches"):
        assert outcomes[name] == 0, (name, outcomes)
    until(lambda: site.api("api/v1/status")["slots_held"] == 0)
    status = site.api("api/v1/status")
    assert status["health"]["status"] == "ok", status["health"]
    assert status["slots"] == 2
    rates = {(one["forge"], one["account"]): one for one in status["rates"] if one["resource"] == "core"}
    assert ("github", "acme") in rates
    assert ("second", "") in rates
    assert rates["github", "acme"]["reserve"] == 1000
    assert {job["conclusion"] for job in site.api("api/v1/jobs")["items"]} == {"success"}
    everything = site.log() + "".join(str(site.api(f"api/v1/{path}")) for path in ("journal", "runners"))
    assert "ghs_" not in everything
    assert "PRIVATE KEY" not in everything
