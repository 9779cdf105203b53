"""Growth of Bazel's graph with the number of kernel instances.

The tests compare counts, which are equal on every machine. The analysis takes seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.e2e.nested_bazel import LEFT, Bazel, library

# Without variants, the plan has all kernels of the receipt.
LARGE = LEFT.partition("[[mha_fwd_variants]]")[0]


@dataclass(frozen=True)
class Graph:
    """Numbers of kernel instances in a plan, and of targets and actions in its analysis."""

    kernels: int
    targets: int
    actions: int


def analyse(nested: Bazel, manifest: str) -> Graph:
    """Analyse the library of a manifest with a new Bazel server."""
    nested.write("it.toml", manifest)
    nested.run("shutdown")
    events = nested.workspace / "events.json"
    nested.run("build", "--nobuild", f"--build_event_json_file={events}", "//:it")
    (metrics,) = (
        event["buildMetrics"]
        for event in map(json.loads, events.read_text(encoding="utf-8").splitlines())
        if "buildMetrics" in event
    )
    return Graph(
        kernels=len(nested.plan().kernels),
        targets=int(metrics["targetMetrics"]["targetsConfiguredNotIncludingAspects"]),
        actions=int(metrics["actionSummary"]["actionsCreatedNotIncludingAspects"]),
    )


@pytest.fixture(scope="module")
def graphs() -> Iterator[tuple[Graph, Graph]]:
    """The graphs of a small and a large manifest."""
    with library() as nested:
        yield analyse(nested, LEFT), analyse(nested, LARGE)


def test_the_graph_grows_with_the_kernels(graphs: tuple[Graph, Graph]) -> None:
    """Prevents: a macro doubles the number of targets, and with it the time of an analysis."""
    small, large = graphs
    more = large.kernels - small.kernels
    assert more > 500
    # One source per kernel; one source and one compile rule per batch.
    assert more <= large.targets - small.targets <= 1.4 * more
    # One link per source; one compile per batch; one declared archive, which is never built.
    assert more <= large.actions - small.actions <= 1.4 * more
