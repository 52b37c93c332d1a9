"""`python -m ephemerd.testing.bench.eager CONFIG`: the daemon as `serve` runs it, except that its listings do not keep
to so many requests in a minute. How fast it could read is measured; how fast it may, is written in `app.spending`."""

from __future__ import annotations

import sys
from pathlib import Path

from ephemerd.app import spending
from ephemerd.config.effective import load_settings
from ephemerd.serving import Wishes, serve

BOUNDS = ("REQUESTS", "LIVELY_REQUESTS")


def lift() -> None:
    """Lift the bounds, in this process alone."""
    for name in BOUNDS:
        if not hasattr(spending, name):
            raise AttributeError(f"app.spending has no {name} any more; lift what stands for it")
        setattr(spending, name, 1_000_000)


if __name__ == "__main__":
    lift()
    sys.exit(serve(load_settings(Path(sys.argv[1]), {}), Wishes(log_format="json")))
