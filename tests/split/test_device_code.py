"""Device code of one arch, selected from that of a program for two."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from qola.bundle.pack_files import kernels_of_pack
from qola.code_object.elf import Elf
from qola.code_object.offload import (
    arch_of,
    bundle_size,
    is_compressed,
    read_bundle,
    registered_bundles,
)
from qola.errors import BundleError
from qola.split.__main__ import ArchRows, Row, make_pack, table
from qola.split.device_code import (
    BUNDLES,
    CODE_OBJECTS,
    Bundler,
    DeviceCode,
    read_device_code,
    unserved,
)

PROGRAMS = {
    Path(path).name.removeprefix("probe_"): Path(path)
    for path in os.environ["QOLA_TEST_PROBES"].split()
}
ARCHS = ("gfx942", "gfx950")


@pytest.fixture
def bundler(monkeypatch: pytest.MonkeyPatch) -> Bundler:
    """The pinned program, which writes the format of the libraries."""
    monkeypatch.setenv("COMPRESSED_BUNDLE_FORMAT_VERSION", "2")
    return Bundler(Path(os.environ["QOLA_TEST_LLVM"]).resolve().parent / "clang-offload-bundler")


def code_of(program: str) -> list[DeviceCode]:
    """Return the bundles of a program."""
    found = registered_bundles(Elf(PROGRAMS[program].read_bytes()))
    codes = [DeviceCode(BUNDLES, at, rest[: bundle_size(rest)]) for at, rest in found]
    assert codes
    return codes


@pytest.mark.parametrize("program", ["both", "compressed"])
def test_selects_one_arch(program: str, bundler: Bundler) -> None:
    """Prevents: changed code, code of another arch in a pack, or a bundle that HIP cannot read."""
    for code in code_of(program):
        whole = dict(read_bundle(code.bundle))
        assert sorted(map(arch_of, whole)) == list(ARCHS)
        assert is_compressed(code.bundle) == (program == "compressed")
        for arch in ARCHS:
            data = code.select(arch, bundler)
            assert data == code.select(arch, bundler)
            assert is_compressed(memoryview(data)) == is_compressed(code.bundle)
            assert dict(read_bundle(memoryview(data))) == {
                target: own for target, own in whole.items() if arch_of(target) == arch
            }
            if program == "both":
                # HIP uses the code in place.
                (offset,) = struct.unpack_from("<Q", data, data.index(b"hipv4-") - 24)
                assert offset % 4096 == 0


def test_code_of_one_arch_stays_as_it_is(bundler: Bundler) -> None:
    """Prevents: a bundle of one arch that is bundled again, or an arch without code in a pack."""
    for code in code_of("gfx942"):
        assert code.select("gfx942", bundler) == bytes(code.bundle)
        assert code.select("gfx950", bundler) == b""
    embedded = DeviceCode(CODE_OBJECTS, 8, memoryview(b"code"), "gfx950")
    assert embedded.select("gfx950", bundler) == b"code"
    assert embedded.select("gfx942", bundler) == b""


def test_a_pack_and_its_rows(bundler: Bundler, tmp_path: Path) -> None:
    """Prevents: a table out of order or with digests that the pack lacks; code not at a page."""
    codes = [*code_of("both"), DeviceCode(CODE_OBJECTS, 0, memoryview(b"CCOB 942"), "gfx942")]
    data, found = make_pack(reversed(codes), "gfx942", bundler)
    assert found.arch == "gfx942"
    assert [(row.section, row.offset) for row in found.rows] == [
        (code.section, code.offset) for code in codes
    ]
    file = tmp_path / "a.qpack"
    file.write_bytes(data)
    packed = dict(kernels_of_pack(file, file.name))
    assert set(packed) == {f"{code.name} gfx942" for code in codes}
    _, count, _ = struct.unpack_from("<8sII", data)
    rows = [struct.unpack_from("<32sQQ", data, 16 + 48 * at) for at in range(count)]
    assert {key.hex() for key, _, _ in rows} == {row.key for row in found.rows}
    assert [offset % 4096 for _, offset, _ in rows] == [0] * len(codes)


def test_a_program_that_cannot_be_split() -> None:
    """Prevents: a library that looks for device code by address in its host part, at run time."""
    with pytest.raises(BundleError, match=r"probe_both\n +found +calls hipGetFuncBySymbol, which"):
        read_device_code(PROGRAMS["both"])
    with pytest.raises(BundleError, match="not a library that can be read"):
        read_device_code(Path(__file__))


def test_functions_that_need_device_code_inside() -> None:
    """Prevents: a split library whose call fails at run time, since HIP has no code for it."""
    lacking = [
        *("__hipRegisterVar", "hipExtLaunchKernel", "hipFuncGetAttributes", "hipGetProcAddress"),
        *("hipGraphAddKernelNode", "hipGraphAddNode", "hipGraphExecNodeSetParams"),
        *("hipLaunchByPtr", "hipLaunchKernel_spt", "hipMemcpyToSymbol", "hipModuleLoadDataEx"),
    ]
    served = ["__hipRegisterFunction", "hipLaunchKernel", "hipModuleLoadData"]
    others = ["hipGraphAddMemcpyNode", "hipGraphLaunch", "hipLaunchHostFunc", "hipModuleLoad"]
    assert unserved([*others, *reversed(lacking), *served, "memcpy"]) == lacking


def test_the_table() -> None:
    """Prevents: a table whose addresses are not sorted, or which does not compile without code."""
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
