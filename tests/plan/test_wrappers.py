"""C++ of public headers and entry sources. The texts for the wheel are in tests/golden/plan."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qola.aiter.declarations import Parameter
from qola.aiter.entry_points import EntryFunction, added_entry
from qola.codegen.types import CodeObject, FieldValue, KernelInstance, KernelSet
from qola.plan.c_functions import _KNOWN, c_functions
from qola.plan.wrappers import entry_source, public_header
from qola_base.errors import AiterError

ARGS = Parameter("const aiter::mha_fwd_args&", "args", "")
STREAM = Parameter("const ck_tile::stream_config&", "stream_config", "")
FWD = EntryFunction("mha_fwd", "float", (ARGS, STREAM), "fwd", "::aiter::mha_fwd")
SIZE = EntryFunction(
    "mha_bwd_workspace_size",
    "std::size_t",
    (Parameter("const fmha_bwd_traits&", "traits", ""),),
    "",
    "::fmha_bwd_launcher",
    ".workspace_size",
)


def test_functions_of_a_later_tree() -> None:
    """Prevents: exceptions that leave the library, or a wrapper that loses a value."""
    header = public_header("mha_fwd.h", (FWD, SIZE))
    assert "QOLA_API std::size_t mha_bwd_workspace_size(const fmha_bwd_traits& traits);" in header
    source = entry_source("mha_fwd.h", (FWD, SIZE), throws=True)
    throwing = "const qola_entry::Restored throwing(::aiter_detail::g_aiter_can_throw, true);"
    assert source.count(throwing) == 2
    assert "throwing" not in entry_source("mha_fwd.h", (FWD, SIZE))
    value = """qola_entry::value("mha_bwd_workspace_size", [&] {
        return ::fmha_bwd_launcher(traits).workspace_size;
    });"""
    assert f"return {value}" in source


def test_assembly_selection_needs_all_parameters() -> None:
    """Prevents: assembly kernels that run problems which the manifest assigns to CK."""
    asm = Parameter("bool", "use_ext_asm", "")
    function = EntryFunction("mha_fwd", "float", (ARGS, asm), "fwd", "::aiter::mha_fwd")
    with pytest.raises(AiterError, match="mha_fwd has use_ext_asm, and no q_dtype_str"):
        entry_source("mha_fwd.h", (function,))
    # In directions without assembly kernels, use_ext_asm has no special meaning.
    prefill = EntryFunction("p", "float", (ARGS, asm), "batch_prefill", "::aiter::p")
    assert "::aiter::p(args, use_ext_asm);" in entry_source("mha_fwd.h", (prefill,))


def test_direction_without_a_function_of_aiter() -> None:
    """Prevents: a call of a CK function that does not match its declaration."""
    functions = (FWD, added_entry("fwd_appendkv"))
    header = public_header("mha_fwd.h", functions)
    source = entry_source("mha_fwd.h", functions)
    assert "in its namespace,\n// and those of Composable Kernel" in header
    assert source.startswith("// Written by qola")
    assert '#include "qola_entry.h"\n#include "qola_kv.h"\n\n#ifdef' in source
    assert (
        """
float mha_fwd_appendkv(const fmha_fwd_appendkv_args& args,
                       const ck_tile::stream_config& stream_config,
                       std::string q_dtype_str,
                       rope_enum rope_type)
{
    return qola_entry::answer("mha_fwd_appendkv", false, [&](bool) {
        qola_entry::check_reach(args, q_dtype_str);
        return qola_entry::repeatable(args, stream_config, [&](const auto& stream_config) {
            return ::qola_kv::mha_fwd_appendkv(args, stream_config, q_dtype_str, rope_type);
        });
    });
}
"""
        in source
    )


BWD_ARGS = Parameter("const aiter::mha_bwd_args&", "a", "")


def entry(*more: Parameter, name: str = "mha_bwd") -> EntryFunction:
    return EntryFunction(name, "float", (BWD_ARGS, STREAM, *more), "bwd", "::aiter::mha_bwd")


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
