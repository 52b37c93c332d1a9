"""The diagrams of the documentation show the tables, edge by edge."""

from __future__ import annotations

from ephemerd.core.diagram import job_diagram, runner_diagram
from ephemerd.core.transitions import JOB_EDGES, RUNNER_EDGES


def edges(diagram: str) -> list[tuple[str, str]]:
    """Read the arrows back; `[*]` is the beginning and the end."""
    head, *arrows = diagram.splitlines()
    assert head == "stateDiagram-v2"
    assert all(arrow.startswith("    ") for arrow in arrows)
    pairs = [arrow.strip().split(" --> ") for arrow in arrows]
    return [(before, after) for before, after in pairs]


def test_every_edge_of_a_runner_is_drawn_once_and_gone_is_the_end() -> None:
    table = [(state.value, other.value) for state, others in RUNNER_EDGES.items() for other in others]
    drawn = edges(runner_diagram())
    assert drawn[0] == ("[*]", "planned")
    assert sorted(drawn) == sorted([("[*]", "planned"), ("gone", "[*]"), *table])


def test_every_edge_of_a_job_is_drawn_once_and_done_is_the_end() -> None:
    table = [(status.value, other.value) for status, others in JOB_EDGES.items() for other in others]
    drawn = edges(job_diagram())
    assert drawn[0] == ("[*]", "queued")
    assert sorted(drawn) == sorted([("[*]", "queued"), ("done", "[*]"), *table])
    assert job_diagram().endswith("\n")
