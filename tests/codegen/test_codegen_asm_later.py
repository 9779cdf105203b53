"""The assembly path of later AITER trees: tables, code objects, libraries without CK."""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qola.aiter.tree import AiterTree, ModuleConfig, read_tree
from qola.codegen.asm.later import ConfigRow, config_modules, padded, read_tables, row_fits
from qola.codegen.asm.path import assembly_path, generate_assembly_only, launched_subdirs
from qola.codegen.generate import generate
from qola.codegen.types import KernelSet, Selection
from qola.common.folder import Folder
from qola_base.errors import CodegenError, Finding
from tests.codegen.generating import BOTH, variants_of
from tests.support.later_tree import write_later_tree

NO_CK = {"libmha_fwd": ("-DFAV3_ON=1", "-DENABLE_CK=0"), "libmha_bwd": ("-DENABLE_CK=0",)}
SINK = "csrc/py_itfs_cu/with_sink.cu"


@pytest.fixture
def tree(tmp_path: Path) -> AiterTree:
    return read_tree(write_later_tree(tmp_path / "tree"))


def run(
    tree: AiterTree,
    module: str,
    archs: Sequence[str],
    tables: str = "",
    *,
    more: Sequence[str] = (),
    flags: Sequence[str] = (),
    embedded: Sequence[str] | None = None,
) -> KernelSet:
    """Generate a library without CK. `more` are additional sources."""
    config = tree.module(module, more_flags=NO_CK[module])
    config = replace(
        config, srcs=(*config.srcs, *more), flags_cc=(), flags_hip=(*NO_CK[module], *flags)
    )
    selection = Selection(
        variants=variants_of(tables, module),
        drop_directions=frozenset({"fwd", "fwd_splitkv", "bwd"}),
        asm=embedded != (),
        embedded=embedded,
    )
    return generate(tree, config, selection, archs, Folder(tree.root.parent / "out"))


def read_rows(tree: AiterTree, header: str) -> list[str]:
    text = (tree.root.parent / "out" / "include" / header).read_text()
    return [line.strip() for line in text.splitlines() if line.startswith("    ")]


def list_keys(kernels: KernelSet) -> list[str]:
    return [code_object.key.removeprefix("hsa/") for code_object in kernels.code_objects]


def test_library_matches_its_tables(tree: AiterTree) -> None:
    """Prevents: a row without its code object, missing MI308 code objects, or a wrong digest."""
    result = run(tree, "libmha_fwd", BOTH)
    assert (result.kernels, result.sources, result.warnings) == ((), (), ())
    assert result.headers == ("asm_fmha_v3_fwd_configs.hpp",)
    assert list_keys(result) == [
        *(f"gfx942/fmha_v3_fwd/{gpu}/{name}.co" for gpu in ("MI300", "MI308") for name in
          ("fwd_128", "fwd_128_causal", "fwd_128_group")),
        *(f"gfx950/fmha_v3_fwd/{name}.co" for name in ("fwd_128", "fwd_128_fp8", "fwd_192")),
    ]  # fmt: skip
    for code_object in result.code_objects:
        data = (tree.root / code_object.file).read_bytes()
        assert code_object.file == code_object.key
        assert code_object.sha256 == hashlib.sha256(data).hexdigest()
    rows = read_rows(tree, result.headers[0])
    assert len(rows) == 6
    assert {row.split(",")[0] for row in rows} == set(BOTH)


def test_library_has_only_requested_archs(tree: AiterTree) -> None:
    """Prevents: a library for one arch that contains the code objects of all archs."""
    result = run(tree, "libmha_fwd", ["gfx950"])
    assert {key.split("/")[0] for key in list_keys(result)} == {"gfx950"}
    assert all(row.startswith("gfx950") for row in read_rows(tree, result.headers[0]))
    # Tables of other archs determine columns and types, so that they are inputs of the plan.
    assert "hsa/gfx942/fmha_v3_fwd/fmha_fwd.csv" in result.inputs


@pytest.mark.parametrize(
    ("variant", "names"),
    [
        ('dtype = "bf16"', {"fwd_128", "fwd_128_causal", "fwd_128_group", "fwd_192"}),
        ('dtype = ["bf16"]\nhdim = 128', {"fwd_128", "fwd_128_causal", "fwd_128_group"}),
        ('dtype = "bf16"\nhdim = [128, [192, 128]]\nhas_mask = false\nmode = "batch"',
         {"fwd_128", "fwd_192"}),
        ("hdim = 128\nhas_mask = true", {"fwd_128_causal"}),
        ('hdim = 128\nmode = "group"', {"fwd_128_group"}),
        ('dtype = "fp8bf16"', {"fwd_128_fp8"}),
        ("has_bias = true", set()),
        ("has_dropout = true", set()),
        ("has_sink = true", set()),
    ],
)  # fmt: skip
def test_variants_select_rows(tree: AiterTree, variant: str, names: set[str]) -> None:
    """Prevents: 4 MB of code objects in a library whose manifest selects a single head dim."""
    (chosen,) = variants_of(f"[[mha_fwd_variants]]\n{variant}")
    selected = {
        Path(row.files[0]).stem
        for table in read_tables(tree, "fmha_v3_fwd")
        for row in table.rows
        if row_fits(chosen, row, "fmha_v3_fwd", "fwd")
    }
    assert selected == names


def test_backward_includes_helper_kernels(tree: AiterTree) -> None:
    """Prevents: a backward kernel without its helper kernels, for which AITER returns -1."""
    text = '[[mha_bwd_variants]]\ndtype = "bf16"\nhdim = 96\nhas_mask = false\nmode = "batch"\n'
    result = run(tree, "libmha_bwd", ["gfx942"], text)
    assert list_keys(result) == [
        f"gfx942/fmha_v3_bwd/{name}.co" for name in ("bwd_128", "convert_128", "odo_128")
    ]


def test_helper_kernel_serves_every_dtype(tree: AiterTree) -> None:
    """Prevents: fp16 without dq_shuffle, whose rows say bf16 although its code only moves bytes."""
    (table,) = (t for t in read_tables(tree, "fmha_v3_bwd") if "gfx950" in t.file)
    (variant,) = variants_of('[[mha_bwd_variants]]\ndtype = "fp16"\nhdim = 128', "libmha_bwd")
    assert row_fits(variant, table.rows[0], "fmha_v3_bwd", "bwd")


@pytest.mark.parametrize(
    ("direction", "hdim", "expected"),
    [
        ("fwd", (128, 128), (128, 128)),
        ("fwd", (96, 96), (96, 96)),
        ("bwd", (96, 96), (128, 128)),
        ("bwd", (64, 64), (64, 64)),
        ("bwd", (136, 136), (192, 192)),
        ("bwd", (192, 128), (192, 128)),
        ("bwd", (256, 256), (256, 256)),
    ],
)
def test_head_dims_are_padded_as_by_aiter(
    direction: str, hdim: tuple[int, int], expected: tuple[int, int]
) -> None:
    """Prevents: the row of a padded problem omitted."""
    assert padded(direction, *hdim) == expected


def test_row_without_a_file_is_omitted(tree: AiterTree) -> None:
    """Prevents: AITER ends the process because a code object does not exist."""
    (tree.root / "hsa/gfx950/fmha_v3_fwd/fwd_192.co").unlink()
    (tree.root / "hsa/gfx942/fmha_v3_fwd/MI308/fwd_128.co").unlink()
    result = run(tree, "libmha_fwd", BOTH)
    rows = read_rows(tree, result.headers[0])
    assert [row for row in rows if "fwd_192" in row] == []
    # A file that only MI308 lacks removes the row, since MI300 and MI308 share the table.
    assert "gfx942, bf16, 128, fwd_128.co" not in rows
    assert "gfx942/fmha_v3_fwd/MI300/fwd_128.co" not in list_keys(result)
    missing = [w for w in result.warnings if "whose files are missing" in w.found]
    assert [w.place for w in missing] == [f"hsa/{a}/fmha_v3_fwd/fmha_fwd.csv" for a in BOTH]
    assert "MI308/fwd_128.co" in missing[0].found
    assert "fwd_192.co" in missing[1].found


def test_file_without_a_row_is_a_warning(tree: AiterTree) -> None:
    """Prevents: code objects that the tree ships and no table uses, without a warning."""
    (tree.root / "hsa/gfx950/fmha_v3_fwd/extra.co").write_text("more")
    result = run(tree, "libmha_fwd", BOTH)
    (warning,) = result.warnings
    assert warning.place == "hsa/gfx950/fmha_v3_fwd"
    assert warning.found == "extra.co, which no row names: not embedded"


def test_tables_of_excluded_subdirs_are_empty(tree: AiterTree) -> None:
    """Prevents: hsa_subdirs ignored, or a row whose code object it excludes."""
    config = replace(tree.module("libmha_fwd", more_flags=["-DENABLE_CK=0"]), generators=())
    config = replace(config, srcs=(*config.srcs, SINK))
    for selection in (Selection(asm=False, embedded=()), Selection(asm=True, embedded=["none"])):
        result = assembly_path(tree, config, (), selection, BOTH, Folder(tree.root.parent / "out"))
        names = [table.name for table in result.tables]
        assert names == ["asm_fmha_fwd_bf16_configs.hpp", "asm_fmha_v3_fwd_configs.hpp"]
        assert [read_rows(tree, name) for name in names] == [[], []]
        assert result.code_objects == ()


def test_gfx1250_needs_only_its_subdir(tree: AiterTree) -> None:
    """Prevents: TransformerEngine's gfx1250 library without kernels, or with other archs."""
    result = run(
        tree, "libmha_fwd", ["gfx1250"], more=[SINK], flags=["-DFAV1250_ON=1"],
        embedded=["fmha_fwd_bf16"],
    )  # fmt: skip
    assert list_keys(result) == [
        f"gfx1250/fmha_fwd_bf16/{name}.co" for name in ("sink_128", "sink_64")
    ]
    assert result.warnings == ()
    v3 = (tree.root.parent / "out/include/asm_fmha_v3_fwd_configs.hpp").read_text()
    # The table has no row for gfx1250, but the field types that AITER's C++ expects.
    assert "cfg_fmha_fwd = {\n};" in v3
    assert "fmha_fwd.hdim_q: int" in v3


def test_kernels_without_a_launch_are_a_warning(tree: AiterTree) -> None:
    """Prevents: a library with kernels that returns -1 for every problem, without a warning."""
    entry = tree.root / "csrc/cpp_itfs/mha_fwd.cu"
    entry.write_text(re.sub(r"(?s)#if FAV1250_ON.*?#endif\n", "", entry.read_text()))
    result = run(tree, "libmha_fwd", ["gfx1250"], more=[SINK], embedded=["fmha_fwd_bf16"])
    (warning,) = result.warnings
    assert warning.place == SINK
    assert "with_sink, which mha_fwd in csrc/cpp_itfs/mha_fwd.cu does not call" in warning.found


def test_tree_is_not_modified(tree: AiterTree) -> None:
    """Prevents: rows removed from tables in the user's checkout."""
    before = {p: p.stat().st_mtime_ns for p in tree.root.rglob("*")}
    run(tree, "libmha_bwd", ["gfx942"])
    assert {p: p.stat().st_mtime_ns for p in tree.root.rglob("*")} == before


def test_header_does_not_depend_on_directory_order(tree: AiterTree) -> None:
    """Prevents: a header that differs between file systems."""
    run(tree, "libmha_fwd", BOTH)
    header = tree.root.parent / "out/include/asm_fmha_v3_fwd_configs.hpp"
    first = header.read_bytes()
    for arch in (*BOTH, "gfx1250"):  # recreates the entry, in another order
        folder = tree.root / "hsa" / arch
        folder.rename(tree.root / "aside")
        (tree.root / "aside").rename(folder)
    run(tree, "libmha_fwd", BOTH)
    assert header.read_bytes() == first


def finding_of(tree: AiterTree, *arguments: Any, **more: Any) -> Finding:
    """Return the only finding of a failing call of `run`."""
    with pytest.raises(CodegenError) as error:
        run(tree, *arguments, **more)
    (finding,) = error.value.findings
    return finding


def test_arch_without_kernels_is_refused(tree: AiterTree) -> None:
    """Prevents: an empty library for an arch without assembly kernels in the tree."""
    finding = finding_of(tree, "libmha_fwd", ["gfx1100", "gfx942"])
    assert finding.place == "module libmha_fwd, gfx1100"
    assert finding.found == "no assembly kernel for the manifest, and -DENABLE_CK=0"
    assert "remove gfx1100" in finding.fix


def test_variant_without_kernels_is_refused(tree: AiterTree) -> None:
    """Prevents: a library without CK that serves no problem of a variant."""
    text = "[[mha_fwd_variants]]\nhdim = [128, 96]\n[[mha_fwd_variants]]\nhdim = 128"
    with pytest.raises(CodegenError) as error:
        run(tree, "libmha_fwd", BOTH, text + "\nhas_dropout = true\n")
    first, second = error.value.findings
    assert first.place == "m.toml:3 [[mha_fwd_variants]]"
    assert first.found == (
        "no assembly kernel on gfx942 and gfx950 for head dims 96x96, and -DENABLE_CK=0"
    )
    assert second.place == "m.toml:5 [[mha_fwd_variants]]"


def test_subdir_without_tables_is_refused(tree: AiterTree) -> None:
    """Prevents: a failing compile because a header does not declare its types."""
    (tree.root / "hsa/gfx1250/fmha_fwd_bf16/fmha_fwd_bf16.csv").unlink()
    finding = finding_of(tree, "libmha_fwd", ["gfx942"], more=[SINK])
    assert finding.place == "hsa/codegen.py -m fmha_fwd_bf16"
    assert finding.found == "no table hsa/<arch>/fmha_fwd_bf16/**/*.csv"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"dtype,co_name\nbf16,k.co\n", "columns dtype, co_name, rows of [2] fields"),
        (b"knl_name,co_name\nk\n", "columns knl_name, co_name, rows of [1] fields"),
        (b"", "columns none"),
        (b"knl_name,co_name\n\xff,a.co\n", "UnicodeDecodeError: "),
        (b'knl_name,co_name\n"' + b"a" * 200_000 + b'",a.co\n', "Error: field larger than"),
    ],
)
def test_invalid_table_is_refused(tree: AiterTree, data: bytes, found: str) -> None:
    """Prevents: kernels with wrong names because of shifted columns, or a traceback."""
    (tree.root / "hsa/gfx942/fmha_v3_fwd/fmha_fwd.csv").write_bytes(data)
    finding = finding_of(tree, "libmha_fwd", ["gfx950"])
    assert finding.place == "hsa/gfx942/fmha_v3_fwd/fmha_fwd.csv"
    assert finding.found.startswith(found)


def test_comments_in_tables(tree: AiterTree) -> None:
    """Prevents: a commented row read as a kernel, unlike by AITER's script."""
    path = tree.root / "hsa/gfx950/fmha_v3_fwd/fmha_fwd.csv"
    header, first, *rest = path.read_text().splitlines()
    lines = ["// a table", header, f"{first} // the first", "/* not", *rest, "these */", "# end"]
    path.write_text("\n".join(lines))
    (table,) = (t for t in read_tables(tree, "fmha_v3_fwd") if t.arch == "gfx950")
    assert [row.fields["co_name"].strip() for row in table.rows] == ["fwd_128.co"]
    assert next(csv.reader([table.text(table.rows).splitlines()[1]]))[0] == "bf16"


def test_script_with_unexpected_output_is_refused(tree: AiterTree) -> None:
    """Prevents: an unknown output file of AITER's script used as the table."""
    script = tree.root / "hsa/codegen.py"
    script.write_text(script.read_text().replace("asm_{args.module}_configs", "asm_{args.module}"))
    finding = finding_of(tree, "libmha_fwd", BOTH)
    assert finding.found == "asm_fmha_v3_fwd.hpp"
    assert finding.expected.startswith("asm_fmha_v3_fwd_configs.hpp")


def test_tree_whose_sources_need_ck_is_refused(tree: AiterTree) -> None:
    """Prevents: -DENABLE_CK=0 accepted for an AITER that cannot build libraries without CK."""
    (tree.root / "hsa/codegen.py").unlink()
    finding = finding_of(tree, "libmha_bwd", ["gfx942"])
    assert finding.found == "-DENABLE_CK=0, and no source that includes asm_*_configs.hpp"


def test_remaining_direction_of_ck_is_a_warning(tree: AiterTree) -> None:
    """Prevents: kernels of CK missing in a library without CK, without a warning."""
    config = replace(
        tree.module("libmha_bwd", more_flags=["-DENABLE_CK=0"]), flags_hip=("-DENABLE_CK=0",)
    )
    out = tree.root.parent / "out"
    (warning,) = generate_assembly_only(
        tree, config, Selection(asm=True), ["gfx942"], Folder(out)
    ).warnings
    assert warning.found.startswith("direction bwd of Composable Kernel")
    assert warning.fix == 'write "bwd" into drop_directions'


def test_launched_subdirs(tree: AiterTree, aiter_tree: Path) -> None:
    """Prevents: hsa_subdirs refused although sources launch them, or accepted without a launch."""
    config = tree.module("libmha_fwd", more_flags=["-DENABLE_CK=0"])
    assert launched_subdirs(tree, config) == ("fmha_v3_fwd",)
    with_sink = replace(config, srcs=(*config.srcs, SINK))
    assert launched_subdirs(tree, with_sink) == ("fmha_fwd_bf16", "fmha_v3_fwd")
    assert config_modules(tree, with_sink, {"with_sink.cu"}) == ("fmha_v3_fwd",)
    wheel = read_tree(aiter_tree)
    assert launched_subdirs(wheel, wheel.module("libmha_bwd")) == ("fmha_v3_bwd",)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("-DENABLE_CK=0",), True),
        (("-DENABLE_CK=1",), False),
        ((), False),
        (("-DENABLE_CK=0", "-DENABLE_CK=1"), False),
        (("-DENABLE_CK=00",), False),
    ],
)
def test_without_ck(flags: tuple[str, ...], expected: bool) -> None:
    """Prevents: CK's kernels omitted from a library that needs them."""
    assert ModuleConfig("libmha_fwd", flags_cc=flags).without_ck is expected


def test_numbers_of_a_row() -> None:
    """Prevents: an empty field, which C++ reads as 0, treated as an absent column."""
    fields = {"hdim_q": " 128", "hdim_v": "64.0", "mask": "", "mode": " 1. "}
    row = ConfigRow("gfx942", "t", fields, ())
    assert [row.number(name) for name in (*fields, "none")] == [128, 64, 0, 1, None]


@pytest.mark.parametrize("text", ["x", "0.5", "1e2", "nan", "."])
def test_non_numeric_column_is_an_error(tree: AiterTree, text: str) -> None:
    """Prevents: a row selected for every mask because its mask cannot be parsed."""
    folder = tree.root / "hsa/gfx942/fmha_v3_fwd"
    (folder / "more.csv").write_text(
        f"/* of\nlines */\nmask,knl_name,co_name # names\n\n1,a,a.co\n{text},b,b.co\n"
    )
    (table,) = (t for t in read_tables(tree, "fmha_v3_fwd") if t.file.endswith("more.csv"))
    assert table.rows[0].number("mask") == 1
    with pytest.raises(CodegenError) as error:
        table.rows[1].number("mask")
    (finding,) = error.value.findings
    assert finding.place == "hsa/gfx942/fmha_v3_fwd/more.csv:6"
    assert finding.fix == "use an AITER tree whose tables have numbers in this column"
    assert (finding.found, finding.expected.split(",")[0]) == (f"mask = {text}", "a whole number")


@pytest.mark.parametrize("package", ["pytest", "elftools", "qola_is_not_installed"])
def test_scripts_import_pandas_and_nothing_else(tree: AiterTree, package: str) -> None:
    """Prevents: output that depends on packages that happen to be installed."""
    script = tree.root / "hsa/codegen.py"
    text = f"import numpy, pandas, pandas.errors\nassert pandas.read_csv\nimport {package}\n"
    script.write_text(text)
    found = finding_of(tree, "libmha_fwd", BOTH).found
    assert f"ModuleNotFoundError: No module named '{package}'" in found
