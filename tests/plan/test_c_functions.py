"""The C functions' part of an entry source; that of the wheel is in tests/golden/plan."""

from __future__ import annotations

import re
from pathlib import Path

from qola.aiter.declarations import Parameter
from qola.aiter.entry_points import EntryFunction
from qola.codegen.types import CodeObject, FieldValue, KernelInstance, KernelSet
from qola.plan.c_functions import _KNOWN, c_functions

ARGS = Parameter("const aiter::mha_bwd_args&", "a", "")
STREAM = Parameter("const ck_tile::stream_config&", "s", "")


def entry(*more: Parameter, name: str = "mha_bwd") -> EntryFunction:
    return EntryFunction(name, "float", (ARGS, STREAM, *more), "bwd", "::aiter::mha_bwd")


def kernel(name: str, role: str, **fields: FieldValue) -> KernelInstance:
    return KernelInstance(name, "bwd", role, ("gfx942", "gfx950"), "", fields)


def test_kernels_stand_with_their_archs_and_splits() -> None:
    """Prevents: accumulators for fewer splits of K than a deterministic kernel has."""
    kernels = KernelSet(
        (
            kernel("two", "dq_dk_dv", deterministic=True, hdim_q=128, tile="b32x64x128_r1"),
            kernel("one", "dq_dk_dv", deterministic=False, hdim_q=128, tile="b32x64x128_r1"),
            kernel("no_tile", "dq_dk_dv", deterministic=True, hdim_q=128),
            kernel("first", "dot_do_o", hdim_v=128, tile="b64"),
        ),
        (),
        code_objects=(CodeObject("hsa/gfx950/k.co", "f", "gfx950", "", 1),),
    )
    made = c_functions([entry()], kernels, "bwd")
    assert made.warnings == ()
    assert '"two"' not in made.source
    assert [
        line.strip() for line in made.kernels.splitlines() if line.strip().startswith('{"')
    ] == [
        '{"two", "gfx942,gfx950", 128, 64},',
        '{"one", "gfx942,gfx950"},',
        '{"no_tile", "gfx942,gfx950"},',
        '{"first", "gfx942,gfx950"},',
        '{"hsa/gfx950/k.co", "gfx950"},',
    ]
    assert "k.co" not in c_functions([entry()], kernels, "fwd").kernels


def test_parameters_that_nobody_knows() -> None:
    """Prevents: a library that does not compile because AITER's function has a new parameter."""
    lse, new = Parameter("bool", "has_lse", ""), Parameter("int", "new", "")
    optional = Parameter("int", "new", "0")
    made = c_functions([entry(lse, optional, lse)], KernelSet((), ()), "bwd")
    assert "QOLA_NS(mha_bwd)(args, stream, more.has_lse);" in made.source
    assert made.warnings == ()
    made = c_functions([entry(lse, new)], KernelSet((), ()), "bwd")
    assert made.source == ""
    assert "mha_bwd(new)" in made.warnings[0].place
    made = c_functions([entry(name="mha_bwd_size")], KernelSet((), ()), "bwd")
    assert (made.source, made.warnings) == ("", ())


def test_known_parameters_have_values(repo_root: Path) -> None:
    """Prevents: a name that is passed on, and that the C++ has no member of."""
    text = (repo_root / "cc/api/qola_c_members.h").read_text(encoding="utf-8")
    (body,) = re.findall(r"struct Parameters\n\{(.*?)\n\};", text, re.DOTALL)
    body = re.sub(r"\s*= nullptr", "", body)
    assert set(re.findall(r"\b(\w+)[,;]", body)) == set(_KNOWN)
