"""Device code of kernel instances in batches and compiled separately.

In larger kernels, the order of some instructions may change (docs/internals/batches.md). In these
kernels it does not.
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
        others: number of other kernels in the code object.
        code: instructions of the kernel.
    """

    resources: dict[str, int]
    others: int
    code: bytes


def section(elf: ELFFile, name: str) -> Any:
    """Return an existing section."""
    found = elf.get_section_by_name(name)
    assert found is not None, name
    return found


def metadata(elf: ELFFile) -> dict[str, Any]:
    """Return the metadata of a code object."""
    note = section(elf, ".note").data()
    name_size, size, _ = struct.unpack_from("<III", note)
    start = 12 + -(-name_size // 4) * 4
    found: dict[str, Any] = msgpack.unpackb(note[start : start + size])
    return found


def read_kernels(file: Path) -> dict[str, Kernel]:
    """Return the kernels of a file by arch and name."""
    found = {}
    for elf in (ELFFile(BytesIO(code)) for _, code in code_objects(file.read_bytes())):
        notes = metadata(elf)
        symbols, text = section(elf, ".dynsym"), section(elf, ".text")
        kernels = notes["amdhsa.kernels"]
        for kernel in kernels:
            (symbol,) = symbols.get_symbol_by_name(kernel[".name"])
            resources = {name: kernel[name] for name in RESOURCES}
            start = symbol["st_value"] - text["sh_addr"]
            code = text.data()[start : start + symbol["st_size"]]
            found[f"{notes['amdhsa.target']} {kernel['.name']}"] = Kernel(
                resources, len(kernels) - 1, code
            )
    return found


IN_BATCHES = {
    name: kernel
    for library in os.environ["QOLA_TEST_LIBRARIES"].split()
    for name, kernel in read_kernels(Path(library)).items()
}
SEPARATE = read_kernels(Path(os.environ["QOLA_TEST_ALONE"]))


def test_every_role() -> None:
    """Prevents: the comparison covers no kernels, or omits a direction."""
    roles = ("FmhaFwdKernel", "FmhaBwdDQDKDVKernel", "FmhaBwdOGradDotO", "FmhaBwdConvertQGrad")
    for role in roles:
        assert any(role in name for name in SEPARATE), role


@pytest.mark.parametrize("name", sorted(SEPARATE), ids=str)
def test_the_device_code_is_the_same(name: str) -> None:
    """Prevents: in a batch, a kernel uses more registers, spills, or has other instructions."""
    separate, batched = SEPARATE[name], IN_BATCHES[name]
    assert len(separate.code) > 200, "the code is too short for a kernel"
    assert (separate.others, bool(batched.others)) == (0, True), (
        "expected one separate and one batched kernel"
    )
    assert batched.resources == separate.resources
    assert batched.code == separate.code
