"""Which part of a range a runner's network gets. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network, ip_network

SIZE = 29
"""Six addresses: the gateway's, the runner's, and room for a service beside it."""


def free_subnets(text: str, taken: Iterable[str], runner: str) -> Iterator[str]:
    """Yield parts of a range that nothing overlaps, beginning somewhere that differs from runner to runner, so
    that two starts at once seldom meet."""
    whole = ip_network(text)
    assert isinstance(whole, IPv4Network)
    networks = (ip_network(each, strict=False) for each in taken)
    used = [network for network in networks if isinstance(network, IPv4Network)]
    count = 1 << max(SIZE - whole.prefixlen, 0)
    begin = int.from_bytes(hashlib.sha256(runner.encode()).digest()[:4], "big") % count
    step = 1 << (32 - SIZE)
    for number in range(count):
        base = int(whole.network_address) + (begin + number) % count * step
        part = IPv4Network((base, SIZE))
        if not any(part.overlaps(each) for each in used):
            yield str(part)
