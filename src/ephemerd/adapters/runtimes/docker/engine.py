"""The engine's API as this runtime needs it: each call with a deadline, each failure a `PortError`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import aiodocker
import aiohttp
from aiodocker.exceptions import DockerError

from ephemerd.adapters.runtimes.docker.options import EngineOptions
from ephemerd.adapters.runtimes.docker.tunnel import Tunnel
from ephemerd.ports.errors import Broken, Gone, PortError, Refused, RetryLater

CONNECT_LIMIT = 10.0
READ_MOST = 64 * 1024 * 1024
NO_ANSWER = 900  # what aiodocker calls an engine that cannot be reached


class Taken(Refused):
    """A container of that name exists already."""


@dataclass(frozen=True, slots=True)
class About:
    """What an engine says of itself.

    id         its own name for itself; the address where it has none (Podman)
    contained  a user namespace stands between a container's root and the machine's
    """

    id: str
    version: str
    podman: bool
    windows: bool
    contained: bool
    cgroup_driver: str
    storage: str
    root: str
    live_restore: bool


@dataclass(frozen=True, slots=True)
class State:
    """A container as the engine sees it. `pid` is that of its first process on the engine's machine, `network` the
    mode of its network."""

    id: str
    labels: Mapping[str, str]
    status: str
    pid: int
    code: int | None
    started: bool
    out_of_memory: bool
    error: str
    user: str
    network: str = ""

    @property
    def running(self) -> bool:
        """Whether anything of it can still run."""
        return self.status in ("running", "paused", "restarting", "removing", "stopping")

    @property
    def paused(self) -> bool:
        return self.status == "paused"


class Engine:
    """One engine. Belongs to one event loop; connects when it is first asked."""

    def __init__(self, options: EngineOptions) -> None:
        self.options = options
        self._client: aiodocker.Docker | None = None
        self.tunnel = Tunnel(options.url, options.ssh) if options.url.startswith("ssh://") else None
        self._about: About | None = None
        self.owners: dict[tuple[str, str], tuple[int, int]] = {}
        self._closed = False

    @property
    def on_this_machine(self) -> bool:
        """Whether the engine's processes may be this machine's; each container is asked for it again."""
        return self.options.url.startswith("unix://")

    async def about(self) -> About:
        """Return what the engine says of itself, asked once."""
        if self._about is None:
            told = await self._json("GET", "info")
            version = await self._json("GET", "version")
            self._about = _about(told, version, self.options.url)
        return self._about

    async def ping(self) -> None:
        """Ask for the version, which fails where the engine does not answer."""
        await self._json("GET", "version")

    # Containers

    async def create(self, name: str, specification: Mapping[str, Any]) -> str:
        """Create a container and return its full id; `Taken` where the name is in use."""
        try:
            made = await self._json("POST", "containers/create", params={"name": name}, data=specification)
        except PortError as error:
            if "already in use" in error.detail:
                raise Taken(error.detail) from None
            if isinstance(error, Gone):
                raise Broken(f"{error.detail}: pull it, or correct the pool's image") from None
            raise
        return str(made["Id"])

    async def put(self, container: str, archive: bytes) -> None:
        """Unpack an archive at the container's root; owners are those that the archive names."""
        await self._bytes("PUT", f"containers/{container}/archive", params={"path": "/"}, data=archive)

    async def start(self, container: str) -> None:
        """Start it; what is running already is left as it is."""
        try:
            await self._bytes("POST", f"containers/{container}/start")
        except (Refused, Gone) as error:
            raise Broken(f"the container does not start: {error.detail}") from None

    async def state(self, container: str) -> State:
        """Return how a container is; `Gone` where there is none."""
        return _state(await self._json("GET", f"containers/{container}/json"))

    async def containers(self, store: str | None) -> list[dict[str, Any]]:
        """List everything that bears a store's label, ended ones included; all there is for None."""
        filters = {} if store is None else {"label": [f"ephemerd.store={store}"]}
        params = {"all": "1", "filters": json.dumps(filters)}
        return _list(await self._json("GET", "containers/json", params=params))

    async def top(self, container: str, arguments: str | None) -> tuple[list[str], list[list[str]]]:
        """Return titles and rows of the engine's process listing."""
        params = {} if arguments is None else {"ps_args": arguments}
        body = await self._bytes("GET", f"containers/{container}/top", params=params)
        told = json.loads(body) if body.strip() else {}
        return list(told.get("Titles") or ()), [list(row) for row in told.get("Processes") or ()]

    async def wait(self, container: str, limit: float) -> bool:
        """Wait until it has ended, `limit` seconds at most; return whether the engine said so. What it says
        is no proof: look at the state."""
        try:
            await self._bytes("POST", f"containers/{container}/wait", limit=limit)
        except RetryLater:
            return False
        return True

    async def kill(self, container: str, signal: str) -> None:
        """Send the first process of a container a signal; what has ended already is fine."""
        with contextlib.suppress(Gone, Refused):
            await self._bytes("POST", f"containers/{container}/kill", params={"signal": signal})

    async def unpause(self, container: str) -> None:
        """Let a paused container go on."""
        with contextlib.suppress(Gone, Refused, Broken):
            await self._bytes("POST", f"containers/{container}/unpause")

    async def execute(self, container: str, command: list[str]) -> None:
        """Run a program in the container, as its user, without waiting for it."""
        made = await self._json("POST", f"containers/{container}/exec", data={"Cmd": command})
        await self._bytes("POST", f"exec/{made['Id']}/start", data={"Detach": True, "Tty": False})

    async def run(self, container: str, command: list[str], limit: float) -> int | None:
        """Run a program in the container, `limit` seconds at most; return its exit code, None where the container
        ended meanwhile."""
        request = {"Cmd": command, "AttachStdout": True, "AttachStderr": True, "Tty": True}
        made = await self._json("POST", f"containers/{container}/exec", data=request)
        await self._bytes(
            "POST", f"exec/{made['Id']}/start", data={"Detach": False, "Tty": True}, limit=limit
        )
        code = (await self._json("GET", f"exec/{made['Id']}/json")).get("ExitCode")
        return code if isinstance(code, int) else None

    async def rename(self, container: str, name: str) -> None:
        """Give a container another name; `Taken` where the name is in use."""
        try:
            await self._bytes("POST", f"containers/{container}/rename", params={"name": name})
        except PortError as error:
            if "already in use" in error.detail:
                raise Taken(error.detail) from None
            raise

    async def remove(self, container: str, *, force: bool = False) -> None:
        """Remove a container that has ended, with its anonymous volumes; one that is gone is fine."""
        params = {"v": "true", "force": "true" if force else "false"}
        with contextlib.suppress(Gone):
            await self._bytes("DELETE", f"containers/{container}", params=params)

    async def read(self, container: str, path: str) -> bytes:
        """Return a file or folder of a container as a tar archive; `Gone` where it has none."""
        return await self._bytes("GET", f"containers/{container}/archive", params={"path": path})

    async def logs(self, container: str) -> AsyncGenerator[bytes, None]:
        """Follow the output of a container from its beginning, for as long as the engine tells of it."""
        params = {"follow": "1", "stdout": "1", "stderr": "1"}
        with _failures("logs", self.options.url):
            client = await self._connected()
            quiet = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_LIMIT)
            async with client._query(f"containers/{container}/logs", params=params, timeout=quiet) as answer:
                try:
                    async for text in _frames(answer.content):
                        yield text
                finally:
                    answer.close()

    # Networks and volumes

    async def create_network(self, specification: Mapping[str, Any]) -> str:
        """Create a network; return its id."""
        return str((await self._json("POST", "networks/create", data=specification))["Id"])

    async def remove_network(self, network: str) -> None:
        """Remove a network that nobody uses; one that is gone is fine."""
        with contextlib.suppress(Gone):
            await self._bytes("DELETE", f"networks/{network}")

    async def networks(self, store: str | None) -> list[dict[str, Any]]:
        """List the networks that bear a store's label; all of them for None."""
        filters = {} if store is None else {"label": [f"ephemerd.store={store}"]}
        return _list(await self._json("GET", "networks", params={"filters": json.dumps(filters)}))

    async def volumes(self, store: str) -> list[dict[str, Any]]:
        """List the volumes that bear a store's label."""
        filters = json.dumps({"label": [f"ephemerd.store={store}"]})
        told = await self._json("GET", "volumes", params={"filters": filters})
        return _list(told.get("Volumes"))

    async def remove_volume(self, name: str) -> None:
        """Remove a volume that nobody uses; one that is gone is fine."""
        with contextlib.suppress(Gone):
            await self._bytes("DELETE", f"volumes/{name}")

    # Images

    async def image(self, name: str) -> dict[str, Any]:
        """Return an image; `Gone` where the engine has none of that name."""
        return cast("dict[str, Any]", await self._json("GET", f"images/{name}/json"))

    async def images(self) -> list[dict[str, Any]]:
        """List all images."""
        return _list(await self._json("GET", "images/json"))

    async def remove_image(self, image: str) -> None:
        """Remove an image with all its names, unless a container uses it; one that is gone is fine."""
        told = await self._json("GET", f"images/{image}/json")
        for name in [*(told.get("RepoTags") or ()), image]:
            with contextlib.suppress(Gone):
                await self._bytes("DELETE", f"images/{name}", params={"force": "false"})

    async def pull(self, name: str, limit: float) -> AsyncIterator[dict[str, Any]]:
        """Fetch an image, `limit` seconds at most; yield what the engine tells of its progress."""
        with _failures("pull", self.options.url):
            client = await self._connected()
            async with asyncio.timeout(limit):
                async for line in client.images.pull(name, stream=True, timeout=None):
                    yield line

    async def close(self) -> None:
        """Close the connections."""
        self._closed = True
        if self._client is not None:
            with contextlib.suppress(Exception):  # a stream under way may raise once more
                await self._client.close()
            await self._client.session.close()
            self._client = None
        if self.tunnel is not None:
            await self.tunnel.close()

    # Below: how.

    async def _connected(self) -> aiodocker.Docker:
        if self._closed:
            raise RetryLater("the runtime is closed")
        path = None
        if self.tunnel is not None:
            path = str(await self.tunnel.ready())
        if self._client is None:
            self._client = _client(self.options, path)
        return self._client

    async def _bytes(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        data: Mapping[str, Any] | bytes | None = None,
        limit: float | None = None,
    ) -> bytes:
        body = data if data is None or isinstance(data, bytes) else json.dumps(data).encode()
        kind = "application/x-tar" if isinstance(data, bytes) else "application/json"
        with _failures(f"{method} {path.partition('/')[0]}", self.options.url):
            async with asyncio.timeout(limit or self.options.call_limit):
                client = await self._connected()
                async with client._query(
                    path, method, params=dict(params or {}), data=body, headers={"Content-Type": kind}
                ) as answer:
                    try:
                        found = await answer.content.read(READ_MOST)
                        while not answer.content.at_eof():
                            more = await answer.content.read(READ_MOST)
                            found += more
                            if len(found) > READ_MOST:
                                raise Broken("the engine's answer is too long")
                        return found
                    finally:
                        answer.close() if not answer.content.at_eof() else answer.release()

    async def _json(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        data: Mapping[str, Any] | None = None,
        limit: float | None = None,
    ) -> Any:
        body = await self._bytes(method, path, params=params, data=data, limit=limit)
        with _failures(path.partition("/")[0], self.options.url):
            return json.loads(body)


def _client(options: EngineOptions, tunnel: str | None) -> aiodocker.Docker:
    """Connections are unbounded: each runner holds two for as long as it lives."""
    url = options.url
    connector: aiohttp.BaseConnector
    if url.startswith("unix://") or tunnel is not None:
        connector = aiohttp.UnixConnector(tunnel or url.removeprefix("unix://"), limit=0)
        url = "unix://localhost"
    else:
        secure = _tls(options)
        connector = aiohttp.TCPConnector(limit=0, ssl=secure if secure is not None else False)
        url = f"{'https' if secure is not None else 'http'}://{url.partition('://')[2]}"
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_LIMIT)
    session = aiohttp.ClientSession(connector=connector, timeout=timeout)
    return aiodocker.Docker(url=url, connector=connector, session=session, timeout=timeout)


def _tls(options: EngineOptions) -> ssl.SSLContext | None:
    if options.tls_dir is None:
        return None
    try:
        context = ssl.create_default_context(cafile=str(options.tls_dir / "ca.pem"))
        context.load_cert_chain(str(options.tls_dir / "cert.pem"), str(options.tls_dir / "key.pem"))
    except (OSError, ssl.SSLError) as error:
        raise Broken(
            f"the engine's certificates in {options.tls_dir} cannot be used ({error}): it needs ca.pem, cert.pem and "
            "key.pem"
        ) from None
    return context


@contextlib.contextmanager
def _failures(what: str, url: str) -> Iterator[None]:
    """Turn whatever a call of the engine raises into the error that says what to do."""
    try:
        yield
    except PortError:
        raise
    except DockerError as error:
        if error.status == NO_ANSWER:
            raise RetryLater(f"no engine answers at {url}") from None
        raise failure(error.status, str(error.message), what) from None
    except TimeoutError:
        raise RetryLater(f"the engine at {url} did not answer in time ({what})") from None
    except (aiohttp.ClientError, OSError, ValueError, EOFError) as error:
        raise RetryLater(f"the engine at {url} broke off ({what}): {type(error).__name__} {error}") from None


def failure(status: int, message: str, what: str) -> PortError:
    """Return the error for a status of the engine's API."""
    text = f"{message.strip()[:500]} ({what})"
    if status == 404:
        return Gone(text)
    if status == 409:
        return RetryLater(text) if "removal" in message and "progress" in message else Refused(text)
    if status in (400, 401, 403):
        return Broken(text) if status == 400 or "pool" in message.lower() else Refused(text)
    lasting = ("no space left", "runtime create failed", "executable file not found", "storage-opt", "pquota")
    if any(word in message.lower() for word in lasting):
        return Broken(text)
    return RetryLater(text)


async def _frames(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Take the engine's output stream apart; a stream that ends within a frame ends."""
    while True:
        try:
            head = await content.readexactly(8)
            length = int.from_bytes(head[4:8], "big")
            while length:
                piece = await content.read(min(length, 64 * 1024))
                if not piece:
                    return
                length -= len(piece)
                yield piece
        except asyncio.IncompleteReadError:
            return


def _list(told: Any) -> list[dict[str, Any]]:
    return [each for each in told or () if isinstance(each, dict)]


def _about(told: dict[str, Any], version: dict[str, Any], url: str) -> About:
    components = " ".join(str(part.get("Name")) for part in version.get("Components") or ())
    podman = "podman" in components.lower() or "podman" in str(told.get("ServerVersion", "")).lower()
    security = " ".join(map(str, told.get("SecurityOptions") or ()))
    return About(
        id=str(told.get("ID") or "") if not podman else url,
        version=str(version.get("Version") or ""),
        podman=podman,
        windows=str(told.get("OSType") or version.get("Os") or "").lower() == "windows",
        contained="userns" in security or "rootless" in security,
        cgroup_driver=str(told.get("CgroupDriver") or ""),
        storage=str(told.get("Driver") or ""),
        root=str(told.get("DockerRootDir") or ""),
        live_restore=bool(told.get("LiveRestoreEnabled")),
    )


def _state(told: dict[str, Any]) -> State:
    state, config = told.get("State") or {}, told.get("Config") or {}
    started = str(state.get("StartedAt") or "")
    status = str(state.get("Status") or "").lower()
    ended = status in ("exited", "dead", "stopped")
    return State(
        id=str(told.get("Id") or ""),
        labels=dict(config.get("Labels") or {}),
        status={"stopped": "exited", "configured": "created", "initialized": "created"}.get(status, status),
        pid=int(state.get("Pid") or 0),
        code=int(state["ExitCode"]) if ended and isinstance(state.get("ExitCode"), int) else None,
        started=bool(started) and not started.startswith("0001-"),
        out_of_memory=bool(state.get("OOMKilled")),
        error=str(state.get("Error") or "")[:300],
        user=str(config.get("User") or ""),
        network=str((told.get("HostConfig") or {}).get("NetworkMode") or ""),
    )
