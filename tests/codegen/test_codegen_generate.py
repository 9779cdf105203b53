"""Kernel generation on the real tree: kernels, dispatches, and errors."""

from __future__ import annotations

import hashlib
import os
import sysconfig
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from qola.aiter.tree import AiterTree, read_tree
from qola.codegen import process
from qola.codegen.ck.receipts import known_receipts
from qola.codegen.generate import generate
from qola.codegen.types import Selection
from qola.common.folder import Folder
from qola.common.packages import ROOT
from qola_base.errors import CodegenError
from tests.codegen.generating import BOTH, QUICKSTART, roles, run

FLAGS = ("true", "false")
BACKWARD = (
    '[[mha_bwd_variants]]\ndtype = "bf16"\nhdim = 128\nhas_bias = false\n'
    'has_alibi = false\nhas_dropout = false\ndeterministic = false\nmode = "group"\n'
)


@pytest.fixture(scope="session")
def tree(aiter_tree: Path) -> AiterTree:
    return read_tree(aiter_tree)


def failure(tree: AiterTree, out: Path, manifest: str = "", **arguments: Any) -> str:
    with pytest.raises(CodegenError) as error:
        run(tree, out, manifest, **arguments)
    assert error.value.exit_code == 4
    return str(error.value)


def test_quickstart_has_14_kernels(tree: AiterTree, tmp_path: Path, repo_root: Path) -> None:
    """Prevents: unnoticed changes of the kernels in the quickstart library."""
    kernels = run(tree, tmp_path, QUICKSTART, receipt=700)
    golden = repo_root / "tests/golden/quickstart_kernels.txt"
    assert [kernel.name for kernel in kernels.kernels] == golden.read_text().split()
    assert (kernels.warnings, kernels.explanations) == ((), ())
    assert all(kernel.archs == ("gfx950",) for kernel in kernels.kernels)
    assert all(kernel.variants == (0,) for kernel in kernels.kernels)
    fields = dict(kernels.kernels[0].fields)
    assert list(fields) == sorted(fields)
    expected = {"dtype": "bf16", "hdim_q": 128, "hdim_v": 128, "bias": "no", "lse": True}
    assert expected.items() <= fields.items()
    digests = {k.file: k.sha256 for k in kernels.kernels}
    digests.update((s.file, s.sha256) for s in kernels.sources)
    for file, digest in digests.items():
        assert hashlib.sha256((tmp_path / file).read_bytes()).hexdigest() == digest


@pytest.mark.thorough
def test_overlapping_variants_with_receipts(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: a shared kernel generated twice, or attributed to only one of its variants."""
    again = QUICKSTART + 'receipt = 100\nmode = "batch"\n'
    kernels = run(tree, tmp_path, QUICKSTART + again, receipt=700, drop=["batch_prefill"])
    counts = Counter((k.direction, k.variants) for k in kernels.kernels)
    # Unlike receipt 700, receipt 100 has logits, skip and split-KV kernels.
    assert counts["fwd", (0, 1)] == 12
    assert counts["fwd", (0,)] == 2
    assert counts["fwd", (1,)] == 12
    assert counts["fwd_splitkv", (1,)] > 0
    api = (tmp_path / "dispatch/fmha_fwd_api.cpp").read_text()
    assert api.count("using trait_ = ") == 26


@pytest.mark.thorough
def test_splitkv_includes_combine_kernels(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: a split-KV dispatch that calls combine kernels which are not compiled."""
    kernels = run(tree, tmp_path, QUICKSTART, archs=BOTH)
    split = [k for k in kernels.kernels if k.direction == "fwd_splitkv"]
    assert {k.role for k in split} == {"splitkv", "splitkv_combine"}
    assert all(k.archs == BOTH for k in split)
    combine = [dict(k.fields) for k in split if k.role == "splitkv_combine"]
    assert {(f["mode"], f["spad"], f["dvpad"], f["lse"]) for f in combine} == {
        (mode, spad, dvpad, lse)
        for mode, spad, dvpad in (
            ("batch", False, False),
            ("batch", True, False),
            ("batch", True, True),
            ("group", True, False),
            ("group", True, True),
        )
        for lse in (False, True)
    }
    archs = {k.archs for k in kernels.kernels if k.direction == "fwd"}
    assert archs == {("gfx942",), ("gfx950",)}


def test_backward_rows_include_helper_kernels(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: missing backward helper kernels for the selected rows."""
    kernels = run(tree, tmp_path, BACKWARD, "libmha_bwd", ("gfx942",), receipt=700)
    # 2 masks x 7 paddings: dpad and dvpad of 0, 8 or 1 each, without 8/0 and 8/1.
    assert roles(kernels) == {"dq_dk_dv": 14, "dot_do_o": 2, "convert_dq": 2}
    api = (tmp_path / "dispatch/fmha_bwd_api.cpp").read_text()
    assert api.count("using dq_dk_dv_trait_ = ") == 14


@pytest.mark.thorough
def test_explanations_cover_every_kernel(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: a kernel of the receipts in use without a reason why it is in or out."""
    kernels = run(tree, tmp_path, QUICKSTART, receipt=700, explain=True)
    assert {e.direction for e in kernels.explanations} == {"fwd", "fwd_splitkv", "batch_prefill"}
    included = {e.name for e in kernels.explanations if not e.dropped_by}
    assert included == {kernel.name for kernel in kernels.kernels}
    reasons = {e.dropped_by for e in kernels.explanations}
    assert {
        "",
        "receipt 700: lse must be yes",
        "receipt 700: no kernels of this direction",
        "no variant has dtype=fp16",
        "no variant has bias=alibi",
        "no variant has hdim=96x128",
        "no variant has bias=bias hdim=192x192",
    } <= reasons


def test_explanation_with_several_variants(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: "no variant has mask=yes" although a variant has it with another dtype."""
    bf16_variant = '[[mha_fwd_variants]]\nhdim = 64\ndtype = "bf16"\nhas_mask = false\n'
    fp16_variant = '[[mha_fwd_variants]]\nhdim = 64\ndtype = "fp16"\nhas_mask = true\n'
    kernels = run(tree, tmp_path, bf16_variant + fp16_variant, receipt=700, explain=True)
    reasons = {e.dropped_by for e in kernels.explanations}
    assert (
        "no variant has it; the nearest, m.toml:3 [[mha_fwd_variants]], lacks mask=yes" in reasons
    )


def test_thousands_of_variants(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: no answer for minutes: time that grows with variants times dispatch entries."""
    forms = ("", *(f"{key}={value}\n" for key in ("has_lse", "has_mask") for value in FLAGS))
    forms += tuple(f"{key}={value}\n" for key in ("has_skip", "has_dropout") for value in FLAGS)
    forms += ("mode='batch'\n", "mode='group'\n", "dtype='bf16'\n")
    tables = (f"[[mha_fwd_variants]]\nhdim={hdim}\n{f}" for f in forms for hdim in range(1, 257))
    text = "".join([*tables][:3000])
    begin = sum(os.times()[:4])
    kernels = run(tree, tmp_path, text, drop=("batch_prefill",), explain=True)
    assert sum(os.times()[:4]) - begin < 10
    kept = {one.name for one in kernels.explanations if not one.dropped_by}
    assert kept == {kernel.name for kernel in kernels.kernels}
    # Variant 0 has head dimension 1, variant 128 * 2 - 1 head dimension 256.
    assert {kernel.fields["hdim_q"] for kernel in kernels.kernels if 255 in kernel.variants} == {
        256
    }


def test_dispatch_hole_names_the_variant(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: hdim 64 with alibi returns -1 in a library that has hdim 128 with alibi."""
    text = (
        '[[mha_fwd_variants]]\ndtype = "bf16"\nhdim = [64, 128]\nhas_lse = true\n'
        "has_alibi = false\nhas_bias = false\n"
        '[[mha_fwd_variants]]\ndtype = "bf16"\nhdim = 128\nhas_bias = false\nhas_alibi = true\n'
    )
    message = failure(tree, tmp_path, text, receipt=700)
    assert "error: m.toml:9 [[mha_fwd_variants]]" in message
    assert "bias=alibi with hdim 128x128 but not 64x64" in message
    assert "add hdim 64 to m.toml:9 [[mha_fwd_variants]]" in message


def test_known_receipts(tree: AiterTree) -> None:
    """Prevents: a receipt of this CK refused, or an unknown number accepted as "all kernels"."""
    assert known_receipts(tree, "libmha_fwd") == (
        *(0, 1, 2, 3, 4, 100, 200, 600, 700, 800, 801, 888),
    )
    assert known_receipts(tree, "libmha_bwd") == (0, 2, 3, 4, 300, 400, 600, 700, 800, 801)


@pytest.mark.quick(6)
@pytest.mark.parametrize(
    ("manifest", "arguments", "parts"),
    [
        ("", {"receipt": 601}, ["receipt 601, which this CK does not know", "600, 700, 800"]),
        (
            "[[mha_fwd_variants]]\nreceipt = 300\n",
            {},
            ["m.toml:3 [[mha_fwd_variants]]", "receipt 300", "one of 0, 1, 2"],
        ),
        ("", {"drop": ["bwd"]}, ["drop_directions", "bwd", "fwd, fwd_splitkv, batch_prefill"]),
        (
            "[[mha_fwd_variants]]\nhas_sink = true\n",
            {},
            [
                "m.toml:3 [[mha_fwd_variants]]",
                "selects no kernel",
                "fwd: has_sink: wanted yes, there is only no",
            ],
        ),
        (
            "[[mha_fwd_variants]]\nhas_skip = true\n",
            {"receipt": 700},
            ["has_skip: wanted yes, there is only no", "fwd_splitkv: receipt 700 has no kernels"],
        ),
        (
            "[[mha_fwd_variants]]\nhdim = 128\n",
            {"drop": ["fwd", "fwd_splitkv", "batch_prefill"]},
            ["selects no kernel", "fwd: the direction is dropped"],
        ),
        (
            "[[mha_fwd_variants]]\nhdim = [[192, 128]]\nhas_dropout = true\n",
            {"receipt": 700},
            [
                "selects no kernel",
                "fwd: no kernel has all of it at once; the nearest differ in:",
                ": has_dropout no\n",
                "write values that kernels named above have",
            ],
        ),
        (
            '[[mha_fwd_variants]]\ndtype = "fp8bf16"\nhdim = 64\nmode = "group"\nhas_mask = true\n',
            {"receipt": 600},
            [
                "fwd: no kernel has all of it at once; the nearest differ in:",
                ": dtype bf16\n",
                ": hdim 128x128\n",
            ],
        ),
        (
            "[[mha_fwd_variants]]\nhdim = [128, 512]\n",
            {"receipt": 700},
            [
                "m.toml:3 [[mha_fwd_variants]].hdim",
                "512x512, which no kernel of receipt 700 serves",
                "256x256",
            ],
        ),
        (
            '[[mha_fwd_variants]]\ndtype = "bf16"\nhdim = [128, 320]\n',
            {"receipt": 700, "asm": True},
            [
                "m.toml:3 [[mha_fwd_variants]].hdim",
                "320x320, which no kernel of receipt 700 serves",
            ],
        ),
        (
            '[[mha_fwd_variants]]\ndtype = "bf16"\nhdim = [[192, 128]]\n',
            {"asm": True, "archs": BOTH, "drop": ["fwd", "fwd_splitkv", "batch_prefill"]},
            ["selects no kernel", "fwd: the direction is dropped"],
        ),
        ("", {"archs": ("gfx1100",)}, ["architecture gfx1100", "Unsupported device target"]),
        (
            "",
            {"module": "module_norm"},
            ["module module_norm", "02_layernorm2d/generate.py", "leave the module out"],
        ),
        ("", {"module": "module_cache"}, ["no call of CK's generate.py"]),
    ],
)
def test_invalid_requests_are_errors(
    tree: AiterTree, tmp_path: Path, manifest: str, arguments: dict[str, Any], parts: list[str]
) -> None:
    """Prevents: a wrong receipt, variant, arch or module silently building too much or nothing."""
    message = failure(tree, tmp_path, manifest, **arguments)
    for part in parts:
        assert part in message


def test_filters_on_names_are_refused(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: an overridden generator command whose --filter is silently ignored."""
    command = f"f'{{CK_DIR}}/{tree.fmha_dir.partition('/composable_kernel/')[2]}/generate.py"
    command += ' -d fwd --filter "*bf16*" --output_dir {{}}\''
    module = tree.module("libmha_fwd", overrides=[("blob_gen_cmd", (command,))])
    with pytest.raises(CodegenError, match="option --filter"):
        generate(tree, module, Selection(), ("gfx950",), Folder(tmp_path / "out"))


#: Code before the start of each generator: logs every path that the process accesses.
WATCH = """\
import os, posix, sys
log = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def note(path, how):
    if isinstance(path, (str, bytes, os.PathLike)):
        line = how + " " + os.path.join(posix.getcwd(), os.fsdecode(path)) + "\\n"
        os.write(log, line.encode())
def watch(name):
    ask = getattr(posix, name)
    def watched(path=".", *args, **more):
        note(path, name)
        return ask(path, *args, **more)
    setattr(os, name, watched)
    setattr(posix, name, watched)
for name in ("stat", "lstat", "access", "readlink", "statvfs", "listxattr", "getxattr"):
    watch(name)
def hook(event, args):
    if event in ("open", "os.listdir", "os.scandir"):
        note(args[0], event)
    elif event.partition(".")[0] in ("subprocess", "socket", "ctypes") or event == "os.system":
        note("/" + event, "event")
sys.addaudithook(hook)
"""


def test_pinned_generators_read_only_the_tree(
    tree: AiterTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a cached plan of a pinned AITER that depends on a file outside of the tree."""
    log = tmp_path / "log"
    monkeypatch.setattr(process, "_START", WATCH.format(log=str(log)) + process._START)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    run(tree, tmp_path / "fwd", QUICKSTART, receipt=700, asm=True)
    run(tree, tmp_path / "bwd", BACKWARD, "libmha_bwd", ("gfx942",), receipt=700, asm=True)
    python = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
    python += [python[0].with_name(f"python{sysconfig.get_config_var('py_version_nodot')}.zip")]
    own = [ROOT / part for part in ("qola", "qola_base")]
    allowed = [tree.root, scratch, *own, Path("/dev/null"), log, *python]
    places = {Path(real) for path in allowed for real in (path.absolute(), os.path.realpath(path))}
    above = {parent for place in places for parent in place.parents}
    accesses = set(log.read_text().splitlines())
    assert len(accesses) > 100
    for access in sorted(accesses):
        path = Path(os.path.normpath(access.split(" ", 1)[1]))
        assert path in above or not places.isdisjoint((path, *path.parents)), access
