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
    """What an analysis made.

    Attributes:
        kernels: kernel instances of the plan.
        targets: rules and files that were configured.
        actions: actions they declare.
    """

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
def graphs() -> Iterator[tuple[Bazel, Graph, Graph]]:
    """The graphs of a small and of a large manifest, the latter analysed last."""
    with library() as it:
        yield it, analyse(it, LEFT), analyse(it, LARGE)


def test_the_graph_grows_with_the_kernels(graphs: tuple[Bazel, Graph, Graph]) -> None:
    """Prevents: a macro that doubles the graph, with it the analysis of the full matrix."""
    _, small, large = graphs
    more = large.kernels - small.kernels
    assert more > 500
    # A source each, and for each batch its own source and a rule that makes its object.
    assert more <= large.targets - small.targets <= 1.4 * more
    # A link to each source, a batch's compile, and the archive that is declared and never made.
    assert more <= large.actions - small.actions <= 1.4 * more


def test_nothing_is_analysed_twice(graphs: tuple[Bazel, Graph, Graph]) -> None:
    """Prevents: a repository that is made anew, or a target configured twice, in each build."""
    nested, _, _ = graphs
    again = nested.run("build", "--nobuild", "//:it").stderr
    assert "(0 packages loaded, 0 targets configured)" in again
