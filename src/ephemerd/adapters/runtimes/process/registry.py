"""Where environments are found: by runner in memory, by reference or tag on disk."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from ephemerd.adapters.runtimes.process.environment import Environment
from ephemerd.adapters.runtimes.process.identity import Place, Reference, parse_reference, place_of
from ephemerd.adapters.runtimes.process.launch import reference_of
from ephemerd.adapters.runtimes.process.options import ProcessOptions
from ephemerd.adapters.runtimes.process.processes import Machine, Still, Table, same
from ephemerd.adapters.runtimes.process.removal import runner_of
from ephemerd.adapters.runtimes.process.state import read_exit, read_started, read_tag
from ephemerd.adapters.runtimes.process.tree import Look
from ephemerd.core.events import FoundEnvironment
from ephemerd.domain.ids import RunnerId, is_ours
from ephemerd.domain.verdict import Listing
from ephemerd.ports.errors import Broken, Refused, RetryLater

# A daemon that died in the middle of a start left a parent that has yet to write its first file.
NEWBORN = 5.0


class Registry:
    """Knows every pool's folders. Reads; starts, ends and removes nothing."""

    def __init__(self, options: Mapping[str, ProcessOptions], machine: Machine) -> None:
        self._options = dict(options)
        self._machine = machine
        self._known: dict[str, Environment] = {}

    def reconfigure(self, options: Mapping[str, ProcessOptions]) -> None:
        """Know these settings from now on; a pool that is not among them stays known, for its runners."""
        self._options = {**self._options, **options}  # a new one: threads may be reading the old one

    def options(self, pool: str) -> ProcessOptions:
        """Return a pool's settings; raise `Broken` for a pool without any."""
        try:
            return self._options[pool]
        except KeyError:
            raise Broken(f"no pool {pool!r} with the process runtime is configured") from None

    def options_of(self, environment: Environment) -> ProcessOptions:
        """Return the settings of an environment's pool; any pool's where it is configured no more."""
        found = self._options.get(environment.reference.pool)
        return found if found is not None else next(iter(self._options.values()))

    def place(self, runner: str, pool: str) -> Place:
        """Return where a pool's runner is or would be; raise `Refused` for a name that is none."""
        options = self.options(pool)
        try:
            return place_of(runner, options.work_dir, options.logs_dir)
        except ValueError as error:
            raise Refused(str(error)) from None

    def places(self, runner: str) -> list[Place]:
        """Return every place where a runner of that name may be, or may have been; none for no such name."""
        folders = dict.fromkeys((each.work_dir, each.logs_dir) for each in self._options.values())
        try:
            return [place_of(runner, work_dir, logs_dir) for work_dir, logs_dir in folders]
        except ValueError:
            return []

    def add(self, reference: Reference, place: Place) -> Environment:
        """Hold an environment; what is held already keeps its latches."""
        known = self._known.get(reference.runner)
        if known is not None and known.reference == reference:
            return known
        started = read_started(self._machine, place)
        environment = Environment(reference, place, started.cgroup if started is not None else None)
        held = self._known.setdefault(reference.runner, environment)  # another thread may have been quicker
        if held.reference == reference:
            return held
        self._known[reference.runner] = environment
        return environment

    def forget(self, environment: Environment) -> None:
        if self._known.get(environment.reference.runner) is environment:
            del self._known[environment.reference.runner]

    def resolve(self, text: str) -> Environment:
        """Return the environment that a reference means, whether or not anything of it is left."""
        reference = parse_reference(text)
        if reference is None:
            raise Refused(f"{text[:80]!r} is no environment of the process runtime")
        known = self._known.get(reference.runner)
        if known is not None and known.reference == reference:
            return known
        if not self._options:
            raise Broken("no pool with the process runtime is configured")
        first = self._options.get(reference.pool)
        candidates = [*([first] if first is not None else []), *self._options.values()]
        places = [place_of(reference.runner, each.work_dir, each.logs_dir) for each in candidates]
        for place in places:
            tag = read_tag(place)
            if tag is not None and tag.store == reference.store:
                return self.add(reference, place)
        return self.add(reference, places[0])

    def living(self) -> frozenset[str]:
        return frozenset(self._known)

    def logs(self) -> dict[Path, ProcessOptions]:
        """Return each folder of logs once, with the settings of a pool that keeps its logs there."""
        return {options.logs_dir: options for options in self._options.values()}

    def tagged(self, store: str) -> list[tuple[Place, FoundEnvironment]]:
        """List everything that bears a store's tag; raise `RetryLater` where it cannot be listed whole.

        Whose folder was removed under it bears none any more: while something of it runs it is listed all
        the same, for a job may be running there, and its slot is not free.

        What was started is read before the processes are, so that a young one is never taken for ended.
        Blocks for a millisecond an environment.
        """
        found = []
        for work_dir, logs_dir in dict.fromkeys((o.work_dir, o.logs_dir) for o in self._options.values()):
            for name in _names(work_dir):
                try:
                    place = place_of(name, work_dir, logs_dir)
                except ValueError:
                    continue
                tag = read_tag(place)
                if tag is not None and tag.store == store:
                    found.append((place, reference_of(self._machine, place, tag)))
        still = Still(self._machine)
        seen = {reference.runner for _, reference in found}
        for runner, environment in list(self._known.items()):
            if runner not in seen and environment.reference.store == store and _runs(environment.look(still)):
                found.append((environment.place, environment.reference))
        return [(place, self._describe(still, place, reference)) for place, reference in found]

    def _describe(self, table: Table, place: Place, reference: Reference) -> FoundEnvironment:
        look = self.add(reference, place).look(table)
        if look.listing is Listing.FAILED:
            raise RetryLater(f"the process list cannot be read: {look.detail}")
        return FoundEnvironment(
            runner=RunnerId(reference.runner),
            environment=str(reference),
            pool=reference.pool,
            ended=self._ended(place, reference, look),
            code=read_exit(place),
            leftovers=0 if look.listener else len(look.others),
        )

    def _ended(self, place: Place, reference: Reference, look: Look) -> bool:
        if look.listener or look.workers or look.forks or look.listing is Listing.PARTIAL:
            return False
        if reference.listener is not None:
            return True
        if reference.parent is not None:
            return same(self._machine, reference.parent) is None
        try:
            return abs(time.time() - (place.state / "runner.json").stat().st_mtime) > NEWBORN
        except OSError:
            return True

    def trash(self, store: str) -> list[tuple[str, Path]]:
        """Return the runners and folders of a store that were never made whole, or not removed whole."""
        found = []
        for work_dir in dict.fromkeys(options.work_dir for options in self._options.values()):
            for name in _names(work_dir):
                runner = runner_of(name)
                if runner is not None and _was_ours(work_dir / name, runner, store):
                    found.append((runner, work_dir / name))
        return found


def _runs(look: Look) -> bool:
    """Say whether anything of an environment but its parent is there, or cannot be seen."""
    return look.listing is Listing.FAILED or look.listener or bool(look.all)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RetryLater(f"{folder} cannot be listed: {error.strerror}") from None


def _was_ours(folder: Path, runner: str, store: str) -> bool:
    """The name says it, also where the tag is not written yet, or gone already."""
    if is_ours(runner, store):
        return True
    tag = read_tag(Place(folder, folder), runner)
    return tag is not None and tag.store == store
