"""Plan requests: BuildSpec as JSON, watched directories, and [[kernels]] by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qola.aiter.tree import read_tree
from qola.manifest.load import Manifest, loads
from qola.plan.checks import check_requested
from qola.plan.inputs import watched_dirs
from qola.plan.request import Request
from qola.plan.resolve import resolve
from qola.plan.spec import BuildSpec
from qola_base.errors import Finding, ManifestError


def test_spec_survives_a_round_trip() -> None:
    """Prevents: a plan in Bazel that ignores an option."""
    spec = BuildSpec(("gfx942", "gfx950"), "pybind", "linked", override_aiter_commit=True)
    assert BuildSpec.from_json(spec.to_json(), "m.toml") == spec
    assert BuildSpec.from_json(BuildSpec().to_json(), "m.toml") == BuildSpec()


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"archs": "gfx950"}, ".archs: 'gfx950', expected a list"),
        ({"mode": "torch"}, ".mode: 'torch', expected"),
        ({"require": "all"}, ".require: 'all', expected 'opaque' or"),
    ],
)
def test_invalid_spec_is_refused(change: dict[str, object], found: str) -> None:
    """Prevents: a traceback in Bazel, or a plan with another spec."""
    text = json.dumps({**json.loads(BuildSpec().to_json()), **change})
    with pytest.raises(ManifestError) as error:
        BuildSpec.from_json(text, "m.toml")
    (finding,) = error.value.findings
    assert (finding.place, finding.found.startswith(found)) == ("spec of m.toml", True)


MODULES = """\
[[modules]]
name = "libmha_fwd"
{fwd}

[[modules]]
name = "libmha_bwd"
hsa_subdirs = []
"""
SOURCES = "aiter_meta/csrc/cpp_itfs"


@pytest.mark.parametrize(
    ("fwd", "expected"),
    [
        ("", ["aiter/configs", *(f"aiter_meta/hsa/{a}/fmha_v3_fwd" for a in ("gfx942", "gfx950"))]),
        ("hsa_subdirs = []\nsrcs = [\"f'{AITER_CSRC_DIR}/cpp_itfs'\"]", ["aiter/configs", SOURCES]),
    ],
)
def test_watched_directories(aiter_tree: Path, fwd: str, expected: list[str]) -> None:
    """Prevents: a new code object, table or source in a local tree without a new plan."""
    manifest = loads(MODULES.format(fwd=fwd), file="m.toml")
    archs = ("gfx942", "gfx950")
    request = Request("m", manifest, read_tree(aiter_tree), BuildSpec(archs, "cpp_itfs"))
    assert watched_dirs(resolve(request)) == tuple(expected)


def test_selection_of_a_module(aiter_tree: Path) -> None:
    """Prevents: kernels or variants of another module, or a finding at another module's keys."""
    text = (
        f"{HEAD}hsa_subdirs = []\ndrop_directions = ['batch_prefill']\n[build]\n"
        "keep_unreachable = true\n[[modules]]\nname = 'libmha_bwd'\nmode = 'cpp_itfs'\n"
        f"[[mha_bwd_variants]]\nhdim = 64\n[[kernels]]\nnames = ['{FORWARD}']\n"
    )
    spec = BuildSpec(("gfx950",), require="linked")
    request = Request("m", loads(text, file="m.toml"), read_tree(aiter_tree), spec)
    fwd, bwd = (module.selection for module in resolve(request).modules)
    assert [kernel.config.name for kernel in fwd.kernels] == [FORWARD]
    assert (fwd.variants, bwd.kernels) == ((), ())
    assert [variant.place for variant in bwd.variants] == ["m.toml:11 [[mha_bwd_variants]]"]
    # Kernels that are named one by one get no competition by assembly kernels.
    assert (fwd.asm, fwd.embedded, bwd.asm, bwd.embedded) == (False, (), True, None)
    assert (fwd.level, fwd.keep_unreachable) == ("linked", True)
    assert fwd.drop_directions == {"batch_prefill"}
    assert fwd.place("drop_directions") == "m.toml:5 [[modules]].drop_directions"


HEAD = '[[modules]]\nname = "libmha_fwd"\nmode = "cpp_itfs"\n'
FORWARD = (
    "fwd.bf16.batch.d64x64.gfx950.b64x64x32x64x32x64_r4x1x1_r4x1x1_w16x16x32_w16x16x32.p-qr_async"
    ".v-row.nmask.bias-no.lse.ndropout.nsquant.nlogits.nskip.ntrload.spad.nskpad.dpad.dvpad"
)
COMBINE = "fwd_splitkv_combine.bf16.batch.d64x64.gfx950.b32.lse.nsquant.spad.dvpad"
APPEND = "fwd_appendkv.bf16.any.d64x64.gfx9.b64x64x64x64.v-row.rope-no.npagedkv"


def manifest(*names: str, head: str = HEAD) -> Manifest:
    return loads(f"{head}[[kernels]]\nnames = {json.dumps(names)}\n", file="m.toml")


def findings_of(*names: str) -> list[Finding]:
    with pytest.raises(ManifestError) as error:
        manifest(*names)
    return list(error.value.findings)


def test_kernels_by_name() -> None:
    """Prevents: a kernel name with a wrong meaning, or missing in the key of a plan."""
    read = manifest(FORWARD)
    (spec,) = read.kernels
    assert spec.config.name == FORWARD
    assert spec.place == "m.toml:5 [[kernels]].names"
    assert read.to_json()["kernels"] == [FORWARD]
    # Manifests without [[kernels]] keep their digest.
    assert "kernels" not in loads(HEAD, file="m.toml").to_json()
    assert manifest(FORWARD) != loads(HEAD, file="m.toml")
    assert (spec.config.direction, spec.config.role) == ("fwd", "fwd")
    assert spec.config.arch == "gfx950"
    assert list(check_requested(read)) == []


def test_invalid_kernel_names_are_refused() -> None:
    """Prevents: a misspelt kernel that is omitted, or reported without its line."""
    misspelt = FORWARD.replace(".nmask", ".nmusk")
    findings = findings_of(misspelt, FORWARD, FORWARD, FORWARD.replace("b64x64", "b64x"))
    repeated, unknown, invalid_tile = findings
    assert {finding.place for finding in findings} == {"m.toml:5 [[kernels]].names"}
    assert "more than once" in repeated.found
    assert "musk an unknown key" in unknown.found
    assert "expected a tile" in invalid_tile.found
    (pattern,) = findings_of("bf16")
    assert "KernelConfig.name" in pattern.expected
    table = f"[[kernels]]\nnames = {json.dumps([FORWARD])}\n"
    with pytest.raises(ManifestError, match="line 5 names already"):
        loads(HEAD + table + table, file="m.toml")


def test_unbuildable_kernels_are_reported_together() -> None:
    """Prevents: a requested kernel that the plan omits, or errors reported one at a time."""
    wrong = FORWARD.replace("_w16x16x32_w16", "_w16x16x16_w16").replace(".spad.", ".nspad.")
    findings = list(check_requested(manifest(wrong, APPEND)))
    texts = [finding.found for finding in findings]
    assert {finding.place for finding in findings} == {"m.toml:5 [[kernels]].names"}
    assert any("breaks the rule async_padding" in text for text in texts)
    (lacking,) = [
        finding
        for finding in findings
        if "direction fwd_appendkv, which libmha_fwd" in finding.found
    ]
    assert lacking.fix == 'add_directions = ["fwd_appendkv"]'
    added = HEAD + 'add_directions = ["fwd_appendkv"]\n'
    assert list(check_requested(manifest(APPEND, head=added))) == []
    backward = HEAD.replace("libmha_fwd", "libmha_bwd")
    (missing,) = check_requested(manifest(FORWARD, head=backward))
    assert "without the module that has it" in missing.found
    assert 'name = "libmha_fwd"' in missing.fix
