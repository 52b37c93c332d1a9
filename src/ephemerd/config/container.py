"""`[pools.NAME.container]`: what a pool's containers are made of, what they may reach and how much they may use."""

from __future__ import annotations

from ipaddress import IPv4Network, ip_address, ip_network
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from ephemerd.config.types import Count, Kind, PositiveCount, Rate, Section, Size

File = Annotated[Path, Kind("path")]


def _networks(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        ip_network(text, strict=False)
    return texts


def _addresses(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        ip_address(text)
    return texts


def _range(text: str) -> str:
    network = ip_network(text)
    if not isinstance(network, IPv4Network) or network.prefixlen > 29:
        raise ValueError("must be an IPv4 network of /29 or larger, like 10.200.0.0/16")
    return text


def _folder(text: str) -> str:
    if not text.startswith("/") or ".." in text.split("/") or len(text) < 2 or ":" in text:
        raise ValueError("must be the absolute path of a folder")
    return text.rstrip("/")


def _engine(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme == "unix" and parts.path.startswith("/") and not parts.netloc:
        return text
    if parts.scheme == "tcp" and parts.hostname and parts.port and parts.path in ("", "/"):
        return text
    if parts.scheme == "ssh" and parts.hostname:
        return text  # a password in it is refused where the address is not shown
    raise ValueError('must be "unix:///PATH", "tcp://HOST:PORT" or "ssh://USER@HOST"')


EngineUrl = Annotated[str, AfterValidator(_engine), Kind("unix:///PATH, tcp://HOST:PORT or ssh://USER@HOST")]


class ContainerSettings(Section):
    """`[pools.NAME.container]`: a pool's containers; used where its runtime is docker."""

    image: Annotated[str, Kind("name of an image")] = Field(
        "ghcr.io/actions/actions-runner:latest",
        description="What each container is made of, with tag or digest.",
    )
    pull: Literal["missing", "always", "never"] = Field(
        "missing",
        description="When the image is fetched. missing: where the engine has none; always: anew after each start of "
        "the daemon, beside the work, used by containers made after it; never: it must be there.",
    )
    runner_root: Annotated[str, AfterValidator(_folder), Kind("path in the image")] = Field(
        "/home/runner", description="Folder of the runner application in the image; its user must own it."
    )
    application: Literal["image", "mount"] = Field(
        "image",
        description="Whose runner application runs. mount: this machine's runner.application, laid read only over "
        "runner_root/bin and runner_root/externals.",
    )
    network: Literal["isolated", "bridge", "host", "none"] = Field(
        "isolated",
        description="isolated: a network of its own without reach to this machine, private addresses or other runners; "
        "needs root and nft, and the engine on this machine. bridge: a network of its own, unfiltered. host: this "
        "machine's network, nothing is kept from the job. none: none at all.",
    )
    allow: Annotated[tuple[str, ...], AfterValidator(_networks), Kind("list of addresses or networks")] = (
        Field(
            (),
            description="What isolated runners may reach although it is private, such as an Enterprise Server.",
        )
    )
    dns: Annotated[tuple[str, ...], AfterValidator(_addresses), Kind("list of addresses")] = Field(
        (),
        description="Name servers; default: the machine's own, which isolated runners may ask in any case.",
    )
    subnets: Annotated[str, AfterValidator(_range), Kind("IPv4 network")] | None = Field(
        None,
        description="Where the runners' networks are carved out, eight addresses each; default: the engine's own "
        "ranges, which by its default settings end at about thirty networks.",
    )
    ready_networks: Count = Field(
        4,
        description="How many networks are kept ready for runners to come, each with a container that only holds it; "
        "0: each is made with its runner, which makes a start take about twice as long.",
    )
    docker: Literal["none", "sidecar"] = Field(
        "none",
        description="Docker inside jobs. none: there is none. sidecar: each runner gets an engine of its own in a "
        "second container, in the same network, with the same limits once more; needs docker_rights.",
    )
    docker_image: Annotated[str, Kind("name of an image")] = Field(
        "docker:dind", description="What the engine for jobs is made of; has to hold dockerd, docker and sh."
    )
    docker_rights: Literal["refused", "capabilities", "privileged"] = Field(
        "refused",
        description="What the engine for jobs may do on this machine; with either a job can become root here. "
        "capabilities: SYS_ADMIN, NET_ADMIN and a few more without system call filter, no devices; privileged: all "
        "there is, as the official image wants it; refused: no such engine is started.",
    )
    memory: Size | None = Field(
        None, description="Limit of memory, swap included; the job is killed beyond it."
    )
    cpus: Rate | None = Field(None, description="Limit of processor time, in processors.")
    pids: PositiveCount = Field(
        4096, description="Most processes and threads, so that a fork bomb stays inside."
    )
    shm: Size | None = Field(None, description="Size of /dev/shm; default: the engine's, 64 MiB.")
    disk: Size | None = Field(
        None,
        description="Limit of what a container writes to its own disk; only with storage drivers that have one (btrfs, "
        "zfs, overlay2 on xfs with project quota): the engine refuses others.",
    )
    work_tmpfs: Size | None = Field(
        None, description="Keep the work folder in memory, of this size; counts as the container's memory."
    )
    tool_cache: File | None = Field(
        None, description="Folder of this machine with tools for set-up actions, mounted read only."
    )
    capabilities: Annotated[tuple[str, ...], Kind("list of names")] = Field(
        (),
        description="Capabilities to give back, all being dropped, such as CHOWN; each one weakens the isolation.",
    )
    new_privileges: bool = Field(
        False, description="Let programs gain rights, as sudo does; without it sudo in a job fails."
    )
