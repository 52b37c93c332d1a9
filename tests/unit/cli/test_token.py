"""`token`, and the token that a command sends to an address: what is asked, printed, kept and refused."""

from __future__ import annotations

import http.server
import json
import stat
import threading

import pytest

from ephemerd.cli.credentials import token_for
from ephemerd.cli.failure import Failure
from ephemerd.cli.transport import Place
from tests.unit.cli import views

TOKEN = "ephd_abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG"
MADE = {"token": TOKEN, "name": "grafana", "role": "read", "expires": None}
ONE = {"name": "grafana", "role": "read", "created": 1, "expires": None, "expired": False, "used": None}


def test_a_token_is_printed_once_and_alone(cli, daemon):
    daemon.on("POST", "tokens", (201, MADE))
    done = cli("token", "create", "grafana")
    assert (done.code, done.out, done.err) == (0, f"{TOKEN}\n", "")
    assert daemon.requests[-1][3] == {"name": "grafana", "role": "read", "seconds": 90 * 24 * 3600}
    assert cli("token", "create", "grafana", "--expires", "none", "--json").json == MADE
    assert daemon.requests[-1][3]["seconds"] is None


def test_a_token_into_a_file_of_its_own(cli, daemon, tmp_path):
    daemon.on("POST", "tokens", (201, MADE))
    path = tmp_path / "token"
    done = cli("token", "create", "grafana", "--role", "operate", "--out", str(path), "--json")
    assert (done.code, done.json["token"], done.json["file"]) == (0, None, str(path))
    assert TOKEN not in done.out + done.err
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == (f"{TOKEN}\n", 0o600)
    count = len(daemon.requests)
    done = cli("token", "create", "grafana", "--out", str(path))
    assert (done.code, len(daemon.requests)) == (2, count), "nothing is made where it cannot be written"


def test_a_token_that_could_not_be_written_is_revoked(cli, daemon, tmp_path):
    daemon.on("POST", "tokens", (201, MADE))
    daemon.on("DELETE", "tokens/grafana", (204, None))
    done = cli("token", "create", "grafana", "--out", str(tmp_path / "no" / "token"))
    assert (done.code, TOKEN in done.out + done.err) == (5, False)
    assert daemon.requests[-1][:2] == ("DELETE", "tokens/grafana")


@pytest.mark.parametrize(
    "wrong", [("--role", "root"), ("--expires", "soon"), ("--expires", "0s"), ("--expires", "10ms")]
)
def test_wrong_usage_of_create(cli, daemon, wrong):
    done = cli("token", "create", "grafana", *wrong)
    assert (done.code, "fix:" in done.err, daemon.requests) == (2, True, [])


def test_a_name_that_is_taken(cli, daemon):
    daemon.on("POST", "tokens", (409, {"detail": "there is a token 'grafana' already"}))
    done = cli("token", "create", "grafana")
    assert (done.code, "already" in done.err) == (7, True)


def test_the_list(cli, daemon):
    daemon.on("GET", "tokens", (200, {"items": [ONE, {**ONE, "name": "old", "expires": 5, "expired": True}]}))
    done = cli("token", "list")
    assert done.code == 0
    assert "never" in done.out
    assert "over" in done.out
    assert cli("token", "list", "--json").json["items"][0] == ONE
    daemon.on("GET", "tokens", (200, {"items": []}))
    assert "there is no token" in cli("token", "list").out


def test_revoking(cli, daemon):
    daemon.on("DELETE", "tokens/grafana", (204, None))
    assert cli("token", "revoke", "grafana").code == 0
    done = cli("token", "revoke", "nobody")
    assert (done.code, "token list" in done.err) == (2, True)


def test_a_login_link(cli, daemon):
    answer = {"path": "/login?code=abc", "until": 5, "listen": "127.0.0.1:8081", "role": "operate"}
    daemon.on("POST", "login", (201, answer))
    assert cli("token", "login").out == "http://127.0.0.1:8081/login?code=abc\n"
    assert set(daemon.requests[-1][3]) == {"role", "who"}
    done = cli("token", "login", "--role", "read", "--base", "https://ci.acme.example/", "--json")
    assert done.json["url"] == "https://ci.acme.example/login?code=abc"
    assert daemon.requests[-1][3]["role"] == "read"
    daemon.on("POST", "login", (201, {**answer, "listen": "[::]:8081"}))
    assert ":8081/login" in cli("token", "login").out
    assert "[::]" not in cli("token", "login").out
    assert cli("token", "login", "--base", "ci.acme.example").code == 2


def test_a_daemon_without_a_port_for_browsers(cli, daemon):
    daemon.on("POST", "login", (409, {"detail": "server.api_listen is not set"}))
    assert cli("token", "login").code == 7


class Asked(http.server.BaseHTTPRequestHandler):
    """Answers everything with a status view, and notes the header."""

    def do_GET(self) -> None:
        self.server.seen.append(self.headers.get("authorization"))  # type: ignore[attr-defined]
        status = self.server.status  # type: ignore[attr-defined]
        payload = json.dumps(views.status() if status == 200 else {"detail": "no"}).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.delenv("EPHEMERD_TOKEN", raising=False)
    monkeypatch.delenv("EPHEMERD_TOKEN_FILE", raising=False)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Asked) as made:
        made.seen, made.status = [], 200  # type: ignore[attr-defined]
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_a_token_goes_to_an_address_and_never_to_a_socket(cli, server, daemon, monkeypatch, tmp_path):
    url = f"http://127.0.0.1:{server.server_port}"
    assert cli("status", "--url", url).code == 0
    monkeypatch.setenv("EPHEMERD_TOKEN", TOKEN)
    assert cli("status", "--url", url).code == 0
    file = tmp_path / "token"
    file.write_text("ephd_other\n")
    file.chmod(0o600)
    assert cli("status", "--url", url, "--token-file", str(file)).err == ""
    monkeypatch.delenv("EPHEMERD_TOKEN")
    monkeypatch.setenv("EPHEMERD_TOKEN_FILE", str(file))
    assert cli("status", "--url", url).code == 0
    assert server.seen == [None, f"Bearer {TOKEN}", "Bearer ephd_other", "Bearer ephd_other"]
    assert cli("status").code == 0
    assert TOKEN not in repr(Place(url=url, token=TOKEN))


@pytest.mark.parametrize(("status", "says"), [(401, "--token-file"), (403, "may do this"), (429, "wait")])
def test_a_token_that_is_refused_is_code_4(cli, server, status, says):
    server.status = status
    done = cli("status", "--url", f"http://127.0.0.1:{server.server_port}")
    assert (done.code, says in done.err) == (4, True)


@pytest.mark.parametrize("text", ["", "two words", "two\nlines", "x" * 5000, "ä"])
def test_a_file_that_holds_no_token_is_code_4_and_is_not_shown(tmp_path, text):
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(Failure, match="holds no token") as caught:
        token_for("http://127.0.0.1:1", {}, path)
    assert caught.value.code == 4
    assert not text or text not in caught.value.what


def test_a_file_that_is_missing_or_open_to_others(tmp_path, capsys):
    with pytest.raises(Failure, match="cannot be read") as caught:
        token_for("http://127.0.0.1:1", {}, tmp_path / "none")
    assert caught.value.code == 4
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o644)
    assert token_for("http://127.0.0.1:1", {}, path) == TOKEN
    assert "chmod 600" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://ci.acme.example:8081", True),
        ("http://10.0.0.1", True),
        ("https://ci.acme.example", False),
        ("http://127.0.0.1:8081", False),
        ("http://localhost", False),
        ("http://[::1]:80", False),
        ("http://[bad", False),
    ],
)
def test_a_token_in_the_clear_is_a_warning(url, warned, capsys):
    assert token_for(url, {"EPHEMERD_TOKEN": TOKEN}, None) == TOKEN
    assert ("in the clear" in capsys.readouterr().err) is warned
    assert token_for(url, {}, None) == ""
