"""The entry functions of a library, parsed from headers of later AITER trees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qola.aiter.declarations import Parameter
from qola.aiter.entry_points import EntryFunction, entry_functions
from qola.aiter.preprocess import Macros
from qola.aiter.tree import read_tree
from qola_base.errors import AiterError
from tests.support.folders import write

STREAM = "const ck_tile::stream_config&"
HEADER = """\
#pragma once
#include "common.h"
#if ENABLE_CK
#include "fmha_%s.hpp"
#endif
namespace aiter {
struct mha_fwd_args { const void* ptr = nullptr; };
__attribute__((visibility("default"))) float mha_fwd(const mha_fwd_args&,
                                                     const ck_tile::stream_config& s);
#if FAV_NATIVE_ON
__attribute__((visibility("default"))) int mha_fwd_calculate_num_splits(const mha_fwd_args& a);
size_t mha_fwd_workspace_size(const mha_fwd_args& a, kind k = kind::plain);
#endif
#if ENABLE_CK
__attribute__((visibility("default"))) float mha_fwd_splitkv(fmha_fwd_splitkv_args args,
    const ck_tile::stream_config& stream_config, std::string q_dtype_str, bool is_group_mode,
    mask_enum mask_type, bias_enum bias_type, bool has_lse, bool has_sink = false);
#endif
float mha_bwd(mha_bwd_args, const ck_tile::stream_config&);
float fmha_fwd_v3(mha_fwd_args a);
} // namespace aiter
"""
FWD = """\
#include "mha_fwd.h"
SOME_DEFINITION
namespace aiter {
float fmha_fwd_v3(mha_fwd_args a) { return -1; }
#if FAV_NATIVE_ON
int mha_fwd_calculate_num_splits(const mha_fwd_args& a) { return 1; }
size_t mha_fwd_workspace_size(const mha_fwd_args& a, kind k) { return 8; }
#endif
float mha_fwd(const mha_fwd_args& args, const ck_tile::stream_config& s) { return 0; }
}
"""
SPLIT = "#if ENABLE_CK\nnamespace aiter { float mha_fwd_splitkv(A a) { return 0; } }\n#endif\n"
BWD = "namespace aiter { float mha_bwd(mha_bwd_args a, const S& s) { return -1; } }"
CK = "/* launcher */ struct fmha_bwd_launcher { size_t workspace_size; };\n"


def make_tree(root: Path) -> Path:
    entry = {"srcs": "f'{AITER_CSRC_DIR}/cpp_itfs/mha_fwd.cu'", "blob_gen_cmd": "''"}
    files = {
        "aiter/jit/optCompilerConfig.json": json.dumps({"libmha_fwd": entry, "libmha_bwd": entry}),
        "csrc/include/mha_fwd.h": HEADER % "fwd",
        "csrc/include/mha_bwd.h": HEADER % "bwd",
        "csrc/include/common.h": "namespace aiter { struct mha_bwd_args {}; enum class kind {}; }",
        "csrc/include/fmha_bwd.hpp": CK,
        "csrc/cpp_itfs/mha_fwd.cu": FWD,
    }
    return write(root, files)


def functions(
    root: Path, *directions: str, macros: Macros, ck: bool = False, sources: tuple[str, ...] = ()
) -> dict[str, EntryFunction]:
    tree = read_tree(root)
    module = "libmha_bwd" if "bwd" in directions else "libmha_fwd"
    found = entry_functions(
        tree,
        tree.module(module),
        directions,
        macros,
        sources or (FWD, SPLIT, BWD),
        launched=directions if ck else (),
    )
    return {function.name: function for function in found}


def test_two_parameters(tmp_path: Path) -> None:
    """Prevents: qola rejects the entry points of every AITER since 2026."""
    found = functions(make_tree(tmp_path), "fwd", macros={"ENABLE_CK": "0"})
    assert list(found.values()) == [
        EntryFunction(
            "mha_fwd",
            "float",
            (Parameter("const aiter::mha_fwd_args&", "args", ""), Parameter(STREAM, "s", "")),
            "fwd",
            "::aiter::mha_fwd",
        )
    ]


def test_arguments_are_passed_by_reference(tmp_path: Path) -> None:
    """Prevents: the symbol differs from ROCm/QoLA's, which TransformerEngine declares."""
    (function,) = functions(make_tree(tmp_path), "bwd", macros={"ENABLE_CK": "0"}).values()
    assert function.parameters == (
        Parameter("const aiter::mha_bwd_args&", "args", ""),
        Parameter(STREAM, "stream_config", ""),
    )


def test_helper_functions_of_a_direction(tmp_path: Path) -> None:
    """Prevents: a library lacks workspace functions, or exports a function that flags disable."""
    macros = {"ENABLE_CK": "0", "FAV_NATIVE_ON": "1"}
    found = functions(make_tree(tmp_path), "fwd", macros=macros)
    assert list(found) == ["mha_fwd", "mha_fwd_calculate_num_splits", "mha_fwd_workspace_size"]
    splits = found["mha_fwd_calculate_num_splits"]
    assert (splits.result, splits.direction, splits.arguments) == ("int", "", ("a",))
    default = found["mha_fwd_workspace_size"].parameters[1]
    assert default == Parameter("aiter::kind", "k", "aiter::kind::plain")


def test_splitkv_of_later_trees(tmp_path: Path) -> None:
    """Prevents: qola rejects split-KV because of an additional parameter."""
    found = functions(make_tree(tmp_path), "fwd", "fwd_splitkv", macros={"ENABLE_CK": "1"})
    splitkv = found["mha_fwd_splitkv"]
    assert len(splitkv.parameters) == 8
    assert splitkv.parameters[-1] == Parameter("bool", "has_sink", "false")


def test_workspace_of_composable_kernels_backward(tmp_path: Path) -> None:
    """Prevents: TransformerEngine's backward, which queries the workspace size, does not link."""
    root = make_tree(tmp_path)
    with_ck = functions(root, "bwd", macros={"ENABLE_CK": "1"}, ck=True)
    assert list(with_ck) == ["mha_bwd", "mha_bwd_workspace_size"]
    size = with_ck["mha_bwd_workspace_size"]
    assert (size.calls, size.member) == ("::fmha_bwd_launcher", ".workspace_size")
    assert size.parameters == (Parameter("const fmha_bwd_traits&", "traits", ""),)
    assert list(functions(root, "bwd", macros={"ENABLE_CK": "0"}, ck=True)) == ["mha_bwd"]
    assert list(functions(root, "bwd", macros={"ENABLE_CK": "1"})) == ["mha_bwd"]
    (root / "csrc/include/fmha_bwd.hpp").write_text("struct fmha_bwd_traits {};")
    assert list(functions(root, "bwd", macros={"ENABLE_CK": "1"}, ck=True)) == ["mha_bwd"]


@pytest.mark.parametrize(
    ("directions", "macros", "sources", "message"),
    [
        (("fwd_splitkv",), {"ENABLE_CK": "0"}, (), "no declaration of mha_fwd_splitkv"),
        (("fwd",), {}, (BWD,), "mha_fwd, which no source of libmha_fwd defines"),
        (("batch_prefill",), {}, (), "no declaration of mha_batch_prefill"),
    ],
)
def test_missing_entry_points(
    tmp_path: Path,
    directions: tuple[str, ...],
    macros: Macros,
    sources: tuple[str, ...],
    message: str,
) -> None:
    """Prevents: linking fails after all kernels were compiled."""
    with pytest.raises(AiterError, match=message) as error:
        functions(make_tree(tmp_path), *directions, macros=macros, sources=sources)
    assert "csrc/include/mha_fwd.h" in str(error.value)
    assert "drop_directions" in str(error.value)


def test_unsupported_declarations(tmp_path: Path) -> None:
    """Prevents: qola guesses the parameters of a wrapper."""
    root = make_tree(tmp_path)
    header = root / "csrc/include/mha_fwd.h"
    for form in ("float mha_fwd(float (*f)(int));", "auto mha_fwd(int a) { return 1.f; }"):
        header.write_text(f"namespace aiter {{ {form} }}")
        with pytest.raises(AiterError, match="mha_fwd has a parameter or a result of an unsupp"):
            functions(root, "fwd", macros={})
    header.unlink()
    with pytest.raises(AiterError, match="cannot be read"):
        functions(root, "fwd", macros={})


def test_repeated_declarations(tmp_path: Path) -> None:
    """Prevents: a wrapper is defined twice, or lacks the defaults of the declaration."""
    root = make_tree(tmp_path)
    again = "float mha_fwd(A x, int);\nfloat mha_fwd(A a, int b = 2);\nfloat mha_fwd(A, int c);\n"
    (root / "csrc/include/mha_fwd.h").write_text(f"namespace aiter {{\n{again}}}")
    tree = read_tree(root)
    (function,) = entry_functions(tree, tree.module("libmha_fwd"), ["fwd"], {}, [FWD])
    assert function.parameters == (Parameter("A", "a", ""), Parameter("int", "b", "2"))


def test_overloaded_entry_point(tmp_path: Path) -> None:
    """Prevents: a library exports only the last of two overloads."""
    root = make_tree(tmp_path)
    header = root / "csrc/include/mha_fwd.h"
    header.write_text("namespace aiter { float mha_fwd(A a); float mha_fwd(A a, int b); }")
    with pytest.raises(AiterError, match="2 forms of mha_fwd") as error:
        functions(root, "fwd", macros={})
    assert "mha_fwd(A) and mha_fwd(A, int)" in str(error.value)
