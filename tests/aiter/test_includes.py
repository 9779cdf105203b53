"""The include closure: small, and never too small."""

from __future__ import annotations

from pathlib import Path

from qola.aiter.includes import closure, includes, reaching
from qola.aiter.tree import read_tree
from tests.support.folders import write


def test_includes_of_a_text() -> None:
    """Prevents: an include missed because of how its line is written."""
    text = '#include "a.h"\n  #  include <b/c.hpp> // x\n// #include "no.h"\n#\\\ninclude "d.h"\n'
    assert includes(text) == [("a.h", True), ("b/c.hpp", False), ("d.h", True)]


def test_closure_is_transitive_and_conservative(tmp_path: Path) -> None:
    """Prevents: a header of an inactive #if, or of a header, missing in a sandbox."""
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


def test_first_directory_wins_and_the_tree_is_not_left(tmp_path: Path) -> None:
    """Prevents: another header of the same name taken, or a file outside the tree."""
    write(tmp_path, {"t/a/x.h": "", "t/b/x.h": '#include "../../out.h"\n', "out.h": ""})
    assert closure(tmp_path / "t", ["a", "b"], ["x.h"]) == ("a/x.h",)
    assert closure(tmp_path / "t", ["b", "a"], ["x.h"]) == ("b/x.h",)
    assert closure(tmp_path / "t", ["a"], ["absent.h"]) == ()


def test_sources_that_reach_a_header(tmp_path: Path) -> None:
    """Prevents: a source whose header includes PyTorch counts as one without, or the reverse."""
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
    found = reaching(tmp_path, ["inc"], texts, ("ATen/", "torch/"))
    assert found == {"a.cpp", "b.cpp", "d.cpp", "sub/e.cpp", "made.h"}


def test_real_kernels_need_a_twentieth_of_ck(aiter_tree: Path) -> None:
    """Prevents: every kernel target depending on all of CK's 5,488 files."""
    tree = read_tree(aiter_tree)
    dirs = [f"{tree.ck_dir}/include", f"{tree.csrc_dir}/include", tree.fmha_dir]
    for root in ("fmha_fwd.hpp", "fmha_bwd.hpp", "mha_fwd.h", "mha_bwd.h"):
        files = closure(tree.root, dirs, [root])
        assert 100 < len(files) < 275
        assert f"{tree.ck_dir}/include/ck_tile/core/arch/arch.hpp" in files
        assert f"{tree.fmha_dir}/mask.hpp" in files
