"""Registries: the kernels of a library, and the kernels that it launches for a problem."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qola.aiter.attention import MAIN_ROLE
from qola_lab.fmha.registry import Entry, Registry, RegistryError
from qola_lab.problems import AttentionProblem, make_problem
from qola_lab.tests.verify.libraries import MANIFEST, Library, libraries
from qola_lab.verify.propose import propose
from qola_lab.verify.run import MAX_WORK, generator

FORWARD = make_problem(
    "fwd", "fp16", seqlen_q=128, seqlen_k=256, nhead_q=2, hdim=64, batch=1, return_lse=True
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, aiter_tree: Path) -> list[Library]:
    text = MANIFEST.replace('"gfx942", ', "")
    return libraries(tmp_path_factory.mktemp("library"), aiter_tree, text)


@pytest.fixture(scope="module")
def registries(found: list[Library]) -> list[Registry]:
    return [Registry.of(library.module, library.root) for library in found]


@pytest.fixture(scope="module")
def registry(registries: list[Registry]) -> Registry:
    """Return the registry of the forward library."""
    return registries[0]


def problems(library: Library, count: int) -> list[tuple[AttentionProblem, str]]:
    """Return problems close to the kernels of a library; the library serves most of them."""
    generated = []
    mains = [k for k in library.kernels if k.role == MAIN_ROLE[k.direction]]
    for number in range(count):
        kernel = mains[number * 7 % len(mains)]
        rng = generator(kernel.name, 0, number, 0)
        edge = int(rng.integers(1 << 30))
        sample = propose(kernel.direction, kernel.fields, edge, rng, MAX_WORK)
        if sample is not None:
            generated.append((sample.problem, kernel.archs[0]))
    return generated


def test_every_kernel_is_registered(found: list[Library], registries: list[Registry]) -> None:
    """Prevents: kernels of a library that its registry lacks."""
    for library, registry in zip(found, registries, strict=True):
        assert {entry.name for entry in registry} == {kernel.name for kernel in library.kernels}
        assert {entry.library for entry in registry} == {
            library.plan.module(library.module).library
        }
        fields = {kernel.name: dict(kernel.fields) for kernel in library.kernels}
        for entry in registry.entries[::50]:
            assert entry.config.fields() == fields[entry.name]
            assert registry.named(entry.name) == entry


def test_select_returns_the_first_result_of_query(
    found: list[Library], registries: list[Registry]
) -> None:
    """Prevents: a selected kernel that is not the first one that serves the problem."""
    served = 0
    for library, registry in zip(found, registries, strict=True):
        for problem, arch in problems(library, 250):
            fitting = registry.query(problem, arch)
            assert registry.select(problem, arch) == (fitting[0] if fitting else ())
            served += bool(fitting)
    assert served > 200


def test_query_returns_all_kernels_that_serve_a_problem(registries: list[Registry]) -> None:
    """Prevents: kernels in the result of query() that do not serve the problem."""
    registry, backward_registry = registries
    rows = registry.query(FORWARD, "gfx950")
    assert rows[0] == registry.select(FORWARD, "gfx950")
    assert len(rows) > 1
    configs = [row[0].config for row in rows]
    assert {config.family for config in configs} == {"fwd"}
    # Kernels with transposing loads serve any seqlen_k, others either whole tiles or the rest.
    assert {c.skpad for c in configs if not c.trload} == {False}
    odd = registry.query(replace(FORWARD, seqlen_k=(255,)), "gfx950")
    assert {row[0].config.skpad for row in odd if not row[0].config.trload} == {True}
    assert registry.select(replace(FORWARD, hdim_q=256, hdim_v=256), "gfx950") == ()
    backward = replace(FORWARD, direction="bwd", deterministic=True)
    assert backward_registry.select(backward, "gfx950") == ()
    selected = backward_registry.select(replace(backward, deterministic=False), "gfx950")
    roles = [entry.config.role for entry in selected]
    assert roles == ["dot_do_o", "dq_dk_dv", "convert_dq"][: len(roles)]
    assert len(roles) >= 2


def test_where_filters_by_fields(registry: Registry) -> None:
    """Prevents: a misspelt field that silently matches every kernel."""
    found = registry.where(family="fwd", dtype=("fp16", "fp8"), hdim_q=64, mask=True)
    assert found
    assert {(c.dtype, c.hdim_q, c.mask) for c in (entry.config for entry in found)} == {
        ("fp16", 64, True)
    }
    patterns = registry.where(family="fwd", dtype="*16", hdim_q=64, mask=True)
    assert {entry.config.dtype for entry in patterns} == {"fp16"}
    with pytest.raises(RegistryError, match="masks"):
        registry.where(masks=True)


def test_json(registry: Registry) -> None:
    """Prevents: a kernel lost in JSON, or a selection by a registry without a dispatch."""
    text = registry.to_json()
    again = Registry.from_json(text)
    assert again.entries == registry.entries
    assert [entry.config for entry in again] == [entry.config for entry in registry]
    assert again.to_json() == text
    with pytest.raises(RegistryError, match="no dispatch of fwd"):
        again.select(FORWARD, "gfx950")


def test_ambiguous_and_unknown_kernels_are_errors(registry: Registry) -> None:
    """Prevents: a silent choice between two kernels, or an answer without a dispatch."""
    config = registry.entries[0].config
    other = registry.entries[1].config
    for entry in (Entry("a.so", "l", (), config), Entry("a.so", "k", (), other)):
        with pytest.raises(RegistryError, match="one kernel of a name and config"):
            Registry([Entry("a.so", "k", (), config), entry])
    with pytest.raises(RegistryError, match="no such kernel"):
        registry.named("m")
    with pytest.raises(RegistryError, match="assembly"):
        registry.select(replace(FORWARD, use_asm=True), "gfx950")
    with pytest.raises(RegistryError, match="no dispatch of bwd"):
        registry.select(replace(FORWARD, direction="bwd"), "gfx950")
