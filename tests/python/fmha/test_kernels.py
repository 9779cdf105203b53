"""Builds of many kernels: which share a library, what is not tried, and what is told."""

from __future__ import annotations

import io
from dataclasses import replace

from qola.fmha.bar import Step, told
from qola.fmha.bar_rich import bar
from qola.fmha.kernels import archs_of, build_kernels, grouped
from qola.kernel.config import KernelConfig

FORWARD = KernelConfig.parse(
    "fwd.bf16.batch.d64x64.gfx950.b64x64x32x64x32x64_r4x1x1_r4x1x1_w16x16x32_w16x16x32.p-qr_async"
    ".v-row.nmask.bias-no.lse.ndropout.nsquant.nlogits.nskip.ntrload.spad.nskpad.dpad.dvpad"
)


def test_kernels_that_share_a_library() -> None:
    """Prevents: a kernel that is built and that another one hides, or a compile for each."""
    tile = replace(FORWARD.tile, per_cu=2)
    padded = replace(FORWARD, skpad=True)
    others = [replace(FORWARD, mask=True), replace(FORWARD, tile=tile), replace(FORWARD, lse=False)]
    first, second = grouped([padded, FORWARD, *others])
    # What takes fewer problems is asked first.
    assert set(first) == {FORWARD, padded, others[0], others[2]}
    assert first[-1] == padded
    assert second == (others[1],)


def test_the_archs_of_a_kernel() -> None:
    """Prevents: a kernel of gfx9's that is planned for gfx950, where CK has others."""
    archs = ["gfx90a", "gfx942", "gfx950", "gfx1201"]
    assert archs_of(FORWARD, archs) == ["gfx950"]
    assert archs_of(replace(FORWARD, arch="gfx9"), archs) == ["gfx90a", "gfx942"]
    assert archs_of(replace(FORWARD, arch=None), archs) == archs


def test_kernels_that_are_not_tried() -> None:
    """Prevents: a build of Bazel's for a kernel that is known to be none."""
    wrong = replace(FORWARD, spad=False, hdim_q=20)
    steps: list[Step] = []
    found = build_kernels([wrong, FORWARD, wrong], ["gfx942"], environ={}, progress=steps.append)
    assert [one.config for one in found] == [wrong, FORWARD]
    assert "async_padding" in found[0].error
    assert "hdim" in found[0].error
    assert "an arch that CK calls gfx950" in found[1].error
    assert not any(one.built for one in found)
    assert steps == []


def test_progress_is_told() -> None:
    """Prevents: a long build without a word, and a bar in a log."""
    lines = io.StringIO()
    with told(None, lines) as tell:
        tell(Step(1, 3, "12 of 48 kernels"))
    assert lines.getvalue() == "qola: 1 of 3: 12 of 48 kernels\n"
    steps: list[Step] = []
    with told(steps.append, lines) as tell:
        tell(Step(2, 3, "x"))
    assert steps == [Step(2, 3, "x")]
    shown = io.StringIO()
    with bar(shown) as tell:
        tell(Step(1, 3, "warning: [x]\n  found y"))
        tell(Step(3, 3, "done"))
    assert "warning: [x]" in shown.getvalue()
