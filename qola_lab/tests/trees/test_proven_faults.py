"""Faults that the emulator has proven: found in trees, reported or refused by plans."""

from __future__ import annotations

import hashlib
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from qola.aiter.known_faults import holds
from qola.aiter.proven_faults import (
    KernelFacts,
    find_proven_faults,
    read_proven_faults,
)
from qola.aiter.tree import read_tree
from qola.checkout.request import AiterOptions, aiter_request
from qola.cli.command_line import main
from qola.common.layout import OWN_PATCHES, patches_folder
from qola.common.version import docs_url
from qola.fetch.patches import apply_patches
from qola.fetch.pins import patch_files
from qola.manifest.load import loads
from qola_base.errors import ExitCode
from qola_lab.problems.fields import parse_for_directions
from tests.support.later_tree import write_later_tree

MANIFEST = """\
[build]
architectures = ["gfx942"]
mode = "cpp_itfs"
{key}
[[modules]]
name = "libmha_fwd"
drop_directions = ["fwd", "fwd_splitkv", "batch_prefill"]
"""
NO_KEYS = "forward-sequence-without-keys"


@pytest.mark.parametrize("fault", read_proven_faults(), ids=lambda fault: fault.name)
def test_a_fault_is_complete(fault: object) -> None:
    """Prevents: a fault with an invalid problem, or without a way to match kernels."""
    (found,) = [known_fault for known_fault in read_proven_faults() if known_fault is fault]
    (problem,) = parse_for_directions(found.problem.split(), ["fwd", "bwd"])
    assert problem.direction in ("fwd", "bwd")
    assert sum(map(bool, (found.code_objects, found.fields, found.kernels))) == 1
    assert bool(found.direction) != bool(found.code_objects)
    assert all(len(sha256) == 64 for sha256 in found.code_objects)
    for key in found.code_objects.values():
        assert key.split("/")[1] in found.archs


def test_the_wheels_kernels_are_found(aiter_tree: Path) -> None:
    """Prevents: digests that do not match the wheel's kernels, so that plans do not warn."""
    tree = read_tree(aiter_tree)
    kernels = []
    for fault in read_proven_faults():
        for key in fault.code_objects.values():
            path = tree.root / tree.hsa_dir / key.removeprefix("hsa/")
            if path.is_file():
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                kernels.append(KernelFacts(key, (key.split("/")[1],), digest))
    found = list(find_proven_faults(tree, ["gfx942", "gfx950"], kernels, refuse=False))
    fixes = " ".join(finding.fix for finding in found)
    for name in (NO_KEYS, "backward-row-padding", "backward-reads-beyond-inputs"):
        assert f"health.md#{name}" in fixes
    assert not list(find_proven_faults(tree, ["gfx1250"], kernels, refuse=False))


def test_a_fault_of_ck_needs_its_text(aiter_tree: Path, tmp_path: Path) -> None:
    """Prevents: a warning for a CK with another dispatch, or for another kernel."""
    faulty = {"pipeline": "qr_async_trload", "dpad": True}
    wheel, later = read_tree(aiter_tree), read_tree(write_later_tree(tmp_path / "tree"))

    def faults(tree: object, archs: tuple[str, ...], **fields: object) -> int:
        kernels = [KernelFacts("k", archs, "", "fwd", {**faulty, **fields})]
        assert tree in (wheel, later)
        return len(list(find_proven_faults(tree, archs, kernels, refuse=False)))

    assert faults(wheel, ("gfx950",)) == 1
    assert faults(wheel, ("gfx942",)) == 0
    assert faults(wheel, ("gfx950",), dpad=False) == 0
    assert faults(later, ("gfx950",)) == 0


def test_patches_correct_the_faults_that_name_them(aiter_tree: Path, tmp_path: Path) -> None:
    """Prevents: a patch that does not apply to the pinned AITER, or a warning after patching."""
    patches = patch_files(patches_folder(OWN_PATCHES, tmp_path))
    corrected = [fault for fault in read_proven_faults() if fault.patch]
    assert {patch.name for patch in patches} == {fault.patch for fault in corrected}
    for entry in aiter_tree.iterdir():
        (tmp_path / entry.name).symlink_to(entry)
    for patched in (False, True):
        if patched:
            apply_patches(tmp_path, patches)
        tree = read_tree(tmp_path)
        assert [all(holds(tree, text) for text in fault.when) for fault in corrected] == [
            not patched for _ in corrected
        ]


@pytest.mark.parametrize("place", ["manifest", "option"])
def test_own_patches_have_a_name(place: str, tmp_path: Path) -> None:
    """Prevents: the patches that a plan names are missing in an installation, or need a path."""
    own = f'patches_dir = "{OWN_PATCHES}"' if place == "manifest" else ""
    manifest = loads(f"[qola]\n{own}\n[[modules]]\nname = 'libmha_fwd'\n", file="mine.toml")
    options = AiterOptions(patches_dir=OWN_PATCHES if place == "option" else None)
    request = aiter_request(manifest, tmp_path, options)
    assert request.patches_dir is not None
    assert {file.name for file in patch_files(request.patches_dir)} == {
        fault.patch for fault in read_proven_faults() if fault.patch
    }


def test_an_unpatched_tree_names_the_command(
    aiter_tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: an error that resolves the name of qola's patches as a folder."""
    (tmp_path / "mine.toml").write_text(
        f"""
        qola.patches_dir = "{OWN_PATCHES}"
        build = {{ architectures = ["gfx950"], mode = "cpp_itfs" }}
        modules = [{{ name = "libmha_fwd", receipt = 700 }}]
        """
    )
    words = ["plan", "mine.toml", "-q", "--aiter-root", str(aiter_tree)]
    assert main(words, {"QOLA_CACHE_HOME": str(tmp_path)}, directory=tmp_path) == ExitCode.PLAN
    assert f"qola checkout --patches-dir {OWN_PATCHES}\n" in capsys.readouterr().err


def test_names_of_kernels_may_be_patterns(aiter_tree: Path) -> None:
    """Prevents: a fault of some tiles reported for all tiles of the pipeline, or for none."""
    tile, rest = (
        "fmha_bwd_d64_bf16_batch_b32x16x64_o2",
        "nmask_ndropout_deterministic_trload_gfx950",
    )
    tree = read_tree(aiter_tree)

    def has_fault(maxq: int, bias: str) -> bool:
        name = f"{tile}_maxq{maxq}_pd8dv8_{bias}_ndbias_{rest}"
        kernels = [KernelFacts(name, ("gfx950",), "", "bwd")]
        return bool(list(find_proven_faults(tree, ["gfx950"], kernels, refuse=False)))

    assert has_fault(32, "bias")
    assert has_fault(16, "bias")
    assert not has_fault(0, "bias")
    assert not has_fault(32, "nbias")


def test_plans_warn_of_recorded_failures(repo_root: Path) -> None:
    """Prevents: a failing committed verdict without a warning in plans."""
    faults = read_proven_faults()
    patterns = [name for fault in faults for name in (*fault.kernels, *fault.code_objects.values())]
    # This fault names its kernels by fields of their config.
    patterns.append("fmha_fwd_*_qr_async_trload_vr_pddv_*")
    recorded = (repo_root / "manifests/te.verdicts").read_text(encoding="utf-8")
    failed = re.findall("^[0-9a-f]{8} [0-9a-f]{8} (.*)\n  (direction.*)", recorded, re.MULTILINE)
    assert failed
    for name, reason in failed:
        assert any(fnmatchcase(name, pattern) for pattern in patterns), f"{name}: {reason}"


def test_a_plan_warns_and_refuses(
    aiter_tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a library with a kernel of wrong results, without a warning."""
    command = ["plan", "m.toml", "--aiter-root", str(aiter_tree)]
    environ = {"QOLA_CACHE_HOME": str(tmp_path / "cache")}
    (tmp_path / "m.toml").write_text(MANIFEST.format(key=""))
    assert main(command, environ, directory=tmp_path) == ExitCode.DONE
    output = "".join(capsys.readouterr())
    assert "O and LSE of a sequence without keys come from uninitialised registers" in output
    assert "qola dispatch direction=fwd dtype=bf16 hdim=128 mode=group" in output
    (tmp_path / "m.toml").write_text(MANIFEST.format(key="refuse_proven_faults = true"))
    assert main(command, environ, directory=tmp_path) == ExitCode.PLAN
    output = "".join(capsys.readouterr())
    assert docs_url(f"guide/health.md#{NO_KEYS}") in output
    assert "remove [build].refuse_proven_faults" in output
