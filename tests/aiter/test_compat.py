"""`qola compat` on small trees: what is broken is said to be, with a fix, and never a traceback."""

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
from qola.compat.check import Check, Report, check_tree
from qola.compat.launches import small_manifests
from qola.compat.library import Library, library
from qola.compat.run import differences, examine, run_upstream
from qola.errors import CodegenError, ExitCode, Finding
from qola.manifest.load import loads
from qola.plan.generate import GeneratedModule
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
    """A tree without Composable Kernel, and sources that do without."""
    root = write_later_tree(tmp_path / "tree")
    for name in ("fwd", "bwd"):
        replace(f"csrc/include/mha_{name}.h", "#pragma once", GUARD % name)(root)
    replace(FWD, "float mha_fwd(", 'extern "C" int with_sink(int hdim);\nfloat mha_fwd(')(root)
    return root


GUARD = '#pragma once\n#if ENABLE_CK\n#include "fmha_%s.hpp"\n#endif'


def replace(file: str, old: str, new: str) -> Edit:
    """An edit of one file, which has the text."""

    def edit(root: Path) -> None:
        text = (root / file).read_text("utf-8")
        assert old in text
        (root / file).write_text(text.replace(old, new), "utf-8")

    return edit


def configure(change: Callable[[dict[str, Any]], object]) -> Edit:
    """An edit of AITER's configuration."""

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


def run(*words: object) -> tuple[int, str]:
    """Return how `qola compat` ends, and what it prints."""
    out = io.StringIO()
    with redirect_stdout(out):
        code = main(["compat", "-q", *map(str, words)], {})
    return code, out.getvalue()


def test_a_sound_tree(tree: Path, repo_root: Path) -> None:
    """Prevents: a check that is broken by what is right, or another JSON form unannounced."""
    code, text = run("--aiter-root", tree, "--json")
    assert code == ExitCode.DONE
    assert json.loads(text)["counts"]["broken"] == 0
    golden = repo_root / "tests/golden/compat.json"
    assert text == golden.read_text("utf-8"), "see docs/guide/compat.md, and SCHEMA"


@pytest.mark.parametrize(
    ("edit", "name", "of", "found"),
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
def test_what_is_broken(edit: Edit, name: str, of: str, found: str, tree: Path) -> None:
    """Prevents: a yes about a tree whose library is dead, does not compile or cannot be made."""
    edit(tree)
    code, text = run("-a", tree, "--json")
    assert code == ExitCode.BROKEN
    checks = [c for c in json.loads(text)["checks"] if (c["check"], c["of"]) == (name, of)]
    assert [check["status"] for check in checks] == ["broken"]
    errors = [f for f in checks[0]["findings"] if f["severity"] == "error"]
    assert any(found in f["found"] for f in errors), errors
    assert all(f["fix"] or f["expected"] for f in errors)


@pytest.mark.parametrize(
    ("edit", "name", "of", "found"),
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
def test_what_is_degraded(edit: Edit, name: str, of: str, found: str, tree: Path) -> None:
    """Prevents: an end of the nightly run by what costs a kernel, or silence about it."""
    edit(tree)
    report = examine(tree)
    assert status(report, name)[of] == "degraded"
    (check,) = (c for c in report.checks if (c.name, c.of) == (name, of))
    assert any(found in f.found for f in check.findings)
    assert report.counts["broken"] == 0


def test_a_composable_kernel_of_another_commit(tree: Path) -> None:
    """Prevents: silence about kernels and headers that AITER's sources do not fit."""
    ck = "3rdparty/composable_kernel"
    write(tree, {f"{ck}/example/ck_tile/01_fmha/generate.py": ""})
    assert check_tree(read_tree(tree), without_ck=True).findings == ()
    git(tree, "init", "-q")
    git(tree, "update-index", "--add", "--cacheinfo", f"160000,{'a' * 40},{ck}")
    git(tree, "commit", "-q", "-m", "one")
    (finding,) = check_tree(read_tree(tree), without_ck=True).findings
    assert "a copy, whose commit nobody can tell" in finding.found
    assert (finding.expected, finding.severity) == ("a" * 40, "warning")


@pytest.mark.parametrize("kind", ["empty", "file", "nothing"])
def test_no_tree(kind: str, tmp_path: Path) -> None:
    """Prevents: a traceback on whatever stands there."""
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
    """Prevents: a patch that is tried on a tree without the ones before, or that is applied."""
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
def test_upstreams_own_run(more: str, archs: tuple[str, ...], tree: Path) -> None:
    """Prevents: a proof that passes whatever is generated here."""
    call = GeneratorCall("ck/example/ck_tile/01_fmha/generate.py", ("--receipt", "600"))
    write(tree, {call.script: GENERATOR.format(more=more)})
    upstream = run_upstream(read_tree(tree), call, "bwd", ("a", "b"))
    assert upstream.archs == archs
    assert upstream.files.keys() == {"fmha_bwd_api.cpp", "k.cpp"}
    api, kernel = (upstream.files[name] for name in ("fmha_bwd_api.cpp", "k.cpp"))

    def found(digest: str, name: str) -> list[Finding]:
        made = KernelInstance(name, "bwd", "dq_dk_dv", ("b",), digest, {})
        helper = KernelInstance("asm", "bwd", "asm_dot_do_o", ("b",), "", {})
        source = GeneratedSource("fmha_bwd_api.cpp", "", api, "bwd", "dispatch", archs)
        return differences(upstream, KernelSet((made, helper), (source,)))

    assert found(kernel, "k") == []
    assert "1 of 2 files differ" in found("other", "k")[0].found
    assert "2 of 2 files differ" in found(kernel, "j")[0].found
    with pytest.raises(CodegenError, match="exit code 1;"):
        run_upstream(read_tree(tree), call, "gone", ("a",))


def test_status_and_counts() -> None:
    """Prevents: a warning that counts as broken, or an error beside one that does not."""
    warning = Finding("p", "f", "e", "", "warning")
    checks = [
        Check("a", "", "", found) for found in ((), (warning,), (warning, Finding("p", "f", "e")))
    ]
    assert Report(tuple(checks)).counts == {"ok": 1, "degraded": 1, "broken": 1}


def test_compile_tries_what_nothing_speaks_against(tree: Path) -> None:
    """Prevents: a tree that cannot be built compiled all the same, and one that can left out."""
    replace(BWD, '#include "mha_bwd.h"', '#include "mha_bwd.h"\n#include "gone.h"')(tree)
    tried: list[str] = []

    def launches(made: Library, module: GeneratedModule) -> Check:
        tried.append(made.of)
        assert module.spec.name in made.of
        raise CodegenError(Finding("clang", "said no", "an object"))

    report = examine(tree, launches=launches)
    assert tried == [check.of for check in report.checks if check.name == "launches"]
    assert tried
    assert not any("bwd" in of for of in tried)
    assert {c.status for c in report.checks if c.name == "launches"} == {"broken"}
    assert not [check for check in examine(tree).checks if check.name == "launches"]


def test_compile_takes_the_smallest_kernels(tree: Path) -> None:
    """Prevents: a nightly that compiles for hours, or a direction that it never tries."""

    def kernel(direction: str, role: str, *archs: str, **fields: Any) -> KernelInstance:
        of = {"dtype": "bf16", "mode": "batch", "mask": False, "lse": True, "bias": "no", **fields}
        names = archs or ("gfx950",)
        return KernelInstance("k", direction, role, names, "", dict(of))

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
    made = library(read_tree(tree), "libmha_fwd", ("gfx950",), "it", **keys)
    generated = GeneratedModule(
        made.module.spec,
        made.module.config,
        kernels=KernelSet(kernels, (), directions=directions),
    )
    texts, findings = small_manifests(made, generated)
    assert list(texts) == ["it_fwd_gfx942_gfx950", "it_fwd_gfx90a", "it_fwd_splitkv_gfx950"]
    several, *others = (loads(text, file=name) for name, text in texts.items())
    assert several.architectures == ("gfx942", "gfx950")
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
