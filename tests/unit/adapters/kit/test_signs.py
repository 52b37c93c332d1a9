"""Lines of the listener's output, performance file and diagnostics."""

from __future__ import annotations

import pytest

from ephemerd.adapters.kit.signs import (
    detail_of,
    diag_sign,
    log_sign,
    may_become_sign,
    perf_sign,
    refused_version,
)
from ephemerd.domain.verdict import Sign

AT = "2026-11-29 13:58:12Z: "


@pytest.mark.parametrize(
    ("line", "sign"),
    [
        ("√ Connected to GitHub", None),
        ("Current runner version: '2.336.0'", None),
        (AT + "Listening for Jobs", Sign.LISTENING),
        (AT + "Running job: build (arm64, release)", Sign.ANNOUNCED),
        (AT + "Job build (arm64, release) completed with result: Succeeded", Sign.ENDED),
        (AT + "Job x completed with result: Failed\r", Sign.ENDED),
        (AT + "Job  completed with result: Canceled", Sign.ENDED),
        (AT + "Running job: x completed with result: Succeeded", Sign.ANNOUNCED),
        (AT + "Running job: Job x completed with result: Succeeded", Sign.ANNOUNCED),
        (AT + "Running job: Listening for Jobs", Sign.ANNOUNCED),
        (AT + "Job Running job: y completed with result: Succeeded", Sign.ENDED),
        (AT + "Job x completed with result: Succeeded (not really)", None),
        (AT + "Job x completed with result: ", None),
        ("Job x completed with result: Succeeded", None),
        ("Running job: no stamp", None),
        ("Listening for Jobs", None),
        ("x" + AT + "Running job: not at the beginning", None),
        ("2026-11-29: Running job: short stamp", None),
        ("[RUNNER 2026-11-29 13:58:12Z INFO Runner] Acknowledging runner request '7'.", Sign.ACKNOWLEDGED),
        ("[RUNNER 2026-11-29 13:58:12Z INFO Runner] Skipping message Job.", Sign.SKIPPED),
        (AT + "Skipping message Job. Job message not found '7'.", Sign.SKIPPED),
        ("", None),
    ],
)
def test_output(line, sign):
    assert log_sign(line) is sign


@pytest.mark.parametrize(
    ("line", "sign"),
    [
        ("RunnerProcessStarted:2026-11-29T13:58:12.1234567Z", None),
        ("SessionCreated:2026-11-29T13:58:12.1234567Z", Sign.LISTENING),
        ("MessageReceived_RunnerJobRequest:2026-11-29T13:58:12.1234567Z", Sign.OFFERED),
        ("MessageReceived_PipelineAgentJobRequest:2026-11-29T13:58:12.1234567Z", Sign.OFFERED),
        ("MessageReceived_JobCancellation:2026-11-29T13:58:12.1234567Z", None),
        ("MessageReceived_RunnerRefresh:2026-11-29T13:58:12.1234567Z", None),
        ("StartingWorkerProcess:2026-11-29T13:58:12.1234567Z", Sign.WORKER),
        ("JobRequestRenewed_7:2026-11-29T13:58:12.1234567Z", None),
        ("xMessageReceived_RunnerJobRequest:1", None),
        ("", None),
    ],
)
def test_performance_file(line, sign):
    assert perf_sign(line) is sign


@pytest.mark.parametrize(
    ("line", "sign"),
    [
        ("[2026-11-29 13:58:12Z INFO Runner] Acknowledging runner request 'a'.", Sign.ACKNOWLEDGED),
        ("[2026-11-29 13:58:12Z INFO Runner] Skipping message Job. Job message not found", Sign.SKIPPED),
        ("[2026-11-29 13:58:12Z INFO Runner] job name: Skipping message Job", None),
        ("[2026-11-29 13:58:12Z INFO JobDispatcher] Running job: x", None),
        ("Acknowledging runner request", Sign.ACKNOWLEDGED),
    ],
)
def test_diagnostics(line, sign):
    assert diag_sign(line) is sign


@pytest.mark.parametrize(
    ("beginning", "may"),
    [("2", True), ("2026-11-29 13:5", True), ("[2026", True), ("Ackn", True), ("√ Conn", False), ("", False)],
)
def test_a_line_that_is_not_whole_yet(beginning, may):
    assert may_become_sign(beginning) is may


def test_a_detail_is_short_and_printable():
    assert detail_of("a\x1b[31mb\tc") == "a [31mb c"
    assert len(detail_of("x" * 10_000)) == 200


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("An error occurred: Runner version v2.320.0 is deprecated and cannot receive messages.", "2.320.0"),
        (
            AT + "An error occurred: Runner version v2.320.0 is deprecated and cannot receive messages",
            "2.320.0",
        ),
        ("Runner version 2.320.0 is deprecated and cannot receive messages", "2.320.0"),
        (AT + "Running job: Runner version v2.320.0 is deprecated and cannot receive messages", ""),
        ("Current runner version: '2.336.0'", ""),
        ("", ""),
    ],
)
def test_a_version_that_the_forge_refuses(line, version):
    assert refused_version(line) == version
