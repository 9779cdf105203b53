"""How Bazel's graph grows with the number of kernel instances.

These are counts, which are the same on every machine, of a matrix that is analysed in seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.e2e.nested_bazel import LEFT, Bazel, library

# Without variants: all that the receipt has.
LARGE = LEFT.partition("[[mha_fwd_variants]]")[0]


@dataclass(frozen=True)
class Graph:
    """How many kernel instances a plan has, and targets and actions its analysis."""

    kernels: int
    targets: int
    actions: int


def analyse(nested: Bazel, manifest: str) -> Graph:
    """Analyse the library of a manifest, by a server that knows nothing yet."""
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
    """The graphs of a small and of a large manifest."""
    with library() as nested:
        yield analyse(nested, LEFT), analyse(nested, LARGE)


def test_the_graph_grows_with_the_kernels(graphs: tuple[Graph, Graph]) -> None:
    """Prevents: a macro that doubles the graph, with it the analysis of the full matrix."""
    small, large = graphs
    more = large.kernels - small.kernels
    assert more > 500
    # A source each, and for each batch its own source and a rule that makes its object.
    assert more <= large.targets - small.targets <= 1.4 * more
    # A link to each source, a batch's compile, and the archive that is declared and never made.
    assert more <= large.actions - small.actions <= 1.4 * more
