"""Chaos in short: the daemon is killed again and again; `make chaos` plays the long form."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from ephemerd.testing.chaos.adoption import measure_adoption
from ephemerd.testing.chaos.commits import kill_in_commits
from tests.e2e.test_demo import left

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


async def test_jobs_are_run_although_the_daemon_is_killed_again_and_again(tmp_path):
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ephemerd.testing.chaos", "--folder", str(tmp_path / "chaos")),
        *("--jobs", "16", "--kills", "6", "--burst", "4", "--weather", "lossy"),
        *("--commit-kills", "0", "--runners", "0"),
        stdout=pipe,
        stderr=pipe,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    report = json.loads(out)
    promised = {
        "jobs": 16,
        "completed": 16,
        "killed": 0,
        "lost": 0,
        "leaked": 0,
        "escaped": 0,
        "slot_error": 0,
    }
    assert {key: report[key] for key in promised} == promised, err.decode()
    assert report["restarts"] == 6
    assert report["broken_promises"] == []
    deliveries = report["deliveries"]
    assert deliveries["acknowledged"] > 0
    assert (deliveries["missing"], deliveries["twice"], deliveries["never"]) == (0, 0, 0)
    assert left(tmp_path / "chaos") == []


async def test_no_acknowledged_delivery_is_lost_in_a_group_commit(tmp_path):
    told = await kill_in_commits(tmp_path / "commits", kills=12, seed=1)
    assert told.acknowledged > told.kills
    assert (told.lost, told.twice, told.never) == (0, 0, 0)


async def test_two_hundred_live_runners_are_adopted_and_none_is_ended(tmp_path):
    told = await measure_adoption(200, 1, tmp_path / "adoption")
    assert (told.runners, told.adopted, told.destroyed) == (200, 200, 0)
    assert left(tmp_path / "adoption") == []
