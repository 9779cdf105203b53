"""The include closure: complete, and small."""

from __future__ import annotations

from pathlib import Path

from qola.aiter.includes import closure, includes, reaching
from qola.aiter.tree import read_tree
from tests.support.folders import write


def test_includes_are_parsed() -> None:
    """Prevents: qola misses an #include because of its spacing, comments or line continuation."""
    text = '#include "a.h"\n  #  include <b/c.hpp> // x\n// #include "no.h"\n#\\\ninclude "d.h"\n'
    assert includes(text) == [("a.h", True), ("b/c.hpp", False), ("d.h", True)]


def test_closure_is_transitive_and_conservative(tmp_path: Path) -> None:
    """Prevents: a sandbox lacks a header that another header or an inactive #if includes."""
    write(
        tmp_path,
        {
            "inc/top.h": "#if 0\n#include <sub/mid.h>\n#endif\n#include <vector>\n",
            "inc/sub/mid.h": '#include "near.h"\n#include "top.h"\n#include <near.h>\n',
            "inc/sub/near.h": "",
            "inc/unused.h": "",
            "other/near.h": "",
        },
    )
    assert closure(tmp_path, ["inc", "other"], ["top.h"]) == (
        "inc/sub/mid.h",
        "inc/sub/near.h",
        "inc/top.h",
        "other/near.h",
    )


def test_first_directory_wins_inside_the_tree(tmp_path: Path) -> None:
    """Prevents: the closure contains another header of this name, or a file outside the tree."""
    write(tmp_path, {"t/a/x.h": "", "t/b/x.h": '#include "../../out.h"\n', "out.h": ""})
    assert closure(tmp_path / "t", ["a", "b"], ["x.h"]) == ("a/x.h",)
    assert closure(tmp_path / "t", ["b", "a"], ["x.h"]) == ("b/x.h",)
    assert closure(tmp_path / "t", ["a"], ["absent.h"]) == ()


def test_sources_that_reach_a_header(tmp_path: Path) -> None:
    """Prevents: qola misses PyTorch in included headers of a source, or the reverse."""
    write(
        tmp_path,
        {
            "inc/direct.h": "#include <torch/all.h>\n",
            "inc/loop.h": '#include "loop2.h"\n',
            "inc/loop2.h": '#include "loop.h"\n#include "direct.h"\n',
            "inc/torch/own.h": "#include <vector>\n",
            "inc/generated.h": '#include "made.h"\n',
        },
    )
    texts = {
        "a.cpp": "#include <ATen/ATen.h>\n",
        "b.cpp": '#include "loop.h"\n',
        "c.cpp": '#include "torch/own.h"\n#include <torchless.h>\n',
        "d.cpp": '#include "generated.h"\n',
        "sub/e.cpp": '#include "../made.h"\n',
        "made.h": '#include "torch/extension.h"\n',
    }
    sources = reaching(tmp_path, ["inc"], texts, ("ATen/", "torch/"))
    assert sources == {"a.cpp", "b.cpp", "d.cpp", "sub/e.cpp", "made.h"}


def test_closure_of_kernels_is_small(aiter_tree: Path) -> None:
    """Prevents: every kernel target depends on all 5,488 files of CK."""
    tree = read_tree(aiter_tree)
    dirs = [f"{tree.ck_dir}/include", f"{tree.csrc_dir}/include", tree.fmha_dir]
    for root in ("fmha_fwd.hpp", "fmha_bwd.hpp", "mha_fwd.h", "mha_bwd.h"):
        files = closure(tree.root, dirs, [root])
        assert 100 < len(files) < 275
        assert f"{tree.ck_dir}/include/ck_tile/core/arch/arch.hpp" in files
        assert f"{tree.fmha_dir}/mask.hpp" in files
