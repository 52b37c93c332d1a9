"""What an engine is reached by, and what one pool's containers are made with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Network = Literal["isolated", "bridge", "host", "none"]
PullPolicy = Literal["missing", "always", "never"]
Sidecar = Literal["none", "sidecar"]
Privileges = Literal["refused", "capabilities", "privileged"]

PASSED_ON = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")
"""What a container gets of the daemon's own environment."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How an engine is reached.

    url          unix://PATH, tcp://HOST:PORT or ssh://USER@HOST
    tls_dir      folder with ca.pem, cert.pem and key.pem for tcp; None: no encryption
    call_limit   seconds for an ordinary call
    ssh          the ssh client, with arguments
    nft          the program, with arguments, that changes the packet filter of the engine's machine
    reserve      bytes that have to be free on the engine's disk for a runner to be started
    unused       seconds after which an image that our runners used, and now do not, goes
    images_size  bytes that the images of our runners may take together
    """

    url: str = "unix:///var/run/docker.sock"
    tls_dir: Path | None = None
    call_limit: float = 30.0
    ssh: tuple[str, ...] = ("ssh",)
    nft: tuple[str, ...] = ("nft",)
    reserve: int = 2 * 1024**3
    unused: float = 14 * 86_400.0
    images_size: int = 40 * 1024**3


@dataclass(frozen=True, slots=True)
class DockerOptions:
    """One pool's settings. Durations are seconds, sizes bytes.

    image            what the container is made of
    runner_root      the folder of the runner application in the container; `bin` is below it
    application      an unpacked runner application of this machine that is mounted read only over the image's
    logs_dir         where listener output and diagnostics stay after the container is gone
    files_dir        where copies of a living runner's files are kept
    user             who the listener runs as; None: the image's user
    allow_root       let it be root where no user namespace stands behind it
    network          isolated: a network of its own behind our packet filter; bridge: a network of its own;
                     host: the machine's own network
    allow            addresses and networks that an isolated runner may reach although they are private
    dns              name servers for the container; empty: the engine's choice
    subnets          networks are carved out of this range; None: the engine's own pools
    ready_networks   how many networks are kept ready for runners to come; 0: each is made with its runner
    docker           sidecar: an engine of its own for the jobs of each runner, in the runner's network
    docker_image     what that engine's container is made of
    docker_rights    what that engine's container may do; refused: it is not started
    disk             size limit of the writable layer, for storage drivers that have one
    work_tmpfs       size of a work folder in memory; None: on the container's disk
    tool_cache       a folder of this machine, mounted read only, for set-up actions
    follow           "all", or "listening": tell only that a runner listens and that it exited
    stop_wait        from asking the listener to stop to killing
    kill_wait        from killing to giving up
    logs_age         for how long logs are kept, since they were last written
    logs_size        how many bytes of them all pools may keep together
    most             most runners of the pool at one time
    """

    image: str
    logs_dir: Path
    files_dir: Path
    runner_root: str = "/home/runner"
    application: Path | None = None
    user: str | None = None
    allow_root: bool = False
    network: Network = "isolated"
    allow: tuple[str, ...] = ()
    dns: tuple[str, ...] = ()
    subnets: str | None = None
    ready_networks: int = 0
    docker: Sidecar = "none"
    docker_image: str = "docker:dind"
    docker_rights: Privileges = "refused"
    pull: PullPolicy = "missing"
    memory: int | None = None
    cpus: float | None = None
    pids: int = 4096
    shm: int | None = None
    disk: int | None = None
    work_tmpfs: int | None = None
    tool_cache: Path | None = None
    capabilities: tuple[str, ...] = ()
    new_privileges: bool = False
    extra_env: Mapping[str, str] = field(default_factory=dict)
    follow: Literal["all", "listening"] = "all"
    stop_wait: float = 30.0
    kill_wait: float = 30.0
    probe_timeout: float = 10.0
    logs_age: float = 14 * 86_400.0
    logs_size: int = 2 * 1024**3
    most: int = 4
