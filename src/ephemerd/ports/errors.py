"""Exceptions that adapters raise, one per remedy, and their form as an event carries it."""

from __future__ import annotations

from ephemerd.domain.errors import Fault, Remedy


class PortError(Exception):
    """A call of a port failed; the subclass says what to do. The message never holds a secret."""

    remedy = Remedy.RETRY

    def __init__(self, detail: str, *, after_ms: int | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.after_ms = after_ms

    def fault(self) -> Fault:
        """Return the failure as plain data."""
        return Fault(self.remedy, self.detail, self.after_ms)


class RetryLater(PortError):
    """No answer or a passing failure: the call may have happened."""


class Limited(RetryLater):
    """A rate limit was hit; `after_ms` says how long the whole scope waits."""

    remedy = Remedy.LIMITED


class NotSent(PortError):
    """Held back by ourselves to stay within a budget: nothing was sent, and the forge did not say anything."""

    remedy = Remedy.LIMITED


class Refused(PortError):
    """The request is wrong as it stands; repeating it does not help."""

    remedy = Remedy.REFUSED


class NameTaken(Refused):
    """The name is registered already; `registration` is its id where a look-up found it."""

    def __init__(self, detail: str, registration: int | None) -> None:
        super().__init__(detail)
        self.registration = registration


class Gone(PortError):
    """Not there, or not to be seen by us."""

    remedy = Remedy.GONE


class Denied(PortError):
    """A credential is missing, wrong or too weak."""

    remedy = Remedy.DENIED


class Unseen(Denied):
    """One thing of several is not there, or hidden from the credential, which is good for others all the same."""


class Broken(PortError):
    """The environment cannot do it: application missing, disk full, no such user."""

    remedy = Remedy.BROKEN


class NotStored(Exception):
    """A commit failed; nothing of it is in the store. Drop the memory, reload, answer 503."""


class NewerStore(Exception):
    """The database was written by a newer version; the message says which and what to do."""


class StoreHeld(Exception):
    """Another daemon has this store open."""
