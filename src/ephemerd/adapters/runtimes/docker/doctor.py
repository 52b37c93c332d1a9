"""Looks at an engine before anybody needs it: what would not work, what would surprise, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ephemerd.adapters.runtimes.docker import launch, networks
from ephemerd.adapters.runtimes.docker.engine import About, Engine
from ephemerd.adapters.runtimes.docker.firewall import Firewall
from ephemerd.adapters.runtimes.docker.images import images_of
from ephemerd.adapters.runtimes.docker.options import DockerOptions
from ephemerd.ports.errors import Broken, Gone, PortError

FEW_NETWORKS = 25
"""An engine's own address ranges hold about thirty networks."""
QUOTA_DRIVERS = ("btrfs", "zfs", "devicemapper", "windowsfilter")


@dataclass(frozen=True, slots=True)
class Found:
    """One thing that was looked at. `level` is ok, warning or error; `about` is a pool, or empty for the engine."""

    level: str
    about: str
    what: str
    todo: str = ""


async def diagnose(engine: Engine, options: Mapping[str, DockerOptions], firewall: Firewall) -> list[Found]:
    """Look at an engine and at what each pool wants of it. Changes nothing; never raises a `PortError`."""
    try:
        about = await engine.about()
    except PortError as error:
        return [Found("error", "", error.detail, "start the engine, or correct the host's engine")]
    found = [*_engine(about, options), *_disk(engine, about)]
    for name, pool in options.items():
        found += await _pool(engine, about, name, pool)
    if any(pool.network == "isolated" for pool in options.values()):
        found.append(await _filter(engine, about, firewall))
    return found


def _engine(about: About, options: Mapping[str, DockerOptions]) -> Iterator[Found]:
    kind = "Podman" if about.podman else "Docker Engine"
    words = f"{kind} {about.version}, storage {about.storage or '?'}, cgroups by {about.cgroup_driver or '?'}"
    yield Found("ok", "", words)
    if not about.podman and not about.live_restore:
        yield Found(
            "warning",
            "",
            "live restore is off, so that a restart of the engine ends every job",
            'write "live-restore": true in its daemon.json',
        )
    narrow = [
        name for name, pool in options.items() if pool.network in ("isolated", "bridge") and not pool.subnets
    ]
    wanted = sum(
        options[name].most + min(options[name].ready_networks, options[name].most) for name in narrow
    )
    if wanted > FEW_NETWORKS:
        yield Found(
            "warning",
            "",
            "there may be more runners than the engine has address ranges for",
            "set subnets in the pools' container tables, or default-address-pools in daemon.json",
        )


def _disk(engine: Engine, about: About) -> Iterator[Found]:
    try:
        launch.check_disk(engine, about)
    except Broken as error:
        yield Found("error", "", error.detail, "make room, or lower the host's disk_reserve")


async def _pool(engine: Engine, about: About, name: str, pool: DockerOptions) -> list[Found]:
    found = []
    for image in images_of(pool):
        told, one = await _image(engine, name, image, pool)
        found.append(one)
        if image == pool.image and told is not None:
            try:
                launch.check(about, pool, told)
            except Broken as error:
                found.append(Found("error", name, error.detail, "correct the pool"))
    if pool.docker != "none" and pool.docker_rights != "refused":
        what = f"the engine for jobs has rights ({pool.docker_rights}) with which a job can become root on the machine"
        found.append(Found("warning", name, what, "let this pool run jobs of people you trust only"))
    if pool.disk is not None and about.storage not in QUOTA_DRIVERS:
        what = f"a limit of the disk works with storage {about.storage} on xfs with project quota only"
        found.append(Found("warning", name, what, "leave disk out, or use work_tmpfs"))
    return found


async def _image(
    engine: Engine, name: str, image: str, pool: DockerOptions
) -> tuple[dict[str, Any] | None, Found]:
    """Look for an image of a pool; return what the engine tells of it, and what there is to say."""
    try:
        return await engine.image(image), Found("ok", name, f"image {image} is there")
    except Gone:
        if pool.pull == "never":
            todo = "load it, or let the pool fetch it"
            return None, Found("error", name, f"the engine has no image {image}", todo)
        todo = "it is fetched when the daemon starts"
        return None, Found("warning", name, f"the engine has no image {image} yet", todo)
    except PortError as error:
        return None, Found("error", name, error.detail, "look at the engine's own log")


async def _filter(engine: Engine, about: About, firewall: Firewall) -> Found:
    try:
        networks.check_isolation(engine, about)
        await firewall.check()
    except Broken as error:
        return Found("error", "", error.detail, 'mend it, or write network = "bridge"')
    return Found("ok", "", "the packet filter of isolated runners can be put in place")
