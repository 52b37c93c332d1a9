"""What the loop reports when there are no file descriptors left: said once in a while, and by health.

The loop takes a listening socket out of its hands for a second then and tries again, so connections wait. It
reports each attempt, several hundred a second.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from ephemerd.app.daemon import Pulse
from ephemerd.domain.pool import SECOND
from ephemerd.ports.system import Clock

logger = logging.getLogger(__name__)

SAID_EVERY = 10 * SECOND
ACCEPT = "socket.accept() out of system resource"


class Exhaustion:
    """The loop's exception handler; everything else goes on to the loop's own."""

    def __init__(self, pulse: Pulse, clock: Clock) -> None:
        self._pulse = pulse
        self._clock = clock
        self._said: int | None = None

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if context.get("message") != ACCEPT:
            loop.default_exception_handler(context)
            return
        now = self._pulse.exhausted = self._clock.now()
        if self._said is None or now - self._said >= SAID_EVERY:
            self._said = now
            logger.warning(
                "connections wait: no file descriptors or memory left for them",
                extra={"fields": {"error": str(context.get("exception", ""))}},
            )
