"""Which runtime each pool gets, and by which settings it starts runners. Knows the concrete runtimes.

One process runtime serves all pools of processes; each host's engine has a runtime of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ephemerd.adapters.runtimes.process import ProcessOptions, ProcessRuntime
from ephemerd.adapters.runtimes.process.doctor import diagnose as look_at_processes
from ephemerd.config.effective import Effective
from ephemerd.config.findings import Code
from ephemerd.config.model import HostSettings, PoolSettings
from ephemerd.domain.pool import SECOND, Setup
from ephemerd.ports.runtime import Runtime
from ephemerd.ports.views import FindingView

if TYPE_CHECKING:
    from ephemerd.adapters.runtimes.docker import DockerOptions, DockerRuntime

STOP_SHARE = 3 / 7
"""Of the bound on a destroy (70 s), how much the stop may take, and the kill: 30 s each."""


Options = TypeVar("Options", "ProcessOptions", "DockerOptions")
DOWNLOAD = Path("download")
"""What stands in the configuration for the version that is kept current, whose folder changes."""


class Placing:
    """The runtimes of a configuration.

    now          the shell clock, ms
    epoch        the process life that permits must name
    application  the folder of the downloaded runner application that a pool's next runner is made from
    """

    def __init__(
        self,
        effective: Effective,
        setup: Setup,
        *,
        now: Callable[[], int],
        epoch: Callable[[], str],
        application: Callable[[str], Path],
    ) -> None:
        self._process: ProcessRuntime | None = None
        self._engines: dict[str, DockerRuntime] = {}
        self._application = application
        self._work_dir = _work_dir(effective)
        pools = effective.settings.pools
        if any(pool.runtime == "process" for pool in pools.values()):
            self._process = ProcessRuntime(process_options(effective, setup), now=now, epoch=epoch)
        for host in _hosts(effective):
            self._engines[host] = _on_engine(effective, setup, host, now, epoch)
        self._settings = self._read(effective, setup)
        if effective.settings.runner.application == str(DOWNLOAD):
            self.renew()

    def runtimes(self, effective: Effective) -> dict[str, Runtime]:
        """Return the runtimes by pool."""
        found: dict[str, Runtime] = {}
        for name, pool in effective.settings.pools.items():
            runtime = self._process if pool.runtime == "process" else self._engines.get(pool.host)
            if runtime is not None:
                found[name] = runtime
        return found

    def prepared(self, effective: Effective, setup: Setup) -> Callable[[], None]:
        """Return what makes new runners start by these settings; nothing changes before it is called.

        The folder stays that of the start: what runs is found there.
        """
        read = self._read(effective, setup)

        def apply() -> None:
            self._settings = read
            self.renew()

        return apply

    def renew(self) -> None:
        """Make new runners from the present folders of downloaded applications."""
        processes, containers = self._settings
        if self._process is not None:
            self._process.reconfigure({name: self._renewed(name, one) for name, one in processes.items()})
        for host, options in containers.items():
            self._engines[host].reconfigure({name: self._renewed(name, one) for name, one in options.items()})

    def _renewed(self, pool: str, options: Options) -> Options:
        """Return a pool's options with the folder that stands for the downloaded application at present."""
        if options.application != DOWNLOAD:
            return options
        return replace(options, application=self._application(pool))

    def _read(
        self, effective: Effective, setup: Setup
    ) -> tuple[dict[str, ProcessOptions], dict[str, dict[str, DockerOptions]]]:
        """Return how processes, and each host's containers, are started by a configuration."""
        processes = process_options(effective, setup, self._work_dir)
        containers = {
            host: container_options(effective, setup, host, self._work_dir) for host in self._engines
        }
        return processes, containers


def process_options(
    effective: Effective, setup: Setup, work_dir: Path | None = None
) -> dict[str, ProcessOptions]:
    """How processes are started, by pool; in `work_dir`, else where the configuration says."""
    settings = effective.settings
    work_dir, wait = work_dir or _work_dir(effective), setup.policy.retiring_limit / SECOND * STOP_SHARE
    return {
        name: ProcessOptions(
            application=Path(settings.runner.application),
            work_dir=work_dir,
            logs_dir=work_dir.with_name("logs"),
            user=pool.user,
            allow_root=settings.runner.allow_root,
            extra_env=settings.runner.extra_env,
            follow=pool.follow,
            stop_wait=wait,
            kill_wait=wait,
            probe_timeout=setup.policy.probe_timeout / SECOND,
            logs_age=settings.retention.logs / SECOND,
            logs_size=settings.retention.logs_size,
        )
        for name, pool in settings.pools.items()
        if pool.runtime == "process"
    }


def container_options(
    effective: Effective, setup: Setup, host: str, work_dir: Path | None = None
) -> dict[str, DockerOptions]:
    """How the containers of a host are started, by pool; their files beside `work_dir`, else as configured."""
    pools = effective.settings.pools.items()
    return {
        name: _container(effective, setup, pool, work_dir or _work_dir(effective))
        for name, pool in pools
        if pool.runtime == "docker" and pool.host == host
    }


def _container(effective: Effective, setup: Setup, pool: PoolSettings, work_dir: Path) -> DockerOptions:
    from ephemerd.adapters.runtimes.docker import DockerOptions

    runner, given = effective.settings.runner, pool.container
    wait = setup.policy.retiring_limit / SECOND * STOP_SHARE
    return DockerOptions(
        image=given.image,
        pull=given.pull,
        runner_root=given.runner_root,
        application=Path(runner.application) if given.application == "mount" else None,
        logs_dir=work_dir.with_name("container-logs"),
        files_dir=work_dir.with_name("containers"),
        user=pool.user,
        allow_root=runner.allow_root,
        network=given.network,
        allow=given.allow,
        dns=given.dns,
        subnets=given.subnets,
        ready_networks=given.ready_networks,
        docker=given.docker,
        docker_image=given.docker_image,
        docker_rights=given.docker_rights,
        memory=given.memory,
        cpus=given.cpus,
        pids=given.pids,
        shm=given.shm,
        disk=given.disk,
        work_tmpfs=given.work_tmpfs,
        tool_cache=given.tool_cache,
        capabilities=given.capabilities,
        new_privileges=given.new_privileges,
        extra_env=runner.extra_env,
        follow=pool.follow,
        stop_wait=wait,
        kill_wait=wait,
        probe_timeout=setup.policy.probe_timeout / SECOND,
        logs_age=effective.settings.retention.logs / SECOND,
        logs_size=effective.settings.retention.logs_size,
        most=pool.max_concurrent,
    )


def _on_engine(
    effective: Effective, setup: Setup, host: str, now: Callable[[], int], epoch: Callable[[], str]
) -> DockerRuntime:
    from ephemerd.adapters.runtimes.docker import DockerRuntime, EngineOptions

    settings = effective.settings.hosts.get(host) or HostSettings()
    reach = EngineOptions(
        url=settings.engine,
        tls_dir=settings.engine_tls,
        reserve=settings.disk_reserve,
        unused=settings.images_unused / SECOND,
        images_size=settings.images_size,
    )
    options: Mapping[str, DockerOptions] = container_options(effective, setup, host)
    return DockerRuntime(reach, options, now=now, epoch=epoch)


async def list_images(effective: Effective) -> list[dict[str, Any]]:
    """Return the images that runners used, per host. Raises `PortError`."""
    return await _images(effective, collect=None)


async def collect_images(effective: Effective, *, really: bool) -> list[dict[str, Any]]:
    """Remove the images that may go, per host; return them. Raises `PortError`."""
    return await _images(effective, collect=really)


async def diagnose(effective: Effective) -> list[FindingView]:
    """Look at every engine, and at this machine where processes run on it. Changes nothing."""
    setup, found = effective.to_setup(), list[FindingView]()
    if any(pool.runtime == "process" for pool in effective.settings.pools.values()):
        found += look_at_processes()
    for host in _hosts(effective):
        runtime = _on_engine(effective, setup, host, lambda: 0, lambda: "")
        try:
            told = await runtime.diagnose()
        finally:
            await runtime.close()
        for one in told:
            level, code = ("problem", int(Code.ENVIRONMENT)) if one.level == "error" else (one.level, 0)
            where = f"pools.{one.about}" if one.about else f"hosts.{host}"
            found.append(FindingView(level, code, where, one.what, one.todo))
    return found


def _hosts(effective: Effective) -> list[str]:
    pools = effective.settings.pools.values()
    return list(dict.fromkeys(pool.host for pool in pools if pool.runtime == "docker"))


async def _images(effective: Effective, *, collect: bool | None) -> list[dict[str, Any]]:
    setup, found = effective.to_setup(), []
    for host in _hosts(effective):
        runtime = _on_engine(effective, setup, host, lambda: 0, lambda: "")
        try:
            if collect is None:
                told = [(image, "") for image in await runtime.images.known()]
            else:
                told = [(one.image, one.reason) for one in await runtime.collect_images(really=collect)]
        finally:
            await runtime.close()
        found += [
            {
                "host": host,
                "name": image.name,
                "image": image.id,
                "size": image.size,
                "used": image.used,
                "reason": reason,
            }
            for image, reason in told
        ]
    return found


def _work_dir(effective: Effective) -> Path:
    work_dir = effective.settings.runner.work_dir
    assert work_dir is not None, "the effective configuration fills it in"
    return work_dir
