"""What is known of the runner application of one scope, and how it is told to people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ephemerd.app.versions import RETIRE_BEFORE, refused_from, start_of, used_at
from ephemerd.core.spans import span
from ephemerd.domain.ids import Scope
from ephemerd.domain.pool import DAY, SECOND
from ephemerd.domain.runner import Runner
from ephemerd.ports.applications import Ends, Unpacked, Use
from ephemerd.ports.views import ApplicationView

OLD_NEWS = DAY
"""ms for which a list that cannot be read is nobody's trouble."""
FETCHING = "its runner application is being fetched"


@dataclass(slots=True)
class Source:
    """What is known of the runner application of one scope. `due` is a time of the loop, the others ms.

    refused   versions that the forge was seen to refuse
    failing   since when it could not be renewed; None where it could
    """

    scope: Scope
    uses: list[Use] = field(default_factory=list)
    current: Unpacked | None = None
    listed: str = ""
    ends: dict[str, Ends] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    problem: str = ""
    failures: int = 0
    failing: int | None = None
    checked: int | None = None
    due: float = 0.0
    progress: tuple[int, int] | None = None

    def missing(self) -> str:
        """Say why there is nothing to start runners from; "" where there is."""
        if self.current is not None:
            return ""
        if not self.problem:
            return FETCHING
        return f"its runner application could not be fetched ({self.problem}); it is tried again by itself"

    def ending(self, row: Runner, at_hand: Mapping[str, Unpacked], now: int) -> Unpacked | None:
        """Return the older version that a runner was made from, where the forge refuses it or soon will."""
        key = used_at(self.uses, start_of(row))
        if key is None or self.current is None or key == self.current.key:
            return None
        ends = refused_from(self.uses, key, self.ends)
        due = key in self.refused or (ends is not None and now >= ends - RETIRE_BEFORE)
        return at_hand.get(key) if due else None

    def view(self, now: int, pools: tuple[str, ...], versions: tuple[str, ...]) -> ApplicationView:
        """Show it; `versions` are all that are at hand."""
        current = self.current
        return ApplicationView(
            scope=str(self.scope),
            pools=pools,
            version=current.version if current is not None else "",
            folder=str(current.folder) if current is not None else "",
            verified=current.verified if current is not None else None,
            age_s=None if current is None else max(0, now - current.at) / SECOND,
            listed=self.listed,
            checked=self.checked,
            refused_from=None if current is None else refused_from(self.uses, current.key, self.ends),
            problem=self.problem,
            fetched=self.progress[0] if self.progress else None,
            fetching=self.progress[1] if self.progress else None,
            versions=versions,
        )

    def reason(self, now: int, rests: bool) -> str:
        """Say what needs attention and what to do; "" where nothing does. What keeps pools from starting runners at
        all is said by the core. `rests`: the forge refused the version in use."""
        current = self.current
        if current is None:
            return ""
        if rests and current.key in self.refused and self.listed == current.version:
            return (
                f"{self.scope} refuses runner application {current.version}, which is the newest one that it lists: "
                "there is nothing to change here. Look at the forge's status page; its list is asked every 10 min."
            )
        if self.failing is not None and now - self.failing >= OLD_NEWS:
            return (
                f"The runner application of {self.scope} could not be renewed for {span(now - self.failing)} "
                f"({self.problem}); version {current.version} is in use, and is refused about a month after the next "
                "one came. Let the daemon reach that address, or unpack one by hand and name it in runner.application."
            )
        return ""
