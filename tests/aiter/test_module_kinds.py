"""Detection of AITER modules that need PyTorch: in the wheel, and in small trees."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from qola.aiter.module_kinds import Include, ModuleKind, classify
from qola.aiter.tree import read_tree
from tests.support.folders import write
from tests.support.later_tree import add_modules, write_later_tree

OWN = {"srcs": ["f'{AITER_CSRC_DIR}/own/own.cu'"]}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return a tree with a module, `module_own`, whose source includes one header."""
    root = write_later_tree(tmp_path)
    add_modules(root, {"module_own": OWN})
    files = {
        "csrc/own/own.cu": '#include "own.h"\n',
        "csrc/own/own.h": "#include <cstdint>\n",
        "csrc/include/far.h": "#pragma once\n",
    }
    return write(root, files)


def own_kind(root: Path, **changes: object) -> ModuleKind:
    add_modules(root, {"module_own": {**OWN, **changes}})
    return classify(read_tree(root), "module_own")


def test_modules_of_the_wheel(aiter_tree: Path) -> None:
    """Prevents: qola reports that a module needs PyTorch although it does not, or the reverse.

    Entries of three modules query PyTorch, which is not there.
    """
    tree = read_tree(aiter_tree)
    kinds = {name: classify(tree, name) for name in tree.module_names()}
    assert Counter(kind.kind for kind in kinds.values()) == {
        "needs_torch": 62,
        "attention": 2,
        "torch_free": 1,
    }
    assert kinds["module_aiter_enum"] == ModuleKind(
        "torch_free",
        python=Include("aiter_meta/csrc/pybind/aiter_enum_pybind.cu", "pybind11/pybind11.h"),
    )
    assert kinds["libmha_bwd"] == ModuleKind("attention")


@pytest.mark.parametrize(
    ("file", "line", "expected"),
    [
        ("csrc/own/own.cu", "#include <torch/extension.h>", "torch/extension.h"),
        ("csrc/own/own.h", "#include <ATen/ATen.h>", "ATen/ATen.h"),
        ("csrc/own/own.h", "#if 0\n#include <c10/hip/HIPStream.h>\n#endif", "c10/hip/HIPStream.h"),
    ],
)
def test_includes_of_pytorch_are_detected(small: Path, file: str, line: str, expected: str) -> None:
    """Prevents: qola misses PyTorch in a header, inside an #if, or included as ATen or c10."""
    path = small / file
    path.write_text(path.read_text() + line + "\n")
    assert own_kind(small) == ModuleKind("needs_torch", torch=Include(file, expected))


def test_similar_names_are_not_pytorch(small: Path) -> None:
    """Prevents: a similar file name, or a header that no source includes, counts as PyTorch."""
    (small / "csrc/include/far.h").write_text("#include <torch/all.h>\n")
    (small / "csrc/own/own.h").write_text('#include "torchless.h"\n#include <ATenuate.h>\n')
    assert own_kind(small) == ModuleKind("torch_free")


def test_torch_exclude_is_respected(small: Path) -> None:
    """Prevents: qola rejects a module that AITER builds without PyTorch (torch_exclude)."""
    (small / "csrc/own/own.h").write_text("#include <torch/all.h>\n#include <Python.h>\n")
    assert own_kind(small, torch_exclude="True") == ModuleKind(
        "torch_free", python=Include("csrc/own/own.h", "Python.h")
    )


def test_dropped_sources_are_ignored(small: Path) -> None:
    """Prevents: qola rejects a module because of a source that its manifest drops."""
    (small / "csrc/own/bind.cu").write_text("#include <torch/all.h>\n")
    assert own_kind(small, srcs=["f'{AITER_CSRC_DIR}/own'"]).kind == "needs_torch"
    assert classify(read_tree(small), "module_own", drop_srcs=["bind.cu"]).kind == "torch_free"
    only = [("srcs", ("f'{AITER_CSRC_DIR}/own/own.cu'",))]
    assert classify(read_tree(small), "module_own", overrides=only).kind == "torch_free"
