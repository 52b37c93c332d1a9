"""Which delivery ids a store may have. What is not known here is certainly not in the store, so that for nearly every
delivery, which is new, nobody has to look there.

A Bloom filter in a fixed piece of memory: it says "perhaps" of what was added and, seldom, of what was not; never "no"
of what was added. Ids that the store has forgotten stay until it is filled anew.
"""

from __future__ import annotations

from ephemerd.ports.store import DeliveryId

BITS = 1 << 23
"""1 MiB. With half a million ids, two weeks of ten thousand jobs a day, one new id of two hundred is looked up."""
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
        bits = self._bits
        one, two, three = _places(delivery)
        bits[one >> 3] |= 1 << (one & 7)
        bits[two >> 3] |= 1 << (two & 7)
        bits[three >> 3] |= 1 << (three & 7)

    def __contains__(self, delivery: DeliveryId) -> bool:
        """Say whether the store may have it."""
        if not self.whole:
            return True
        bits = self._bits
        one, two, three = _places(delivery)
        found = bits[one >> 3] >> (one & 7) & bits[two >> 3] >> (two & 7) & bits[three >> 3] >> (three & 7)
        return bool(found & 1)


def _places(delivery: DeliveryId) -> tuple[int, int, int]:
    """Return three places, drawn from different bits of one hash. This is done twice a delivery, so without a loop."""
    mixed = hash(delivery)
    return mixed % BITS, (mixed >> 20) % BITS, (mixed >> 40) % BITS
