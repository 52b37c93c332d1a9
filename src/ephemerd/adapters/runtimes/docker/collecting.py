"""Which images may go: those that our runners used, least recently used first. Pure.

Two triggers: unused for too long, or too much in all. An image that a container still uses, or that a pool is made
of, never goes; what others brought to the engine is not looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Known:
    """An image that our runners used. `used` is when, in s since 1970; `size` bytes."""

    id: str
    name: str
    size: int
    used: float


@dataclass(frozen=True, slots=True)
class Removal:
    """An image that goes, and why."""

    image: Known
    reason: str


def plan(
    images: Sequence[Known], kept: Collection[str], *, now: float, unused: float, size: int
) -> list[Removal]:
    """Return what goes, least recently used first.

    kept     ids of images that a container uses or a pool is made of
    unused   seconds after which an image that nobody used goes
    size     bytes that all of ours may take
    """
    total = sum(image.size for image in images)
    found = []
    for image in sorted(images, key=lambda each: (each.used, each.id)):
        if image.id in kept:
            continue
        if now - image.used > unused:
            reason = f"unused for {(now - image.used) / 86_400:.1f} days"
        elif total > size:
            reason = f"all images together take {total} bytes, {size} are allowed"
        else:
            continue
        found.append(Removal(image, reason))
        total -= image.size
    return found
