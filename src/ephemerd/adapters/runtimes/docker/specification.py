"""What a container and its network are created as. Pure: everything that isolates a runner is written here.

The credential is in none of it: it travels as a file that the first process reads and removes before the
listener starts, so that neither labels nor arguments nor the engine's own records ever hold it.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any

from ephemerd.adapters.runtimes.docker.options import DockerOptions
from ephemerd.adapters.runtimes.docker.reference import bridge_name
from ephemerd.ports.errors import Broken
from ephemerd.ports.runtime import StartOrder

STORE, RUNNER, POOL = "ephemerd.store", "ephemerd.runner", "ephemerd.pool"
ROLE, KIND = "ephemerd.role", "ephemerd.kind"
"""What a container of ours is that is no runner's own, and which runners a ready network suits."""
HOLDS_NETWORK, ENGINE = "network", "engine"
OF_CONTAINER = "container:"
"""What the mode of a network begins with that another container holds."""
NOBODY = "65534:65534"
FOLDER = "/.ephemerd"
LISTENER = "bin/Runner.Listener"
LOG_MOST = "32m"
TOOLS = "/opt/hostedtoolcache"

SCRIPT = f"""\
# The container's first process: hands the listener its configuration, stays above it, and ends only when the
# listener and every worker have ended, with the listener's code.
cd "$1" || exit 125
IFS= read -r blob < {FOLDER}/jit || [ -n "$blob" ] || exit 125
rm -f {FOLDER}/jit
[ ! -e {FOLDER}/jit ] || exit 125
mkdir -p "$RUNNER_PERFLOG" || exit 125
ACTIONS_RUNNER_INPUT_JITCONFIG=$blob
export ACTIONS_RUNNER_INPUT_JITCONFIG
(exec sh -c 'echo $$ > {FOLDER}/pid; exec "$0" run' "$1/{LISTENER}")
code=$?
unset ACTIONS_RUNNER_INPUT_JITCONFIG blob
works() {{
  for entry in /proc/[0-9]*; do
    name=
    read -r name < "$entry/comm" 2>/dev/null
    [ "$name" = Runner.Worker ] && return 0
  done
  return 1
}}
while works; do sleep 1; done
exit $code
"""
INTERRUPT = ["sh", "-c", f'read -r pid < {FOLDER}/pid && kill -INT "$pid"']


def labels(order: StartOrder) -> dict[str, str]:
    """Return what tells that something is ours, and whose."""
    return {STORE: order.store, RUNNER: order.runner, POOL: order.pool}


def container(
    order: StartOrder, options: DockerOptions, environment: Mapping[str, str], network: str | None
) -> dict[str, Any]:
    """Return the container of an order.

    environment   what the listener gets beside what is promised to it
    network       the id of its own network, or "container:" and the id of who holds it; None where the pool has none
    """
    variables = {
        **environment,
        "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE": "1",
        "RUNNER_PERFLOG": f"{options.runner_root}/_perf",
        "EPHEMERD_RUNNER": order.runner,
    }
    if options.tool_cache is not None:
        variables.setdefault("RUNNER_TOOL_CACHE", TOOLS)
    made: dict[str, Any] = {
        "Image": options.image,
        "Entrypoint": ["sh", f"{FOLDER}/parent", options.runner_root],
        "Cmd": [],
        "WorkingDir": options.runner_root,
        "Env": [f"{name}={value}" for name, value in variables.items()],
        "Labels": labels(order),
        "Tty": False,
        "OpenStdin": False,
        "Healthcheck": {
            "Test": ["NONE"]
        },  # what a check starts beside the listener is no worker in the making
        "NetworkDisabled": options.network == "none",
        "HostConfig": _host(options, network),
    }
    if not held(network):
        made["Hostname"] = order.runner[:63]
    if options.user is not None:
        made["User"] = options.user
    return made


def held(network: str | None) -> bool:
    """Say whether a network's mode names the container that holds it; names and name servers are that one's."""
    return network is not None and network.startswith(OF_CONTAINER)


def _host(options: DockerOptions, network: str | None) -> dict[str, Any]:
    host: dict[str, Any] = {
        "RestartPolicy": {"Name": "no"},
        "AutoRemove": False,
        "Init": False,
        "Privileged": False,
        "CapDrop": ["ALL"],
        "CapAdd": list(options.capabilities),
        "SecurityOpt": [] if options.new_privileges else ["no-new-privileges"],
        "IpcMode": "private",
        "NetworkMode": options.network if options.network in ("host", "none") else network,
        "LogConfig": {"Type": "json-file", "Config": {"max-size": LOG_MOST}},
        "Mounts": mounts(options),
        **limits(options),
    }
    if options.shm is not None:
        host["ShmSize"] = options.shm
    if options.disk is not None:
        host["StorageOpt"] = {"size": str(options.disk)}
    if options.work_tmpfs is not None:
        size = f"rw,exec,nosuid,nodev,mode=1777,size={options.work_tmpfs}"
        host["Tmpfs"] = {f"{options.runner_root}/_work": size}
    if options.dns and not held(network):
        host["Dns"] = list(options.dns)
    return host


def limits(options: DockerOptions) -> dict[str, Any]:
    """Return what a container may use of the machine."""
    found: dict[str, Any] = {"PidsLimit": options.pids}
    if options.memory is not None:
        found |= {"Memory": options.memory, "MemorySwap": options.memory}
    if options.cpus is not None:
        found["NanoCpus"] = round(options.cpus * 1e9)
    return found


def mounts(options: DockerOptions) -> list[dict[str, Any]]:
    """The runner application and the tool cache, read only; nothing else of the machine, least of all a socket."""
    found = []
    if options.application is not None:
        for part in ("bin", "externals"):
            source = options.application / part
            if part == "bin" or source.is_dir():
                found.append((str(source), f"{options.runner_root}/{part}"))
    if options.tool_cache is not None:
        found.append((str(options.tool_cache), TOOLS))
    return [
        {"Type": "bind", "Source": source, "Target": target, "ReadOnly": True} for source, target in found
    ]


def network(name: str, store: str, marks: Mapping[str, str], subnet: str | None) -> dict[str, Any]:
    """Return a network for one runner, with a bridge that the packet filter knows by its name."""
    made: dict[str, Any] = {
        "Name": name,
        "CheckDuplicate": True,
        "Driver": "bridge",
        "Internal": False,
        "EnableIPv6": False,
        "Labels": dict(marks),
        "Options": {
            "com.docker.network.bridge.name": bridge_name(store, name),
            "com.docker.network.bridge.enable_icc": "false",
        },
    }
    if subnet is not None:
        made["IPAM"] = {"Driver": "default", "Config": [{"Subnet": subnet}]}
    return made


def holder(marks: Mapping[str, str], options: DockerOptions, network: str) -> dict[str, Any]:
    """Return a container that does nothing but hold a network until a runner joins it: nobody, with no rights."""
    host: dict[str, Any] = {
        "RestartPolicy": {"Name": "no"},
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "ReadonlyRootfs": True,
        "PidsLimit": 8,
        "NetworkMode": network,
        "LogConfig": {"Type": "none"},
    }
    if options.dns:
        host["Dns"] = list(options.dns)
    return {
        "Image": options.image,
        "Entrypoint": ["sleep", "2147483647"],
        "Cmd": [],
        "User": NOBODY,
        "Hostname": "runner",
        "Labels": dict(marks),
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": host,
    }


def account_in(passwd: bytes, user: str) -> tuple[int, int] | None:
    """Return the numbers of a user, given as NAME, NUMBER or either with :GROUP, by the image's own accounts.

    Only the user counts here: what is handed over is for nobody else.
    """
    name = user.partition(":")[0] or "root"
    entries = (line.split(":") for line in passwd.decode(errors="replace").splitlines())
    for entry in entries:
        if len(entry) > 3 and name in (entry[0], entry[2]) and entry[2].isdigit() and entry[3].isdigit():
            return int(entry[2]), int(entry[3])
    return (int(name), 0) if name.isdigit() else (0, 0) if name == "root" else None


def handover(credential: str, owner: tuple[int, int], folders: Sequence[str] = ()) -> bytes:
    """Return the archive that brings the script and the credential into a container, for its user alone.

    folders   of the container that are made its user's
    """
    if "\n" in credential or "\0" in credential or not credential:
        raise Broken("the runner's configuration is empty or has more than one line")
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for name in folders:
            entry = tarfile.TarInfo(name.strip("/"))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            entry.uid, entry.gid = owner
            tar.addfile(entry)
        folder = tarfile.TarInfo(FOLDER.strip("/"))
        folder.type, folder.mode = tarfile.DIRTYPE, 0o700
        folder.uid, folder.gid = owner
        tar.addfile(folder)
        for name, mode, text in (("parent", 0o500, SCRIPT), ("jit", 0o600, credential + "\n")):
            content = text.encode()
            entry = tarfile.TarInfo(f"{FOLDER.strip('/')}/{name}")
            entry.mode, entry.size = mode, len(content)
            entry.uid, entry.gid = owner
            tar.addfile(entry, io.BytesIO(content))
    return written.getvalue()
