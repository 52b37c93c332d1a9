"""JIT credentials, held by runner id from the registration to the start: in memory, nowhere else."""

from __future__ import annotations

from ephemerd.domain.ids import RunnerId
from ephemerd.ports.forge import Registration


class Credentials:
    """Holds what registering gave until it is used once. No repr shows it; nothing is written down."""

    def __init__(self) -> None:
        self._held: dict[RunnerId, Registration] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, runner: RunnerId) -> bool:
        return runner in self._held

    def keep(self, runner: RunnerId, registration: Registration) -> None:
        """Hold a fresh registration until its runner starts."""
        self._held[runner] = registration

    def registration(self, runner: RunnerId) -> int | None:
        """Return the registration's id where its credential is still held unused."""
        held = self._held.get(runner)
        return held.id if held else None

    def take(self, runner: RunnerId) -> str | None:
        """Hand the credential over and forget it; None where it is lost or was used."""
        held = self._held.pop(runner, None)
        return held.credential if held else None

    def drop(self, runner: RunnerId) -> None:
        """Forget the credential of a runner that will not start."""
        self._held.pop(runner, None)
