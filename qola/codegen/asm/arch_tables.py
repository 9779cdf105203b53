"""Merges headers of AITER's generators that differ from arch to arch in their lookup tables only.

AITER compiles a module for one arch. A module for several takes the table of the current device.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_TABLE = re.compile(r"static CFG (cfg_\w+) = \{(.*?)\};\n?", re.DOTALL)
"""A table of assembly kernels: its name and entries."""


def merge_headers(headers: Mapping[str, str]) -> str:
    """Return a header with the tables of all archs; "" if the headers differ in anything else.

    In its place, each table's name is an expression: the table of the current device's arch.

    Args:
        headers: text of the header by arch.
    """
    rests = {" ".join(_TABLE.sub("", text).split()) for text in headers.values()}
    tables = {arch: dict(_TABLE.findall(text)) for arch, text in headers.items()}
    if len(rests) != 1 or not all(tables.values()):
        return ""
    first = next(iter(headers.values()))
    lines = [first[: first.index("static CFG ")]]
    for name in dict.fromkeys(name for own in tables.values() for name in own):
        archs = [arch for arch, own in tables.items() if name in own]
        lines += [f"static CFG qola_{arch}_{name} = {{{tables[arch][name]}}};" for arch in archs]
        choices = ", ".join(f'{{"{arch}", &qola_{arch}_{name}}}' for arch in archs)
        lines += [f"#define {name} (::qola_asm::table_of_arch<CFG>({{{choices}}}))", ""]
    return "\n".join(lines)
