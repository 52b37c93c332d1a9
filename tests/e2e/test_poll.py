"""Jobs without a single delivery: no port is open to the forge, and listings tell of all."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.e2e.serving import CONFIG, LABELS, POLLING, Site, until

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


ORGANIZATION = (
    'scope = "org:acme"\n{how}\nrepositories_denied = ["acme/secret"]\napp_id = 800001\n'
    'private_key_file = "{{folder}}/app.pem"'
)
PERMISSIONS = {"organization_self_hosted_runners": "write", "actions": "read"}


def organization(config: str, how: str) -> str:
    """The configuration with an App for an organization instead of a token for a repository."""
    for line in (
        'token_file = "{folder}/token"\n',
        'discovery = "poll"\n',
        'webhook_secret_file = "{folder}/hook"\n',
    ):
        config = config.replace(line, "")
    return config.replace('scope = "repo:acme/app"', ORGANIZATION.format(how=how))


class OrganizationSite(Site):
    """An organization with three repositories, and jobs that were queued before the daemon started."""

    def _start_forge(self) -> str:
        url = super()._start_forge()
        for name in ("acme/lib", "acme/secret"):
            self.admin(url, "repositories", name=name)
        made = self.admin(url, "apps", permissions=PERMISSIONS, accounts=["acme"])
        (self.folder / "app.pem").write_text(made["private_key"])
        (self.folder / "app.pem").chmod(0o600)
        for name in ("acme/app", "acme/lib", "acme/secret"):
            self.admin(url, "jobs", repository=name, labels=LABELS, duration_s=0.3)
        return url

    @staticmethod
    def admin(url: str, path: str, /, **body: Any) -> Any:
        answer = httpx2.post(f"{url}/_admin/{path}", json=body, timeout=10)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def repositories(self) -> set[str]:
        """Whose jobs the daemon knows."""
        return {job["id"].rpartition("/")[0] for job in self.api("api/v1/jobs")["items"]}


def clean(outcomes: dict[str, Any]) -> None:
    for name in ("killed", "disturbed", "leaked", "fence_breaches"):
        assert outcomes[name] == 0, (name, outcomes)


def test_an_organization_is_polled_by_an_app(tmp_path):
    site = OrganizationSite(tmp_path, organization(POLLING, 'discovery = "poll"'))
    try:
        clean(site.completed(2))
        site.admin(site.forge, "jobs", repository="acme/lib", labels=LABELS, count=2, duration_s=0.3)
        clean(site.completed(4))
        status = site.api("api/v1/status")
        assert "github/org:acme" in status["reconciled"]
        assert "acme" in [one["account"] for one in status["rates"] if one["resource"] == "core"]
        assert site.repositories() == {"github/acme/app", "github/acme/lib"}, "what is denied is not read"
    finally:
        site.close()


def test_what_no_delivery_told_of_an_organization_is_found_by_its_listing(tmp_path):
    """The one hook is of acme/app, and came after its job: nothing tells of acme/lib at all."""
    how = 'webhook_secret_file = "{folder}/hook"'
    config = organization(CONFIG, how).replace("[server]", '[policy]\nreconcile_every = "2s"\n\n[server]')
    site = OrganizationSite(tmp_path, config)
    try:
        clean(site.completed(2))
        assert site.repositories() == {"github/acme/app", "github/acme/lib"}
    finally:
        site.close()
