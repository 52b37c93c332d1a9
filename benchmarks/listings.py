"""What listing jobs costs at GitHub and how soon a job is seen, in virtual time.

    python -m benchmarks.listings [--jobs N] [--repositories N] [--json]

Plays a day of traffic (10,000 jobs, 40 repositories, quiet nights and a peak after noon) against one App's 5,000
requests an hour, beside webhooks and by polling; polling at several loads; and an organization of idle repositories.
Beside webhooks once with the forge's list of deliveries, which vouches for them, and once without. Polling once more
where runs do not show what happens to their jobs ("shy"). The model and what it assumes are in
tests/unit/app/traffic.py. Figures and their targets:
  least          what was left of the limit at the worst moment of the day; never below the reserve of a fifth
  listed_a_job   charged calls a job by listings, the list of deliveries among them
  steady_a_job   the same without the first hour, in which everything is read once; 0.05 where deliveries are vouched
                 for, so that with a registration a job, and fences for some, 1.10 calls are enough
  p50_s, p95_s   seconds within which so many of 100 jobs of active repositories are seen; 95 within 15, up to 450
                 jobs an hour; one that was never seen counts with how long it had waited
  idle_pct       charged share of the limit, worst hour after the first, of 100 idle repositories; 2
Exit code 8 where a target is missed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from typing import Any

from tests.unit.app.traffic import RESERVE, Day, Figures, played

LOADS = (50, 150, 300, 450, 600, 900)
SURE = 450
"""Jobs an hour up to which polling within one App's limit sees them in time."""
STEADY, A_DAY = 0.05, 24


def day(jobs: int, repositories: int, *, polled: bool, vouched: bool = True) -> Figures:
    """Play a whole day and an hour for what is left of it."""
    made = Day(repositories, polled=polled, vouched=vouched)
    made.fill(jobs)
    return played(made, 25)


def steady(figures: Figures) -> float:
    """Charged calls a job by listings, the first hour apart."""
    return sum(figures.hours[1:]) / max(1, figures.jobs)


def shown(figures: Figures) -> dict[str, Any]:
    """What is printed of a play."""
    told = {
        "jobs": figures.jobs,
        "seen": figures.seen,
        "p50_s": round(figures.within(50), 1),
        "p95_s": round(figures.p95(), 1),
        "least": figures.least,
        "listed_a_job": round(figures.listing / max(1, figures.jobs), 3),
        "most_an_hour": max(figures.hours),
    }
    return told if len(figures.hours) < A_DAY else told | {"steady_a_job": round(steady(figures), 3)}


def measure(jobs: int, repositories: int) -> tuple[dict[str, Any], list[str]]:
    """Return all figures, and which targets were missed."""
    missed = []
    found: dict[str, Any] = {}
    for name, polled, vouched in (
        ("webhooks", False, True),
        ("webhooks without the list of deliveries", False, False),
        ("poll", True, False),
    ):
        figures = day(jobs, repositories, polled=polled, vouched=vouched)
        found[name] = shown(figures)
        if vouched and steady(figures) > STEADY:
            missed.append(f"{name}: {steady(figures):.3f} charged calls a job")
        if figures.least < figures.limit // RESERVE:
            missed.append(f"{name}: {figures.least} left, less than the reserve")
        if not polled and figures.seen < figures.jobs:
            missed.append(f"{name}: {figures.jobs - figures.seen} jobs were never seen")
    for shy, load in itertools.product((False, True), LOADS):
        made = Day(repositories, polled=True, shy=shy)
        made.fill(2 * load, first=12, last=14)
        figures = played(made, 2)
        name = f"poll at {load} an hour{', shy' if shy else ''}"
        found[name] = shown(figures)
        if load <= SURE and not shy and figures.p95() > 15:
            missed.append(f"{name}: p95 is {figures.p95():.1f} s")
    idle = played(Day(100, polled=True), 6)
    share = max(idle.hours[1:]) / idle.limit * 100
    found["idle_pct"] = round(share, 2)
    if share > 2:
        missed.append(f"100 idle repositories cost {share:.2f} % of the limit")
    return found, missed


def main() -> int:
    """Measure, print, and say whether the targets are met."""
    parser = argparse.ArgumentParser(description="What listing jobs costs at GitHub, in virtual time.")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--repositories", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    found, missed = measure(chosen.jobs, chosen.repositories)
    if chosen.json:
        sys.stdout.write(json.dumps({"figures": found, "missed": missed}) + "\n")
    else:
        for name, figures in found.items():
            sys.stdout.write(f"{name}: {figures}\n")
    for what in missed:
        sys.stderr.write(f"missed: {what}\n")
    return 8 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
