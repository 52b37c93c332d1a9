"""Everything that one daemon serves, on which sockets, and which door stands before each.

All sockets are bound before any is served: a start that fails has answered nobody.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from starlette.types import ASGIApp

from ephemerd.web.access import Keys, OnSocket, WithTokens
from ephemerd.web.api import Api, metrics_app
from ephemerd.web.local import LocalOnly, names_this_machine
from ephemerd.web.server import Listener, ListenFailed, bind_tcp, bind_unix, bound_to

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where to listen; None: not at all.

    socket    path of the API's unix socket
    api       API and dashboard over TCP, with tokens
    metrics   metrics and health
    webhooks  webhooks and health
    open_api  everything on loopback without a token, for demonstrations
    """

    socket: Path
    api: Address | None = None
    metrics: Address | None = None
    webhooks: Address | None = None
    open_api: Address | None = None


def bind(addresses: Addresses, api: Api, keys: Keys, webhooks: ASGIApp) -> list[Listener]:
    """Bind all sockets and put the apps behind their doors; nothing is served yet.

    Raises `ListenFailed`; nothing is bound then.
    """
    with ExitStack() as undo:

        def tcp(address: Address) -> socket.socket:
            bound = bind_tcp(*address)
            undo.callback(bound.close)
            return bound

        listeners = []
        if addresses.webhooks is not None:
            listeners.append(Listener("webhooks", webhooks, tcp(addresses.webhooks)))
        api_socket = tcp(addresses.api) if addresses.api is not None else None
        listen = bound_to(api_socket) if api_socket is not None else ""
        whole = replace(api, keys=keys, listen=listen).app()
        if api_socket is not None:
            listeners.append(Listener("api over tcp", WithTokens(whole, keys), api_socket))
        on_socket = Listener("api", OnSocket(whole), bind_unix(addresses.socket), addresses.socket)
        undo.callback(on_socket.close)
        listeners.append(on_socket)
        if addresses.metrics is not None:
            app = metrics_app(api.queries, api.metrics, api.pace)
            listeners.append(Listener("metrics", app, tcp(addresses.metrics)))
        if addresses.open_api is not None:
            _only_here(*addresses.open_api)
            listeners.append(Listener("open api", LocalOnly(whole), tcp(addresses.open_api)))
        undo.pop_all()
        return listeners


def _only_here(host: str, port: int) -> None:
    """Refuse to serve without a token where others could ask."""
    if not names_this_machine(f"//[{host}]" if ":" in host else f"//{host}"):
        raise ListenFailed(f"{host}:{port}", "it is served without a token", "choose a loopback address")
