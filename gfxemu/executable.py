"""Loads an executable into this process, so that its main can be called as a function.

The C library refuses to load executables, by a flag in them. A position-independent one without the
flag is a library whose main is not exported: its entry point passes main's address to the C
library.
"""

from __future__ import annotations

import ctypes
import re
import struct
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from qola_base.code_object.elf import NEEDED, RPATH, RUNPATH, Elf, explain_errors
from qola_base.errors import Finding, QolaError
from qola_base.runpath import dynamic_entries, segments

_FIXED = 2
_FLAGS, _EXECUTABLE = 0x6FFFFFFB, 0x08000000
#: Instructions of the entry point that load main's address: lea or mov from the GOT, into rdi.
_LEA, _MOV = b"\x48\x8d\x3d", b"\x48\x8b\x3d"
_ENTRY_BYTES = 64
_LOAD = 1
_COPY = 5
_RELOCATION = struct.Struct("<QQq")
#: Variables of which a program may have a copy: constants, pointers that do not change, and the
#: streams of C++ once they are initialised.
_COPIES = re.compile(r"_ZT[VIS]|_ZSt\d(cout|cin|cerr|clog)$|stdin$|stdout$|stderr$|_?_?environ$")


def is_executable(program: Path) -> bool:
    """Return whether a file is an executable, not a library; QolaError for an invalid file."""
    data = bytearray(program.read_bytes())
    with explain_errors(Finding(str(program), "not a program of this machine", "an ELF file")):
        Elf(bytes(data))
        if struct.unpack_from("<H", data, 0x10)[0] == _FIXED:
            expected = "a position-independent program"
            finding = Finding(str(program), "a program at a fixed address", expected, "link: -pie")
            raise QolaError(finding, "the program cannot be emulated")
        return _flags(data) is not None


def load_main(
    program: Path, load: Callable[[Path], ctypes.CDLL]
) -> tuple[ctypes.CDLL, Callable[..., int]]:
    """Load an executable and return its library and its main.

    Args:
        load: loads a library.

    Raises:
        QolaError: the file is damaged, or its entry point has another form.
        OSError: a library that it needs cannot be loaded.
    """
    data = bytearray(program.read_bytes())
    with explain_errors(Finding(str(program), "a damaged program", "an ELF file")):
        elf = Elf(bytes(data))
        place = _flags(data)
        if place is not None:
            (flags,) = struct.unpack_from("<Q", data, place)
            struct.pack_into("<Q", data, place, flags & ~_EXECUTABLE)
        address, in_table = _main_address(data, program)
        copies = _copies(elf)
        # The copies are made when the program is loaded, of initialised libraries.
        _load_needed(elf, program)
    if unsafe := [name for name in copies if not _COPIES.match(name)]:
        found = f"a copy of {', '.join(unsafe)}, a variable of a library"
        finding = Finding(str(program), found, "a program that shares it", "compile: -fPIC")
        raise QolaError(finding, "the program cannot be emulated")
    if any(name.startswith("_ZSt") for name in copies):
        _initialize_streams()
    library = _load_copy(program, bytes(data), load)
    start = _base(library, program)
    target = start + address
    if in_table:
        target = ctypes.c_uint64.from_address(target).value
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    return library, kind(target)


def _flags(data: bytearray) -> int | None:
    """Return the position of the flags that make a file an executable, None for a library."""
    for place, tag, value in dynamic_entries(data):
        if tag == _FLAGS and value & _EXECUTABLE:
            return place + 8
    return None


def _main_address(data: bytearray, program: Path) -> tuple[int, bool]:
    """Return the address of main, or of the table entry with it, relative to the start."""
    (entry,) = struct.unpack_from("<Q", data, 0x18)
    for kind, offset, address, size in segments(data):
        if kind == _LOAD and address <= entry < address + size:
            code = data[offset + entry - address :][:_ENTRY_BYTES]
            for opcode in (_LEA, _MOV):
                if (at := code.find(opcode)) >= 0:
                    (distance,) = struct.unpack_from("<i", code, at + 3)
                    return entry + at + 7 + distance, opcode == _MOV
    expected = "a program of a C or C++ compiler, linked with its usual start files"
    raise QolaError(Finding(str(program), "an entry point without main", expected))


def _load_needed(elf: Elf, program: Path) -> None:
    """Load the libraries that a program needs, as far as they are found before it is loaded."""
    texts = elf.dynamic_texts(RUNPATH) or elf.dynamic_texts(RPATH)
    origin = str(program.resolve().parent)
    places = [Path(p.replace("$ORIGIN", origin)) for text in texts for p in text.split(":") if p]
    for name in elf.dynamic_texts(NEEDED):
        found = next((place / name for place in places if (place / name).is_file()), name)
        with suppress(OSError):
            ctypes.CDLL(str(found), mode=ctypes.RTLD_GLOBAL)


def _copies(elf: Elf) -> list[str]:
    """Return the variables of libraries of which a program has a copy."""
    names = [symbol.name for symbol in elf.symbols(".dynsym")]
    rows = _RELOCATION.iter_unpack(elf.content(elf.section(".rela.dyn")))
    return [names[info >> 32] for _, info, _ in rows if info & 0xFFFFFFFF == _COPY]


def _initialize_streams() -> None:
    """Initialise std::cout and others as the program's static objects do, which is later."""
    with suppress(OSError, AttributeError):
        cxx = ctypes.CDLL("libstdc++.so.6", mode=ctypes.RTLD_GLOBAL)
        # std::ios_base::Init::Init(); the object has one byte, and is never destroyed.
        cxx._ZNSt8ios_base4InitC1Ev(ctypes.create_string_buffer(8))


def _load_copy(program: Path, content: bytes, load: Callable[[Path], ctypes.CDLL]) -> ctypes.CDLL:
    """Load a changed copy of a program: next to it, so that $ORIGIN remains, else elsewhere."""
    for directory in (program.resolve().parent, None):
        with (
            suppress(PermissionError),
            tempfile.NamedTemporaryFile(prefix=".emulated-", dir=directory) as file,
        ):
            file.write(content)
            file.flush()
            return load(Path(file.name))
    raise QolaError(Finding(str(program), "no directory for a copy", "a directory for files"))


class _LinkMap(ctypes.Structure):
    _fields_ = [("start", ctypes.c_uint64), ("name", ctypes.c_char_p)]


def _base(library: ctypes.CDLL, program: Path) -> int:
    """Return the address to which a library was loaded."""
    found: Any = ctypes.POINTER(_LinkMap)()
    libc = ctypes.CDLL(None)
    # RTLD_DI_LINKMAP
    if libc.dlinfo(ctypes.c_void_p(library._handle), 2, ctypes.byref(found)):
        raise QolaError(Finding(str(program), "no address of the program", "glibc 2.28 or later"))
    start: int = found.contents.start
    return start
