"""The assembly path of AITER's later trees: tables, code objects, libraries without CK."""

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
from qola.codegen.asm.config_tables import ConfigRow, padded, read_tables, row_fits
from qola.codegen.asm.later import config_modules
from qola.codegen.asm.path import assembly_path, generate_assembly_only, launched_subdirs
from qola.codegen.generate import generate
from qola.codegen.types import KernelSet, Selection
from qola.errors import CodegenError, Finding
from qola.folder import Folder
from qola.manifest.load import loads
from tests.support.later_tree import write_later_tree

GFX9 = ("gfx942", "gfx950")
NO_CK = {"libmha_fwd": ("-DFAV3_ON=1", "-DENABLE_CK=0"), "libmha_bwd": ("-DENABLE_CK=0",)}
SINK = "csrc/py_itfs_cu/with_sink.cu"


@pytest.fixture
def tree(tmp_path: Path) -> AiterTree:
    return read_tree(write_later_tree(tmp_path / "tree"))


def run(
    tree: AiterTree,
    module: str,
    archs: Sequence[str],
    manifest: str = "",
    *,
    more: Sequence[str] = (),
    flags: Sequence[str] = (),
    embedded: Sequence[str] | None = None,
) -> KernelSet:
    """Generate a library without CK; `more` are additional sources."""
    parsed = loads(f'[[modules]]\nname = "{module}"\n{manifest}', file="m.toml")
    variants = parsed.bwd_variants if module == "libmha_bwd" else parsed.fwd_variants
    config = tree.module(module, more_flags=NO_CK[module])
    config = replace(
        config, srcs=(*config.srcs, *more), flags_cc=(), flags_hip=(*NO_CK[module], *flags)
    )
    selection = Selection(
        variants=variants,
        drop_directions=frozenset({"fwd", "fwd_splitkv", "bwd"}),
        asm=embedded != (),
        embedded=embedded,
    )
    return generate(tree, config, selection, archs, Folder(tree.root.parent / "out"))


def rows_of(tree: AiterTree, header: str) -> list[str]:
    text = (tree.root.parent / "out" / "include" / header).read_text()
    return [line.strip() for line in text.splitlines() if line.startswith("    ")]


def keys_of(made: KernelSet) -> list[str]:
    return [code_object.key.removeprefix("hsa/") for code_object in made.code_objects]


def test_a_library_has_what_its_tables_name(tree: AiterTree) -> None:
    """Prevents: a row without its code object, a code object only for MI300, or a stale digest."""
    made = run(tree, "libmha_fwd", GFX9)
    assert (made.kernels, made.sources, made.warnings) == ((), (), ())
    assert made.headers == ("asm_fmha_v3_fwd_configs.hpp",)
    assert keys_of(made) == [
        *(f"gfx942/fmha_v3_fwd/{gpu}/{name}.co" for gpu in ("MI300", "MI308") for name in
          ("fwd_128", "fwd_128_causal", "fwd_128_group")),
        *(f"gfx950/fmha_v3_fwd/{name}.co" for name in ("fwd_128", "fwd_128_fp8", "fwd_192")),
    ]  # fmt: skip
    for code_object in made.code_objects:
        data = (tree.root / code_object.file).read_bytes()
        assert code_object.file == code_object.key
        assert code_object.sha256 == hashlib.sha256(data).hexdigest()
    rows = rows_of(tree, made.headers[0])
    assert len(rows) == 6
    assert {row.split(",")[0] for row in rows} == set(GFX9)


def test_only_archs_asked_for_are_in_it(tree: AiterTree) -> None:
    """Prevents: a library for one arch that carries the code objects of all."""
    made = run(tree, "libmha_fwd", ["gfx950"])
    assert {key.split("/")[0] for key in keys_of(made)} == {"gfx950"}
    assert all(row.startswith("gfx950") for row in rows_of(tree, made.headers[0]))
    # Their tables still decide columns and types, so that they are inputs of the plan.
    assert "hsa/gfx942/fmha_v3_fwd/fmha_fwd.csv" in made.inputs


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
def test_variants_choose_rows(tree: AiterTree, variant: str, names: set[str]) -> None:
    """Prevents: 4 MB of code objects in a library whose manifest asks for one head dim."""
    parsed = loads(
        f'[[modules]]\nname = "libmha_fwd"\n[[mha_fwd_variants]]\n{variant}', file="m.toml"
    )
    kept = {
        Path(row.files[0]).stem
        for table in read_tables(tree, "fmha_v3_fwd")
        for row in table.rows
        if row_fits(parsed.fwd_variants[0], row, "fmha_v3_fwd", "fwd")
    }
    assert kept == names


def test_backward_keeps_what_runs_before_and_after(tree: AiterTree) -> None:
    """Prevents: a backward kernel without the kernels around it: AITER answers -1 for them all."""
    text = '[[mha_bwd_variants]]\ndtype = "bf16"\nhdim = 96\nhas_mask = false\nmode = "batch"\n'
    made = run(tree, "libmha_bwd", ["gfx942"], text)
    assert keys_of(made) == [
        f"gfx942/fmha_v3_bwd/{name}.co" for name in ("bwd_128", "convert_128", "odo_128")
    ]


def test_a_helper_serves_every_dtype(tree: AiterTree) -> None:
    """Prevents: fp16 without dq_shuffle, whose rows say bf16 and whose code moves bytes."""
    (table,) = (t for t in read_tables(tree, "fmha_v3_bwd") if "gfx950" in t.file)
    parsed = loads(
        '[[modules]]\nname = "libmha_bwd"\n[[mha_bwd_variants]]\ndtype = "fp16"\nhdim = 128',
        file="m.toml",
    )
    assert row_fits(parsed.bwd_variants[0], table.rows[0], "fmha_v3_bwd", "bwd")


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
    """Prevents: the row of a padded problem dropped."""
    assert padded(direction, *hdim) == expected


def test_a_row_without_a_file_is_dropped(tree: AiterTree) -> None:
    """Prevents: a process that ends where AITER loads a code object it does not ship."""
    (tree.root / "hsa/gfx950/fmha_v3_fwd/fwd_192.co").unlink()
    (tree.root / "hsa/gfx942/fmha_v3_fwd/MI308/fwd_128.co").unlink()
    made = run(tree, "libmha_fwd", GFX9)
    rows = rows_of(tree, made.headers[0])
    assert [row for row in rows if "fwd_192" in row] == []
    # Also where one of two GPUs lacks it: the table is the same for both.
    assert "gfx942, bf16, 128, fwd_128.co" not in rows
    assert "gfx942/fmha_v3_fwd/MI300/fwd_128.co" not in keys_of(made)
    lost = [w for w in made.warnings if "whose files are missing" in w.found]
    assert [w.place for w in lost] == [f"hsa/{a}/fmha_v3_fwd/fmha_fwd.csv" for a in GFX9]
    assert "MI308/fwd_128.co" in lost[0].found
    assert "fwd_192.co" in lost[1].found


def test_a_file_without_a_row_is_named(tree: AiterTree) -> None:
    """Prevents: code objects that are shipped, and served by nothing, without a word."""
    (tree.root / "hsa/gfx950/fmha_v3_fwd/extra.co").write_text("more")
    made = run(tree, "libmha_fwd", GFX9)
    (warning,) = made.warnings
    assert warning.place == "hsa/gfx950/fmha_v3_fwd"
    assert warning.found == "extra.co, which no row names: not embedded"


def test_tables_of_folders_not_wanted_are_empty(tree: AiterTree) -> None:
    """Prevents: hsa_subdirs ignored, or a row selected whose code object is left out by it."""
    config = replace(tree.module("libmha_fwd", more_flags=["-DENABLE_CK=0"]), generators=())
    config = replace(config, srcs=(*config.srcs, SINK))
    for selection in (Selection(asm=False, embedded=()), Selection(asm=True, embedded=["none"])):
        made = assembly_path(tree, config, (), selection, GFX9, Folder(tree.root.parent / "out"))
        names = [table.name for table in made.tables]
        assert names == ["asm_fmha_fwd_bf16_configs.hpp", "asm_fmha_v3_fwd_configs.hpp"]
        assert [rows_of(tree, name) for name in names] == [[], []]
        assert made.code_objects == ()


def test_gfx1250_needs_only_its_own_folder(tree: AiterTree) -> None:
    """Prevents: TransformerEngine's gfx1250 manifest with kernels of other archs, or without."""
    made = run(
        tree, "libmha_fwd", ["gfx1250"], more=[SINK], flags=["-DFAV1250_ON=1"],
        embedded=["fmha_fwd_bf16"],
    )  # fmt: skip
    assert keys_of(made) == [f"gfx1250/fmha_fwd_bf16/{name}.co" for name in ("sink_128", "sink_64")]
    assert made.warnings == ()
    v3 = (tree.root.parent / "out/include/asm_fmha_v3_fwd_configs.hpp").read_text()
    # No row for this arch, and yet the types that AITER's C++ is written for.
    assert "cfg_fmha_fwd = {\n};" in v3
    assert "fmha_fwd.hdim_q: int" in v3


def test_kernels_that_nothing_launches_are_named(tree: AiterTree) -> None:
    """Prevents: a library that embeds kernels, answers -1 to everything, and was built well."""
    entry = tree.root / "csrc/cpp_itfs/mha_fwd.cu"
    entry.write_text(re.sub(r"(?s)#if FAV1250_ON.*?#endif\n", "", entry.read_text()))
    made = run(tree, "libmha_fwd", ["gfx1250"], more=[SINK], embedded=["fmha_fwd_bf16"])
    (warning,) = made.warnings
    assert warning.place == SINK
    assert "with_sink, which mha_fwd in csrc/cpp_itfs/mha_fwd.cu does not call" in warning.found


def test_the_tree_is_not_written_to(tree: AiterTree) -> None:
    """Prevents: rows dropped in the user's own checkout."""
    before = {p: p.stat().st_mtime_ns for p in tree.root.rglob("*")}
    run(tree, "libmha_bwd", ["gfx942"])
    assert {p: p.stat().st_mtime_ns for p in tree.root.rglob("*")} == before


def test_a_directory_that_is_listed_backwards(tree: AiterTree, monkeypatch: object) -> None:
    """Prevents: another header on another file system."""
    run(tree, "libmha_fwd", GFX9)
    header = tree.root.parent / "out/include/asm_fmha_v3_fwd_configs.hpp"
    first = header.read_bytes()
    for arch in (*GFX9, "gfx1250"):  # written in another order
        folder = tree.root / "hsa" / arch
        folder.rename(tree.root / "aside")
        (tree.root / "aside").rename(folder)
    run(tree, "libmha_fwd", GFX9)
    assert header.read_bytes() == first


def finding_of(tree: AiterTree, *arguments: Any, **more: Any) -> Finding:
    """Return the only finding of a call of `run` that fails."""
    with pytest.raises(CodegenError) as error:
        run(tree, *arguments, **more)
    (finding,) = error.value.findings
    return finding


def test_an_arch_without_kernels_is_refused(tree: AiterTree) -> None:
    """Prevents: an empty library for an arch that the tree has no assembly kernels for."""
    finding = finding_of(tree, "libmha_fwd", ["gfx1100", "gfx942"])
    assert finding.place == "module libmha_fwd, gfx1100"
    assert finding.found == "no assembly kernel for the manifest, and -DENABLE_CK=0"
    assert "remove gfx1100" in finding.fix


def test_a_variant_without_kernels_is_refused(tree: AiterTree) -> None:
    """Prevents: a library without CK that serves no problem of the manifest."""
    text = "[[mha_fwd_variants]]\nhdim = [128, 96]\n[[mha_fwd_variants]]\nhdim = 128"
    with pytest.raises(CodegenError) as error:
        run(tree, "libmha_fwd", GFX9, text + "\nhas_dropout = true\n")
    first, second = error.value.findings
    assert first.place == "[[mha_fwd_variants]] #1 (line 3)"
    assert first.found == (
        "no assembly kernel on gfx942 and gfx950 for head dims 96x96, and -DENABLE_CK=0"
    )
    assert second.place == "[[mha_fwd_variants]] #2 (line 5)"


def test_a_folder_without_tables_is_refused(tree: AiterTree) -> None:
    """Prevents: a compile that fails for a header without its types."""
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
def test_a_file_that_is_no_table_is_refused(tree: AiterTree, data: bytes, found: str) -> None:
    """Prevents: kernels under the names of others, from columns that slipped; a traceback."""
    (tree.root / "hsa/gfx942/fmha_v3_fwd/fmha_fwd.csv").write_bytes(data)
    finding = finding_of(tree, "libmha_fwd", ["gfx950"])
    assert finding.place == "hsa/gfx942/fmha_v3_fwd/fmha_fwd.csv"
    assert finding.found.startswith(found)


def test_comments_in_tables(tree: AiterTree) -> None:
    """Prevents: a commented row read as a kernel: AITER's script reads them so, too."""
    path = tree.root / "hsa/gfx950/fmha_v3_fwd/fmha_fwd.csv"
    header, first, *rest = path.read_text().splitlines()
    lines = ["// a table", header, f"{first} // the first", "/* not", *rest, "these */", "# end"]
    path.write_text("\n".join(lines))
    (table,) = (t for t in read_tables(tree, "fmha_v3_fwd") if t.arch == "gfx950")
    assert [row.fields["co_name"].strip() for row in table.rows] == ["fwd_128.co"]
    assert next(csv.reader([table.text(table.rows).splitlines()[1]]))[0] == "bf16"


def test_a_script_that_writes_something_else_is_refused(tree: AiterTree) -> None:
    """Prevents: an output of another kind taken for the table."""
    script = tree.root / "hsa/codegen.py"
    script.write_text(script.read_text().replace("asm_{args.module}_configs", "asm_{args.module}"))
    finding = finding_of(tree, "libmha_fwd", GFX9)
    assert finding.found == "asm_fmha_v3_fwd.hpp"
    assert finding.expected.startswith("asm_fmha_v3_fwd_configs.hpp")


def test_a_tree_whose_sources_need_ck_is_refused(tree: AiterTree) -> None:
    """Prevents: -DENABLE_CK=0 on an AITER that has no library without CK."""
    (tree.root / "hsa/codegen.py").unlink()
    finding = finding_of(tree, "libmha_bwd", ["gfx942"])
    assert finding.found == "-DENABLE_CK=0, and no source that includes asm_*_configs.hpp"


def test_a_direction_of_ck_that_stays_is_a_warning(tree: AiterTree) -> None:
    """Prevents: kernels of CK missed in a library that was built without them."""
    config = replace(
        tree.module("libmha_bwd", more_flags=["-DENABLE_CK=0"]), flags_hip=("-DENABLE_CK=0",)
    )
    out = tree.root.parent / "out"
    (warning,) = generate_assembly_only(
        tree, config, Selection(asm=True), ["gfx942"], Folder(out)
    ).warnings
    assert warning.found.startswith("direction bwd of Composable Kernel")
    assert warning.fix == 'write "bwd" into drop_directions'


def test_which_folders_a_library_launches(tree: AiterTree, aiter_tree: Path) -> None:
    """Prevents: hsa_subdirs refused that the sources launch, or taken that nothing does."""
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
    """Prevents: CK's kernels left out of a library that is to have them."""
    assert ModuleConfig("libmha_fwd", flags_cc=flags).without_ck is expected


def test_numbers_of_a_row() -> None:
    """Prevents: a gap in a table, which C++ sees as 0, read as a column that is not there."""
    written = {"hdim_q": " 128", "hdim_v": "64.0", "mask": "", "mode": " 1. "}
    row = ConfigRow("gfx942", "t", written, ())
    assert [row.number(name) for name in (*written, "none")] == [128, 64, 0, 1, None]


@pytest.mark.parametrize("text", ["x", "0.5", "1e2", "nan", "."])
def test_a_column_of_other_than_numbers_is_an_error(tree: AiterTree, text: str) -> None:
    """Prevents: a row chosen for every mask because its mask cannot be parsed."""
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


def test_errors_are_of_codegen(tree: AiterTree) -> None:
    """Prevents: a traceback in place of findings where the script itself fails."""
    (tree.root / "hsa/codegen.py").write_text("import pandas\npandas.read_parquet('x')\n")
    assert "has no attribute 'read_parquet'" in finding_of(tree, "libmha_fwd", GFX9).found
