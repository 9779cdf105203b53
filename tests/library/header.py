"""Parse qola_c.h into ctypes structures and into declarations for cffi."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any, cast

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_SCALARS = {
    "float": ctypes.c_float,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
}


def _text(header: Path) -> str:
    return _COMMENT.sub("", header.read_text(encoding="utf-8"))


def structures(header: Path) -> dict[str, type[ctypes.Structure]]:
    """Return the structures of the header by name."""
    text = _text(header)
    found: dict[str, type[ctypes.Structure]] = {}
    limits = {name: int(value) for name, value in re.findall(r"#define (QOLA_MAX_\w+) (\d+)", text)}
    for name, body in re.findall(r"typedef struct (\w+)\s*\{(.*?)\}", text, re.DOTALL):
        fields = [
            (field, _type(type_text, int(limits.get(count, count or 0)), found))
            for type_text, field, count in re.findall(r"([\w *]+?)(\w+)(?:\[(\w+)\])?;", body)
        ]
        found[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return found


def _type(type_text: str, count: int, known: dict[str, type[ctypes.Structure]]) -> type:
    name = type_text.replace("const", "").strip()
    kind: Any
    if "*" in name:
        kind = ctypes.c_char_p if name.startswith("char") else ctypes.c_void_p
    else:
        kind = known[name] if name in known else _SCALARS[name]
    return cast("type", kind * count if count else kind)


def values(header: Path) -> dict[str, int]:
    """Return the constants of the header's enumerations."""
    return {
        name: int(value) for name, value in re.findall(r"\b(QOLA_\w+)\s*= (-?\d+)", _text(header))
    }


def entries(header: Path) -> list[str]:
    """Return the entry points that the header can declare."""
    return re.findall(r"^QOLA_C_ENTRY\((\w+)\)", _text(header), re.MULTILINE)


def functions(header: Path) -> list[str]:
    """Return the suffixes of an entry point's functions."""
    return re.findall(r"QOLA_C\(entry(?:##_(\w+))?\)\(", _text(header))


def declarations(header: Path, namespace: str) -> str:
    """Return the header's declarations for a namespace in a form that cffi parses."""
    text = _text(header)
    prefix = f"qola_{namespace}_" if namespace else "qola_"
    bodies = re.findall(r"^(?:typedef struct|enum) .*?^\}[^;]*;", text, re.DOTALL | re.MULTILINE)
    limits = re.findall(r"#define QOLA_MAX_\w+ \d+", text)
    macro = re.search(r"#define QOLA_C_ENTRY\(entry\)(.*?)\n\n", text, re.DOTALL)
    assert macro
    function = macro[1].replace("\\\n", "\n").replace("QOLA_C_API", "")
    declared = [
        re.sub(r"QOLA_C\(entry(?:##)?(\w*)\)", lambda m, e=entry: prefix + e + m[1], function)
        for entry in entries(header)
    ]
    return "\n".join([*limits, *bodies, *declared])
