"""`webhooks` of `bench` at a small size: both programs run, everything is acknowledged and stored."""

from __future__ import annotations

import json

import pytest

from ephemerd.cli.main import run
from ephemerd.testing.bench import webhooks

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_deliveries_are_sent_acknowledged_and_counted(monkeypatch, capsys):
    monkeypatch.setattr(webhooks, "RUNS", 1)
    monkeypatch.setattr(webhooks, "DELIVERIES", 60)
    monkeypatch.setattr(webhooks, "WARM", 30)
    code = run(["bench", "--only", "webhooks", "--json"])
    out = capsys.readouterr().out
    figures = {one["name"]: one for one in json.loads(out)["benchmarks"]}
    assert figures["webhooks.lost"]["value"] == figures["webhooks.refused"]["value"] == 0
    assert figures["webhooks"]["baseline"] > 0
    assert code in (0, 8)


def test_a_name_that_is_none_is_said_with_all_that_are(capsys):
    assert run(["bench", "--only", "speed"]) == 2
    assert "webhooks, core, sweep" in capsys.readouterr().err
