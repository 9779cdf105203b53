"""Tables and packs of a library, from kernels that were compiled."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qola.bundle.elf_versions import read_needs
from qola.bundle.pack_files import kernels_of_pack
from qola.errors import ManifestError
from qola.triton.library import Built, pack_built, preferred, read_built, table


def built(arch: str, block: int, hdim: int = 64, code: bytes = b"") -> Built:
    told: Any = {
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
    return Built("f", code or f"{arch}{block}{hdim}".encode(), told)


KERNELS = [built(arch, block) for arch in ("gfx942", "gfx950") for block in (64, 128)]


def order(text: str) -> list[str]:
    return [one.code.decode()[:-2] for one in preferred(KERNELS, text, "t.json")]


def test_a_tuning_table_orders_kernels() -> None:
    """Prevents: a kernel that was measured to be slower, taken because it stands before."""
    assert order("[]") == ["gfx94264", "gfx942128", "gfx95064", "gfx950128"]
    rows = '[{"arch": "gfx950", "BLOCK": 128}, {"BLOCK": 128, "BIAS": false, "kernel": "f"}]'
    assert order(rows) == ["gfx950128", "gfx942128", "gfx94264", "gfx95064"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "{}"),
        ("[1]", "[1]"),
        ("[", "Expecting value"),
        ('[{"BLOCK": 64}, {"BLOCK": 63}]', '{"BLOCK": 63}'),
        ('[{"arch": "gfx90a"}]', "gfx90a"),
    ],
)
def test_tuning_tables_that_are_refused(text: str, words: str) -> None:
    """Prevents: a table with a slip in it, which orders nothing and says nothing."""
    with pytest.raises(ManifestError) as caught:
        preferred(KERNELS, text, "t.json")
    assert words in caught.value.findings[0].found


def test_a_table() -> None:
    """Prevents: C++ that says something else of a kernel than its metadata."""
    text = table([built("gfx942", 64)], "ns", "ns_triton")
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
    assert "QOLA_NAMESPACE" not in table([built("gfx942", 64)], "", "qola_triton")


def test_a_compressed_kernel_has_a_key_of_its_own(tmp_path: Path) -> None:
    """Prevents: a digest of other bytes than a library reads from its pack."""
    plain = built("gfx942", 64)
    file = tmp_path / "a.qpack"
    less = replace(plain, packed=b"CCOB less of it")
    file.write_bytes(pack_built([less]))
    (found,) = (library for _, library in kernels_of_pack(file, "a.qpack"))
    assert found.startswith(b"CCOB less of it")
    # What the library compares: bytes as they are, since it reads no compressed ones.
    assert less.in_pack.key == hashlib.sha256(less.packed).hexdigest() != plain.in_pack.key
    assert bytes.fromhex(less.in_pack.key) in found
    assert less.in_pack.key in table([less], "", "l")
    # Neither is a file that a system's loader reads.
    assert read_needs(tmp_path) == ()


@pytest.mark.parametrize("name", ["global_scratch_size", "profile_scratch_size"])
def test_scratch_memory_is_refused(tmp_path: Path, name: str) -> None:
    """Prevents: a kernel that writes to memory it was never given, at address 0."""
    one = built("gfx942", 64)
    code = tmp_path / f"{one.metadata['name']}.hsaco"
    code.write_bytes(one.code)
    code.with_suffix(".json").write_text(json.dumps(one.metadata), "utf-8")
    assert read_built("f", code) == one
    code.with_suffix(".json").write_text(json.dumps({**one.metadata, name: 128}), "utf-8")
    with pytest.raises(ManifestError) as caught:
        read_built("f", code)
    (found,) = caught.value.findings
    assert found.place == f"{one.metadata['name']}: f gfx942 BLOCK=64 HDIM=64 dtype=bf16"
    assert found.found == f"{name} 128"


def test_a_pack_is_one_of_lazy_libraries(tmp_path: Path) -> None:
    """Prevents: a pack that the readers of packs cannot read."""
    file = tmp_path / "a.qpack"
    file.write_bytes(pack_built(KERNELS))
    found = dict(kernels_of_pack(file, "a.qpack"))
    assert {name.split(" ")[1] for name in found} == {"gfx942", "gfx950"}
    assert sorted(library[:-80] for library in found.values()) == sorted(k.code for k in KERNELS)
    # Two kernels with the same code are there once.
    twins = [built("gfx942", 64, code=b"same"), built("gfx942", 128, code=b"same")]
    file.write_bytes(pack_built(twins))
    assert len(list(kernels_of_pack(file, "a.qpack"))) == 1
