"""Changing one variant of a manifest: which actions run again.

The actions are counted from Bazel's execution log of the second build in one output base. It
lists what was not up to date, whether a compiler or a cache then answered, so the count is the
same with a warm cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pytest

from tests.e2e.nested_bazel import LEFT, Bazel, library
from tools.execution_log.log import Spawn

# Without assembly kernels, which nobody compiles.
HEAD, _, SETTINGS = LEFT.replace("receipt = 700", "receipt = 700\nhsa_subdirs = []").partition(
    "[[mha_fwd_variants]]"
)
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

    def kernels(self) -> dict[str, str]:
        """Digest of each kernel instance of the last build, by name."""
        return {kernel.name: kernel.sha256 for kernel in self.bazel.plan().kernels}

    def dispatch(self) -> str:
        """Name of the forward dispatch; those of directions without kernels never change."""
        (module,) = self.bazel.plan().modules
        (name,) = (
            source.name
            for source in module.sources
            if (source.role, source.direction) == ("dispatch", "fwd")
        )
        return str(name)


def name_of(spawn: Spawn) -> str:
    """Name of an action's target, without its package."""
    return spawn.label.rpartition(":")[2]


def kernel_of(spawn: Spawn, names: Iterable[str]) -> str:
    """The kernel instance an action belongs to: its target begins with the name; "" for none."""
    found = name_of(spawn)
    return next((name for name in names if f"{found}.".startswith(f"{name}.")), "")


def others(spawns: Iterable[Spawn], names: Iterable[str]) -> list[str]:
    """Targets of the actions that serve more than single kernels, sorted.

    What kernels alone read of the actions that ran, a precompiled header say, belongs to them.
    """
    listed, known = list(spawns), list(names)
    of_kernels = [spawn for spawn in listed if kernel_of(spawn, known)]
    read = {path for spawn in of_kernels for path in spawn.input_digests}
    return sorted(
        name_of(spawn)
        for spawn in listed
        if not kernel_of(spawn, known) and not read & spawn.output_digests.keys()
    )


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    with library() as nested:
        # What an earlier run of the tests has built would not be among the actions.
        nested.run("clean")
        yield Workspace(nested)


def test_one_variant(workspace: Workspace) -> None:
    """Prevents: a kernel compiled again for a change of the manifest that leaves it alone."""
    first = workspace.build(HEAD + BATCH + GROUP)
    before, dispatch = workspace.kernels(), workspace.dispatch()
    linked = [f"libmha_fwd.{dispatch}", "libmha_fwd.shared"]
    cost = Counter(kernel_of(spawn, before) for spawn in first)
    assert set(before) <= set(cost)

    again = workspace.build("# A comment.\n" + HEAD + BATCH + GROUP)
    assert again == [], "nothing a library is made of has changed"

    changed = workspace.build(HEAD + BATCH + GROUP_MASKED)
    after = workspace.kernels()
    new = {name for name, digest in after.items() if before.get(name) != digest}
    assert new, "the variant was meant to change kernels"
    assert set(before) & set(after), "and to leave others"
    ran = Counter(kernel_of(spawn, {**before, **after}) for spawn in changed)
    assert {name for name in ran if name} == new
    assert {ran[name] for name in new} == {cost[name] for name in before}
    assert others(changed, after) == linked

    removed = workspace.build(HEAD + BATCH)
    assert len(workspace.kernels()) < len(after)
    assert sorted(map(name_of, removed)) == linked
