"""Compiled and assembly kernels with changed instructions, on an engine with sanitizers."""

from __future__ import annotations

import os
from pathlib import Path

from gfxemu.tests.mutants import run_with_sanitizers

FILES = [
    Path(os.environ[f"QOLA_TEST_{name}"]).resolve()
    for name in (
        *("CI_libmha_fwd", "CI_libmha_bwd", "ASM_libmha_fwd", "ASM_libmha_bwd"),
        *("OTHER_ARCHS_libmha_fwd", "HIP_GROUPS", "HIP_PRIM", "HIP_SYMBOLS"),
        *("HIP_WAVE32_GFX1100", "HIP_WAVE32_GFX1201"),
    )
]
#: All archs together.
COUNT = 2800


def test_changed_kernels_end_with_a_fault_at_most(tmp_path: Path) -> None:
    """Prevents: a damaged kernel that crashes the emulator, or makes it raise ValueError."""
    done = run_with_sanitizers(
        "qola_lab.tests.emulated.mutated_kernels", tmp_path, [str(COUNT), *map(str, FILES)]
    )
    lines = (done.stdout + done.stderr).splitlines()
    # Each mutant is a line: the last ones show which one ended the process.
    assert (done.returncode, lines[-1:]) == (0, ["done"]), "\n".join(lines[-60:])
    assert lines[-2].startswith(f"{COUNT} mutants of ")
    for arch in ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"):
        assert arch in lines[-2], lines[-2]
