"""C++ of public headers and entry sources. The texts for the wheel are in tests/golden/plan."""

from __future__ import annotations

import pytest

from qola.aiter.declarations import Parameter
from qola.aiter.entry_points import EntryFunction, added_entry
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

HEADER = """\
#pragma once

#ifndef __HIP__
#error "qola_mha_fwd.h includes HIP and Composable Kernel. Compile this file as HIP: in Bazel put \
it into a qola_cc_library, in CMake set LANGUAGE HIP, elsewhere use hipcc. A host compiler takes \
qola_c.h, which has the same functions for C."
#else

#include "qola_common.h"

#include "mha_fwd.h"

#include <cstddef>

QOLA_NS_BEGIN

/// Runs one forward problem on the stream of the stream configuration.
QOLA_API float mha_fwd(const aiter::mha_fwd_args& args,
                       const ck_tile::stream_config& stream_config);

/// Answers from the host alone; 0 where it cannot, and the reason on standard error.
QOLA_API std::size_t mha_bwd_workspace_size(const fmha_bwd_traits& traits);

QOLA_NS_END

#endif // __HIP__
"""
SOURCE = """\
QOLA_NS_BEGIN

float mha_fwd(const aiter::mha_fwd_args& args, const ck_tile::stream_config& stream_config)
{
    // AITER ends the process where this is false.
    const qola_entry::Restored throwing(::aiter_detail::g_aiter_can_throw, true);
    return qola_entry::answer("mha_fwd", false, [&](bool) {
        return qola_entry::repeatable(args, stream_config, [&](const auto& stream_config) {
            return ::aiter::mha_fwd(qola_entry::for_assembly(args), stream_config);
        });
    });
}

std::size_t mha_bwd_workspace_size(const fmha_bwd_traits& traits)
{
    // AITER ends the process where this is false.
    const qola_entry::Restored throwing(::aiter_detail::g_aiter_can_throw, true);
    return qola_entry::value("mha_bwd_workspace_size", [&] {
        return ::fmha_bwd_launcher(traits).workspace_size;
    });
}

QOLA_NS_END
"""


def test_header_and_source_of_a_later_tree() -> None:
    """Prevents: a changed C++ API for TransformerEngine, or exceptions that leave the library."""
    header = public_header("mha_fwd.h", (FWD, SIZE))
    source = entry_source("mha_fwd.h", (FWD, SIZE), throws=True)
    assert header[header.index("#pragma") :] == HEADER
    assert source[source.index("QOLA_NS_BEGIN") :] == SOURCE
    assert "throwing" not in entry_source("mha_fwd.h", (FWD, SIZE))


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
        return qola_entry::repeatable(args, stream_config, [&](const auto& stream_config) {
            return ::qola_kv::mha_fwd_appendkv(args, stream_config, q_dtype_str, rope_type);
        });
    });
}
"""
        in source
    )
