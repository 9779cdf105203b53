"""The index of a lazy library's kernels: formats, and inputs of each digest."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qola.lazy.__main__ import Settings, identity_line, layout, main
from qola.lazy.index import Headers, Index, Kernel, code_digests, render_index, render_table
from qola.plan.model import HeaderSet, PlannedFile
from qola_base.errors import PlanError
from qola_base.files import sha256_of, sha256_of_text
from tests.support import plans
from tests.support.folders import read, write

INDEX = Index(
    module="libmha_fwd",
    root="../share/qola/ns/libmha_fwd",
    identity='Clang 22.1.8 "x"',
    flags=("-x", "hip"),
    arch_flags={"gfx950": ("-DX",)},
    package_flags={"fwd": ("-DP=1",)},
    headers={
        "fwd_0": Headers(("include/a",), {"include/a/one.h": "1" * 64}),
        "fwd_1": Headers(("include/a",), {"include/a/one.h": "1" * 64, "include/a/b.h": "2" * 64}),
    },
    link_flags=("-shared",),
    link_script="6" * 64,
    entries={"fwd_gfx950": "3" * 64},
    kernels=(
        Kernel("k1", "gfx942", "fwd", "fwd_0", "fwd_gfx950", "4" * 64),
        Kernel("k1", "gfx950", "fwd", "fwd_0", "fwd_gfx950", "4" * 64),
        Kernel("k2", "gfx950", "fwd", "fwd_1", "fwd_gfx950", "5" * 64),
    ),
)


def test_the_index_has_the_documented_format() -> None:
    """Prevents: the index has another format than docs/guide/lazy.md and index.cpp."""
    codes = code_digests(INDEX)
    assert render_index(INDEX).splitlines() == [
        "qola-kernels\t1",
        "module\tlibmha_fwd",
        "abi\t1",
        'identity\tClang 22.1.8 "x"',
        "flag\t-x",
        "flag\thip",
        "arch-flag\tgfx950\t-DX",
        "package-flag\tfwd\t-DP=1",
        "dir\tfwd_0\tinclude/a",
        f"header\tfwd_0\tinclude/a/one.h\t{'1' * 64}",
        "dir\tfwd_1\tinclude/a",
        f"header\tfwd_1\tinclude/a/b.h\t{'2' * 64}",
        f"header\tfwd_1\tinclude/a/one.h\t{'1' * 64}",
        "link-flag\t-shared",
        f"link-script\tlink.ld\t{'6' * 64}",
        f"entry\tfwd_gfx950\t{'3' * 64}",
        f"kernel\tk1\tgfx942\tfwd\tfwd_0\tfwd_gfx950\t{'4' * 64}\t{codes[0]}",
        f"kernel\tk1\tgfx950\tfwd\tfwd_0\tfwd_gfx950\t{'4' * 64}\t{codes[1]}",
        f"kernel\tk2\tgfx950\tfwd\tfwd_1\tfwd_gfx950\t{'5' * 64}\t{codes[2]}",
    ]


def test_the_table_has_the_rows_in_order() -> None:
    """Prevents: a stub gets the kernel of another row, or an index of another build."""
    text = render_table(INDEX)
    codes = code_digests(INDEX)
    assert f'    {{"k1", "gfx942", "{codes[0]}"}},\n    {{"k1", "gfx950", "{codes[1]}"}},' in text
    assert sha256_of_text(render_index(INDEX)) in text
    assert r'"Clang 22.1.8 \"x\""' in text
    assert "loaded[3]" in text


FWD_0, FWD_1 = INDEX.headers["fwd_0"], INDEX.headers["fwd_1"]
OTHER_HEADER = replace(FWD_1, files={**FWD_1.files, "include/a/b.h": "9" * 64})
OTHER_ORDER = replace(FWD_0, dirs=("b", "include/a"))
OTHER_SOURCE = replace(INDEX.kernels[2], source="7" * 64)


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        ({"headers": {"fwd_0": FWD_0, "fwd_1": OTHER_HEADER}}, {2}),
        ({"headers": {"fwd_0": OTHER_ORDER, "fwd_1": FWD_1}}, {0, 1}),
        ({"flags": ("-x", "hip", "-O3")}, {0, 1, 2}),
        ({"link_flags": ()}, {0, 1, 2}),
        ({"link_script": "7" * 64}, {0, 1, 2}),
        ({"arch_flags": {"gfx950": ("-DY",)}}, {1, 2}),
        ({"package_flags": {"fwd": ()}}, {0, 1, 2}),
        ({"entries": {"fwd_gfx950": "8" * 64}}, {0, 1, 2}),
        ({"kernels": (*INDEX.kernels[:2], OTHER_SOURCE)}, {2}),
        # The directory does not change the code; the key contains the compiler separately.
        ({"root": "elsewhere"}, set()),
        ({"identity": "Clang 23"}, set()),
    ],
)
def test_a_change_invalidates_only_affected_kernels(
    change: dict[str, Any], changed: set[int]
) -> None:
    """Prevents: a stale kernel is loaded, or an unchanged kernel is compiled again."""
    before, after = code_digests(INDEX), code_digests(replace(INDEX, **change))
    assert {row for row, digest in enumerate(before) if after[row] != digest} == changed


@pytest.mark.parametrize(
    ("text", "identity"),
    [
        ('\n\nqola_identity "Clang 22" 7 2 53211 "" 2022\n', "Clang 22 7 2 53211 2022"),
        ('int x;\n  qola_identity\t"AMD  clang"\n', "AMD clang"),
    ],
)
def test_a_compilers_identity(text: str, identity: str) -> None:
    """Prevents: line ends or blanks give one compiler two identities."""
    assert identity_line(text.replace("\t", " ")) == identity


def test_a_compiler_without_identity_is_refused() -> None:
    """Prevents: all compilers with unreadable output get one identity."""
    with pytest.raises(PlanError, match="qola_identity"):
        identity_line("int x;\n")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings in the format of rules/private/lazy.bzl, for a tree of two headers."""
    headers = [f"tree/ck/{name}" for name in ("one.h", "two.h", "unused.h")]
    names = (*headers, "qola_kernel.h", "k1.cpp", "fwd.cpp", "script.ld")
    write(tmp_path, {**{n: n for n in names}, "identity.txt": 'qola_identity "Clang" 1\n'})
    return {
        "abi_header": str(tmp_path / "qola_kernel.h"),
        "arch_flags": {"gfx950": ["-DX"]},
        "entries": {"fwd_gfx950": str(tmp_path / "fwd.cpp")},
        "flags": ["-O3"],
        "identity": str(tmp_path / "identity.txt"),
        "link_flags": ["-shared"],
        "link_script": str(tmp_path / "script.ld"),
        "module": "libmha_fwd",
        "place": "share/qola/ns/libmha_fwd",
        "plan": str(tmp_path / "plan.json"),
        "sources": {"fwd/k1": str(tmp_path / "k1.cpp")},
        "tree": str(tmp_path / "tree"),
    }


ENTRY = PlannedFile("fwd_gfx950", "entries/fwd_gfx950.cpp", sha256_of_text("fwd.cpp"))
PLAN = plans.plan(
    copts=("-DP",),
    modules=(plans.module(kernels=(0,), entry_sources=(ENTRY,)),),
    kernels=(
        plans.kernel(
            "k1",
            archs=("gfx942", "gfx950"),
            entry="fwd_gfx950",
            sha256=sha256_of_text("k1.cpp"),
        ),
    ),
    header_sets=(
        HeaderSet("fwd", ("ck",), ("ck/one.h", "ck/two.h")),
        HeaderSet("libmha_fwd", ("ck",), ("ck/unused.h",)),
    ),
)


def test_index_and_layout_agree(settings: Settings, tmp_path: Path) -> None:
    """Prevents: the compile does not find a file of the index, or finds a different file."""
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    Path(settings["plan"]).write_text(PLAN.to_json())
    index, root = tmp_path / "kernels.index", tmp_path / "root"
    common = ["--settings", str(tmp_path / "settings.json"), "--index", str(index)]
    assert main(["index", *common, "--table", str(tmp_path / "table.cpp")]) == 0
    assert main(["root", *common, "--output", str(root)]) == 0
    files = read(root)
    assert files.keys() == {
        "kernels.index",
        "link.ld",
        "entries/fwd_gfx950.cpp",
        "include/ck/one.h",
        "include/ck/two.h",
        "include/qola/qola_kernel.h",
        "src/fwd/k1.cpp",
    }
    rows = [line.split("\t") for line in index.read_text().splitlines()]
    for row in rows:
        if row[0] == "header":
            assert sha256_of(root / row[2]) == row[3]
    assert [row[1:3] for row in rows if row[0] == "kernel"] == [["k1", "gfx942"], ["k1", "gfx950"]]
    assert files["kernels.index"] == index.read_bytes()
    assert len(list(layout(settings, index.read_text()))) == len(files) - 1
