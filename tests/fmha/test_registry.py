"""Registries: what a library has, and what it launches, as a second reader of the plan has it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qola.aiter.attention import MAIN_ROLE
from qola.attention import AttentionProblem, make_problem
from qola.fmha.registry import Entry, Registry, RegistryError
from qola.verify.propose import propose
from qola.verify.sample import MAX_WORK, generator
from tests.verify.libraries import MANIFEST, Library, libraries

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
    """The registry of the forward library."""
    return registries[0]


def problems(library: Library, count: int) -> list[tuple[AttentionProblem, str]]:
    """Problems around the kernels of a library, most of which it serves."""
    drawn = []
    mains = [k for k in library.kernels if k.role == MAIN_ROLE[k.direction]]
    for number in range(count):
        kernel = mains[number * 7 % len(mains)]
        chosen = generator(kernel.name, 0, number, 0)
        edge = int(chosen.integers(1 << 30))
        one = propose(kernel.direction, kernel.fields, edge, chosen, MAX_WORK)
        if one is not None:
            drawn.append((one.problem, kernel.archs[0]))
    return drawn


def test_every_kernel_is_registered(found: list[Library], registries: list[Registry]) -> None:
    """Prevents: a library with kernels that no one can ask for."""
    for library, registry in zip(found, registries, strict=True):
        assert {entry.name for entry in registry} == {kernel.name for kernel in library.kernels}
        assert {entry.library for entry in registry} == {
            library.plan.module(library.module).library
        }
        fields = {kernel.name: dict(kernel.fields) for kernel in library.kernels}
        for entry in registry.entries[::50]:
            assert entry.config.fields() == fields[entry.name]
            assert registry.named(entry.name) == entry


def test_what_is_launched(found: list[Library], registries: list[Registry]) -> None:
    """Prevents: another kernel selected than the first of those that would serve a problem."""
    served = 0
    for library, registry in zip(found, registries, strict=True):
        for one, arch in problems(library, 250):
            fitting = registry.query(one, arch)
            assert registry.select(one, arch) == (fitting[0] if fitting else ())
            served += bool(fitting)
    assert served > 200


def test_all_that_would_serve_a_problem(registries: list[Registry]) -> None:
    """Prevents: rows for other problems among those that a problem could take."""
    registry, backward_registry = registries
    rows = registry.query(FORWARD, "gfx950")
    assert rows[0] == registry.select(FORWARD, "gfx950")
    assert len(rows) > 1
    configs = [row[0].config for row in rows]
    assert {config.family for config in configs} == {"fwd"}
    # By transposing loads any length of K is served, else whole tiles and others have a row each.
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


def test_kernels_by_their_fields(registry: Registry) -> None:
    """Prevents: a misspelt field that all kernels have."""
    found = registry.where(family="fwd", dtype=("fp16", "fp8"), hdim_q=64, mask=True)
    assert found
    assert {(c.dtype, c.hdim_q, c.mask) for c in (one.config for one in found)} == {
        ("fp16", 64, True)
    }
    patterns = registry.where(family="fwd", dtype="*16", hdim_q=64, mask=True)
    assert {entry.config.dtype for entry in patterns} == {"fp16"}
    with pytest.raises(RegistryError, match="masks"):
        registry.where(masks=True)


def test_json(registry: Registry) -> None:
    """Prevents: a kernel lost on the way through a file, or an answer without a dispatch."""
    text = registry.to_json()
    again = Registry.from_json(text)
    assert again.entries == registry.entries
    assert [one.config for one in again] == [one.config for one in registry]
    assert again.to_json() == text
    with pytest.raises(RegistryError, match="no dispatch of fwd"):
        again.select(FORWARD, "gfx950")


def test_what_a_registry_refuses(registry: Registry) -> None:
    """Prevents: one of two kernels chosen in silence, or an answer that nobody can give."""
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
