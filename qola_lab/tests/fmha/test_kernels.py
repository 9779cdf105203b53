"""Builds of many kernel configs: shared libraries, and configs that are not built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from qola.build.programs import BuiltProgram
from qola.kernel.config import KernelConfig
from qola_lab.fmha import build
from qola_lab.fmha.build import archs_of_config, build_configs, group_configs
from qola_lab.tests.verify.libraries import libraries
from qola_lab.verify.host import Built

FORWARD = KernelConfig.from_name(
    "fwd.bf16.batch.d64x64.gfx950.b64x64x32x64x32x64_r4x1x1_r4x1x1_w16x16x32_w16x16x32.p-qr_async"
    ".v-row.nmask.bias-no.lse.ndropout.nsquant.nlogits.nskip.ntrload.spad.nskpad.dpad.dvpad"
)


def test_kernels_that_share_a_library() -> None:
    """Prevents: a built kernel that another one hides, or a library for each kernel."""
    tile = replace(FORWARD.tile, per_cu=2)
    padded = replace(FORWARD, skpad=True)
    others = [replace(FORWARD, mask=True), replace(FORWARD, tile=tile), replace(FORWARD, lse=False)]
    first, second = group_configs([padded, FORWARD, *others])
    # Kernels that serve fewer problems come first.
    assert set(first) == {FORWARD, padded, others[0], others[2]}
    assert first[-1] == padded
    assert second == (others[1],)


def test_the_archs_of_a_kernel() -> None:
    """Prevents: a gfx9 kernel planned for gfx950, for which CK has other kernels."""
    archs = ["gfx90a", "gfx942", "gfx950", "gfx1201"]
    assert archs_of_config(FORWARD, archs) == ["gfx950"]
    assert archs_of_config(replace(FORWARD, arch="gfx9"), archs) == ["gfx90a", "gfx942"]
    assert archs_of_config(replace(FORWARD, arch=None), archs) == archs


def test_invalid_kernels_are_not_built() -> None:
    """Prevents: a Bazel build of a kernel that is known to be invalid."""
    wrong = replace(FORWARD, spad=False, hdim_q=20)
    found = build_configs([wrong, FORWARD, wrong], ["gfx942"], environ={})
    assert [result.config for result in found] == [wrong, FORWARD]
    assert "async_padding" in found[0].error
    assert "hdim" in found[0].error
    assert "an arch that CK calls gfx950" in found[1].error
    assert not any(result.built for result in found)


def test_a_failing_kernel_does_not_fail_others(
    aiter_tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a kernel reported as failed because another kernel of its library fails."""

    def build_some(manifests: Mapping[str, str], *_: object) -> dict[str, BuiltProgram]:
        """Plan each manifest; those of several kernels, and of the masked one, do not compile."""
        found = {}
        for name, text in manifests.items():
            if text.count("fwd.bf16") > 1 or ".mask." in text:
                found[name] = BuiltProgram(None, "kernel.cpp:3:1: error: no such tile")
                continue
            (tmp_path / name).mkdir()
            (library,) = libraries(tmp_path / name, aiter_tree, text)
            found[name] = BuiltProgram(library.root)
        return found

    def built_by(root: Path) -> dict[str, Built]:
        return {"libmha_fwd": Built("libmha_fwd", root, Path("x"), None, Path("x"))}

    monkeypatch.setattr(build, "build_programs", build_some)
    monkeypatch.setattr(build, "built_by", built_by)
    masked = replace(FORWARD, mask=True)
    first, second = build_configs([masked, FORWARD], ["gfx950"], environ={})
    assert (first.built, first.name) == (None, "")
    assert "no such tile" in first.error
    assert second.built
    assert (second.error, "b64x64x32x64x32x64" in second.name) == ("", True)
