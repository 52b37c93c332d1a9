"""Benchmarks that start programs, at a small size: all of them run, and what they say is of what happened."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from ephemerd.cli.main import run
from ephemerd.testing.bench import api, dispatch, reconcile, webhooks
from ephemerd.testing.demo.containers import Containers
from ephemerd.testing.demo.options import DemoError

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def measured(capsys, name):
    """Run one benchmark; its figures by name. Whether they are good is nobody's question here."""
    code = run(["bench", "--only", name, "--json"])
    assert code in (0, 8)
    return {one["name"]: one for one in json.loads(capsys.readouterr().out)["benchmarks"]}


def test_deliveries_are_sent_acknowledged_and_counted(monkeypatch, capsys):
    monkeypatch.setattr(webhooks, "RUNS", 1)
    monkeypatch.setattr(webhooks, "DELIVERIES", 60)
    monkeypatch.setattr(webhooks, "WARM", 30)
    figures = measured(capsys, "webhooks")
    assert figures["webhooks.lost"]["value"] == figures["webhooks.refused"]["value"] == 0
    assert figures["webhooks"]["baseline"] > 0


def test_runners_are_started_beside_bare_processes_and_no_engine_is_no_failure(monkeypatch, capsys):
    def none(_):
        raise DemoError("no containers: none here", "start Docker", 5)

    monkeypatch.setattr(dispatch, "RUNS", 1)
    monkeypatch.setattr(dispatch, "AT_ONCE", {1: 2, 3: 1})
    monkeypatch.setattr(Containers, "open", none)
    monkeypatch.setattr(dispatch, "shutil", SimpleNamespace(which=lambda name: name))
    figures = measured(capsys, "dispatch")
    assert list(figures) == ["dispatch.process_1", "dispatch.process_3", "dispatch.docker"]
    assert figures["dispatch.process_3"]["value"] > 0
    assert figures["dispatch.process_3"]["baseline"] > 0
    assert figures["dispatch.docker"]["note"] == "skipped: no containers: none here"


def test_every_job_is_read_from_the_look_alike_and_from_memory(monkeypatch, capsys):
    monkeypatch.setattr(reconcile, "RUNS", 1)
    monkeypatch.setattr(reconcile, "REPOSITORIES", 3)
    monkeypatch.setattr(reconcile, "JOBS_OF_EACH", 2)
    figures = measured(capsys, "reconcile")
    assert figures["reconcile"]["note"].startswith("12 jobs, 3 repositories, ")
    assert figures["reconcile.replayed"]["value"] > 0
    assert figures["reconcile.cpu"]["value"] > 0


def test_jobs_run_while_the_api_and_the_dashboard_are_read(monkeypatch, capsys):
    monkeypatch.setattr(api, "RUNS", 1)
    monkeypatch.setattr(api, "SECONDS", 0.5)
    monkeypatch.setattr(api, "WARM_S", 0.5)
    figures = measured(capsys, "api")
    assert figures["api"]["value"] > 0
    assert figures["api.pages"]["value"] > 0
    assert figures["api.p99"]["baseline"] > 0
    assert figures["api.refused"]["value"] == 0


def test_a_name_that_is_none_is_said_with_all_that_are(capsys):
    assert run(["bench", "--only", "speed"]) == 2
    assert "webhooks, core, dispatch" in capsys.readouterr().err
