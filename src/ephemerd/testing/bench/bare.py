"""`python -m ephemerd.testing.bench.bare CONFIG`: the webhook port of the daemon, signature and parsing included, and
nothing behind it: each delivery is answered as if it were stored. What the store costs is the difference."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path

from ephemerd.app.inbox import Fate, Inbox, Receipt
from ephemerd.bootstrap import build
from ephemerd.config.effective import load_settings
from ephemerd.core.events import Event
from ephemerd.ports.store import DeliveryId
from ephemerd.serving import look_for_garbage_seldom
from ephemerd.web.server import Listener, bind_tcp
from ephemerd.web.webhooks import webhook_app

STORED = Receipt(Fate.STORED)


class Nowhere(Inbox):
    """An inbox that acknowledges at once."""

    def offer(
        self, event: Event, *, delivery: DeliveryId | None = None, body: bytes = b""
    ) -> asyncio.Future[Receipt]:
        reply: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        reply.set_result(STORED)
        return reply


async def serve(config: Path) -> None:
    """Serve until SIGTERM."""
    effective = load_settings(config, {})
    parts = build(effective)
    parts.intake.inbox = Nowhere()
    host, _, port = str(effective.settings.server.webhook_listen).rpartition(":")
    listener = Listener("webhooks", webhook_app(parts.intake, parts.queries), bind_tcp(host, int(port)))
    look_for_garbage_seldom()
    await listener.start()
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    await over.wait()
    await listener.stop()


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    asyncio.run(serve(Path(sys.argv[1])))
