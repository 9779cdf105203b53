"""Device code of one arch, selected from the device code of a program for two archs."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from qola.bundle.pack_files import kernels_of_pack
from qola.split.__main__ import ArchRows, Row, make_pack, table
from qola.split.device_code import (
    BUNDLES,
    CODE_OBJECTS,
    DeviceCode,
    read_device_code,
    unserved,
)
from qola_base.code_object.elf import Elf
from qola_base.code_object.offload import (
    arch_of,
    bundle_size,
    is_compressed,
    read_bundle,
    registered_bundles,
)
from qola_base.errors import BundleError

PROGRAMS = {
    Path(path).name.removeprefix("probe_"): Path(path)
    for path in os.environ["QOLA_TEST_PROBES"].split()
}
ARCHS = ("gfx942", "gfx950")


@pytest.fixture
def bundler(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The pinned clang-offload-bundler, with the bundle format of the libraries."""
    monkeypatch.setenv("COMPRESSED_BUNDLE_FORMAT_VERSION", "2")
    return Path(os.environ["QOLA_TEST_LLVM"]).resolve().parent / "clang-offload-bundler"


def read_bundles(program: str) -> list[DeviceCode]:
    """Return the bundles of a program."""
    registered = registered_bundles(Elf(PROGRAMS[program].read_bytes()))
    codes = [DeviceCode(BUNDLES, offset, rest[: bundle_size(rest)]) for offset, rest in registered]
    assert codes
    return codes


@pytest.mark.parametrize("program", ["both", "compressed"])
def test_selects_one_arch(program: str, bundler: Path) -> None:
    """Prevents: changed code, code of another arch in a pack, or a bundle that HIP cannot read."""
    for code in read_bundles(program):
        whole = dict(read_bundle(code.bundle))
        assert sorted(map(arch_of, whole)) == list(ARCHS)
        assert is_compressed(code.bundle) == (program == "compressed")
        for arch in ARCHS:
            data = code.select(arch, bundler)
            assert data == code.select(arch, bundler)
            assert is_compressed(memoryview(data)) == is_compressed(code.bundle)
            assert dict(read_bundle(memoryview(data))) == {
                target: content for target, content in whole.items() if arch_of(target) == arch
            }
            if program == "both":
                # HIP uses the code in place.
                (offset,) = struct.unpack_from("<Q", data, data.index(b"hipv4-") - 24)
                assert offset % 4096 == 0


def test_code_of_one_arch_is_unchanged(bundler: Path) -> None:
    """Prevents: a bundle of one arch is bundled again, or a pack has an arch without code."""
    for code in read_bundles("gfx942"):
        assert code.select("gfx942", bundler) == bytes(code.bundle)
        assert code.select("gfx950", bundler) == b""
    embedded = DeviceCode(CODE_OBJECTS, 8, memoryview(b"code"), "gfx950")
    assert embedded.select("gfx950", bundler) == b"code"
    assert embedded.select("gfx942", bundler) == b""


def test_a_pack_and_its_rows(bundler: Path, tmp_path: Path) -> None:
    """Prevents: an unsorted table, digests that the pack lacks, or code not aligned to a page."""
    codes = [*read_bundles("both"), DeviceCode(CODE_OBJECTS, 0, memoryview(b"CCOB 942"), "gfx942")]
    data, arch_rows = make_pack(reversed(codes), "gfx942", bundler)
    assert arch_rows.arch == "gfx942"
    assert [(row.section, row.offset) for row in arch_rows.rows] == [
        (code.section, code.offset) for code in codes
    ]
    file = tmp_path / "a.qpack"
    file.write_bytes(data)
    packed = dict(kernels_of_pack(file, file.name))
    assert set(packed) == {f"{code.name} gfx942" for code in codes}
    _, count, _ = struct.unpack_from("<8sII", data)
    rows = [struct.unpack_from("<32sQQ", data, 16 + 48 * number) for number in range(count)]
    assert {key.hex() for key, _, _ in rows} == {row.key for row in arch_rows.rows}
    assert [offset % 4096 for _, offset, _ in rows] == [0] * len(codes)


def test_a_program_that_cannot_be_split() -> None:
    """Prevents: a library searches its host part for device code by address at run time."""
    with pytest.raises(BundleError, match=r"probe_both\n +found +calls hipGetFuncBySymbol, which"):
        read_device_code(PROGRAMS["both"])
    with pytest.raises(BundleError, match="not a library that can be read"):
        read_device_code(Path(__file__))


def test_functions_that_need_device_code_inside() -> None:
    """Prevents: a call of a split library fails at run time because HIP has no device code."""
    unsupported = [
        *("__hipRegisterVar", "hipExtLaunchKernel", "hipFuncGetAttributes", "hipGetProcAddress"),
        *("hipGraphAddKernelNode", "hipGraphAddNode", "hipGraphExecNodeSetParams"),
        *("hipLaunchByPtr", "hipLaunchKernel_spt", "hipMemcpyToSymbol", "hipModuleLoadDataEx"),
    ]
    supported = ["__hipRegisterFunction", "hipLaunchKernel", "hipModuleLoadData"]
    others = ["hipGraphAddMemcpyNode", "hipGraphLaunch", "hipLaunchHostFunc", "hipModuleLoad"]
    assert unserved([*others, *reversed(unsupported), *supported, "memcpy"]) == unsupported


def test_the_table() -> None:
    """Prevents: a table with unsorted addresses, or a table without code that does not compile."""
    text = table(
        "ns_libmha_fwd",
        [
            ArchRows("gfx942", (Row(BUNDLES, 4096, "ab"), Row(CODE_OBJECTS, 0, "cd"))),
            ArchRows("gfx950", ()),
        ],
    )
    rows = [
        '    {qola_split_bundles + 0x1000, "ab"},',
        '    {qola_split_code_objects + 0x0, "cd"},',
    ]
    assert "\n".join(rows) in text
    assert "gfx950" not in text
    assert 'const Table table = {"ns_libmha_fwd", archs, std::size(archs)};' in text
