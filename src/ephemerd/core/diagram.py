"""The transition tables as state diagrams, for the documentation: drawn from the tables, never by hand."""

from __future__ import annotations

from collections.abc import Mapping

from ephemerd.core.transitions import JOB_EDGES, RUNNER_EDGES
from ephemerd.domain.job import JobStatus
from ephemerd.domain.runner import RunnerState


def runner_diagram() -> str:
    """Return the runner's states and edges in Mermaid's language."""
    edges = {
        state.value: [other.value for other in RunnerState if other in RUNNER_EDGES[state]]
        for state in RunnerState
    }
    return _diagram(edges, RunnerState.PLANNED.value)


def job_diagram() -> str:
    """Return the job's statuses and edges in Mermaid's language."""
    edges = {
        status.value: [other.value for other in JobStatus if other in JOB_EDGES[status]]
        for status in JobStatus
    }
    return _diagram(edges, JobStatus.QUEUED.value)


def _diagram(edges: Mapping[str, list[str]], first: str) -> str:
    lines = ["stateDiagram-v2", f"    [*] --> {first}"]
    for state, others in edges.items():
        lines += [f"    {state} --> {other}" for other in others]
        if not others:
            lines.append(f"    {state} --> [*]")
    return "\n".join(lines) + "\n"
