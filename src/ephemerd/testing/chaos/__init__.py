"""Chaos: look-alike, daemon and real processes in rough weather, while the daemon is killed again and again.

``python -m ephemerd.testing.chaos`` (``make chaos``) plays it, kills a committing store besides, measures the adoption
of many runners after a death, and prints one JSON object.
"""

from __future__ import annotations

from ephemerd.testing.chaos.options import ChaosOptions, ChaosReport
from ephemerd.testing.chaos.play import run_chaos

__all__ = ["ChaosOptions", "ChaosReport", "run_chaos"]
