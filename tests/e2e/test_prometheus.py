"""What `contrib/` holds is true: promtool accepts the rules, each metric exists, and a real Prometheus that scrapes a
running daemon evaluates every rule and every query of the dashboard."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as families

from ephemerd.adapters.telemetry.metrics import Metrics
from ephemerd.ports.views import StorageView
from tests.e2e.serving import Site, free_port, until
from tests.unit.adapters.telemetry import test_metrics as example

pytestmark = pytest.mark.e2e
CONTRIB = Path(__file__).resolve().parents[2] / "contrib"
PROMETHEUS = CONTRIB / "prometheus"
RULES, RULES_TEST = PROMETHEUS / "ephemerd.rules.yml", PROMETHEUS / "ephemerd.rules.test.yml"
DASHBOARD = json.loads((CONTRIB / "grafana" / "ephemerd.json").read_text(encoding="utf-8"))


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name} here (make system installs it as root on Debian)")
    return found


def promtool(*arguments: str, folder: Path = PROMETHEUS) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program("promtool"), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def queries() -> list[str]:
    """Every query of the dashboard, with what Grafana would put in for its variables."""
    found = [query["expr"] for panel in DASHBOARD["panels"] for query in panel.get("targets", [])]
    values = {"$instance": ".*", "$__rate_interval": "1m", "$__range": "1h"}
    for name, value in values.items():
        found = [query.replace(name, value) for query in found]
    return found


def known() -> set[str]:
    """The names of all samples that the code makes, by a snapshot that holds something of everything."""
    metrics = Metrics(example.KNOWN)
    measured = StorageView(total=1, reusable=1, disk_free=1, oldest=1)
    metrics.show(lambda: replace(example.SNAPSHOT, status=replace(example.STATUS, storage=measured)))
    text, _ = metrics.text(example.OPEN)
    ends = {
        "counter": ("_total",),
        "histogram": ("_bucket", "_sum", "_count"),
        "info": ("_info",),
        "gauge": ("",),
    }
    return {f"{one.name}{end}" for one in families(text.decode()) for end in ends[one.type]}


def named(text: str) -> set[str]:
    return set(re.findall(r"\bephemerd_[a-z_]+\b", text))


def test_each_metric_that_is_named_exists():
    there = known()
    for text in (RULES.read_text(), RULES_TEST.read_text(), "\n".join(queries()), json.dumps(DASHBOARD)):
        assert named(text) - there == set()
        assert len(named(text)) > 10
    assert named("rate(ephemerd_tpyo_total[1m])") - there == {"ephemerd_tpyo_total"}


def test_promtool_accepts_rules_and_example():
    for arguments in (["check", "rules", "--lint-fatal", RULES.name], ["check", "config", "prometheus.yml"]):
        done = promtool(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "ephemerd.rules.yml" in (PROMETHEUS / "prometheus.yml").read_text()


def test_each_alert_fires_where_it_should_and_nowhere_else(tmp_path):
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text())
    assert len(alerts) == len(set(alerts)) > 15
    fired = re.findall(r'alertname="(\w+)"', RULES_TEST.read_text())
    assert set(fired) == set(alerts)
    done = promtool("test", "rules", RULES_TEST.name)
    assert done.returncode == 0, done.stdout + done.stderr
    # The check can fail: with a rule that was made blind.
    shutil.copy(RULES_TEST, tmp_path)
    assert RULES.read_text().count("_accounting_difference != 0") == 1
    blind = RULES.read_text().replace("_accounting_difference != 0", "_accounting_difference > 9")
    (tmp_path / RULES.name).write_text(blind)
    assert promtool("test", "rules", RULES_TEST.name, folder=tmp_path).returncode != 0


def test_the_dashboard_is_whole():
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(numbers) == len(set(numbers))
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["description"]
            assert panel["targets"]
            assert all(one["datasource"]["uid"] == "${datasource}" for one in [panel, *panel["targets"]])


@pytest.fixture
def scraped(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scraped]:
    """A running daemon, and a Prometheus that scrapes it by the example's configuration."""
    program("prometheus")
    port = free_port()
    monkeypatch.setenv("EPHEMERD_SERVER__METRICS_LISTEN", f"127.0.0.1:{port}")
    site = Site(tmp_path_factory.mktemp("s"))
    try:
        made = Scraped(site, tmp_path_factory.mktemp("p"), port)
        try:
            yield made
        finally:
            made.close()
    finally:
        site.close()


class Scraped:
    """The two programs; `get` asks Prometheus' own API."""

    def __init__(self, site: Site, folder: Path, target: int) -> None:
        self.site = site
        self.folder = folder
        self.url = f"http://127.0.0.1:{free_port()}"
        text = (PROMETHEUS / "prometheus.yml").read_text()
        assert text.count("127.0.0.1:9464") == 1
        text = text.replace("127.0.0.1:9464", f"127.0.0.1:{target}").replace(": 15s", ": 1s")
        (folder / "prometheus.yml").write_text(text)
        shutil.copy(RULES, folder)
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    program("prometheus"),
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address={self.url.removeprefix('http://')}",
                ],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def get(self, path: str, **query: str) -> Any:
        assert self.process.poll() is None, (self.folder / "log").read_text()
        try:
            answer = self.site.web.get(f"{self.url}/api/v1/{path}", params=query, timeout=30)
        except httpx2.TransportError:
            return None  # not listening yet
        if answer.status_code == 503:
            return None
        body = answer.json()
        assert body["status"] == "success", (query, body)
        return body["data"]

    def value(self, query: str) -> float | None:
        found = self.get("query", query=query)
        return float(found["result"][0]["value"][1]) if found and found["result"] else None

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)


def test_a_real_prometheus_scrapes_a_running_daemon(scraped):
    until(lambda: scraped.value('up{job="ephemerd"}') == 1, 120)
    scraped.site.queue(2)
    scraped.site.completed(2)
    until(lambda: scraped.value('ephemerd_jobs_finished_total{conclusion="success",pool="linux"}') == 2, 120)
    until(lambda: scraped.value("histogram_quantile(0.95, ephemerd_job_duration_seconds_bucket)"), 120)

    told = {row["__name__"] for row in scraped.get("series", **{"match[]": '{job="ephemerd"}'})}
    for expected in named(RULES.read_text()) | named("\n".join(queries())):
        optional = expected.startswith(("ephemerd_store_", "ephemerd_probe_", "ephemerd_forge_rate_"))
        assert expected in told or optional, expected

    def judged() -> list[dict[str, Any]]:
        groups = (scraped.get("rules") or {"groups": []})["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        return rules if rules and all(rule["health"] != "unknown" for rule in rules) else []

    rules = until(judged, 120)
    assert {rule["name"] for rule in rules} == set(re.findall(r"- alert: (\w+)", RULES.read_text()))
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []
    assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []
    for query in queries():
        assert scraped.get("query", query=query) is not None, query
