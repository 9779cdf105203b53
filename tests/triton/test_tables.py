"""Tables and packs of a library, from compiled kernels."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qola.bundle.elf_versions import read_needs
from qola.bundle.pack_files import kernels_of_pack
from qola.triton.library import Built, pack_built, preferred, read_built, table
from qola_base.errors import ManifestError


def make_built(arch: str, block: int, hdim: int = 64, code: bytes = b"") -> Built:
    metadata: Any = {
        "arch": arch,
        "global_scratch_size": 0,
        "profile_scratch_size": 0,
        "arguments": [
            {"divisible": 16, "name": "x", "type": "*bf16"},
            {"divisible": 1, "name": "n", "type": "u32"},
            {"divisible": 1, "name": "by", "type": "fp32"},
        ],
        "choices": {"BLOCK": str(block), "HDIM": str(hdim), "dtype": "bf16"},
        "constants": {"BLOCK": block, "HDIM": hdim, "BIAS": False},
        "name": f"f-BLOCK_{block}-HDIM_{hdim}-dtype_bf16-{arch}",
        "num_warps": 4,
        "options": {"num_warps": 4},
        "shared": 1024,
        "symbol": "f",
        "triton": "3.9.0",
        "warp_size": 64,
    }
    return Built("f", code or f"{arch}{block}{hdim}".encode(), metadata)


KERNELS = [make_built(arch, block) for arch in ("gfx942", "gfx950") for block in (64, 128)]


def order_by(text: str) -> list[str]:
    return [kernel.code.decode()[:-2] for kernel in preferred(KERNELS, text, "t.json")]


def test_tuning_table_orders_kernels() -> None:
    """Prevents: qola selects the kernel listed first although measurements prefer another."""
    assert order_by("[]") == ["gfx94264", "gfx942128", "gfx95064", "gfx950128"]
    rows = '[{"arch": "gfx950", "BLOCK": 128}, {"BLOCK": 128, "BIAS": false, "kernel": "f"}]'
    assert order_by(rows) == ["gfx950128", "gfx942128", "gfx94264", "gfx95064"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", "{}"),
        ("[1]", "[1]"),
        ("[", "Expecting value"),
        ('[{"BLOCK": 64}, {"BLOCK": 63}]', '{"BLOCK": 63}'),
        ('[{"arch": "gfx90a"}]', "gfx90a"),
    ],
)
def test_invalid_tuning_tables(text: str, expected: str) -> None:
    """Prevents: a typing error in a table has no effect and no message."""
    with pytest.raises(ManifestError) as caught:
        preferred(KERNELS, text, "t.json")
    assert expected in caught.value.findings[0].found


def test_generated_table() -> None:
    """Prevents: the generated C++ table differs from a kernel's metadata."""
    text = table([make_built("gfx942", 64)], "ns", "ns_triton")
    for line in (
        "#define QOLA_NAMESPACE ns",
        '    {"BIAS", "0"},',
        "    {\"x\", 'p', 8, 16},",
        "    {\"n\", 'u', 4, 1},",
        "    {\"by\", 'f', 4, 1},",
        'const Table table = {"ns_triton", instances, std::size(instances)};',
    ):
        assert line in text
    assert '{"f", "f-BLOCK_64-HDIM_64-dtype_bf16-gfx942", "gfx942", "f", ' in text
    assert "QOLA_NAMESPACE" not in table([make_built("gfx942", 64)], "", "qola_triton")


def test_key_of_a_compressed_kernel(tmp_path: Path) -> None:
    """Prevents: the table's digest differs from the bytes that a library reads from its pack."""
    uncompressed = make_built("gfx942", 64)
    file = tmp_path / "a.qpack"
    compressed = replace(uncompressed, packed=b"CCOB less of it")
    file.write_bytes(pack_built([compressed]))
    (found,) = (library for _, library in kernels_of_pack(file, "a.qpack"))
    assert found.startswith(b"CCOB less of it")
    # The library compares the stored bytes, without decompression.
    assert (
        compressed.in_pack.key
        == hashlib.sha256(compressed.packed).hexdigest()
        != uncompressed.in_pack.key
    )
    assert bytes.fromhex(compressed.in_pack.key) in found
    assert compressed.in_pack.key in table([compressed], "", "l")
    # read_needs finds no file for the system's loader.
    assert read_needs(tmp_path) == ()


@pytest.mark.parametrize("name", ["global_scratch_size", "profile_scratch_size"])
def test_scratch_memory_is_rejected(tmp_path: Path, name: str) -> None:
    """Prevents: a kernel writes to scratch memory at address 0, because none is allocated."""
    kernel = make_built("gfx942", 64)
    code = tmp_path / f"{kernel.metadata['name']}.hsaco"
    code.write_bytes(kernel.code)
    code.with_suffix(".json").write_text(json.dumps(kernel.metadata), "utf-8")
    assert read_built("f", code) == kernel
    code.with_suffix(".json").write_text(json.dumps({**kernel.metadata, name: 128}), "utf-8")
    with pytest.raises(ManifestError) as caught:
        read_built("f", code)
    (found,) = caught.value.findings
    assert found.place == f"{kernel.metadata['name']}: f gfx942 BLOCK=64 HDIM=64 dtype=bf16"
    assert found.found == f"{name} 128"


def test_pack_has_the_format_of_lazy_libraries(tmp_path: Path) -> None:
    """Prevents: readers of packs reject a pack of Triton kernels."""
    file = tmp_path / "a.qpack"
    file.write_bytes(pack_built(KERNELS))
    found = dict(kernels_of_pack(file, "a.qpack"))
    assert {name.split(" ")[1] for name in found} == {"gfx942", "gfx950"}
    assert sorted(library[:-80] for library in found.values()) == sorted(k.code for k in KERNELS)
    # A pack stores the code of two kernels with equal code once.
    twins = [make_built("gfx942", 64, code=b"same"), make_built("gfx942", 128, code=b"same")]
    file.write_bytes(pack_built(twins))
    assert len(list(kernels_of_pack(file, "a.qpack"))) == 1
