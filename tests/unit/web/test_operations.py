"""Every operation of the API: who may, which parameters, which methods; and the document that says so."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette

from ephemerd.app import feed as feed_module
from ephemerd.app.feed import Feed
from ephemerd.app.logs import Logs
from ephemerd.app.operator import Operator
from ephemerd.app.queries import Queries
from ephemerd.app.sessions import Failures, Sessions
from ephemerd.app.tokens import Tokens
from ephemerd.ports.access import Role
from ephemerd.ports.errors import Broken
from ephemerd.web import events
from ephemerd.web import operations as declared
from ephemerd.web.access import Access, Keys, OnSocket, WithTokens
from ephemerd.web.api import DOCS, DOCUMENT, Api
from ephemerd.web.apidocs import markdown
from ephemerd.web.openapi import document
from ephemerd.web.operations import Operation
from ephemerd.web.orders import TEXT, named
from tests.unit.app.fakes import until
from tests.unit.app.test_daemon import House
from tests.unit.app.test_tokens import MemoryShelf

FOLDER = declared.PREFIX
NAMES = {
    *(
        "healthz",
        "readyz",
        "metrics",
        "status",
        "pools",
        "hosts",
        "runners",
        "runner",
        "runner-story",
        "jobs",
    ),
    *("job-story", "job", "decisions", "journal", "segment", "quarantine", "logs", "log", "events", "cordon"),
    *("uncordon", "drain", "sweep", "reload", "kill", "clear-quarantine", "tokens", "create-token"),
    *("revoke-token", "login", "openapi", "docs"),
}
OPEN = {"healthz", "readyz"}
ORDERS = {
    *("cordon", "uncordon", "drain", "sweep", "reload", "kill", "clear-quarantine", "tokens", "create-token"),
    "revoke-token",
}


class Office:
    """The whole API of one house, with a door of tokens and one of the socket."""

    def __init__(self, house: House, *, listen: str = "127.0.0.1:8081") -> None:
        self.house = house
        now = house.clock.now
        self.shelf = MemoryShelf()
        tokens = Tokens(self.shelf, now)
        self.keys = Keys(tokens, Sessions(now, tokens.holds), Failures(now), "ephemerd-abc")
        self.feed = Feed(house.daemon, pause=0.0)
        self.api = Api(
            Queries(house.daemon, "1.2.3"),
            Operator(house.daemon, kill_wait=1.0),
            lambda _: (b"# EOF\n", "text/plain"),
            version="1.2.3",
            logs=Logs(house.daemon, str),
            feed=self.feed,
            keys=self.keys,
            listen=listen,
        )
        app = self.api.app()
        self.tcp = client(WithTokens(app, self.keys))
        self.socket = client(OnSocket(app))

    def token(self, role: Role, name: str = "") -> dict[str, str]:
        made = self.keys.tokens.create(name or role.value, role, None)
        return {"authorization": f"Bearer {made.token}"}

    async def close(self) -> None:
        self.feed.close()
        await self.tcp.aclose()
        await self.socket.aclose()


def client(app: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=app), base_url="http://localhost:8081", timeout=10
    )


@pytest.fixture
async def house():
    async with House() as made:
        yield made


@pytest.fixture
async def office(house):
    made = Office(house)
    yield made
    await made.close()


def address(operation: Operation) -> str:
    """Return an address at which the operation is, of things that do not exist."""
    return operation.path.replace("{id}", "nothing").replace("{name}", "nothing").replace("{number}", "7")


async def test_these_are_all_and_each_has_a_name_of_its_own(office):
    names = [operation.name for operation in office.api.operations()]
    assert set(names) == NAMES
    assert len(names) == len(set(names))


async def test_each_says_who_may(office):
    for operation in office.api.operations():
        expected = None if operation.name in OPEN else Role.OPERATE if operation.name in ORDERS else Role.READ
        assert operation.role is expected, operation.name


async def test_without_a_token_each_is_401_but_health(office):
    for operation in office.api.operations():
        answer = await office.tcp.request(operation.method, address(operation))
        expected = 200 if operation.name in OPEN else 401
        assert answer.status_code == expected, operation.name
        if expected == 401:
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert answer.json()["status"] == 401


async def test_with_the_role_to_read_each_action_is_403_and_nothing_is_ordered(office, house):
    headers = office.token(Role.READ)
    before = len(house.store.kinds())
    for operation in office.api.operations():
        if operation.role is not Role.OPERATE:
            continue
        answer = await office.tcp.request(operation.method, address(operation), headers=headers, json={})
        assert (answer.status_code, answer.json()["status"]) == (403, 403), operation.name
    assert not [kind for kind in house.store.kinds()[before:] if kind.endswith("Ordered")]


async def test_with_the_role_to_read_one_reads(office):
    headers = office.token(Role.READ)
    for operation in office.api.operations():
        if operation.role is Role.READ and operation.method == "GET" and operation.name != "events":
            answer = await office.tcp.get(address(operation), headers=headers)
            assert answer.status_code in {200, 404}, operation.name


async def test_tokens_are_made_over_the_socket_alone_whatever_the_role(office):
    headers = office.token(Role.OPERATE)
    for method, path, body in (
        ("GET", "tokens", None),
        ("POST", "tokens", {"name": "x", "role": "read"}),
        ("DELETE", "tokens/operate", None),
    ):
        answer = await office.tcp.request(method, f"{FOLDER}/{path}", headers=headers, json=body)
        assert (answer.status_code, "unix socket" in answer.json()["detail"]) == (403, True), (method, path)
    assert [record.name for record in office.shelf.records] == ["operate"]


async def test_a_token_is_made_shown_once_used_and_revoked(office):
    body = {"name": "grafana", "role": "read", "seconds": 60}
    made = await office.socket.post(f"{FOLDER}/tokens", json=body)
    assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
    view = made.json()
    assert (view["name"], view["role"], view["expires"]) == (
        *("grafana", "read"),
        office.house.clock.now() + 60_000,
    )
    headers = {"authorization": f"Bearer {view['token']}"}
    assert (await office.tcp.get(f"{FOLDER}/status", headers=headers)).status_code == 200
    listed = await office.socket.get(f"{FOLDER}/tokens")
    assert view["token"] not in listed.text
    assert [(one["name"], one["used"] is not None) for one in listed.json()["items"]] == [("grafana", True)]
    assert (await office.socket.post(f"{FOLDER}/tokens", json=body)).status_code == 409
    assert (await office.socket.delete(f"{FOLDER}/tokens/grafana")).status_code == 204
    assert (await office.socket.delete(f"{FOLDER}/tokens/grafana")).status_code == 404
    assert (await office.tcp.get(f"{FOLDER}/status", headers=headers)).status_code == 401


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "a"},
        {"name": "A b", "role": "read"},
        {"name": "a", "role": "root"},
        {"name": "a", "role": "read", "seconds": 0},
        {"name": "a", "role": "read", "seconds": 10**15},
        {"name": "a", "role": "read", "second": 5},
        {"name": "a", "role": "read", "seconds": 1.5},
        {"name": "a", "role": "read", "seconds": "60"},
        {"name": 1, "role": "read"},
    ],
)
async def test_a_token_that_cannot_be(office, body):
    assert (await office.socket.post(f"{FOLDER}/tokens", json=body)).status_code == 400
    assert office.shelf.records == []


async def test_a_token_that_cannot_be_kept_is_503(office):
    office.shelf.broken = True
    body = {"name": "a", "role": "read"}
    assert (await office.socket.post(f"{FOLDER}/tokens", json=body)).status_code == 503


async def test_a_browser_logs_in_orders_and_logs_out(office, house):
    link = (await office.socket.post(f"{FOLDER}/login", json={"who": "ann"})).json()
    assert (link["listen"], link["role"]) == ("127.0.0.1:8081", "operate")
    assert (await office.tcp.head(link["path"])).status_code == 200
    entered = await office.tcp.get(link["path"])
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie
    assert (await office.tcp.get(f"{FOLDER}/status")).status_code == 200
    assert (await office.tcp.get("/login")).headers["location"] == "/"
    assert (await office.tcp.post(f"{FOLDER}/sweep", json={})).status_code == 403
    secret = cookie.partition("=")[2].partition(";")[0]
    session = office.keys.sessions.find(secret)
    csrf = {"x-csrf-token": session.csrf}
    body = {"target": "pool", "name": "linux", "who": "bob"}
    assert (await office.tcp.post(f"{FOLDER}/cordon", json=body, headers=csrf)).status_code == 200
    event = next(entry.event for entry in house.store.entries if entry.event["kind"] == "CordonOrdered")
    assert event["who"] == "bob (ann)"
    assert (await office.tcp.post(f"{FOLDER}/login", json={}, headers=csrf)).status_code == 403
    assert (await office.tcp.post("/logout")).status_code == 403
    left = await office.tcp.post("/logout", headers=csrf)
    assert (left.status_code, 'ephemerd-abc=""' in left.headers["set-cookie"]) == (303, True)
    assert office.keys.sessions.find(secret) is None


async def test_behind_tls_the_cookie_is_secure(office):
    link = (await office.socket.post(f"{FOLDER}/login", json={})).json()
    entered = await office.tcp.get(link["path"], headers={"x-forwarded-proto": "https"})
    assert "; Secure" in entered.headers["set-cookie"]


async def test_a_spent_or_wrong_link_is_a_page_and_too_many_are_429(office):
    link = (await office.socket.post(f"{FOLDER}/login", json={})).json()["path"]
    async with client(OnSocket(office.api.app())) as other:
        assert (await other.get(link)).status_code == 303
    for path in (link, "/login?code=<script>", "/login"):
        answer = await office.tcp.get(path)
        assert (answer.status_code, "ephemerd token login" in answer.text) == (401, True)
        assert "<script>" not in answer.text
        assert "set-cookie" not in answer.headers
    codes = {(await office.tcp.get("/login?code=x")).status_code for _ in range(12)}
    assert codes == {401, 429}


async def test_a_link_gives_no_more_than_its_maker_may(office):
    read, operate = office.token(Role.READ), office.token(Role.OPERATE)
    post = office.tcp.post
    path = f"{FOLDER}/login"
    assert (await post(path, headers=read, json={"role": "operate"})).status_code == 403
    assert (await post(path, headers=read, json={})).json()["role"] == "read"
    assert (await post(path, headers=operate, json={"role": "read"})).json()["role"] == "read"
    assert (await post(path, headers=operate, json={"role": "root"})).status_code == 400
    link = (await post(path, headers=operate, json={})).json()
    await office.tcp.get(link["path"])
    assert (await office.tcp.get(f"{FOLDER}/status")).status_code == 200
    spare = (await post(path, headers=operate, json={})).json()
    office.keys.tokens.revoke("operate")
    office.keys.tokens.create("operate", Role.OPERATE, None)
    assert (await office.tcp.get(f"{FOLDER}/status")).status_code == 401, "another token has its name now"
    assert (await office.tcp.get(spare["path"])).status_code == 401


async def test_a_caller_cannot_hide_his_name_behind_a_long_one(office, house):
    body = {"target": "pool", "name": "linux", "who": "ann" * 400}
    answer = await office.tcp.post(f"{FOLDER}/cordon", json=body, headers=office.token(Role.OPERATE))
    assert answer.status_code == 200
    event = next(entry.event for entry in house.store.entries if entry.event["kind"] == "CordonOrdered")
    assert event["who"].startswith("annann")
    assert event["who"].endswith(" (operate)")
    assert len(event["who"]) <= TEXT
    long = Access(Role.OPERATE, event["who"], "", "session")
    assert named(long, "ann") == event["who"]


async def test_a_daemon_without_a_port_for_browsers_gives_no_links(house):
    office = Office(house, listen="")
    answer = await office.socket.post(f"{FOLDER}/login", json={})
    assert (answer.status_code, "api_listen" in answer.json()["detail"]) == (409, True)
    await office.close()


async def test_an_unknown_parameter_is_refused_with_the_nearest(office):
    answer = await office.socket.get(f"{FOLDER}/jobs", params={"staus": "queued"})
    assert (answer.status_code, "did you mean status?" in answer.json()["detail"]) == (400, True)
    answer = await office.socket.get(f"{FOLDER}/status", params={"x": "1"})
    assert "there are: none" in answer.json()["detail"]
    answer = await office.socket.get(f"{FOLDER}/jobs?limit=1&limit=2")
    assert "more than once" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "query", "says"),
    [
        ("runners", {"state": "flying"}, "one of planned"),
        ("jobs", {"status": "done "}, "one of queued"),
        ("decisions", {"newest": "yes"}, "true or false"),
        ("decisions", {"verdict": "maybe"}, "one of "),
        ("runners", {"limit": "0"}, "from 1 to 1000"),
        ("runners", {"limit": "1001"}, "from 1 to 1000"),
        ("runners", {"after": str(2**63)}, "a whole number"),
        ("events", {"kind": "JobReported,Nothing"}, "with commas between"),
    ],
)
async def test_values_must_be_what_they_can_be(office, path, query, says):
    answer = await office.socket.get(f"{FOLDER}/{path}", params=query)
    assert (answer.status_code, says in answer.json()["detail"]) == (400, True), answer.text


async def test_a_cursor_that_a_list_has_not_any_more_is_409(office):
    for path, name in (("pools", "linux"), ("hosts", "local")):
        answer = await office.socket.get(f"{FOLDER}/{path}", params={"after": "gone"})
        assert (answer.status_code, "begin without one" in answer.json()["detail"]) == (409, True)
        assert (await office.socket.get(f"{FOLDER}/{path}", params={"after": name})).json()["items"] == []


@pytest.mark.parametrize("seconds", [60, 60.0, None])
async def test_whole_numbers_are_taken_as_json_writes_them(office, seconds):
    body = {"name": "a", "role": "read", "seconds": seconds}
    assert (await office.socket.post(f"{FOLDER}/tokens", json=body)).status_code == 201


async def test_head_and_options(office):
    for operation in office.api.operations():
        path = address(operation)
        options = await office.socket.request("OPTIONS", path)
        allowed = {word.strip() for word in options.headers["allow"].split(",")}
        assert (options.status_code, operation.method in allowed) == (204, True), operation.name
        assert ("HEAD" in allowed) is ("GET" in allowed)
        wrong = await office.socket.request("PATCH", path)
        assert (wrong.status_code, wrong.json()["status"]) == (405, 405)
        assert {word.strip() for word in wrong.headers["allow"].split(",")} == allowed
        if operation.method == "GET":
            head = await office.socket.head(path)
            assert head.status_code in {200, 404}, operation.name


async def test_what_is_not_there_is_a_problem(office):
    for path in ("/nothing", "/api/v1", "/api/v1/status/", "/api/v2/status"):
        answer = await office.socket.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
        assert DOCS in answer.json()["detail"]


async def test_a_store_that_does_not_answer_is_503(office, house, monkeypatch):
    async def broken(**_: Any) -> None:
        raise Broken("the disk gives no answer")

    monkeypatch.setattr(house.store, "journal", broken)
    answer = await office.socket.get(f"{FOLDER}/journal")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "no answer" not in answer.json()["detail"]


async def test_a_list_ends_without_an_empty_page(office, house):
    for number in range(1, 5):
        await house.report(number=number)
    for path in ("jobs", "runners", "journal"):
        everything = (await office.socket.get(f"{FOLDER}/{path}", params={"limit": 1000})).json()["items"]
        found, after = [], ""
        while True:
            page = (await office.socket.get(f"{FOLDER}/{path}?limit=2&after={after}")).json()
            assert page["items"], path
            found += page["items"]
            after = page["next"]
            if after is None:
                break
        key = "seq" if path == "journal" else "id"
        assert [one[key] for one in found] == [one[key] for one in everything], path


async def test_the_document_is_served_and_names_every_address(office):
    answer = await office.socket.get(DOCUMENT)
    found = answer.json()
    assert found == document(office.api.operations(), "1.2.3")
    assert (found["openapi"], found["info"]["version"]) == ("3.1.0", "1.2.3")
    named = {(method.upper(), path) for path, methods in found["paths"].items() for method in methods}
    assert named == {(operation.method, operation.path) for operation in office.api.operations()}
    text = json.dumps(found)
    for name in {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in found["components"]["schemas"]


async def test_the_document_is_a_page_that_needs_nothing_from_elsewhere(office):
    answer = await office.socket.get(DOCS)
    assert answer.headers["content-type"].startswith("text/html")
    assert "script-src" not in answer.headers["content-security-policy"]
    assert "<script" not in answer.text
    assert "//" not in answer.text.replace("://", "")
    for operation in office.api.operations():
        assert f'id="{operation.name}"' in answer.text, operation.name


async def test_every_answer_has_a_shape_and_every_text_an_end(office):
    found = document(office.api.operations(), "1")
    for operation in office.api.operations():
        assert operation.summary.endswith((".", ").")), operation.name
        for param in (*operation.params, *operation.headers):
            assert param.text.endswith("."), (operation.name, param.name)
    for name, schema in found["components"]["schemas"].items():
        assert schema["description"], name
    assert "#### `GET /api/v1/runners/{id}/story`" in markdown(found)


async def follow(office: Office, **query: Any) -> tuple[Any, Any]:
    """Open the stream by hand, since the client's transport gives an answer only when it is whole."""
    sent: asyncio.Queue[Any] = asyncio.Queue()
    left = asyncio.Event()

    async def receive() -> Any:
        await left.wait()
        return {"type": "http.disconnect"}

    app: Starlette = office.api.app()
    scope = {
        "type": "http",
        "method": "GET",
        "path": f"{FOLDER}/events",
        "raw_path": b"",
        "query_string": query.pop("query", "").encode(),
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in query.items()],
    }
    door = WithTokens(app, office.keys) if "authorization" in query else OnSocket(app)
    task = asyncio.create_task(door(scope, receive, sent.put))
    return sent, (left, task)


async def chunk(sent: Any) -> str:
    async with asyncio.timeout(10):
        text: str = (await sent.get())["body"].decode()
    return text


async def test_changes_are_streamed_and_resumed(office, house):
    sent, (left, task) = await follow(office)
    start = await sent.get()
    headers = dict(start["headers"])
    assert (start["status"], headers[b"content-type"]) == (200, b"text/event-stream; charset=utf-8")
    assert await chunk(sent) == "retry: 2000\n\n"
    await house.report()
    texts = [await chunk(sent)]
    while '"JobReported"' not in texts[-1]:
        texts.append(await chunk(sent))
    fields = dict(line.split(": ", 1) for line in texts[-1].strip().split("\n"))
    event = json.loads(fields["data"])
    assert set(fields) == {"id", "data"}
    assert (int(fields["id"]), event["kind"]) == (event["id"], "JobReported")
    left.set()
    await task
    assert office.feed.subscribers == 0
    again, (left, task) = await follow(office, last_event_id=str(event["id"] - 1), query="after=1")
    await again.get()
    await again.get()
    assert (await chunk(again)).startswith(f"id: {event['id']}\n")
    left.set()
    await task


async def test_a_stream_ends_when_its_token_is_revoked(office, house):
    sent, (_, task) = await follow(office, **office.token(Role.READ))
    await sent.get()
    await chunk(sent)
    await until(lambda: office.feed.subscribers == 1)
    office.keys.tokens.revoke("read")
    office.keys.tokens.create("read", Role.READ, None)
    await house.report()
    await asyncio.wait_for(task, 10)
    assert office.feed.subscribers == 0
    assert (await sent.get())["more_body"] is False


async def test_who_does_not_take_what_is_sent_is_cut_off(office, house, monkeypatch):
    monkeypatch.setattr(events, "STUCK", 0.01)
    full = asyncio.Event()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body" and b"id:" in message["body"]:
            await full.wait()

    async def receive() -> Any:
        await full.wait()

    stream = events.EventStream(office.feed, None, after=None, kinds=frozenset(), subject="")
    task = asyncio.create_task(stream({"type": "http"}, receive, send))
    await until(lambda: office.feed.subscribers == 1)
    await house.report()
    await asyncio.wait_for(task, 10)
    assert office.feed.subscribers == 0


async def test_a_fault_in_a_stream_is_not_hidden(office, house, monkeypatch):
    def broken(_: Any) -> bytes:
        raise RuntimeError("cannot be written")

    monkeypatch.setattr(events, "wire", broken)

    async def nothing(*_: Any) -> Any:
        await asyncio.sleep(0)
        return {"type": "http.request"}

    stream = events.EventStream(office.feed, None, after=None, kinds=frozenset(), subject="")
    task = asyncio.create_task(stream({"type": "http"}, nothing, nothing))
    await until(lambda: office.feed.subscribers == 1)
    await house.report()
    with pytest.raises(RuntimeError, match="cannot be written"):
        await asyncio.wait_for(task, 10)


async def test_a_stream_ends_with_the_feed(office, house):
    sent, (_, task) = await follow(office)
    await sent.get()
    await chunk(sent)
    office.feed.close()
    await task
    rest = [await sent.get() for _ in range(sent.qsize())]
    assert rest[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_one_token_takes_no_more_than_its_share_of_the_places(office, monkeypatch):
    monkeypatch.setattr(feed_module, "MOST_EACH", 1)
    reader, other = office.token(Role.READ), office.token(Role.OPERATE)
    sent, (left, task) = await follow(office, **reader)
    await sent.get()
    await until(lambda: office.feed.subscribers == 1)
    refused, (_, ended) = await follow(office, **reader)
    assert (await refused.get())["status"] == 503
    await ended
    for more in (other, dict[str, str]()):
        allowed, (leave, others) = await follow(office, **more)
        assert (await allowed.get())["status"] == 200
        leave.set()
        await others
    left.set()
    await task
    again, (left, task) = await follow(office, **reader)
    assert (await again.get())["status"] == 200
    left.set()
    await task


async def test_a_full_feed_is_503_and_a_head_takes_no_place(office):
    office.feed._most = 0
    answer = await office.socket.get(f"{FOLDER}/events")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
    head = await office.socket.head(f"{FOLDER}/events")
    assert head.headers["content-type"].startswith("text/event-stream")
