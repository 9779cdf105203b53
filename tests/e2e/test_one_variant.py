"""Changing one variant of a manifest: which actions run again.

The actions are counted from Bazel's execution log of the second build in one output base. It
lists what was not up to date, whether a compiler or a cache then answered, so the count is the
same with a warm cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from qola.report.execution_log import Spawn
from tests.e2e.nested_bazel import LEFT, Bazel, library

# Without assembly kernels, which nobody compiles.
HEAD, _, SETTINGS = LEFT.replace("receipt = 700", "receipt = 700\nhsa_subdirs = []").partition(
    "[[mha_fwd_variants]]"
)
# Batches of two at most: some change with a variant, and some do not.
HEAD = HEAD.replace("[build]", "[build]\nbatch = 2")
# That of the other tests, and one kernel more each.
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
        """What the last build's library has of kernel instances: batches, and single ones."""
        plan = self.bazel.plan()
        return set(plan.compiled_as(plan.module("libmha_fwd")))

    def dispatch(self) -> str:
        """Name of the forward dispatch; those of directions without kernels never change."""
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
        # What an earlier run of the tests has built would not be among the actions.
        nested.run("clean")
        yield Workspace(nested)


def test_one_variant(workspace: Workspace) -> None:
    """Prevents: kernels compiled again for a change that leaves their batch alone."""
    first = workspace.build(HEAD + BATCH + GROUP)
    before, dispatch = workspace.compiled(), workspace.dispatch()
    # The entry points stay as they are: kernels' names, for the C functions, are not in them.
    names = ("built", "built", dispatch, "kernel_names", "shared")
    linked = [f"libmha_fwd.{name}" for name in names]
    assert before <= {spawn.name for spawn in first}

    again = workspace.build("# A comment.\n" + HEAD + BATCH + GROUP)
    assert again == [], "nothing a library is made of has changed"

    changed = workspace.build(HEAD + BATCH + GROUP_MASKED)
    after = workspace.compiled()
    assert after - before, "the variant was meant to change kernels"
    assert after & before, "and to leave others"
    assert sorted(spawn.name for spawn in changed) == sorted([*(after - before), *linked])

    removed = workspace.build(HEAD + BATCH)
    assert workspace.compiled() < after
    assert sorted(spawn.name for spawn in removed) == linked
