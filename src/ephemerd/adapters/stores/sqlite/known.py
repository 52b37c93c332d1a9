"""Which delivery ids a store may have. What is not known here is certainly not in the store, so that for nearly every
delivery, which is new, nobody has to look there.

A Bloom filter in a fixed piece of memory: it says "perhaps" of what was added and, seldom, of what was not; never "no"
of what was added. Ids that the store has forgotten stay until it is filled anew.
"""

from __future__ import annotations

from ephemerd.ports.store import DeliveryId

BITS = 1 << 23
"""1 MiB. With half a million ids, two weeks of ten thousand jobs a day, one new id of four hundred is looked up."""
PROBES = 4
MOST = 1 << 19
"""Ids after which it is filled anew, from what the store has by then."""


class Known:
    """The ids that a store may have; `whole` once all that it had were added."""

    def __init__(self) -> None:
        self._bits = bytearray(BITS // 8)
        self.added = 0
        self.whole = False

    def add(self, delivery: DeliveryId) -> None:
        """Say "perhaps" of it from now on."""
        self.added += 1
        for place in _places(delivery):
            self._bits[place >> 3] |= 1 << (place & 7)

    def __contains__(self, delivery: DeliveryId) -> bool:
        """Say whether the store may have it."""
        if not self.whole:
            return True
        bits = self._bits
        return all(bits[place >> 3] >> (place & 7) & 1 for place in _places(delivery))


def _places(delivery: DeliveryId) -> list[int]:
    """Return as many places as there are probes, all drawn from one hash."""
    mixed = hash(delivery)
    step = mixed >> 32 | 1
    return [(mixed + number * step) % BITS for number in range(PROBES)]
