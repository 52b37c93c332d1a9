"""The weathers: how a forge and its runners behave, as data read from ``data/weather.toml``.

The simulator, the forge look-alike and the demo read the same file through this module, so that none of them
can be tuned apart from the others. Nothing here reads a clock or a global random generator: draws take an
explicit :class:`random.Random`.

Units: seconds for durations, shares between 0 and 1 for chances.
"""

from __future__ import annotations

import dataclasses
import math
import random
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal, get_args

SCALED_ABOVE_S = 10.0
"""In real time only durations above this many seconds are shortened (SIMULATION.md, "Weather")."""

RefusesFrom = Literal["assignment", "acquisition"]
OutageKind = Literal["503", "403-rate-limit", "429", "timeout"]

_Z95 = 1.6448536269514722  # the 95 % quantile of the standard normal distribution


class WeatherError(ValueError):
    """The weather file, or the name of a weather, is wrong; the text says where."""


def scale_seconds(seconds: float, factor: float) -> float:
    """Return ``seconds`` as real time has it: divided by ``factor`` if above 10 s, else unchanged."""
    return seconds / factor if seconds > SCALED_ABOVE_S else seconds


@dataclass(frozen=True, slots=True)
class Uniform:
    """A duration drawn evenly between ``lo`` and ``hi`` seconds."""

    lo: float = 0.0
    hi: float = 0.0

    def draw(self, rng: random.Random) -> float:
        """Draw one value in seconds; always consumes exactly one random number."""
        return self.lo + (self.hi - self.lo) * rng.random()

    def scaled(self, factor: float) -> Uniform:
        """Divide both ends by ``factor`` if the range reaches above 10 s in either direction."""
        if max(abs(self.lo), abs(self.hi)) <= SCALED_ABOVE_S:
            return self
        return Uniform(self.lo / factor, self.hi / factor)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """A duration with the median ``p50`` and the 95 % quantile ``p95``, both in seconds."""

    p50: float
    p95: float

    def draw(self, rng: random.Random) -> float:
        """Draw one value in seconds."""
        sigma = math.log(self.p95 / self.p50) / _Z95
        return self.p50 * math.exp(sigma * rng.gauss(0.0, 1.0))

    def scaled(self, factor: float) -> LogNormal:
        """Divide both quantiles by ``factor`` if ``p95`` is above 10 s."""
        if self.p95 <= SCALED_ABOVE_S:
            return self
        return LogNormal(self.p50 / factor, self.p95 / factor)


Spread = Uniform | LogNormal


@dataclass(frozen=True, slots=True)
class Chance:
    """Something that happens with the chance ``share`` and then has a size drawn from ``size`` (seconds)."""

    share: float = 0.0
    size: Uniform = Uniform()

    def draw(self, rng: random.Random) -> float | None:
        """Return the size if it happens this time, else None; always consumes two random numbers."""
        happens = rng.random() < self.share
        size = self.size.draw(rng)
        return size if happens else None

    def scaled(self, factor: float) -> Chance:
        """Scale the size as :meth:`Uniform.scaled` does; the chance stays."""
        return Chance(self.share, self.size.scaled(factor))


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """One weather. Field names are the keys of ``weather.toml``; what each means is said there.

    ``wake_late`` is in none of that file: the chance of an alarm of the daemon to come late, and by how much, as where
    its loop is busy.
    """

    name: str
    burst: tuple[int, int]
    gap: Spread
    job: Spread
    webhook_delay: Spread
    rest_delay: Spread
    assign: Spread
    acknowledge: Spread
    acquire: Spread
    spawn: Spread
    report: Spread
    boot: Spread
    wind_down: Spread
    stop: Spread
    slots: int
    refuses_from: RefusesFrom
    webhook_lost: float = 0.0
    webhook_duplicated: float = 0.0
    cancelled_queued: float = 0.0
    foreign_taken: float = 0.0
    operator_kill: float = 0.0
    sibling_skew: Spread = Uniform()
    webhook_late: Chance = Chance()
    webhook_late_in_outage: Spread = Uniform()
    outage_every: Spread | None = None
    outage_lasts: Spread | None = None
    outage_kind: Mapping[OutageKind, float] = field(default_factory=dict)
    jit_answer_lost: float = 0.0
    busy_flag_lag: Spread = Uniform()
    busy_flag_wrong: float = 0.0
    delete_accepted_while_held: float = 0.0
    registration_404_on_assignment: float = 0.0
    list_omits_runner: float = 0.0
    stop_ignored: float = 0.0
    ghost: float = 0.0
    hang_after_acknowledge: float = 0.0
    wedged_worker: float = 0.0
    exit_without_job: float = 0.0
    completed_while_worker_runs: float = 0.0
    completed_cancelled_then_other_job: float = 0.0
    approval: float = 0.0
    rerun: float = 0.0
    max_parallel: float = 0.0
    probe_fails: float = 0.0
    clock_step: Chance = Chance()
    wake_late: Chance = Chance()
    daemon_crash: float = 0.0

    def scaled(self, factor: float) -> Weather:
        """Return this weather for real time that runs ``factor`` times faster.

        Durations above 10 s are divided by the factor; a range counts as above 10 s when its upper end is,
        and then both of its ends are divided. Shorter ones, counts and chances stay as they are, because the
        program under test pays its real cost for those.
        """
        if factor <= 0:
            raise WeatherError(f"the time scale has to be above 0, not {factor}")
        if factor == 1:
            return self
        changes: dict[str, Any] = {}
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Uniform | LogNormal | Chance):
                changes[item.name] = value.scaled(factor)
        return dataclasses.replace(self, **changes)

    def draw_burst(self, rng: random.Random) -> int:
        """Draw the number of same-label jobs of one burst."""
        return rng.randint(*self.burst)

    def draw_outage_kind(self, rng: random.Random) -> OutageKind:
        """Draw which kind of outage comes, by the weights of ``outage_kind``."""
        kinds = list(self.outage_kind)
        if not kinds:
            raise WeatherError(f"{self.name}: there are no outages in this weather")
        return rng.choices(kinds, weights=list(self.outage_kind.values()))[0]


_FIELDS = {item.name: item for item in dataclasses.fields(Weather) if item.name != "name"}


def load_all(text: str | None = None) -> dict[str, Weather]:
    """Read every weather of the shipped file (or of ``text``), in its order.

    Raises :class:`WeatherError` on syntax errors, unknown or missing keys and values of the wrong shape.
    """
    if text is None:
        text = resources.files("ephemerd.testing").joinpath("data/weather.toml").read_text("utf-8")
    try:
        tables: dict[str, dict[str, Any]] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise WeatherError(f"weather file: {error}") from error
    return {name: _build(name, _flatten(name, tables)) for name in tables}


def load(name: str, text: str | None = None) -> Weather:
    """Read one weather by its name; an unknown name lists the known ones."""
    known = load_all(text)
    try:
        return known[name]
    except KeyError:
        raise WeatherError(f"no weather is called {name!r}; there are: {', '.join(known)}") from None


def _flatten(name: str, tables: Mapping[str, dict[str, Any]], seen: tuple[str, ...] = ()) -> dict[str, Any]:
    """Resolve ``inherits``: the parent's keys first, the table's own on top."""
    if name in seen:
        raise WeatherError(f"{' -> '.join((*seen, name))}: a weather inherits from itself")
    if name not in tables:
        raise WeatherError(f"{seen[-1]}: inherits from {name!r}, which does not exist")
    own = dict(tables[name])
    parent = own.pop("inherits", None)
    if parent is None:
        return own
    return {**_flatten(parent, tables, (*seen, name)), **own}


def _build(name: str, table: Mapping[str, Any]) -> Weather:
    unknown = sorted(set(table) - set(_FIELDS))
    if unknown:
        raise WeatherError(f"{name}: unknown key {unknown[0]!r}")
    values = {key: _value(f"{name}.{key}", str(_FIELDS[key].type), raw) for key, raw in table.items()}
    try:
        return Weather(name=name, **values)
    except TypeError as error:
        raise WeatherError(f"{name}: {error}") from error


def _value(where: str, kind: str, raw: Any) -> Any:
    """Turn one TOML value into the type that the field of :class:`Weather` declares."""
    if kind.startswith("Spread"):
        return _spread(where, raw)
    if kind == "Chance":
        share, lo, hi = _numbers(where, raw, 3)
        return Chance(_share(where, share), _uniform(where, [lo, hi]))
    if kind.startswith("tuple"):
        lo, hi = _numbers(where, raw, 2)
        return (int(lo), int(hi))
    if kind == "float":
        return _share(where, raw)
    if kind == "int" and isinstance(raw, int) and raw > 0:
        return raw
    if kind == "RefusesFrom" and raw in get_args(RefusesFrom):
        return raw
    if kind.startswith("Mapping") and isinstance(raw, dict) and set(raw) <= set(get_args(OutageKind)):
        return {key: _share(f"{where}.{key}", share) for key, share in raw.items()}
    raise WeatherError(f"{where}: {raw!r} is not a value for this key")


def _spread(where: str, raw: Any) -> Spread:
    if isinstance(raw, dict):
        if set(raw) != {"p50", "p95"}:
            raise WeatherError(f"{where}: a log-normal spread has the keys p50 and p95")
        p50, p95 = _numbers(where, [raw["p50"], raw["p95"]], 2)
        if not 0 < p50 < p95:
            raise WeatherError(f"{where}: needs 0 < p50 < p95")
        return LogNormal(p50, p95)
    return _uniform(where, raw)


def _uniform(where: str, raw: Any) -> Uniform:
    lo, hi = _numbers(where, raw, 2)
    if lo > hi:
        raise WeatherError(f"{where}: the lower end {lo} is above the upper end {hi}")
    return Uniform(lo, hi)


def _numbers(where: str, raw: Any, count: int) -> list[float]:
    good = isinstance(raw, list) and len(raw) == count
    if not good or any(isinstance(item, bool) or not isinstance(item, int | float) for item in raw):
        raise WeatherError(f"{where}: expected {count} numbers, not {raw!r}")
    return [float(item) for item in raw]


def _share(where: str, raw: Any) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not 0 <= raw <= 1:
        raise WeatherError(f"{where}: expected a share between 0 and 1, not {raw!r}")
    return float(raw)
