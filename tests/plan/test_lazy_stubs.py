"""Stubs and entry sources of lazy libraries."""

from __future__ import annotations

import pytest

from qola.plan.stubs import HostFunction, kernel_entry_source, read_interface, stubs_source
from qola_base.errors import CodegenError

SOURCE = """\
#include "fmha_bwd.hpp"

#include <iostream>

#if !defined(__HIP_DEVICE_COMPILE__) || (defined(__gfx950__))

using fmha_dtype_0 = FmhaBwdFp16;

using fmha_mask_0 = ck_tile::SimplifiedGenericAttentionMask<false>;

using convert_dq_trait_0 = fmha_bwd_traits_<32,
                                            fmha_dtype_0,
                                            fmha_mask_0,
                                            (8 > 0)>;

template <>
float fmha_bwd_<convert_dq_trait_0, ck_tile::gfx950_t>(const ck_tile::stream_config& s,
                                                       fmha_bwd_args a)
{
    using k_ = fmha_bwd_kernel_0;
    return 0;
}

template <>
std::string fmha_bwd_get_name_<convert_dq_trait_0, ck_tile::gfx950_t>()
{
    return "";
}

#endif
"""
FUNCTIONS = (
    HostFunction("float", "fmha_bwd_", "const ck_tile::stream_config& s, fmha_bwd_args a"),
    HostFunction("std::string", "fmha_bwd_get_name_", ""),
)


def test_interface_expands_template_arguments() -> None:
    """Prevents: a stub with other template arguments than the dispatch calls."""
    interface = read_interface("k", SOURCE)
    assert interface.functions == FUNCTIONS
    assert interface.written == "convert_dq_trait_0, ck_tile::gfx950_t"
    assert interface.arguments == (
        "fmha_bwd_traits_<32, FmhaBwdFp16, ck_tile::SimplifiedGenericAttentionMask<false>, "
        "(8 > 0)>, ck_tile::gfx950_t"
    )
    assert [function.arguments for function in interface.functions] == ["s, a", ""]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (SOURCE.replace("float fmha_bwd_<", "constexpr float fmha_bwd_<"), "of which 1 are"),
        (SOURCE.replace("get_name_<convert_dq_trait_0", "get_name_<other_0"), "for 2 lists"),
        ("int main() {}\n", "0 specialisations"),
        (SOURCE + "template <>\nstruct Trait<trait_0>\n{\n};\n", "3 specialisations"),
    ],
)
def test_unknown_source_format_is_refused(changed: str, why: str) -> None:
    """Prevents: a lazy library without a function that the generator writes in a new format."""
    with pytest.raises(CodegenError, match=why) as error:
        read_interface("some_kernel", changed)
    assert "kernel instance some_kernel" in str(error.value)


def test_stubs_index_functions_as_the_entry_source_does() -> None:
    """Prevents: a stub that calls the wrong function of its kernel."""
    interface = read_interface("k", SOURCE)
    text = stubs_source([(0, 1, interface), (1, 2, interface)], [SOURCE])
    assert text.startswith("// Written by qola")
    includes = [line for line in text.splitlines() if line.startswith("#include")]
    assert includes == ['#include "fmha_bwd.hpp"', "#include <iostream>", '#include "qola_lazy.h"']
    assert text.count("#define QOLA_STUB_") == 1
    lookups = ("found", "qola_lazy::functions(row, count)")
    for position, function in enumerate(FUNCTIONS):
        body = text[text.index(f"{function.result} {function.name}<__VA_ARGS__>") :]
        body = body[: body.index("}")]
        assert f"{lookups[position]}[{position}])({function.arguments})" in body
    assert text.splitlines()[-2:] == [
        f"QOLA_STUB_0(0, 1, {interface.arguments})",
        f"QOLA_STUB_0(1, 2, {interface.arguments})",
    ]
    assert [line for line in kernel_entry_source(interface).splitlines() if "FUNCTION" in line] == [
        f"QOLA_KERNEL_FUNCTION({function.name}<{interface.written}>)" for function in FUNCTIONS
    ]


def test_only_launching_stubs_are_recorded() -> None:
    """Prevents: a kernel launch while a call is recorded, or a stub that returns no name."""
    text = stubs_source([(0, 1, read_interface("k", SOURCE))], [SOURCE])
    launches, name = text.split("std::string fmha_bwd_get_name_<__VA_ARGS__>", 1)
    assert "found = qola_lazy::launching(row, count);" in launches
    assert "return float();" in launches
    assert "launching" not in name
