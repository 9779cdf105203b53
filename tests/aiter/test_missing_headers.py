"""Detection of includes whose header does not exist, without false alarms."""

from __future__ import annotations

from pathlib import Path

import pytest

from qola.aiter import missing_names, module_kinds
from qola.aiter.includes import include_dirs
from qola.aiter.missing_names import (
    Includer,
    MissingName,
    elsewhere,
    missing_headers,
    unknown_names,
)
from qola.aiter.preprocess import Macros, defined_by
from qola.aiter.tree import read_tree
from qola_base.files import lossy_text
from tests.support.folders import write


def missing(root: Path, text: str, macros: Macros | None = None, *generated: str) -> list[str]:
    found = missing_headers(root, ["inc"], [Includer("a.cu", text)], macros or {}, generated)
    return [f"{header.place} {header.name}" for header in found]


def test_missing_headers_are_reported(tmp_path: Path) -> None:
    """Prevents: a compile error an hour after a plan without errors."""
    write(tmp_path, {"inc/b.h": '#pragma once\n#include "sub/near.h"\n'})
    write(tmp_path, {"inc/sub/near.h": '#include "far.h"\n#include "b.h"\n#include "gone.h"\n'})
    write(tmp_path, {"inc/sub/far.h": ""})
    text = '#include "b.h"\n#include "configs.hpp"\n#include <not_quoted.h>\n'
    assert missing(tmp_path, text) == ["a.cu:2 configs.hpp", "inc/sub/near.h:3 gone.h"]
    assert missing(tmp_path, text, None, "configs.hpp") == ["inc/sub/near.h:3 gone.h"]


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("#if 0", False),
        ("#if ENABLE_CK", False),
        ("#if !ENABLE_CK", True),
        ("#ifdef FAV3_ON", False),
        ("#ifdef __HIP_DEVICE_COMPILE__", False),
        ("#if defined(_WIN32)", False),
        ('#if __has_include("gone.h")', False),
    ],
)
def test_conditions(tmp_path: Path, condition: str, found: bool) -> None:
    """Prevents: a false alarm for an inactive include, or no alarm for an active include."""
    text = f'#ifndef A_H\n#define A_H\n{condition}\n#include "gone.h"\n#endif\n#endif\n'
    expected = ["a.cu:4 gone.h"] if found else []
    assert missing(tmp_path, text, {"ENABLE_CK": "0", "FAV3_ON": None}) == expected


def test_headers_in_inactive_branches_are_not_read(tmp_path: Path) -> None:
    """Prevents: qola requires Composable Kernel's headers for a library without CK."""
    write(tmp_path, {"inc/ck.h": '#include "gone.h"\n'})
    text = '#if ENABLE_CK\n#include "ck.h"\n#endif\n'
    assert missing(tmp_path, text, {"ENABLE_CK": "0"}) == []
    assert missing(tmp_path, text, {"ENABLE_CK": "1"}) == ["inc/ck.h:1 gone.h"]


def test_includes_of_large_sources(tmp_path: Path) -> None:
    """Prevents: the check needs minutes for a dispatch source of 20 MB."""
    text = '#include "gone.h"\n' + "int x;\n" * 200_000
    assert missing(tmp_path, text) == ["a.cu:1 gone.h"]


def test_headers_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: qola reads every header again to evaluate its conditions."""
    write(tmp_path, {"inc/b.h": '#include "gone.h"\n'})
    paths: list[Path] = []

    def read_text(path: Path) -> str:
        paths.append(path)
        return lossy_text(path)

    monkeypatch.setattr(missing_names, "lossy_text", read_text)
    assert missing(tmp_path, '#include "b.h"\n') == ["inc/b.h:1 gone.h"]
    assert paths == [tmp_path / "inc/b.h"]


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("hip/hip_runtime.h", True),
        ("hipblaslt/hipblaslt.h", True),
        ("rocprim/rocprim.hpp", True),
        ("torch/extension.h", True),
        ("stdint.h", True),
        ("sys/mman.h", True),
        ("vector", True),
        ("aiter_tensor.h", False),
        ("ck_tile/core.hpp", False),
        ("asm_fmha_v3_bwd_configs.hpp", False),
        ("rocm_ops.hpp", False),
    ],
)
def test_headers_outside_aiter(name: str, known: bool) -> None:
    """Prevents: an alarm for a header of the compiler or ROCm, or none for a header of AITER."""
    assert elsewhere(name) is known


def test_attention_modules_of_the_wheel_have_all_headers(aiter_tree: Path) -> None:
    """Prevents: a false alarm blocks every build of the pinned tree."""
    tree = read_tree(aiter_tree)
    for name in ("libmha_fwd", "libmha_bwd"):
        config = tree.module(name)
        start = [Includer("start", f'#include "{name.removeprefix("lib")}.h"\n')]
        macros = defined_by(config.flags_hip)
        assert missing_headers(tree.root, include_dirs(tree, config), start, macros) == ()
        assert unknown_names(tree, config, start, macros) == ()


def test_generated_headers_are_missing_without_the_generator(aiter_tree: Path) -> None:
    """Prevents: qola plans a module of the wheel although no generator writes its tables."""
    tree = read_tree(aiter_tree)
    config = tree.module("module_gemm_a8w8_asm")
    (source,) = (s for s in module_kinds.sources(tree, config, ()) if "asm_gemm" in s)
    includer = Includer(source, (tree.root / source).read_text())
    found = missing_headers(tree.root, include_dirs(tree, config), [includer], {})
    assert found == (MissingName(f"{source}:4", "asm_i8gemm_configs.hpp"),)
