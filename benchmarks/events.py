"""What fifty followers of the event stream cost the daemon, at ten events a second.

    python -m benchmarks.events [--clients N] [--rate N] [--seconds S] [--json]

The daemon's loop over a store in memory commits deliveries at that rate, and serves `/api/v1/events` on a loopback port
behind the door with tokens; the followers are a process of their own. Measured is the processor time of the daemon's
process with followers less that without, as a share of one core (target 10 %). Exit code 8 where it is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ephemerd.app.feed import Feed
from ephemerd.app.operator import Operator
from ephemerd.app.queries import Queries
from ephemerd.app.sessions import Failures, Sessions
from ephemerd.app.tokens import Tokens
from ephemerd.ports.access import Role
from ephemerd.web.access import Keys, WithTokens
from ephemerd.web.api import Api
from ephemerd.web.server import Listener, bind_tcp
from tests.unit.app.test_daemon import House
from tests.unit.app.test_tokens import MemoryShelf

TARGET = 10.0
FOLLOW = """
import asyncio, sys

async def follow(host, port, token, number):
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET /api/v1/events HTTP/1.1\\r\\nhost: x\\r\\nauthorization: Bearer {token}\\r\\n\\r\\n".encode())
    while line := await reader.readline():
        if line.startswith(b"retry"):
            print("following", flush=True)

async def main():
    host, port, count, token = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.stdin.readline().strip()
    await asyncio.gather(*(follow(host, port, token, number) for number in range(count)))

asyncio.run(main())
"""


@asynccontextmanager
async def followers(host: str, port: int, count: int, token: str) -> AsyncIterator[None]:
    """Have so many followers connected, in another process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", FOLLOW, host, str(port), str(count)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(f"{token}\n".encode())
        for _ in range(count):
            async with asyncio.timeout(60):
                assert await process.stdout.readline() == b"following\n"
        yield
    finally:
        process.terminate()
        await process.wait()


async def load(house: House, rate: float, seconds: float, first: int) -> float:
    """Commit deliveries at that rate; return the processor time of this process in seconds meanwhile."""
    began, clock = time.process_time(), asyncio.get_running_loop().time
    start = clock()
    for number in range(round(rate * seconds)):
        await asyncio.sleep(max(0.0, start + number / rate - clock()))
        await house.report(number=first + number)
    return time.process_time() - began


async def measure(clients: int, rate: float, seconds: float) -> dict[str, float]:
    async with House() as house:
        tokens = Tokens(MemoryShelf(), house.clock.now)
        token = tokens.create("bench", Role.READ, None).token
        keys = Keys(tokens, Sessions(house.clock.now, tokens.holds), Failures(house.clock.now), "c")
        feed = Feed(house.daemon)
        api = Api(
            Queries(house.daemon, "0"), Operator(house.daemon), lambda _: (b"", "text/plain"), feed=feed
        )
        listener = Listener("bench", WithTokens(api.app(), keys), bind_tcp("127.0.0.1", 0))
        await listener.start()
        host, port = listener.sock.getsockname()
        await load(house, rate, 2.0, 1)
        before = feed.newest
        alone = await load(house, rate, seconds, 10_000)
        entries = feed.newest - before
        async with followers(host, port, clients, token):
            followed = await load(house, rate, seconds, 20_000)
        feed.close()
        await listener.stop()
    return {
        "clients": clients,
        "entries_per_s": round(entries / seconds, 1),
        "alone_pct": round(100 * alone / seconds, 2),
        "followed_pct": round(100 * followed / seconds, 2),
        "cost_pct": round(100 * (followed - alone) / seconds, 2),
        "target_pct": TARGET,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = asyncio.run(measure(given.clients, given.rate, given.seconds))
    if given.json:
        sys.stdout.write(f"{json.dumps(found)}\n")
    else:
        for name, value in found.items():
            sys.stdout.write(f"{name:15} {value}\n")
    return 0 if found["cost_pct"] <= TARGET else 8


if __name__ == "__main__":
    sys.exit(main())
