"""Something that listens on another machine's network: TCP on every address, IPv4 and IPv6, until it is stopped."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

PROGRAM = """
import socket, sys
with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64) as server:
    print(server.getsockname()[1], flush=True)
    while True:
        server.accept()[0].close()
"""


@contextmanager
def listening(enter: Sequence[str]) -> Iterator[int]:
    """Listen behind a command that enters a network; yield the port."""
    with subprocess.Popen(
        [*enter, sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        try:
            yield int(program.stdout.readline())
        finally:
            program.kill()
