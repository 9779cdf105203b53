"""Reads the device code of a linked library by place, and selects one arch of it."""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from qola_base.code_object.elf import Elf, explain_errors
from qola_base.code_object.offload import (
    arch_of,
    bundle_size,
    is_compressed,
    read_bundle,
    registered_bundles,
)
from qola_base.errors import BundleError, Finding

BUNDLES, CODE_OBJECTS = "bundles", "code_objects"
"""Sections of places: bundles of kernels, and AITER's code objects (runtime/split/split.ld)."""

_TABLE = "qola_asm_table"
"""Symbol of the table of code objects (rules/private/code_objects.bzl)."""

_ROW = struct.Struct("<QQQ")

#: HIP's functions that find device code by an address in the library, or return such functions.
_BY_ADDRESS = re.compile(
    r"__hipRegister\w+|hipFunc\w+|hip\w*Occupancy\w+|hip\w*Symbol\w*"
    r"|hip\w*Launch\w*Kernel\w*|hipKernelNameRefByPtr|hip(Module|Library)Load\w+"
    r"|hipGraph\w*KernelNode\w*|hipGraph(Add|Exec|)Node(SetParams)?|hipLaunchByPtr\w*"
    r"|hipGet(ProcAddress|DriverEntryPoint)\w*"
)
#: Those that work in split libraries (runtime/split/split.cpp).
_SERVED = {
    *("__hipRegisterFatBinary", "__hipRegisterFunction", "hipKernelNameRefByPtr"),
    *("hipLaunchKernel", "hipModuleLoadData", "hipModuleLaunchKernel"),
}


def _make_bundle(bundler: Path, code: Mapping[str, memoryview], *, compress: bool) -> bytes:
    """Make a bundle of code objects by target, as clang makes those of sources.

    Args:
        bundler: clang-offload-bundler; the environment sets its format for compressed bundles.
    """
    targets = ["host-x86_64-unknown-linux-gnu-", *code]
    with tempfile.TemporaryDirectory() as name:
        inputs = [Path("/dev/null")]
        for number, data in enumerate(code.values()):
            inputs.append(Path(name, f"{number}.co"))
            inputs[-1].write_bytes(data)
        output = Path(name, "bundle")
        command = [str(bundler), "-type=o", f"-targets={','.join(targets)}"]
        command += [f"-input={file}" for file in inputs] + [f"-output={output}"]
        more = ["-compress", "-compression-level=19"] if compress else ["-bundle-align=4096"]
        subprocess.run([*command, *more], check=True)
        return output.read_bytes()


@dataclass(frozen=True)
class DeviceCode:
    """Device code of a library: a bundle of kernels, or an embedded code object.

    Attributes:
        offset: bytes from the start of the section.
        bundle: its bytes in the library.
        arch: of a code object; "" for a bundle, which may have several.
    """

    section: str
    offset: int
    bundle: memoryview
    arch: str = ""

    @property
    def name(self) -> str:
        """Return the name in packs."""
        return f"{self.section}+{self.offset:#x}"

    def select(self, arch: str, bundler: Path) -> bytes:
        """Return the code for one arch, compressed if it is in the library; b"" for none."""
        if self.arch:
            return bytes(self.bundle) if self.arch == arch else b""
        entries = list(read_bundle(self.bundle))
        own = {target: data for target, data in entries if arch_of(target) == arch}
        if len(own) == len(entries):
            return bytes(self.bundle)
        return _make_bundle(bundler, own, compress=is_compressed(self.bundle)) if own else b""


def unserved(functions: Iterable[str]) -> list[str]:
    """Select HIP functions that find device code by address and do not work in split libraries."""
    return sorted({name for name in functions if _BY_ADDRESS.fullmatch(name)} - _SERVED)


def read_device_code(library: Path) -> list[DeviceCode]:
    """Read a linked library that still has its symbols.

    Raises:
        BundleError: it cannot be read, or calls a function that split libraries lack.
    """
    found = Finding(str(library), "not a library that can be read", "a library linked by qola")
    with explain_errors(found, BundleError):
        elf = Elf(library.read_bytes())
        lacking = unserved(s.name for s in elf.symbols(".dynsym") if not s.address)
        code = [*_bundles(elf), *_code_objects(elf)]
    if lacking:
        raise BundleError(
            Finding(
                library.name,
                f"calls {', '.join(lacking)}, which need device code inside the library",
                "a library that only launches its kernels",
                "build without split",
            )
        )
    return code


def _bundles(elf: Elf) -> Iterator[DeviceCode]:
    start = getattr(elf.section(".hip_fatbin"), "address", 0)
    for address, rest in registered_bundles(elf):
        yield DeviceCode(BUNDLES, address - start, rest[: bundle_size(rest)])


def _code_objects(elf: Elf) -> Iterator[DeviceCode]:
    table = next((symbol for symbol in elf.symbols(".symtab") if symbol.name == _TABLE), None)
    if table is None or not table.size:
        return
    addends = elf.addends()
    rows = range(table.address, table.address + table.size, _ROW.size)
    places = [addends[row + 8] for row in rows]
    for row, place in zip(rows, places, strict=True):
        size = _ROW.unpack_from(elf.at(row))[2]
        key = bytes(elf.at(addends[row])[:200]).partition(b"\0")[0].decode("ascii")
        # hsa/<arch>/..., as in rules/private/code_objects.bzl.
        arch = key.split("/")[1]
        yield DeviceCode(CODE_OBJECTS, place - min(places), elf.at(place)[:size], arch)
