"""Change one variant of a manifest, and check which actions run again.

The tests read the actions from Bazel's execution log of the second build in one output base. The
log lists all actions that were not up to date, including cache hits, so a warm cache does not
change the count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from qola.report.execution_log import Spawn
from tests.e2e.nested_bazel import LEFT, Bazel, library

# Without assembly kernels, which are not compiled.
HEAD, _, SETTINGS = LEFT.replace("receipt = 700", "receipt = 700\nhsa_subdirs = []").partition(
    "[[mha_fwd_variants]]"
)
# Batches have at most two kernels: some batches change with a variant, some do not.
HEAD = HEAD.replace("[build]", "[build]\nbatch = 2")
# BATCH is the variant of left.toml; each other variant adds one kernel.
BATCH = f"[[mha_fwd_variants]]{SETTINGS}"
GROUP = BATCH.replace('"batch"', '"group"')
GROUP_MASKED = GROUP.replace("has_mask = false", "has_mask = true")


@dataclass(frozen=True)
class Workspace:
    """A consumer whose manifest changes."""

    bazel: Bazel

    def build(self, manifest: str) -> list[Spawn]:
        """Build the library of a manifest; return the actions that ran."""
        self.bazel.write("it.toml", manifest)
        return self.bazel.spawns("//:it")

    def compiled(self) -> set[str]:
        """Return the compiled objects of the last library: batches and single kernel instances."""
        plan = self.bazel.plan()
        return set(plan.compiled_as(plan.module("libmha_fwd")))

    def dispatch(self) -> str:
        """Return the name of the forward dispatch; dispatches without kernels never change."""
        (module,) = self.bazel.plan().modules
        (name,) = (
            source.name
            for source in module.sources
            if (source.role, source.direction) == ("dispatch", "fwd")
        )
        return str(name)


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    with library() as nested:
        # Otherwise the log would omit outputs of an earlier run.
        nested.run("clean")
        yield Workspace(nested)


def test_one_variant(workspace: Workspace) -> None:
    """Prevents: Bazel recompiles a batch that a change of the manifest does not affect."""
    first = workspace.build(HEAD + BATCH + GROUP)
    before, dispatch = workspace.compiled(), workspace.dispatch()
    # Entry points do not change: they do not contain the kernel names of the C functions.
    names = ("built", "built", dispatch, "kernel_names", "shared")
    linked = [f"libmha_fwd.{name}" for name in names]
    assert before <= {spawn.name for spawn in first}

    again = workspace.build("# A comment.\n" + HEAD + BATCH + GROUP)
    assert again == [], "no input of the library has changed"

    changed = workspace.build(HEAD + BATCH + GROUP_MASKED)
    after = workspace.compiled()
    assert after - before, "the variant must change kernels"
    assert after & before, "the variant must leave other kernels unchanged"
    assert sorted(spawn.name for spawn in changed) == sorted([*(after - before), *linked])

    removed = workspace.build(HEAD + BATCH)
    assert workspace.compiled() < after
    assert sorted(spawn.name for spawn in removed) == linked
