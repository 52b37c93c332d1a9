"""All that one daemon serves, on real sockets: which door stands before which, and a start that fails."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx2
import pytest
from starlette.applications import Starlette

from ephemerd.ports.access import Role
from ephemerd.web.server import ListenFailed
from ephemerd.web.site import Addresses, bind
from tests.unit.app.test_daemon import House
from tests.unit.web.test_operations import Office

ANY = ("127.0.0.1", 0)


@pytest.fixture
async def office(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with House() as house:
        made = Office(house)
        yield made
        await made.close()


async def test_each_port_has_its_door(office):
    addresses = Addresses(Path("api.sock"), api=ANY, metrics=ANY, webhooks=ANY, open_api=ANY)
    listeners = bind(addresses, office.api, office.keys, Starlette())
    for listener in listeners:
        await listener.start()
    at = {listener.name: f"http://{listener.address}" for listener in listeners}
    path = "/api/v1/status"
    async with httpx2.AsyncClient() as client:
        assert (await client.get(at["api over tcp"] + path)).status_code == 401
        headers = office.token(Role.READ)
        assert (await client.get(at["api over tcp"] + path, headers=headers)).status_code == 200
        assert (await client.get(at["api over tcp"] + "/healthz")).status_code == 200
        assert (await client.get(at["open api"] + path)).status_code == 200
        assert (await client.get(at["open api"] + path, headers={"host": "evil.example"})).status_code == 403
        assert (await client.get(at["metrics"] + path)).status_code == 404
        assert (await client.get(at["metrics"] + "/metrics")).status_code == 200
        assert (await client.get(at["webhooks"] + path)).status_code == 404
    async with httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(uds="api.sock")) as client:
        assert (await client.get("http://x" + path)).status_code == 200
        link = (await client.post("http://x/api/v1/login", json={})).json()
        assert f"http://{link['listen']}" == at["api over tcp"]
    for listener in listeners:
        await listener.stop()


async def test_a_stream_over_a_real_socket_ends_when_the_client_leaves_and_when_the_daemon_stops(office):
    (listener,) = bind(Addresses(Path("api.sock")), office.api, office.keys, Starlette())
    await listener.start()
    async with httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(uds="api.sock"), timeout=10) as client:
        async with client.stream("GET", "http://x/api/v1/events?after=0") as answer:
            lines = answer.aiter_lines()
            assert await anext(lines) == "retry: 2000"
            await office.house.report()
            async for line in lines:
                if "JobReported" in line:
                    break
        async with client.stream("GET", "http://x/api/v1/events") as answer:
            lines = answer.aiter_lines()
            assert await anext(lines) == "retry: 2000"
            office.feed.close()
            rest = [line async for line in lines]
            assert all(line.partition(":")[0] in {"", "id", "data", "event"} for line in rest)
    await listener.stop()
    assert office.feed.subscribers == 0


async def test_a_taken_port_leaves_nothing_bound(office):
    with socket.socket() as taken:
        taken.bind(ANY)
        taken.listen()
        address = taken.getsockname()
        with pytest.raises(ListenFailed, match="in use"):
            bind(
                Addresses(Path("api.sock"), webhooks=ANY, metrics=address),
                office.api,
                office.keys,
                Starlette(),
            )
    assert not Path("api.sock").exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1"])
async def test_without_tokens_only_loopback_is_served(office, host):
    with pytest.raises(ListenFailed, match="without a token"):
        bind(Addresses(Path("api.sock"), open_api=(host, 0)), office.api, office.keys, Starlette())
    assert not Path("api.sock").exists()
