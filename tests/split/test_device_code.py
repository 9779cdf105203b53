"""The device code of kernel instances: the same by passes as in one command."""

from __future__ import annotations

import os
import re
import struct
from io import BytesIO
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
# Bytes of instructions; convert_dq has the fewest.
SMALLEST = 400


def files(variable: str) -> dict[str, Path]:
    """Return object files by their kernel instance's name."""
    return {Path(path).name: Path(path) for path in os.environ[variable].split()}


PASSES, ONE_COMMAND = files("QOLA_TEST_PASSES"), files("QOLA_TEST_ONE_COMMAND")


def sections(elf: bytes) -> dict[str, bytes]:
    """Return the contents of an ELF file's sections by name; the last one of a name counts."""
    return {section.name: section.data() for section in ELFFile(BytesIO(elf)).iter_sections()}


def code_objects(file: Path) -> dict[str, bytes]:
    """Return the code objects that are embedded in an object file, by target."""
    bundle = sections(file.read_bytes())[".hip_fatbin"]
    assert bundle.startswith(BUNDLE)
    (count,) = struct.unpack_from("<Q", bundle, len(BUNDLE))
    at, found = len(BUNDLE) + 8, {}
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", bundle, at)
        target = bundle[at + 24 : at + 24 + length].decode()
        found[target] = bundle[offset : offset + size]
        at += 24 + length
    return found


def test_the_same_kernel_instances() -> None:
    """Prevents: a comparison of nothing, or without one of the directions."""
    assert PASSES.keys() == ONE_COMMAND.keys()
    roles = {
        re.match(r"fmha_(?:fwd|bwd(?:_convert_dq|_dot_do_o)?)(?=_d\d)", name) for name in PASSES
    }
    assert {role[0] for role in roles if role} == set(os.environ["QOLA_TEST_ROLES"].split())
    assert all(PASSES[name].resolve() != ONE_COMMAND[name].resolve() for name in PASSES)


@pytest.mark.parametrize("name", sorted(PASSES))
def test_the_device_code_is_the_same(name: str) -> None:
    """Prevents: a precompiled header that changes an instruction, a descriptor or the metadata."""
    passes, one_command = code_objects(PASSES[name]), code_objects(ONE_COMMAND[name])
    assert passes.keys() == one_command.keys()
    (target,) = (target for target in passes if not target.startswith("host-"))
    assert len(sections(passes[target])[".text"]) > SMALLEST, "no kernel in it"
    for section in (".text", ".rodata", ".note"):
        mine, theirs = (sections(found[target])[section] for found in (passes, one_command))
        assert mine == theirs, f"{section} differs"
