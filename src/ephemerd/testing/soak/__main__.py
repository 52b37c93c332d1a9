"""`python -m ephemerd.testing.soak`: is memory flat over so many jobs? Code 8 where it is not."""

from __future__ import annotations

import argparse
import json
import logging
import sys

from ephemerd.testing.soak.run import DAYS, FLAT, Sample, soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ephemerd.testing.soak", description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000, help="how many jobs (default 100,000)")
    parser.add_argument("--days", type=float, default=DAYS, help="virtual days over which they arrive")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    chosen = parser.parse_args()
    if chosen.jobs < 100:
        parser.error("--jobs must be 100 or more")
    logging.disable(logging.WARNING)

    def progress(sample: Sample) -> None:
        held = f"{sample.rss / 1024**2:.1f} MiB, {sample.blocks:,} blocks"
        sys.stderr.write(f"{sample.jobs:,} of {chosen.jobs:,} jobs: {held}\n")

    result = soak(chosen.jobs, days=chosen.days, seed=chosen.seed, progress=progress)
    plain = result.plain()
    for measure in ("rss_mib", "blocks"):
        if abs(plain[measure]["change_pct"]) > FLAT:
            result.problems.append(f"{measure} changed by {plain[measure]['change_pct']} % after warm-up")
    if chosen.json:
        sys.stdout.write(json.dumps(plain) + "\n")
    else:
        for key, value in plain.items():
            sys.stdout.write(f"{key}: {value}\n")
    return 8 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
