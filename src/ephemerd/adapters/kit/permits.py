"""Whether a permit allows what it is presented for: the same for every runtime."""

from __future__ import annotations

from ephemerd.domain.permit import Permit
from ephemerd.ports.errors import Refused


def check(permit: Permit, environment: str, runner: str, *, now: int, epoch: str) -> None:
    """Refuse a permit that names something else, is of another process life, or has expired.

    now     the shell clock, ms
    epoch   this process life
    """
    if permit.environment != environment or permit.runner != runner:
        raise Refused("the permit names another environment")
    if permit.epoch != epoch:
        raise Refused("the permit belongs to another process life")
    if now > permit.expires:
        raise Refused("the permit has expired")
