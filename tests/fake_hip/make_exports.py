"""Writes what makes the fake runtime's exports those of the real one.

Usage: make_exports.py EXPORTS VERSION_SCRIPT REFUSALS

EXPORTS names the functions of the real libamdhip64.so.7, one "<version node> <symbol>" a line.
VERSION_SCRIPT gives each its node. REFUSALS is C++ with a weak definition of each that ends the
process and says which function was missed; those that the fake implements replace theirs.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path


def version_script(exports: list[tuple[str, str]]) -> str:
    """A linker version script with each symbol at its node."""
    nodes: defaultdict[str, list[str]] = defaultdict(list)
    for node, symbol in exports:
        nodes[node].append(symbol)
    lines: list[str] = []
    for node, symbols in sorted(nodes.items()):
        lines += [f"{node} {{", "global:", *(f"  {symbol};" for symbol in symbols), "};"]
    return "\n".join([*lines, "qola_fake_hip {", "local:", "  *;", "};", ""])


def refusals(exports: list[tuple[str, str]]) -> str:
    """C++ that defines each symbol weakly, as a function that ends the process."""
    weak = 'extern "C" __attribute__((weak)) void'
    lines = [f'{weak} {name}() {{ refuse("{name} is not supported"); }}' for _, name in exports]
    return "\n".join(
        ['#include "tests/fake_hip/settings.h"', "using fake_hip::refuse;", *lines, ""]
    )


def main(arguments: list[str]) -> None:
    """Read the list, write both files."""
    lines = Path(arguments[0]).read_text(encoding="utf-8").splitlines()
    exports = [(node, symbol) for node, symbol in (line.split() for line in lines)]
    Path(arguments[1]).write_text(version_script(exports), encoding="utf-8")
    Path(arguments[2]).write_text(refusals(exports), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
