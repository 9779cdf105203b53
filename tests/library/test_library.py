"""Contents, exports and dependencies of a built library, compared with its plan."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from qola.bundle.elf_versions import read_needs
from qola.bundle.platform_policy import check_platform
from qola_base.runpath import show_runpath
from runtime.wheel._hip import PIP_PACKAGES
from tests.library.offload import code_objects
from tests.library.symbols import SEVERAL_KERNELS, of_plan, of_symbol
from tests.support.running import output_of

LIBRARY = Path(os.environ["QOLA_TEST_LIBRARY"]).resolve()
PLAN: dict[str, Any] = json.loads(Path(os.environ["QOLA_TEST_PLAN"]).read_text(encoding="utf-8"))
MODULE: dict[str, Any] = next(
    module for module in PLAN["modules"] if module["name"] == os.environ["QOLA_TEST_MODULE"]
)
KERNELS: list[dict[str, Any]] = [PLAN["kernels"][index] for index in MODULE["kernels"]]
#: The archs to which the library is restricted; by default, the archs of the manifest.
ARCHS: list[str] = os.environ["QOLA_TEST_ARCHS"].split() or PLAN["archs"]
#: Arch and content.
CODE_OBJECTS = list(code_objects(LIBRARY.read_bytes()))
TREE = Path(os.environ["QOLA_TEST_TREE"]).resolve().parent
LLVM = Path(os.environ["QOLA_TEST_LLVM"]).absolute().parent

# ld-linux resolves thread-local storage: each thread has a call and handles of assembly kernels.
ALLOWED_NEEDED = {"libamdhip64", "libstdc++", "libc", "libm", "libgcc_s", "ld-linux-x86-64"}


def llvm(tool: str, *args: str) -> str:
    """Run an LLVM tool of the ROCm that built the library."""
    return output_of([f"{LLVM}/{tool}", *args])


def symbols(*options: str) -> list[str]:
    """Return demangled dynamic symbols, without versions (which would prevent demangling)."""
    text = llvm("llvm-nm", "--dynamic", "--format=just-symbols", *options, str(LIBRARY))
    names = re.sub(r"@.*$", "", text, flags=re.MULTILINE)
    command = [f"{LLVM}/llvm-cxxfilt"]
    return output_of(command, input=names).splitlines()


def test_exports_only_the_namespace() -> None:
    """Prevents: a symbol collides with another AITER in the process."""
    names = symbols("--defined-only")
    c_names = [name for name in names if "::" not in name]
    entries = [f"qola::{PLAN['namespace']}::{entry['name']}" for entry in MODULE["entries"]]
    assert sorted(name.split("(")[0] for name in names if name not in c_names) == sorted(entries)
    assert entries
    # test_abi.py checks the names of the C functions.
    prefixes = tuple(f"qola_{PLAN['namespace']}_{entry['name']}" for entry in MODULE["entries"])
    assert [name for name in c_names if not name.startswith(prefixes)] == []
    assert len(c_names) == 8 * len(entries)


def dynamic(tag: str, library: Path = LIBRARY) -> list[str]:
    """Return the values of a tag of the dynamic section."""
    text = llvm("llvm-readelf", "--dynamic-table", str(library))
    return re.findall(rf"\({tag}\).*\[(.*)\]", text)


def test_needs_hip_and_no_torch() -> None:
    """Prevents: a library loads only inside PyTorch, or needs an uncommon library."""
    needed = {name.split(".so")[0] for name in dynamic("NEEDED")}
    assert "libamdhip64" in needed
    assert needed <= ALLOWED_NEEDED
    assert dynamic("SONAME") == [LIBRARY.name]


def test_finds_hip_of_pip_only_in_a_wheel(tmp_path: Path) -> None:
    """Prevents: a library that loads HIP from a directory of others, or in a wheel not pip's."""
    assert dynamic("RUNPATH") == dynamic("RPATH") == []
    in_wheel = tmp_path / LIBRARY.name
    in_wheel.write_bytes(show_runpath(LIBRARY.read_bytes()))
    (found,) = dynamic("RUNPATH", in_wheel)
    assert found.split(":") == [
        f"$ORIGIN/{up}{package}/lib" for package in PIP_PACKAGES for up in ("../", "../../")
    ]


def test_loads_on_older_systems(tmp_path: Path) -> None:
    """Prevents: a library needs the libstdc++ or glibc of the build machine."""
    (tmp_path / LIBRARY.name).symlink_to(LIBRARY)
    (needs,) = read_needs(tmp_path)
    check_platform([needs], "manylinux_2_28_x86_64", ["libamdhip64.so.7"])


def test_undefined_symbols_are_system_symbols() -> None:
    """Prevents: "undefined symbol: aiter::..." when an application first loads the library."""
    # -z defs checked at link time that a needed library defines each symbol, except for symbols
    # that may stay undefined. The patterns match only symbols of the system.
    cxx = r"std::|operator (new|delete)|typeinfo for std::|vtable for |VTT for std::"
    cxx += r"|__cxa_|__gxx_|_Unwind_|__tls_get_addr$"
    others = r"hip[A-Z]\w+$|__hip\w+$|_ITM_\w+$|__gmon_start__$|[a-z]\w*$|__assert_fail$"
    undefined = symbols("--undefined-only")
    # A template's name starts with its return type: "std::ostream& std::operator<< <...>".
    assert [n for n in undefined if not re.match(f"{cxx}|{others}", n)] == []
    assert [n for n in undefined if re.search(r"aiter|ck_tile|fmha|mha_|torch", n)] == []


def test_loads_at_once_and_privately() -> None:
    """Prevents: an unresolved symbol fails the first kernel call instead of the load."""
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1], mode=int(sys.argv[2]))"
    mode = os.RTLD_NOW | os.RTLD_LOCAL
    env = {**os.environ, "LD_BIND_NOW": "1"}
    output_of([sys.executable, "-c", code, LIBRARY, str(mode)], env=env)


def descriptors(arch: str, directory: Path) -> tuple[str, ...]:
    """Return mangled names of the kernel descriptors in the compiled code objects of an arch."""
    names: list[str] = []
    file = directory / "code_object"
    assembly = {planned["sha256"] for planned in MODULE["code_objects"]}
    for code_arch, code in CODE_OBJECTS:
        if code_arch != arch or hashlib.sha256(code).hexdigest() in assembly:
            continue
        file.write_bytes(code)
        text = llvm("llvm-readelf", "--dyn-syms", "--wide", str(file))
        names += [line.split()[-1] for line in text.splitlines() if line.endswith(".kd")]
    return tuple(names)


def test_no_exit_and_no_aiter_asm_dir() -> None:
    """Prevents: AITER calls exit(0) after a HIP failure, or reads AITER_ASM_DIR."""
    ending = {"exit", "_exit", "_Exit", "quick_exit", "getenv", "secure_getenv"}
    assert ending & set(symbols("--undefined-only")) == set()
    assert b"AITER_ASM_DIR" not in LIBRARY.read_bytes()


@pytest.mark.parametrize("arch", ARCHS)
def test_code_objects_hold_the_planned_kernels(arch: str, tmp_path: Path) -> None:
    """Prevents: a library lacks a planned kernel instance, or has an unplanned kernel."""
    found = Counter(of_symbol(name) for name in descriptors(arch, tmp_path))
    planned = [of_plan(kernel) for kernel in KERNELS if arch in kernel["archs"]]
    assert planned
    assert sorted(found) == sorted(planned)
    assert {dict(i)["role"] for i, count in found.items() if count > 1} <= SEVERAL_KERNELS


def test_assembly_kernels_are_embedded() -> None:
    """Prevents: an assembly kernel is missing, changed, or of an excluded arch."""
    data = LIBRARY.read_bytes()
    digests = {hashlib.sha256(code).hexdigest() for _, code in CODE_OBJECTS}
    for planned in MODULE["code_objects"]:
        content = (TREE / planned["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == planned["sha256"]
        assert (planned["sha256"] in digests) == (planned["arch"] in ARCHS), planned["key"]
        # The library has the names of all its archs' kernels, which the C functions list.
        assert planned["key"].encode() + b"\0" in data or planned["arch"] not in ARCHS


def test_no_code_for_other_archs() -> None:
    """Prevents: a library has kernels for archs that the manifest does not name."""
    assert {arch for arch, _ in CODE_OBJECTS} == set(ARCHS)


def test_names_its_archs() -> None:
    """Prevents: AITER's _so_offload_archs finds no arch in compressed device code."""
    assert set(re.findall(rb"amdhsa--(gfx[0-9a-z]+)", LIBRARY.read_bytes())) == {
        arch.encode() for arch in ARCHS
    }


def test_has_dynamic_symbols_only() -> None:
    """Prevents: a shipped library has a full symbol table, or no link to its debug file."""
    sections = llvm("llvm-readelf", "--sections", "--wide", str(LIBRARY))
    assert re.search(r" \.dynsym ", sections)
    assert not re.search(r" \.(symtab|strtab|debug_\w+) ", sections)
    assert " .gnu_debuglink " in sections
