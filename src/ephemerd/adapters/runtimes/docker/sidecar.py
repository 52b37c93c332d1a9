"""An engine of its own for the jobs of one runner, in a container beside the runner's, never the machine's engine.

Both share the runner's network, the folder of the engine's socket and the work folder, so that a job's own containers
see the job's files and a published port is on the job's loopback. The container needs rights with which whoever
commands its engine can get hold of the machine: it is started only where the pool says so in so many words.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from ephemerd.adapters.runtimes.docker import specification
from ephemerd.adapters.runtimes.docker.engine import About, Engine
from ephemerd.adapters.runtimes.docker.options import DockerOptions
from ephemerd.ports.errors import Broken, Gone, PortError
from ephemerd.ports.runtime import StartOrder

SOCKETS = "/run/ephemerd-engine"
SOCKET = f"unix://{SOCKETS}/docker.sock"
DATA = "/var/lib/docker"
GROUP = 2375
"""Who may use the socket. No image has to know the group: the runner's container is given the number."""
READY_LIMIT, LAST_WORDS = 60.0, 5.0
UNTIL_READY = ["sh", "-c", f"until docker --host {SOCKET} version >/dev/null 2>&1; do sleep 0.1; done"]
RIGHTS = ("SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE", "SYSLOG")
"""What an engine needs beside the engine's own default for containers."""
OPEN = """\
for place in /proc/sys /sys /sys/fs/cgroup /sys/fs/cgroup/*; do
  mount -o remount,rw,bind "$place" 2>/dev/null
done
exec "$@"
"""
"""What a privileged container has writable from the start, and another one has to make so."""


def name_of(runner: str) -> str:
    """Return the name of the container of a runner's engine."""
    return f"{runner}-docker"


def check(about: About, options: DockerOptions) -> None:
    """Refuse an engine for jobs where the pool does not grant what it needs, or where it cannot be."""
    if options.docker == "none":
        return
    if options.docker_rights == "refused":
        raise Broken(
            "an engine for jobs needs rights that this pool does not grant: set docker_rights in its container table "
            'to "capabilities" or "privileged", knowing that its jobs can then become root on the machine'
        )
    if options.network not in ("isolated", "bridge"):
        raise Broken(
            f'an engine for jobs needs a network of the runner\'s own, not "{options.network}": write "isolated"'
        )
    if about.podman or about.contained or about.windows:
        raise Broken(
            "an engine for jobs is only started by Docker Engine without a user namespace: use another engine, or "
            'write docker = "none"'
        )


def volumes(order: StartOrder, options: DockerOptions) -> list[dict[str, Any]]:
    """Return the volumes that a runner shares with its engine; they bear the runner's labels and go with it."""
    shared = [("socket", SOCKETS), ("work", f"{options.runner_root}/_work")]
    if options.application is None:
        shared.append(("externals", f"{options.runner_root}/externals"))
    return [_volume(order, name, target) for name, target in shared]


def _volume(order: StartOrder, name: str, target: str) -> dict[str, Any]:
    return {
        "Type": "volume",
        "Source": f"{order.runner}-docker-{name}",
        "Target": target,
        "VolumeOptions": {"Labels": specification.labels(order)},
    }


def share(made: dict[str, Any], order: StartOrder, options: DockerOptions) -> None:
    """Let a runner's container, as it is specified, use its engine."""
    made["Env"] = [*made["Env"], f"DOCKER_HOST={SOCKET}"]
    made["HostConfig"]["Mounts"] += volumes(order, options)
    made["HostConfig"]["GroupAdd"] = [str(GROUP)]


def container(
    order: StartOrder, options: DockerOptions, image: Mapping[str, Any], network: str, dns: Sequence[str]
) -> dict[str, Any]:
    """Return the container of an engine.

    image     what the engine on the machine tells of `docker_image`
    network   the id of the runner's network, or "container:" and the id of who holds it
    dns       name servers for the job's own containers
    """
    command = ["dockerd", "--host", SOCKET, "--host", "unix:///var/run/docker.sock", "--group", str(GROUP)]
    for server in dns:
        command += ["--dns", server]
    # Externals are the runner's to bring: its container fills the volume when it is made, after this one.
    host: dict[str, Any] = {
        "RestartPolicy": {"Name": "no"},
        "NetworkMode": network,
        "LogConfig": {"Type": "json-file", "Config": {"max-size": specification.LOG_MOST}},
        "Mounts": [
            *specification.mounts(options),
            *volumes(order, options),
            _volume(order, "data", DATA),
        ],
        **specification.limits(options),
    }
    made: dict[str, Any] = {
        "Image": options.docker_image,
        "Cmd": command,
        "Env": ["DOCKER_TLS_CERTDIR="],
        "Labels": {**specification.labels(order), specification.ROLE: specification.ENGINE},
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": host,
    }
    if options.docker_rights == "privileged":
        host["Privileged"] = True
    else:
        host |= {
            "CapAdd": list(RIGHTS),
            "SecurityOpt": ["seccomp=unconfined", "apparmor=unconfined"],
            "MaskedPaths": [],
            "ReadonlyPaths": [],
        }
        entrypoint = (image.get("Config") or {}).get("Entrypoint") or []
        made["Entrypoint"] = ["sh", "-c", OPEN, "sh", *entrypoint]
    if not specification.held(network):
        made["Hostname"] = order.runner[:63]
        if options.dns:
            host["Dns"] = list(options.dns)
    return made


async def begin(
    engine: Engine,
    order: StartOrder,
    options: DockerOptions,
    image: Mapping[str, Any],
    network: str,
    dns: Sequence[str],
) -> str:
    """Make and start a runner's engine; return its container's id. What is left of an earlier try is replaced."""
    made = container(order, options, image, network, dns)
    try:
        left = await engine.state(name_of(order.runner))
        if left.labels.get(specification.ROLE) != specification.ENGINE or any(
            left.labels.get(key) != value for key, value in specification.labels(order).items()
        ):
            raise Broken(f"there is a container {name_of(order.runner)} that is not ours: rename it")
        await engine.remove(left.id, force=True)
    except Gone:
        pass
    id_ = await engine.create(name_of(order.runner), made)
    await engine.start(id_)
    return id_


async def until_ready(engine: Engine, id_: str) -> None:
    """Return once a runner's engine answers; raise `Broken` with its last words where it ends instead."""
    code = await engine.run(id_, UNTIL_READY, READY_LIMIT)
    if code != 0:
        words = b""
        with contextlib.suppress(PortError, TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                async for text in engine.logs(id_):
                    words = (words + text)[-400:]
        last = words.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        raise Broken(f"the engine for a runner's jobs did not come up: {last[0]}")
