"""The C functions in an entry source. The source for the wheel is in tests/golden/plan."""

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


def test_kernel_table_lists_archs_and_splits() -> None:
    """Prevents: too few dQ accumulators for the K splits of a deterministic kernel."""
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
    result = c_functions([entry()], kernels, "bwd")
    assert result.warnings == ()
    assert '"two"' not in result.source
    assert [
        line.strip() for line in result.kernels.splitlines() if line.strip().startswith('{"')
    ] == [
        '{"two", "gfx942,gfx950", 128, 64},',
        '{"one", "gfx942,gfx950"},',
        '{"no_tile", "gfx942,gfx950"},',
        '{"first", "gfx942,gfx950"},',
        '{"hsa/gfx950/k.co", "gfx950"},',
    ]
    assert "k.co" not in c_functions([entry()], kernels, "fwd").kernels


def test_unknown_parameters_of_aiters_functions() -> None:
    """Prevents: a library that does not compile because AITER's function has a new parameter."""
    lse, new = Parameter("bool", "has_lse", ""), Parameter("int", "new", "")
    optional = Parameter("int", "new", "0")
    result = c_functions([entry(lse, optional, lse)], KernelSet((), ()), "bwd")
    assert "QOLA_NS(mha_bwd)(args, stream, more.has_lse);" in result.source
    assert result.warnings == ()
    result = c_functions([entry(lse, new)], KernelSet((), ()), "bwd")
    assert result.source == ""
    assert "mha_bwd(new)" in result.warnings[0].place
    result = c_functions([entry(name="mha_bwd_size")], KernelSet((), ()), "bwd")
    assert (result.source, result.warnings) == ("", ())


def test_known_parameters_are_members_in_c(repo_root: Path) -> None:
    """Prevents: a parameter that the entry source passes and the C++ struct Parameters lacks."""
    text = (repo_root / "runtime/api/qola_c_members.h").read_text(encoding="utf-8")
    (body,) = re.findall(r"struct Parameters\n\{(.*?)\n\};", text, re.DOTALL)
    body = re.sub(r"\s*= nullptr", "", body)
    assert set(re.findall(r"\b(\w+)[,;]", body)) == set(_KNOWN)
