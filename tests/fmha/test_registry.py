"""Registries: what a library has, and what it launches, as a second reader of the plan has it."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from qola.aiter.attention import MAIN_ROLE
from qola.attention import AttentionProblem, make_problem
from qola.fmha.registry import Entry, Registry, RegistryError
from qola.kernel.config import KernelConfig
from qola.verify.propose import propose
from qola.verify.sample import MAX_WORK, generator
from tests.verify import predict
from tests.verify.consumers import consumer_problem
from tests.verify.libraries import MANIFEST, Library, libraries

FORWARD = make_problem(
    "fwd", "fp16", seqlen_q=128, seqlen_k=256, nhead_q=2, hdim=64, batch=1, return_lse=True
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, aiter_tree: Path) -> list[Library]:
    text = MANIFEST.replace('"gfx942", ', "")
    return libraries(tmp_path_factory.mktemp("library"), aiter_tree, text)


@pytest.fixture(scope="module")
def registry(found: list[Library]) -> Registry:
    first, *others = (Registry.of(library.module, library.root) for library in found)
    return first.merged(*others)


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


def test_every_kernel_is_registered(found: list[Library], registry: Registry) -> None:
    """Prevents: a library with kernels that no one can ask for."""
    for library in found:
        name = library.plan.module(library.module).library
        own = [one for one in registry if one.library == name]
        assert {one.name for one in own} == {kernel.name for kernel in library.kernels}
        fields = {kernel.name: dict(kernel.fields) for kernel in library.kernels}
        for one in own[::50]:
            assert one.config.fields() == fields[one.name]
            assert registry.named(one.name) == registry.of_config(one.config) == one


def test_what_is_launched(found: list[Library], registry: Registry) -> None:
    """Prevents: a prediction that is not what a second reader of the plan has."""
    compared = served = 0
    for library in found:
        plan = {
            "archs": library.plan.archs,
            "kernels": [asdict(kernel) for kernel in library.kernels],
            "modules": [],
        }
        for one, arch in problems(library, 250):
            row = consumer_problem(one)
            names = tuple(entry.name for entry in registry.select(one, arch))
            fitting = registry.query(one, arch)
            assert tuple(entry.name for entry in (fitting[0] if fitting else ())) == names
            served += bool(names)
            if row is not None:
                launched = predict.predict(plan, row, arch, 304).launches
                assert names == tuple(str(kernel["name"]) for kernel in launched), str(one)
                compared += 1
    assert compared > 250
    assert served > 200


def test_all_that_would_serve_a_problem(registry: Registry) -> None:
    """Prevents: rows for other problems among those that a problem could take."""
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
    assert registry.select(backward, "gfx950") == ()
    roles = [
        one.config.role for one in registry.select(replace(backward, deterministic=False), "gfx950")
    ]
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


def test_json_and_merging(registry: Registry) -> None:
    """Prevents: a kernel lost on the way through a file, or two taken for one."""
    text = registry.to_json()
    again = Registry.from_json(text)
    assert again.entries == registry.entries
    assert [one.config for one in again] == [one.config for one in registry]
    assert again.to_json() == text
    assert registry.merged(again).entries == registry.entries
    # Of a file there are no dispatches; of both, those of the library.
    with pytest.raises(RegistryError, match="dispatches of fwd: none"):
        again.select(FORWARD, "gfx950")
    assert again.merged(registry).select(FORWARD, "gfx950") == registry.select(FORWARD, "gfx950")
    one = registry.entries[0]
    other = replace(one, config=replace(one.config, hdim_v=8))
    with pytest.raises(RegistryError, match="another config"):
        registry.merged(Registry([other]))
    for wrong in ("{", "[{}]", '{"a": 1}', "[1]"):
        with pytest.raises(RegistryError):
            Registry.from_json(wrong)


def test_what_a_registry_refuses(registry: Registry) -> None:
    """Prevents: one of two kernels chosen in silence, or an answer that nobody can give."""
    config = KernelConfig.from_name(registry.entries[0].config.name)
    with pytest.raises(RegistryError, match="one kernel of a name and config"):
        Registry([Entry("a.so", "k", (), config), Entry("a.so", "l", (), config)])
    both = Registry([Entry("a.so", "k", (), config), Entry("b.so", "k", (), config)])
    with pytest.raises(RegistryError, match=r"in a\.so, b\.so"):
        both.of_config(config)
    assert both.of_config(config, "b.so").library == "b.so"
    with pytest.raises(RegistryError, match="no such kernel"):
        both.named("m")
    with pytest.raises(RegistryError, match="assembly"):
        registry.select(replace(FORWARD, use_asm=True), "gfx950")
