"""What several keys say together: forges, scopes, hosts, what comes later."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ephemerd.domain.access import Access
from tests.unit.config.conftest import GOOD

TWO = """\
[forge.one]
scope = "repo:acme/app"
token_file = "token"
webhook_secret_file = "hook"
[forge.two]
url = "https://ghe.example.org/api/v3"
scope = ["repo:ACME/lib", "repo:acme/tools"]
token_file = "token"
webhook_secret_file = "hook"
[pools.linux]
labels = ["linux"]
runtime = "process"
"""


def test_with_several_forges_a_pool_names_one(bench):
    finding = bench.only(TWO)
    assert finding.what == "does not say which forge it serves"
    assert "one, two" in finding.todo
    assert bench.load(TWO + 'forge = "one"\n').forge_of("linux") == "one"


def test_with_several_scopes_a_pool_names_one(bench):
    finding = bench.only(TWO + 'forge = "two"\n')
    assert "which scope of forge two" in finding.what
    assert "repo:acme/tools" in finding.todo
    effective = bench.load(TWO + 'forge = "two"\nscope = "repo:acme/lib"\n')
    assert str(effective.scope_of("linux")) == "two/repo:acme/lib"


def test_a_pool_of_an_unknown_scope(bench):
    finding = bench.only(TWO + 'forge = "two"\nscope = "repo:acme/app"\n')
    assert finding.what == "is no scope of forge two"


def test_a_pool_of_an_unknown_forge(bench):
    finding = bench.only(GOOD + 'forge = "gitlab"\n')
    assert "unknown forge 'gitlab'" in finding.what
    assert finding.todo == "forges are: github"


def test_a_pool_on_an_unknown_host(bench):
    finding = bench.only(GOOD + 'host = "mars"\n')
    assert "unknown host 'mars'" in finding.what
    assert finding.todo == "hosts are: local"


def test_all_scopes_in_their_order(bench):
    effective = bench.load(TWO + 'forge = "one"\n')
    assert [str(scope) for scope in effective.scopes()] == [
        "one/repo:acme/app",
        "two/repo:ACME/lib",
        "two/repo:acme/tools",
    ]


def test_an_unused_host_is_a_warning(bench):
    finding = bench.only(GOOD + "[hosts.spare]\nslots = 2\n")
    assert (finding.code, finding.what) == (0, "is used by no pool")


def test_a_host_without_slots_is_a_warning(bench):
    finding = bench.only(GOOD + "[hosts.local]\nslots = 0\n")
    assert (finding.code, finding.what) == (0, "lets nothing run there")


@pytest.mark.parametrize(
    "url", ["ftp://x", "api.github.com", "https://", "https://x/api?y=1", "https://x/#y", ""]
)
def test_an_address_that_is_none(bench, url):
    finding = bench.only(GOOD.replace("scope", f'url = "{url}"\nscope', 1))
    assert "is not the base address" in finding.what


def test_an_address_with_a_password(bench):
    finding = bench.only(GOOD.replace("scope", 'url = "https://me:pass@x/"\nscope', 1))
    assert "must not hold a user or password" in finding.what
    assert "me:pass" not in str(finding)


def test_plain_http_is_a_warning_but_to_this_machine(bench):
    finding = bench.only(GOOD.replace("scope", 'url = "http://ghe.lan"\nscope', 1))
    assert finding.code == 0
    assert bench.findings(GOOD.replace("scope", 'url = "http://127.0.0.1:9000"\nscope', 1)) == []
    assert bench.findings(GOOD.replace("scope", 'url = "http://[::1]:9000"\nscope', 1)) == []


@pytest.mark.parametrize("patterns", ['["acme/*"]', '["*/app"]', '["ACME/App"]', "[]"])
def test_repositories_that_allow_the_scope(bench, patterns):
    assert bench.findings(GOOD.replace("scope", f"repositories = {patterns}\nscope", 1)) == []


def test_repositories_that_leave_the_scope_out(bench):
    finding = bench.only(GOOD.replace("scope", 'repositories = ["other/*"]\nscope', 1))
    assert "repo:acme/app would serve nothing" in finding.what


def test_a_scope_that_is_denied_serves_nothing(bench):
    finding = bench.only(GOOD.replace("scope", 'repositories_denied = ["Acme/*"]\nscope', 1))
    assert finding.where.startswith("forge.github.repositories_denied")
    assert "repo:acme/app would serve nothing" in finding.what
    assert bench.findings(GOOD.replace("scope", 'repositories_denied = ["acme/lib"]\nscope', 1)) == []


def test_polling_needs_no_secret_and_leaves_the_pools_unobserved(bench):
    kept = "".join(line for line in GOOD.splitlines(keepends=True) if "webhook_secret" not in line)
    (pool,) = bench.load(kept.replace("scope", 'discovery = "poll"\nscope', 1)).to_setup().pools
    assert not pool.observed


def test_an_organization_is_polled_by_its_repositories(bench):
    text = GOOD.replace('"repo:acme/app"', '"org:acme"').replace("scope", 'discovery = "poll"\nscope', 1)
    (pool,) = bench.load(text).to_setup().pools
    assert not pool.observed


@pytest.mark.parametrize(
    ("patterns", "found"), [("[]", False), ('["*"]', False), ('["*/app"]', False), ('["acme/*"]', True)]
)
def test_an_enterprise_is_polled_by_the_organizations_that_are_named(bench, patterns, found):
    written = f'discovery = "poll"\nrepositories = {patterns}\nscope'
    text = GOOD.replace('"repo:acme/app"', '"enterprise:big"').replace("scope", written, 1)
    if found:
        assert bench.findings(text) == []
        return
    finding = bench.only(text)
    assert finding.where.startswith("forge.github.repositories")
    assert "acme/*" in finding.todo


def test_one_scope_is_polled_beside_another_that_a_hook_tells_of(bench):
    text = GOOD.replace('"repo:acme/app"', '["org:acme", "repo:other/Tool"]')
    text = text.replace("scope", 'polled = ["repo:Other/tool"]\nscope', 1)
    text = text.replace("labels", 'scope = "org:acme"\nlabels', 1)
    text += '\n[pools.other]\nscope = "repo:other/Tool"\nlabels = ["x"]\nruntime = "process"\n'
    pools = {pool.name: pool.observed for pool in bench.load(text).to_setup().pools}
    assert sorted(pools.values()) == [False, True]
    assert not pools["other"]


def test_what_is_polled_has_to_be_a_scope(bench):
    finding = bench.only(GOOD.replace("scope", 'polled = ["repo:acme/lib"]\nscope', 1))
    assert finding.where.startswith("forge.github.polled")
    assert "repo:acme/app" in finding.todo


def test_who_may_use_the_machines_reaches_the_core(bench):
    written = (
        'repositories = ["acme/*"]\nrepositories_denied = ["acme/secret"]\nforks = ["acme/app"]\n'
        'workflows = ["CI"]\nbranches = ["main"]\nrepository_runners = 3\nscope'
    )
    (access,) = bench.load(GOOD.replace("scope", written, 1)).to_setup().access
    assert access == Access(
        "github", ("acme/*",), ("acme/secret",), ("acme/app",), ("CI",), ("main",), most=3
    )
    (nothing,) = bench.load(GOOD.replace("scope", 'repository_runners = "none"\nscope', 1)).to_setup().access
    assert nothing == Access("github")


def test_a_socket_path_that_no_system_takes(bench):
    finding = bench.only(GOOD + f"[server]\napi_socket = '/tmp/{'x' * 100}'\n")
    assert finding.where.startswith("server.api_socket")
    assert "103 bytes" in finding.what


def test_metrics_beside_webhooks(bench):
    finding = bench.only(GOOD + "[server]\nmetrics_listen = '127.0.0.1:8080'\n")
    assert finding.where.startswith("server.metrics_listen")
    both = "[server]\nmetrics_listen = '127.0.0.1:0'\nwebhook_listen = '127.0.0.1:0'\n"
    assert bench.findings(GOOD + both) == []


@pytest.mark.parametrize("other", ["metrics", "webhook"])
def test_the_api_beside_something_else(bench, other):
    finding = bench.only(
        GOOD + f"[server]\napi_listen = '127.0.0.1:8111'\n{other}_listen = '127.0.0.1:8111'\n"
    )
    assert finding.where.startswith("server.api_listen")
    assert f"{other}_listen" in finding.what


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:8081", "localhost:8081"])
def test_the_api_on_loopback(bench, address):
    assert bench.findings(GOOD + f"[server]\napi_listen = '{address}'\n") == []


@pytest.mark.parametrize("address", ["0.0.0.0:8081", "[::]:8081", "10.1.2.3:8081", "runners.acme.example:81"])
def test_the_api_on_the_network_is_a_warning(bench, address):
    finding = bench.only(GOOD + f"[server]\napi_listen = '{address}'\n")
    assert (finding.code, "TLS proxy" in finding.todo) == (0, True)


def test_metrics_can_be_off(bench):
    assert bench.load(GOOD + "[server]\nmetrics_listen = 'none'\n").settings.server.metrics_listen is None


def test_what_comes_later_is_refused_in_words(bench):
    finding = bench.only(GOOD.replace("scope", 'discovery = "scale-set"\nscope', 1))
    assert finding.code == 3
    assert finding.where.startswith(f"forge.github.discovery ({bench.file}:")
    assert finding.what == 'discovery "scale-set" comes later'
    assert finding.todo


APP = GOOD.replace('token_file = "token"', 'app_id = 7\nprivate_key_file = "app.pem"')


@pytest.fixture(scope="module")
def key() -> str:
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return made.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()


@pytest.fixture
def app(bench, key):
    file = bench.folder / "app.pem"
    file.write_text(key, encoding="utf-8")
    file.chmod(0o600)
    return file


def test_an_app_stands_in_place_of_a_token(bench, app, key):
    effective = bench.load(APP.replace("repo:acme/app", "org:acme"))
    assert effective.private_key("github").get_secret_value() == key.strip()
    assert effective.settings.forge["github"].app_id == 7
    assert key.splitlines()[1] not in repr(effective)
    with pytest.raises(KeyError):
        effective.token("github")


@pytest.mark.parametrize(
    ("old", "new", "where", "what", "code"),
    [
        ("app_id = 7\n", "", "forge.github.private_key_file", "an App that is not named", 3),
        ('private_key_file = "app.pem"\n', "", "forge.github.private_key", "no private key", 4),
        ("app_id", 'token_file = "token"\napp_id', "forge.github.app_id", "beside a token", 3),
        ("repo:acme/app", "enterprise:big", "forge.github.scope", "no App may see to", 3),
        ("app_id = 7", "app_id = 0", "forge.github.app_id", "greater than or equal to 1", 3),
        ("scope", 'runner_group = "ci"\nscope', "forge.github.runner_group", "has no runner groups", 3),
    ],
)
def test_half_an_app_and_what_an_app_cannot_do(bench, app, old, new, where, what, code):
    finding = next(found for found in bench.findings(APP.replace(old, new, 1)) if what in found.what)
    assert (finding.code, finding.where.partition(" ")[0]) == (code, where)
    assert finding.todo


@pytest.mark.parametrize("mode", [0o644, 0o604])
def test_a_private_key_that_every_account_can_read_is_refused(bench, app, mode):
    app.chmod(mode)
    finding = bench.only(APP)
    assert finding.code == 4
    assert "readable by every account" in finding.what
    assert finding.todo == f"chmod 600 {app}"


@pytest.mark.parametrize(
    "text", ["nonsense", "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----"]
)
def test_what_is_no_private_key_is_refused_and_not_shown(bench, app, text):
    app.write_text(text, encoding="utf-8")
    finding = bench.only(APP)
    assert finding.code == 4
    assert "no RSA private key" in finding.what
    assert "AAAA" not in str(finding)


def test_organizations_enterprises_and_repositories_by_a_token_with_a_group(bench):
    scopes = 'scope = ["org:acme", "repo:other/app", "enterprise:big"]\nrunner_group = "Fast ones"'
    pools = "".join(
        f'[pools.{name}]\nlabels = ["{name}"]\nruntime = "process"\nscope = "{scope}"\n'
        for name, scope in (("a", "org:acme"), ("b", "enterprise:big"), ("c", "repo:other/app"))
    )
    effective = bench.load(GOOD.partition("[pools")[0].replace('scope = "repo:acme/app"', scopes) + pools)
    assert [str(effective.scope_of(name)) for name in "abc"] == [
        "github/org:acme",
        "github/enterprise:big",
        "github/repo:other/app",
    ]
    assert effective.settings.forge["github"].runner_group == "Fast ones"


@pytest.mark.parametrize(
    "url", ["ftp://x/webhooks/github", "https:///webhooks/github", "https://x/webhooks/other"]
)
def test_an_address_of_the_hook_that_leads_elsewhere(bench, url):
    finding = bench.only(GOOD.replace("scope", f'webhook_url = "{url}"\nscope', 1))
    assert finding.where.startswith("forge.github.webhook_url")
    assert "/webhooks/github" in finding.todo


def test_an_address_of_the_hook_behind_a_path(bench):
    good = 'webhook_url = "https://x/ci/webhooks/github"\nscope'
    assert bench.findings(GOOD.replace("scope", good, 1)) == []
