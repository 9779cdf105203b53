"""The device code of kernel instances: in a batch what it is in a compile of its own.

Of larger kernels an instruction here and there may change its place (docs/internals/batches.md);
of these, none does.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import msgpack
import pytest
from elftools.elf.elffile import ELFFile

from tests.library.offload import code_objects

RESOURCES = (
    *(".vgpr_count", ".agpr_count", ".sgpr_count", ".vgpr_spill_count", ".sgpr_spill_count"),
    *(".private_segment_fixed_size", ".group_segment_fixed_size", ".kernarg_segment_size"),
    ".max_flat_workgroup_size",
)


@dataclass(frozen=True)
class Kernel:
    """A kernel in a code object.

    Attributes:
        resources: registers, spills, bytes of scratch, LDS and arguments.
        beside: number of kernels that its code object has besides.
        code: its instructions.
    """

    resources: dict[str, int]
    beside: int
    code: bytes


def section(elf: ELFFile, name: str) -> Any:
    """Return a section that is there."""
    found = elf.get_section_by_name(name)
    assert found is not None, name
    return found


def metadata(elf: ELFFile) -> dict[str, Any]:
    """Return what a code object says of its kernels."""
    note = section(elf, ".note").data()
    name_size, size, _ = struct.unpack_from("<III", note)
    start = 12 + -(-name_size // 4) * 4
    found: dict[str, Any] = msgpack.unpackb(note[start : start + size])
    return found


def kernels_of(file: Path) -> dict[str, Kernel]:
    """Return the kernels of a file by arch and name."""
    found = {}
    for elf in (ELFFile(BytesIO(code)) for _, code in code_objects(file.read_bytes())):
        told = metadata(elf)
        symbols, text = section(elf, ".dynsym"), section(elf, ".text")
        kernels = told["amdhsa.kernels"]
        for kernel in kernels:
            (symbol,) = symbols.get_symbol_by_name(kernel[".name"])
            resources = {name: kernel[name] for name in RESOURCES}
            start = symbol["st_value"] - text["sh_addr"]
            code = text.data()[start : start + symbol["st_size"]]
            found[f"{told['amdhsa.target']} {kernel['.name']}"] = Kernel(
                resources, len(kernels) - 1, code
            )
    return found


IN_BATCHES = {
    name: kernel
    for library in os.environ["QOLA_TEST_LIBRARIES"].split()
    for name, kernel in kernels_of(Path(library)).items()
}
ALONE = kernels_of(Path(os.environ["QOLA_TEST_ALONE"]))


def test_every_role() -> None:
    """Prevents: a comparison of nothing, or without one of the directions."""
    roles = ("FmhaFwdKernel", "FmhaBwdDQDKDVKernel", "FmhaBwdOGradDotO", "FmhaBwdConvertQGrad")
    for role in roles:
        assert any(role in name for name in ALONE), role


@pytest.mark.parametrize("name", sorted(ALONE), ids=str)
def test_the_device_code_is_the_same(name: str) -> None:
    """Prevents: a batch whose kernels take more registers, spill, or have other instructions."""
    alone, batched = ALONE[name], IN_BATCHES[name]
    assert len(alone.code) > 200, "no kernel in it"
    assert (alone.beside, bool(batched.beside)) == (0, True), "not one alone, and one in a batch"
    assert batched.resources == alone.resources
    assert batched.code == alone.code
