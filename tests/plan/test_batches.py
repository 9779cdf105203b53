"""Batches: which kernel instances are compiled together, and the source of a batch."""

from __future__ import annotations

import pytest

from qola.codegen.ck.batches import (
    batch_source,
    included,
    instantiating_macros,
    local_names,
    only_calls_name,
    only_defines_name,
)
from qola.codegen.types import FieldValue, KernelInstance
from qola.plan.batches import batch_name, cut, in_order

SOURCE = """\
// auto generated; "using comment_0 = int;" is none
#include "fmha_fwd.hpp"
#include <iostream>
#if !defined(__HIP_DEVICE_COMPILE__) || (defined(__gfx950__))
using fmha_dtype_0 = FmhaFwdBf16;
using fmha_shape_0 = ck_tile::TileFmhaShape<fmha_dtype_0,
                                      ck_tile::sequence<4, (1 > 0)>>;
namespace {
template <bool kUneven, bool kMerge = false>
struct instance {
using inner = int;
static void run(int a) { if (a) { return; } }
}; // struct instance
template <bool kUneven>
void run_instance(const ck_tile::stream_config& s, fmha_fwd_args a) { instance<kUneven>::run(1); }
} // anonymous namespace
template<>
float fmha_fwd_<trait_0, ck_tile::gfx950_t>(const ck_tile::stream_config& s, fmha_fwd_args a)
{
    using k_ = fmha_kernel_0;
    std::cout << ", { " << '}';
    return 0;
}
#endif
"""


def test_local_names_of_a_file() -> None:
    """Prevents: a name that two files of a batch define."""
    names = local_names(SOURCE)
    assert names == ("fmha_dtype_0", "fmha_shape_0", "instance", "run_instance")


def test_template_parameters_are_not_records() -> None:
    """Prevents: "class" in template parameters that hides the names after a function template."""
    text = "template <class T> void f(T x) {}\nvoid g() {}\nstruct Z { int x; };\n"
    assert local_names(text) == ("Z", "f", "g")
    assert local_names("#pragma clang diagnostic push\nusing a = int;\n") == ("a",)


def test_constants_and_macros_of_headers() -> None:
    """Prevents: MoE instances compiled separately, or a constant defined twice in a batch."""
    header = (
        "#define GEMM(A, \\\n  B) \\\n template void gemm<A, B>(int);\n"
        "#define TABLE(x) template struct t<x>; int table_##x[4];\n"
        "#define TWO template void a<1>();\n#define TWO int two;\n"
    )
    macros = instantiating_macros([header])
    assert macros == {"GEMM"}
    text = "const bool kQuant = 0 == static_cast<int>(Q::none);\nGEMM(kQuant, 2)"
    assert local_names(text, macros) == local_names(text + ";\n", macros) == ("kQuant",)
    assert local_names(text) is None
    assert local_names("const int a = 1, b = 2;\n") is None
    assert local_names("GEMM(1, 2) int x() { return 1; }\n", macros) is None


@pytest.mark.parametrize(
    "text",
    [
        "#define WIDTH 4\n",
        "using namespace ck_tile;\n",
        "namespace ours {\nint x();\n}\n",
        "extern template struct ck_tile::kernel<int>;\n",
        "int table[4] = {1, 2, 3, 4};\n",
        "int a, b;\n",
        "struct open {\n",
        "struct fmha_args;\n",
        "extern int tune(int);\n",
        'extern "C" int tune(int);\n',
        "typedef int (x)(int);\n",
        "enum mode { A, B };\n",
        "struct alignas(16) Wide { int x; };\n",
        "static __attribute__((noinline)) void f(int) {}\n",
        "__global__ void __launch_bounds__(256) f(int x) {}\n",
        "static decltype(1) f() { return 1; }\n",
        "#pragma clang optimize off\n",
        "#include HEADER\n",
        "#ifdef X\n#include <vector>\n#endif\n",
    ],
)
def test_unknown_syntax_is_compiled_separately(text: str) -> None:
    """Prevents: a batch that does not compile, or changes its meaning, by guessed names."""
    assert local_names(SOURCE + text) is None


def test_source_of_a_batch() -> None:
    """Prevents: a header included after the names of a file are renamed, or a missing kernel."""
    includes = included([SOURCE, SOURCE])
    assert includes == ['"fmha_fwd.hpp"', "<iostream>"]
    lines = batch_source(["k1", "k2"], includes, ["instance"]).splitlines()
    first, renamed = lines.index('#include "fmha_fwd.hpp"'), lines.index('#include "../k1.cpp"')
    assert first < lines.index("#define instance QOLA_LOCAL(instance)") < renamed
    assert lines[renamed - 1 : renamed + 2] == [
        "#define QOLA_KERNEL 0",
        '#include "../k1.cpp"',
        "#undef QOLA_KERNEL",
    ]
    assert lines[-2] == '#include "../k2.cpp"'


def test_batch_replaces_get_name() -> None:
    """Prevents: 7 kB of host code for each kernel instance to compose its name."""
    lines = batch_source(["k1", "k2"], ['"fmha_fwd.hpp"'], [], named=True).splitlines()
    assert lines.index("#include <string>") < lines.index("#ifndef __HIP_DEVICE_COMPILE__")
    defined, header, called = (
        number
        for number, line in enumerate(lines)
        if line.startswith(("#define GetName()", '#include "fmha_fwd.hpp"'))
    )
    assert lines[defined - 1] == lines[called - 2] == "#ifndef __HIP_DEVICE_COMPILE__", "no device"
    assert defined < header < called
    at = lines.index('#include "../k2.cpp"')
    assert lines[at - 1 : at + 2] == [
        '#define QOLA_NAME "k2"',
        '#include "../k2.cpp"',
        "#undef QOLA_NAME",
    ]


def test_get_name_is_replaced_only_in_known_uses() -> None:
    """Prevents: a batch that does not compile with another version of Composable Kernel."""
    definition = "  CK_TILE_HOST static std::string GetName()\n  {\n"
    constant = "  [[nodiscard]] static const std::string GetName() {\n"
    assert only_defines_name(["", definition, f"// GetName()\n{constant}"])
    assert not only_defines_name([definition, "return concat(Pipeline::GetName());"])
    assert not only_defines_name(["static std::string GetName(int);"])
    assert only_calls_name(SOURCE + "std::cout << k_::GetName() << std::flush;")
    assert not only_calls_name(SOURCE + "auto f = &k_::GetName;")


def kernel(name: str, **fields: FieldValue) -> KernelInstance:
    defaults: dict[str, FieldValue] = {
        "dtype": "bf16",
        "tile": "b1",
        "pipeline": "qr",
        "mask": False,
    }
    return KernelInstance(name, "fwd", "fwd", ("gfx950",), "", {**defaults, **fields})


def names(kernels: list[KernelInstance], size: int) -> list[tuple[str, ...]]:
    return [tuple(k.name for k in batch) for batch in cut(in_order(kernels), size)]


FAMILY = [kernel(f"k{mask}{n:03}", mask=mask, spad=bool(n % 2)) for mask in "ny" for n in range(60)]


def test_each_kernel_is_in_exactly_one_batch() -> None:
    """Prevents: a duplicate or missing kernel in a library, or a batch that exceeds the memory."""
    batches = names(FAMILY, 16)
    assert sorted(name for batch in batches for name in batch) == [k.name for k in FAMILY]
    assert all(8 <= len(batch) <= 16 for batch in batches[:-1])
    assert len({len(batch) for batch in batches}) > 1, "cut by number alone: nothing is shared"
    assert names(list(reversed(FAMILY)), 16) == batches, "depends on the order they came in"
    assert names(FAMILY, 1) == [(k.name,) for k in in_order(FAMILY)]


def test_additional_variant_changes_few_batches() -> None:
    """Prevents: all batches of a family recompiled after a variant is added."""
    before, after = {*names(FAMILY, 16)}, {*names([*FAMILY, *MORE], 16)}
    assert len(before - after) <= 2
    assert len(after - before) <= len(MORE) // 8 + 3


MORE = [kernel(f"m{n:03}", mask="n", bias="alibi", spad=bool(n % 2)) for n in range(20)]


@pytest.mark.parametrize("other_kernels", [1, 3, 5, 7, 40])
def test_batches_do_not_depend_on_other_families(other_kernels: int) -> None:
    """Prevents: a family recompiled because a manifest adds kernels of another family."""
    other_family = [kernel(f"a{n}", tile="b0") for n in range(other_kernels)]
    assert {*names(FAMILY[:40], 16)} <= {*names(other_family + FAMILY[:40], 16)}


def test_small_batches_are_merged() -> None:
    """Prevents: a separate compile of few kernels that fit into another batch."""
    batches = names([kernel(f"k{n}") for n in range(10)], 16)
    assert [len(batch) for batch in batches] == [10]


def test_large_families_are_not_mixed() -> None:
    """Prevents: a batch with templates of two tiles although each tile has enough kernels."""
    other = [kernel(f"o{n}", tile="b2") for n in range(9)]
    small = [kernel(f"s{n}", tile="b3") for n in range(2)]
    batches = names([kernel(f"k{n}") for n in range(9)] + other + small, 16)
    assert all(len({name[0] for name in batch}) == 1 for batch in batches[:2])
    both = names([kernel("k0"), kernel("k1"), *small], 16)
    assert len(both) == 1, "a compile of two kernels costs nearly as much as one of four"


def test_additional_pipeline_keeps_other_batches() -> None:
    """Prevents: with a large `batch`, all small families recompiled for an additional pipeline."""
    qr = [kernel(f"q{n}", tile=f"b{n // 4}") for n in range(12)]
    # Their tile sorts the added kernels between the kernels of pipeline qr.
    added = [kernel(f"a{n}", tile="b1", pipeline="qr_async") for n in range(8)]
    assert [len(batch) for batch in names(qr, 32)] == [12]
    assert {*names([*qr, *added], 32)} == {*names(qr, 32), *names(added, 32)}
    assert len(names([*qr, *added[:2]], 32)) == 1, "a compile for two kernels of a pipeline"


def test_batch_names_are_unique() -> None:
    """Prevents: two batches of one name in the repository that manifests share."""
    single, first_pair = FAMILY[:1], FAMILY[:2]
    assert batch_name(single) == single[0].name
    assert batch_name(first_pair).startswith("fwd_bf16_2_")
    assert batch_name(first_pair) != batch_name(FAMILY[1:3])
