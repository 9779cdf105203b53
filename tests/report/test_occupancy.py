"""The number of waves per SIMD: equal to the compiler's for kernels with given resources."""

from __future__ import annotations

import os
import re
import subprocess
from itertools import product
from pathlib import Path

import pytest

from qola.report.occupancy import LDS_GRANULE, occupancy
from qola_base.arch_facts import ARCHS

CLANG = Path(os.environ["QOLA_TEST_CLANG"]).absolute()
#: (VGPRs, AGPRs) of a kernel.
REGISTERS = [(8, 0), (64, 0), (65, 0), (96, 0), (129, 0), (168, 0), (169, 0), (256, 0), (104, 100)]
BYTES = [0, 1000, 8192, 13056, 16384, 21000, 40000, 65536, 81920, 163840]
WORKGROUPS = [64, 256, 512]

_KERNEL = """\
__attribute__((reqd_work_group_size({workgroup}, 1, 1))) kernel void k{number}(global int *out) {{
  {lds}
  __asm__ volatile("" ::: "v{vector}"{matrix});
}}
"""


def source(number: int, vector: int, matrix: int, lds: int, workgroup: int) -> str:
    used = f"local char s[{lds}]; out[0] = s[out[1]]; s[out[2]] = 1; out[3] = s[out[4]];"
    return _KERNEL.format(
        number=number,
        lds=used if lds else "",
        vector=vector - 1,
        matrix=f', "a{matrix - 1}"' if matrix else "",
        workgroup=workgroup,
    )


@pytest.mark.quick(1)
@pytest.mark.parametrize("arch", sorted(LDS_GRANULE))
def test_waves_match_the_compiler(arch: str, tmp_path: Path) -> None:
    """Prevents: a reported occupancy differs from the compiler's.

    The compiler does not round LDS up to the allocation granule of the hardware. If rounding
    matters, the reported number of waves must be smaller than the compiler's.
    """
    points = [
        (*registers, lds, workgroup)
        for registers, lds, workgroup in product(REGISTERS, BYTES, WORKGROUPS)
        if lds <= ARCHS[arch].lds_bytes and (sum(registers) <= 168 or workgroup < 512)
    ]
    file = tmp_path / "kernels.cl"
    file.write_text("".join(source(i, *point) for i, point in enumerate(points)), "utf-8")
    options = ["-x", "cl", "-cl-no-stdinc", "-nogpulib", "-O1", "--target=amdgcn-amd-amdhsa"]
    options += [f"-mcpu={arch}", "-Rpass-analysis=kernel-resource-usage", "-S", "-o", "/dev/null"]
    run = subprocess.run([CLANG, *options, file], capture_output=True, text=True, check=True)
    figures = ("Name: k", "VGPRs: ", "AGPRs: ", "SIMD]: ", "block]: ")
    pattern = ".*?".join(rf"{re.escape(name)}(\d+) " for name in figures)
    reported = re.findall(pattern, run.stderr, re.DOTALL)
    assert len(reported) == len(points)
    rounded = 0
    for number, vector, matrix, waves, lds in (map(int, figures) for figures in reported):
        # AGPRs begin at a multiple of four.
        registers = -(-vector // 4) * 4 + matrix if matrix else vector
        found = occupancy(arch, registers, lds, points[number][3])
        assert found
        fitting, _ = found
        if lds % LDS_GRANULE[arch] and fitting != waves:
            rounded += 1
            assert fitting < waves
            continue
        assert fitting == waves, (arch, points[number])
    assert rounded < len(points) / 10


def test_limit_is_the_scarcest_resource() -> None:
    """Prevents: qola advises to save LDS although registers limit the occupancy."""
    limits = [
        occupancy("gfx942", registers, lds, 256)
        for registers, lds in ((128, 0), (128, 40000), (24, 0), (24, 65536))
    ]
    assert limits == [(4, "registers"), (1, "LDS"), (8, "waves"), (1, "LDS")]


def test_unknown_arch() -> None:
    """Prevents: qola invents an occupancy for a GPU with unknown rules."""
    assert occupancy("gfx1250", 64, 0, 256) is None
