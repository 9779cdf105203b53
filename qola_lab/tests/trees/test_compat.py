"""`qola compat` on small trees: reports each problem with a fix, and never raises a traceback."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from qola.aiter.tree import GeneratorCall, read_tree
from qola.cli.command_line import main
from qola.codegen.types import (
    Direction,
    GeneratedSource,
    KernelInstance,
    KernelSet,
    Level,
)
from qola.manifest.load import loads
from qola.plan.generate import GeneratedModule
from qola_base.errors import CodegenError, ExitCode, Finding
from qola_lab.trees.check import Check, Library, Report, check_tree, library
from qola_lab.trees.examine import differences, examine, run_upstream
from qola_lab.trees.launches import small_manifests
from tests.setup.cache_rule import give_away
from tests.support.folders import git, write
from tests.support.later_tree import write_later_tree

CONFIG = "aiter/jit/optCompilerConfig.json"
FWD, BWD = "csrc/cpp_itfs/mha_fwd.cu", "csrc/cpp_itfs/mha_bwd.cu"
Edit = Callable[[Path], object]
PATCH = """\
diff --git a/csrc/include/aiter_hip_common.h b/csrc/include/aiter_hip_common.h
--- a/csrc/include/aiter_hip_common.h
+++ b/csrc/include/aiter_hip_common.h
@@ -1,2 +1,3 @@
 #pragma once
+// patched
 #include <string>
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree without Composable Kernel whose sources do not need it."""
    root = write_later_tree(tmp_path / "tree")
    for name in ("fwd", "bwd"):
        replace(f"csrc/include/mha_{name}.h", "#pragma once", GUARD % name)(root)
    replace(FWD, "float mha_fwd(", 'extern "C" int with_sink(int hdim);\nfloat mha_fwd(')(root)
    return root


GUARD = '#pragma once\n#if ENABLE_CK\n#include "fmha_%s.hpp"\n#endif'


def replace(file: str, old: str, new: str) -> Edit:
    """Return an edit that replaces text in one file, which must contain the text."""

    def edit(root: Path) -> None:
        text = (root / file).read_text("utf-8")
        assert old in text
        (root / file).write_text(text.replace(old, new), "utf-8")

    return edit


def configure(change: Callable[[dict[str, Any]], object]) -> Edit:
    """Return an edit of AITER's configuration."""

    def edit(root: Path) -> None:
        config = json.loads((root / CONFIG).read_text("utf-8"))
        change(config)
        (root / CONFIG).write_text(json.dumps(config), "utf-8")

    return edit


def without_kernels(root: Path) -> None:
    for folder in (root / "hsa").glob("gfx*"):
        shutil.rmtree(folder)


def without_guards(root: Path) -> None:
    for name in ("fwd", "bwd"):
        replace(f"csrc/include/mha_{name}.h", "#if ENABLE_CK", "#if 1")(root)


def status(report: Report, name: str) -> dict[str, str]:
    return {check.of: check.status for check in report.checks if check.name == name}


def run(*arguments: object) -> tuple[int, str]:
    """Return the exit code and the output of `qola compat`."""
    out = io.StringIO()
    with redirect_stdout(out):
        code = main(["compat", "-q", *map(str, arguments)], {})
    return code, out.getvalue()


def test_valid_tree(tree: Path, repo_root: Path) -> None:
    """Prevents: a check rejects a valid tree, or the JSON output changes without a new SCHEMA."""
    code, text = run("--aiter-root", tree, "--json")
    assert code == ExitCode.DONE
    assert json.loads(text)["counts"]["broken"] == 0
    golden = repo_root / "tests/golden/compat.json"
    assert text == golden.read_text("utf-8"), "see docs/guide/compat.md, and SCHEMA"


@pytest.mark.parametrize(
    ("edit", "name", "subject", "found"),
    [
        (lambda root: (root / CONFIG).unlink(), "tree", "", "no aiter/jit/optCompilerConfig.json"),
        (lambda root: (root / CONFIG).write_text("{"), "tree", "", "not JSON"),
        (lambda root: (root / "aiter/jit/core.py").write_bytes(b"\xff"), "tree", "", "'utf-8'"),
        (without_guards, "tree", "", "no Composable Kernel"),
        (without_guards, "generated", "libmha_bwd", "which the module's sources need"),
        (configure(lambda c: c.pop("libmha_bwd")), "config", "", "no module libmha_bwd"),
        (
            configure(lambda c: c["libmha_bwd"].update(extra_ldflags=["'-lm'"])),
            "entry",
            "libmha_bwd",
            "-lm",
        ),
        (without_kernels, "archs", "", "no kernels for any arch"),
        (
            replace("hsa/codegen.py", "import argparse", "import nothing, argparse"),
            "generated",
            "libmha_bwd without CK",
            "No module named 'nothing'",
        ),
        (
            replace(FWD, '#include "mha_fwd.h"', '#include "mha_fwd.h"\n#include "gone.h"'),
            "includes",
            "libmha_fwd without CK",
            '"gone.h"',
        ),
        (
            replace(BWD, "float mha_bwd(", "ck_tile::Gone gone;\nfloat mha_bwd("),
            "types",
            "libmha_bwd without CK",
            "Gone",
        ),
        (
            replace("csrc/include/mha_bwd.h", "float mha_bwd(", "float mha_bwd_2("),
            "entries",
            "libmha_bwd without CK",
            "no declaration of mha_bwd",
        ),
        (
            lambda root: (root / FWD).write_text(
                (root / FWD).read_text("utf-8").replace("with_sink", "with_nothing"), "utf-8"
            ),
            "v3",
            "libmha_fwd without CK, gfx1250",
            "never launched",
        ),
    ],
)
def test_broken_trees(edit: Edit, name: str, subject: str, found: str, tree: Path) -> None:
    """Prevents: qola accepts a tree whose library is unusable or does not compile."""
    edit(tree)
    code, text = run("-a", tree, "--json")
    assert code == ExitCode.BROKEN
    checks = [c for c in json.loads(text)["checks"] if (c["check"], c["of"]) == (name, subject)]
    assert [check["status"] for check in checks] == ["broken"]
    errors = [f for f in checks[0]["findings"] if f["severity"] == "error"]
    assert any(found in f["found"] for f in errors), errors
    assert all(f["fix"] or f["expected"] for f in errors)


@pytest.mark.parametrize(
    ("edit", "name", "subject", "found"),
    [
        (configure(lambda c: c["libmha_fwd"].update(new=[])), "config", "", "new of libmha_fwd"),
        (
            lambda root: (root / "hsa/gfx950/fmha_v3_fwd/fwd_192.co").unlink(),
            "v3",
            "libmha_fwd without CK",
            "fwd_192.co",
        ),
        (
            replace(BWD, "float mha_bwd(", "#if BRAND_NEW\n#endif\nfloat mha_bwd("),
            "macros",
            "libmha_bwd without CK",
            "BRAND_NEW",
        ),
    ],
)
def test_degraded_trees(edit: Edit, name: str, subject: str, found: str, tree: Path) -> None:
    """Prevents: a lost kernel fails the nightly run, or is not reported."""
    edit(tree)
    report = examine(tree)
    assert status(report, name)[subject] == "degraded"
    (check,) = (c for c in report.checks if (c.name, c.of) == (name, subject))
    assert any(found in f.found for f in check.findings)
    assert report.counts["broken"] == 0


def test_composable_kernel_of_unknown_commit(tree: Path) -> None:
    """Prevents: no warning if Composable Kernel may not be of the commit that AITER pins."""
    ck = "3rdparty/composable_kernel"
    write(tree, {f"{ck}/example/ck_tile/01_fmha/generate.py": ""})
    assert check_tree(read_tree(tree), without_ck=True).findings == ()
    git(tree, "init", "-q")
    git(tree, "update-index", "--add", "--cacheinfo", f"160000,{'a' * 40},{ck}")
    git(tree, "commit", "-q", "-m", "one")
    (finding,) = check_tree(read_tree(tree), without_ck=True).findings
    assert "a copy of an unknown commit" in finding.found
    assert (finding.expected, finding.severity) == ("a" * 40, "warning")
    for path in (tree, tree / ".git"):
        give_away(path)
    check = check_tree(read_tree(tree), without_ck=True)
    assert check.findings == (finding,)
    assert check.facts["commit"] == git(tree, "--git-dir=.git", "rev-parse", "HEAD")
    (tree / ".git/HEAD").unlink()
    (finding,) = check_tree(read_tree(tree), without_ck=True).findings
    assert "not a git repository" in finding.found


@pytest.mark.parametrize("kind", ["empty", "file", "nothing"])
def test_root_without_a_tree(kind: str, tmp_path: Path) -> None:
    """Prevents: a traceback if --aiter-root is a file, is empty or does not exist."""
    root = tmp_path / "root"
    if kind == "empty":
        root.mkdir()
    elif kind == "file":
        root.write_text("")
    code, text = run("--aiter-root", root)
    assert code == ExitCode.BROKEN
    assert text.startswith("broken  tree")
    assert text.endswith("0 ok, 0 degraded, 1 broken\n")


def test_patches(tree: Path, tmp_path: Path) -> None:
    """Prevents: a patch is checked without the patches before it, or is applied to the tree."""
    second = PATCH.replace("+// patched", "+// more").replace(" #include", " // patched\n #include")
    patches = {
        "1.patch": PATCH,
        "2.patch": PATCH.replace("<string>", "<gone>"),
        "3.patch": second.replace("1,2 +1,3", "1,3 +1,4"),
        "4.patch": PATCH.replace("csrc/include/a", "3rdparty/composable_kernel/a"),
    }
    folder = write(tmp_path / "patches", patches)
    before = (tree / "csrc/include/aiter_hip_common.h").read_text("utf-8")
    assert status(examine(tree, folder), "patch") == {
        "1.patch": "ok",
        "2.patch": "broken",
        "3.patch": "ok",
        "4.patch": "degraded",
    }
    assert (tree / "csrc/include/aiter_hip_common.h").read_text("utf-8") == before
    assert status(examine(tree, tmp_path / "none"), "patch") == {"none": "broken"}


GENERATOR = """\
import argparse, pathlib
parser = argparse.ArgumentParser()
for name in ("-d", "--receipt", "--output_dir"{more}):
    parser.add_argument(name)
args = parser.parse_args()
if args.d == "gone":
    raise SystemExit(1)
pathlib.Path(args.output_dir, "fmha_bwd_api.cpp").write_text("dispatch")
pathlib.Path(args.output_dir, "k.cpp").write_text(args.receipt)
"""


@pytest.mark.parametrize(("more", "archs"), [("", ("a", "b")), (', "--targets"', ("b",))])
def test_comparison_with_upstream_generator(more: str, archs: tuple[str, ...], tree: Path) -> None:
    """Prevents: the comparison with AITER's generator passes for any generated kernels."""
    call = GeneratorCall("ck/example/ck_tile/01_fmha/generate.py", ("--receipt", "600"))
    write(tree, {call.script: GENERATOR.format(more=more)})
    upstream = run_upstream(read_tree(tree), call, "bwd", ("a", "b"))
    assert upstream.archs == archs
    assert upstream.files.keys() == {"fmha_bwd_api.cpp", "k.cpp"}
    api, kernel = (upstream.files[name] for name in ("fmha_bwd_api.cpp", "k.cpp"))

    def compare(digest: str, name: str) -> list[Finding]:
        kernel_instance = KernelInstance(name, "bwd", "dq_dk_dv", ("b",), digest, {})
        helper = KernelInstance("asm", "bwd", "asm_dot_do_o", ("b",), "", {})
        source = GeneratedSource("fmha_bwd_api", "", api, "bwd", "dispatch", archs)
        return differences(upstream, KernelSet((kernel_instance, helper), (source,)))

    assert compare(kernel, "k") == []
    assert "1 of 2 files differ" in compare("other", "k")[0].found
    assert "2 of 2 files differ" in compare(kernel, "j")[0].found
    with pytest.raises(CodegenError, match="exit code 1;"):
        run_upstream(read_tree(tree), call, "gone", ("a",))


def test_status_and_counts() -> None:
    """Prevents: a warning counts as broken, or an error next to a warning as degraded."""
    warning = Finding("p", "f", "e", "", "warning")
    checks = [
        Check("a", "", "", findings)
        for findings in ((), (warning,), (warning, Finding("p", "f", "e")))
    ]
    assert Report(tuple(checks)).counts == {"ok": 1, "degraded": 1, "broken": 1}


def test_compile_runs_only_for_libraries_without_errors(tree: Path) -> None:
    """Prevents: qola compiles a library whose checks failed, or skips a valid library."""
    replace(BWD, '#include "mha_bwd.h"', '#include "mha_bwd.h"\n#include "gone.h"')(tree)
    compiled: list[str] = []

    def launches(built_library: Library, module: GeneratedModule) -> Check:
        compiled.append(built_library.of)
        assert module.spec.name in built_library.of
        raise CodegenError(Finding("clang", "said no", "an object"))

    report = examine(tree, launches=launches)
    assert compiled == [check.of for check in report.checks if check.name == "launches"]
    assert compiled
    assert not any("bwd" in subject for subject in compiled)
    assert {c.status for c in report.checks if c.name == "launches"} == {"broken"}
    assert not [check for check in examine(tree).checks if check.name == "launches"]


def test_compile_selects_the_smallest_kernels(tree: Path) -> None:
    """Prevents: a nightly run compiles for hours, or never compiles a direction."""

    def kernel(direction: str, role: str, *archs: str, **fields: Any) -> KernelInstance:
        all_fields = {
            "dtype": "bf16",
            "mode": "batch",
            "mask": False,
            "lse": True,
            "bias": "no",
            **fields,
        }
        names = archs or ("gfx950",)
        return KernelInstance("k", direction, role, names, "", dict(all_fields))

    kernels = (
        kernel("fwd", "fwd", "gfx90a", hdim_q=128, hdim_v=128),
        kernel("fwd", "fwd", hdim_q=64, hdim_v=64, mask=True),
        kernel("fwd", "fwd", "gfx942", "gfx950", hdim_q=64, hdim_v=64),
        kernel("fwd", "fwd", hdim_q=32, hdim_v=32, lse=False),
        kernel("fwd", "fwd", hdim_q=32, hdim_v=32, dtype="fp8bf16"),
        kernel("fwd_splitkv", "splitkv_combine", hdim_q=32, hdim_v=32),
        kernel("fwd_splitkv", "splitkv", hdim_q=128, hdim_v=128, mode="group"),
        *[kernel("batch_prefill", "batch_prefill", hdim_q=128, hdim_v=128)] * 201,
    )
    levels: dict[str, Level] = {
        "fwd": "filtered",
        "fwd_splitkv": "filtered",
        "batch_prefill": "linked",
    }
    directions = tuple(Direction(name, level, "", 1, ()) for name, level in levels.items())
    keys: dict[str, Any] = {"add_flags_extra_cc": ["-DENABLE_CK=0"]}
    keys["drop_directions"] = ["fwd", "fwd_splitkv", "batch_prefill"]
    built_library = library(read_tree(tree), "libmha_fwd", ("gfx950",), "it", **keys)
    generated = GeneratedModule(
        **vars(built_library.module),
        kernels=KernelSet(kernels, (), directions=directions),
    )
    texts, findings = small_manifests(built_library, generated)
    assert list(texts) == ["it_fwd_gfx942_gfx950", "it_fwd_gfx90a", "it_fwd_splitkv_gfx950"]
    several, *others = (loads(text, file=name) for name, text in texts.items())
    assert several.archs == ("gfx942", "gfx950")
    assert several.modules[0].drop_directions == ("batch_prefill", "fwd_splitkv")
    chosen = [
        [(v.hdim, v.mode, v.mask) for v in manifest.fwd_variants] for manifest in (several, *others)
    ]
    assert chosen == [
        [(((64, 64),), ("batch",), (False,))],
        [(((128, 128),), ("batch",), (False,))],
        [(((128, 128),), ("group",), (False,))],
    ]
    assert [(f.place, f.severity) for f in findings] == [("batch_prefill", "warning")]
