"""What every `ports.runtime.Runtime` must do. Each check takes a driver and raises AssertionError.

A driver is the other side of the runtime: what the runner inside does. It is fresh for each check, and ends
afterwards whatever the check left. With pytest:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_contract(check, driver):
        await check(driver)

The checks wait for what a runtime tells or shows, each time with a bound, and never for a time to pass.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from ephemerd.domain.ids import RunnerId
from ephemerd.domain.permit import Permit, Warrant
from ephemerd.domain.verdict import HARD_SIGNS, Files, Listing, ProbeReport, Sign
from ephemerd.ports.errors import Broken, PortError, Refused
from ephemerd.ports.runtime import Runtime, StartOrder

LIMIT = 30.0
STORE = "contract"
_RUN = secrets.token_hex(3)
"""Names never repeat, here either: two runs on one machine must not take each other's runners for their own."""
FIRST = RunnerId(f"eph-contract-{_RUN}-1")
SECOND = RunnerId(f"eph-contract-{_RUN}-2")


class RuntimeDriver(Protocol):
    """The other side of a runtime: what the runner inside does, and what the gate would hand out."""

    pool: str
    broken_pool: str

    def runtime(self) -> Runtime:
        """Make another instance over the same machine, as a daemon does after a restart."""
        ...

    def permit(
        self,
        runner: RunnerId,
        environment: str,
        warrant: Warrant,
        *,
        polite: bool = False,
        expired: bool = False,
        other_life: bool = False,
    ) -> Permit:
        """Return a permit as the gate would make it (only tests may)."""
        ...

    async def begin_job(self, runner: RunnerId) -> None:
        """Let the runner inside take a job: offer, announcement, a worker that stays."""
        ...

    async def end_job(self, runner: RunnerId) -> None:
        """Let the worker end and the listener tell of it and stay."""
        ...

    async def leave(self, runner: RunnerId, code: int) -> None:
        """Let the listener exit by itself with this code."""
        ...

    def remains(self, runner: RunnerId) -> list[str]:
        """Name everything that is still there of a runner: processes, folders, containers; not its logs."""
        ...


Check = Callable[[RuntimeDriver], Awaitable[None]]


@dataclass
class Sink:
    """Collects what a runtime tells."""

    signs: list[tuple[RunnerId, Sign]] = field(default_factory=list)
    exits: list[tuple[RunnerId, int | None, int]] = field(default_factory=list)
    told: asyncio.Event = field(default_factory=asyncio.Event)

    def sign(self, runner: RunnerId, sign: Sign, detail: str) -> None:
        self.signs.append((runner, sign))
        self.told.set()

    def exited(self, runner: RunnerId, code: int | None, leftovers: int) -> None:
        self.exits.append((runner, code, leftovers))
        self.told.set()

    async def until(self, holds: Callable[[], bool], limit: float = LIMIT) -> None:
        """Wait until what was told is enough."""
        async with asyncio.timeout(limit):
            while not holds():
                self.told.clear()
                await self.told.wait()

    async def until_sign(self, runner: RunnerId, sign: Sign) -> None:
        await self.until(lambda: (runner, sign) in self.signs)

    async def until_exit(self, runner: RunnerId) -> int | None:
        await self.until(lambda: any(told[0] == runner for told in self.exits))
        return next(code for name, code, _ in self.exits if name == runner)


async def until_report(
    probe: Callable[[], Awaitable[ProbeReport]], holds: Callable[[ProbeReport], bool], limit: float = LIMIT
) -> ProbeReport:
    """Probe again and again until a report is as wanted; the last one fails the test otherwise."""
    loop = asyncio.get_running_loop()
    end = loop.time() + limit
    while True:
        report = await probe()
        if holds(report):
            return report
        assert loop.time() < end, f"never as wanted, last: {report}"
        await asyncio.sleep(0.02)


def quiet(report: ProbeReport) -> bool:
    """Whether a report is what a listener without a job must look like, so that idle can be concluded."""
    return (
        report.listing is Listing.COMPLETE
        and report.files is Files.HEALTHY
        and report.listener_alive
        and report.listening
        and (report.workers, report.strangers) == (0, 0)
        and (report.offered_at, report.announced_at) == (None, None)
    )


@contextmanager
def fails_with(kind: type[PortError]) -> Iterator[list[PortError]]:
    """Expect a failure of a kind; the list holds it afterwards."""
    caught: list[PortError] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    else:
        raise AssertionError(f"no {kind.__name__} was raised")


async def started(driver: RuntimeDriver, runner: RunnerId = FIRST) -> tuple[Runtime, Sink, str]:
    """Start a runner and wait until it listens."""
    runtime, sink = driver.runtime(), Sink()
    runtime.attach(sink)
    environment = await runtime.start(StartOrder(runner, driver.pool, STORE, "blob"))
    await sink.until_sign(runner, Sign.LISTENING)
    return runtime, sink, environment


async def a_started_runner_listens_and_is_listed(driver: RuntimeDriver) -> None:
    runtime, sink, environment = await started(driver)
    (found,) = await runtime.list(STORE)
    assert (found.runner, found.environment, found.pool, found.ended) == (
        FIRST,
        environment,
        driver.pool,
        False,
    )
    assert sink.exits == []
    await runtime.close()


async def another_store_sees_nothing(driver: RuntimeDriver) -> None:
    runtime, _, _ = await started(driver)
    assert await runtime.list("contra") == []
    assert await runtime.list("contract-2") == []
    await runtime.close()


async def starting_twice_starts_once(driver: RuntimeDriver) -> None:
    runtime, _, environment = await started(driver)
    assert await runtime.start(StartOrder(FIRST, driver.pool, STORE, "blob")) == environment
    assert len(await runtime.list(STORE)) == 1
    await runtime.close()


async def two_runners_are_two_environments(driver: RuntimeDriver) -> None:
    runtime, _, first = await started(driver)
    second = await runtime.start(StartOrder(SECOND, driver.pool, STORE, "blob"))
    assert first != second
    await driver.begin_job(SECOND)
    await until_report(lambda: runtime.probe(SECOND, second), lambda report: report.workers == 1)
    await until_report(lambda: runtime.probe(FIRST, first), quiet)
    await runtime.close()


async def a_start_that_fails_leaves_nothing(driver: RuntimeDriver) -> None:
    runtime = driver.runtime()
    runtime.attach(Sink())
    with fails_with(Broken) as failures:
        await runtime.start(StartOrder(FIRST, driver.broken_pool, STORE, "blob-secret"))
    assert all("blob-secret" not in str(failure) for failure in failures)
    assert driver.remains(FIRST) == []
    assert await runtime.list(STORE) == []
    await runtime.close()


async def a_probe_tells_idle_from_busy(driver: RuntimeDriver) -> None:
    runtime, sink, environment = await started(driver)
    assert runtime.probes
    await until_report(lambda: runtime.probe(FIRST, environment), quiet)
    await driver.begin_job(FIRST)
    report = await until_report(lambda: runtime.probe(FIRST, environment), lambda each: each.workers == 1)
    assert report.listing is Listing.COMPLETE
    await sink.until(lambda: {sign for _, sign in sink.signs} >= HARD_SIGNS)
    report = await runtime.probe(FIRST, environment)
    assert report.announced_at is not None
    assert report.offered_at is not None
    assert report.ended_at is None
    await driver.end_job(FIRST)
    report = await until_report(lambda: runtime.probe(FIRST, environment), lambda each: each.workers == 0)
    await sink.until_sign(FIRST, Sign.ENDED)
    assert (await runtime.probe(FIRST, environment)).ended_at is not None
    assert sink.exits == []
    await runtime.close()


async def an_exit_is_told_once_with_its_code(driver: RuntimeDriver) -> None:
    runtime, sink, environment = await started(driver)
    await driver.leave(FIRST, 7)
    assert await sink.until_exit(FIRST) == 7
    (found,) = await runtime.list(STORE)
    assert (found.ended, found.code) == (True, 7)
    await runtime.probe(FIRST, environment)
    await runtime.destroy(environment, driver.permit(FIRST, environment, Warrant.ENDED))
    assert len(sink.exits) == 1
    assert driver.remains(FIRST) == []
    await runtime.close()


async def destroying_removes_everything(driver: RuntimeDriver) -> None:
    runtime, sink, environment = await started(driver)
    await runtime.destroy(environment, driver.permit(FIRST, environment, Warrant.IDLE))
    assert driver.remains(FIRST) == []
    assert await runtime.list(STORE) == []
    assert len(sink.exits) <= 1
    await runtime.close()


async def destroying_what_is_gone_is_done_already(driver: RuntimeDriver) -> None:
    runtime, _, environment = await started(driver)
    for _ in range(2):
        await runtime.destroy(environment, driver.permit(FIRST, environment, Warrant.IDLE))
    assert driver.remains(FIRST) == []
    await runtime.close()


async def a_forced_end_takes_the_job_too(driver: RuntimeDriver) -> None:
    runtime, _, environment = await started(driver)
    await driver.begin_job(FIRST)
    await runtime.destroy(environment, driver.permit(FIRST, environment, Warrant.FORCED))
    assert driver.remains(FIRST) == []
    await runtime.close()


async def a_wrong_permit_destroys_nothing(driver: RuntimeDriver) -> None:
    runtime, sink, environment = await started(driver)
    other = await runtime.start(StartOrder(SECOND, driver.pool, STORE, "blob"))
    wrong = (
        driver.permit(FIRST, environment, Warrant.FORCED, expired=True),
        driver.permit(FIRST, environment, Warrant.FORCED, other_life=True),
        driver.permit(FIRST, other, Warrant.FORCED),
        driver.permit(SECOND, environment, Warrant.FORCED),
    )
    for permit in wrong:
        with fails_with(Refused):
            await runtime.destroy(environment, permit)
    assert (await runtime.probe(FIRST, environment)).listener_alive
    assert sink.exits == []
    await runtime.close()


async def what_lives_has_not_ended(driver: RuntimeDriver) -> None:
    """A permit on the ground that all is over ends nothing that is not."""
    runtime, _, environment = await started(driver)
    with fails_with(PortError):
        await runtime.destroy(environment, driver.permit(FIRST, environment, Warrant.ENDED))
    assert (await runtime.probe(FIRST, environment)).listener_alive
    await runtime.close()


async def politeness_only_asks(driver: RuntimeDriver) -> None:
    runtime, sink, environment = await started(driver)
    permit = driver.permit(FIRST, environment, Warrant.OVERDUE, polite=True)
    await runtime.destroy(environment, permit)
    await sink.until_exit(FIRST)
    (found,) = await runtime.list(STORE)
    assert found.ended
    await runtime.close()


async def a_restart_ends_nothing_and_adopts(driver: RuntimeDriver) -> None:
    before, _, environment = await started(driver)
    await driver.begin_job(FIRST)
    await before.close()
    runtime, sink = driver.runtime(), Sink()
    runtime.attach(sink)
    (found,) = await runtime.list(STORE)
    assert (found.environment, found.ended) == (environment, False)
    assert (await runtime.probe(FIRST, environment)).workers == 1
    await runtime.watch(FIRST, driver.pool, environment)
    await sink.until(lambda: {sign for _, sign in sink.signs} >= HARD_SIGNS | {Sign.LISTENING})
    await driver.end_job(FIRST)
    await driver.leave(FIRST, 3)
    assert await sink.until_exit(FIRST) == 3
    assert len(sink.exits) == 1
    await runtime.close()


async def an_exit_meanwhile_is_told_after_the_restart(driver: RuntimeDriver) -> None:
    before, told, environment = await started(driver)
    await driver.leave(FIRST, 5)
    await told.until_exit(FIRST)
    await before.close()
    runtime, sink = driver.runtime(), Sink()
    runtime.attach(sink)
    await runtime.watch(FIRST, driver.pool, environment)
    assert await sink.until_exit(FIRST) == 5
    await runtime.close()


async def nonsense_is_refused(driver: RuntimeDriver) -> None:
    runtime = driver.runtime()
    runtime.attach(Sink())
    with fails_with(PortError):
        await runtime.probe(FIRST, "nonsense")
    with fails_with(PortError):
        await runtime.destroy("nonsense", driver.permit(FIRST, "nonsense", Warrant.FORCED))
    await runtime.close()


CHECKS: tuple[Check, ...] = (
    a_started_runner_listens_and_is_listed,
    another_store_sees_nothing,
    starting_twice_starts_once,
    two_runners_are_two_environments,
    a_start_that_fails_leaves_nothing,
    a_probe_tells_idle_from_busy,
    an_exit_is_told_once_with_its_code,
    destroying_removes_everything,
    destroying_what_is_gone_is_done_already,
    a_forced_end_takes_the_job_too,
    a_wrong_permit_destroys_nothing,
    what_lives_has_not_ended,
    politeness_only_asks,
    a_restart_ends_nothing_and_adopts,
    an_exit_meanwhile_is_told_after_the_restart,
    nonsense_is_refused,
)
