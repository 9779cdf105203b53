"""Writes what makes the fake runtime's exports those of the real one.

Usage: llvm-readelf --dyn-syms --wide libamdhip64.so.7 | make_exports.py VERSION_SCRIPT REFUSALS

VERSION_SCRIPT gives each function of the real library its version node. REFUSALS is C++ with a weak
definition of each that ends the process and says which function was missed; those that the fake
implements replace theirs.
"""

from __future__ import annotations

import re
import sys
from itertools import groupby
from pathlib import Path

_FUNCTION = re.compile(r" (?:FUNC|IFUNC) +(?:GLOBAL|WEAK) +DEFAULT +\d+ (\S+?)@@(\S+)")
#: What an emulator calls, gfxemu/fake_hip/launch.h.
OWN = "fake_hip_"
#: What the real library exports of the compiler's and the debugger's, and the fake of its own.
_FOREIGN = ("__gnu_", "amd_dbgapi_", OWN)


def exports(symbols: str) -> list[tuple[str, str]]:
    """Parse llvm-readelf's output; return version node and symbol of HIP's functions, sorted."""
    found = {(node, symbol) for symbol, node in _FUNCTION.findall(symbols)}
    return sorted((node, symbol) for node, symbol in found if not symbol.startswith(_FOREIGN))


def version_script(functions: list[tuple[str, str]]) -> str:
    """A linker version script with each symbol at its node."""
    lines: list[str] = []
    for node, of_node in groupby(functions, key=lambda function: function[0]):
        lines += [f"{node} {{", "global:", *(f"  {symbol};" for _, symbol in of_node), "};"]
    own = ["qola_fake_hip {", "global:", f"  {OWN}*;", "local:", "  *;", "};", ""]
    return "\n".join([*lines, *own])


def refusals(functions: list[tuple[str, str]]) -> str:
    """C++ that defines each symbol weakly, as a function that ends the process."""
    weak = 'extern "C" __attribute__((weak)) void'
    lines = [f'{weak} {name}() {{ refuse("{name} is not supported"); }}' for _, name in functions]
    # Not settings.h: its HIP headers declare the functions with their real types.
    declared = "namespace fake_hip { [[noreturn]] void refuse(const std::string& why); }"
    return "\n".join(["#include <string>", declared, "using fake_hip::refuse;", *lines, ""])


if __name__ == "__main__":
    functions = exports(sys.stdin.read())
    Path(sys.argv[1]).write_text(version_script(functions), encoding="utf-8")
    Path(sys.argv[2]).write_text(refusals(functions), encoding="utf-8")
