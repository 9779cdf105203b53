"""The C functions of a module: the parts for runtime/api/qola_c_entry.h that depend on the tree.

These are the kernels and the names of parameters, which a C++ compiler does not know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from qola.aiter.attention import ENTRIES
from qola.aiter.entry_points import EntryFunction
from qola.codegen.types import CodeObject, KernelInstance, KernelSet
from qola_base.errors import Finding

#: The parameters after arguments and stream that `qola_c_entry::Parameters` has a value for.
_KNOWN = frozenset(
    {
        *("q_dtype_str", "is_group_mode", "mask_type", "bias_type", "has_lse", "has_dbias"),
        *("has_sink", "is_store_randval", "deterministic", "use_ext_asm", "is_v3_atomic_fp32"),
        *("how_v3_bf16_cvt", "qscale_type", "seqstart_q_padding_ptr", "seqstart_k_padding_ptr"),
        *("seqlen_q_padded", "seqlen_k_padded", "is_v3_api_check", "rope_type"),
    }
)
_ENTRY = """\
namespace qola_c_entry {{

extern const Kernels {name}_kernels;

}} // namespace qola_c_entry

namespace {{

struct {name}_of_c
{{
    using Args = std::decay_t<{args}>;
    static constexpr const char* name              = "{name}";
    static constexpr std::string_view parameters[] = {{{parameters}}};
    static qola_c_entry::Kernels kernels() {{ return qola_c_entry::{name}_kernels; }}
    template <class More>
    static float call(const Args& args, const ck_tile::stream_config& stream, const More& more)
    {{
        return QOLA_NS({name})({arguments});
    }}
}};

}} // namespace

QOLA_C_DEFINE({name}, {name}_of_c)
"""
_TABLES = """\
// Written by qola (qola/plan/c_functions.py): the kernels of each function, for its C functions.
// Make it again: qola plan; do not edit.
#include "qola_c_kernels.h"

namespace qola_c_entry {{

{tables}

}} // namespace qola_c_entry
"""
# The last row is empty, because C++ has no empty table.
_TABLE = """\
static constexpr Kernel {name}_table[] = {{
{kernels}
    {{}},
}};
extern const Kernels {name}_kernels;
const Kernels {name}_kernels{{{name}_table, sizeof({name}_table) / sizeof(Kernel) - 1}};"""
#: Rows of Q and of K in a tile's name.
_TILE = re.compile(r"b\d+x(\d+)")


@dataclass(frozen=True)
class CSources:
    """The C++ of a module's C functions, "" for none, and the C++ with their kernels' names."""

    source: str
    kernels: str
    warnings: tuple[Finding, ...]


def c_functions(functions: Sequence[EntryFunction], kernels: KernelSet, direction: str) -> CSources:
    """Return the C functions of a module; `direction` is that of its assembly kernels."""
    texts, tables, warnings = [], [], []
    for function in functions:
        if function.name not in ENTRIES.values():
            continue
        unknown = [n for n in function.required[2:] if n not in _KNOWN]
        if unknown:
            warnings.append(_without(function.name, unknown))
            continue
        objects = kernels.code_objects if function.direction == direction else ()
        own = [k for k in kernels.kernels if k.direction == function.direction]
        passed = takewhile(_KNOWN.__contains__, function.arguments[2:])
        texts.append(
            _ENTRY.format(
                name=function.name,
                args=function.parameters[0].type,
                parameters=", ".join(map(json.dumps, function.arguments)),
                arguments=", ".join(["args", "stream", *(f"more.{name}" for name in passed)]),
            )
        )
        rows = "\n".join(f"    {line}," for line in _rows(own, objects))
        tables.append(_TABLE.format(name=function.name, kernels=rows))
    return CSources("\n".join(texts), _TABLES.format(tables="\n\n".join(tables)), tuple(warnings))


def _rows(kernels: Iterable[KernelInstance], objects: Iterable[CodeObject]) -> Iterator[str]:
    for kernel in kernels:
        values = [json.dumps(kernel.name), json.dumps(",".join(kernel.archs)), *_split(kernel)]
        yield f"{{{', '.join(values)}}}"
    for found in objects:
        yield f"{{{json.dumps(found.key)}, {json.dumps(found.arch)}}}"


def _split(kernel: KernelInstance) -> list[str]:
    fields = dict(kernel.fields)
    tile = _TILE.match(str(fields.get("tile", "")))
    hdim = fields.get("hdim_q")
    if not (kernel.role == "dq_dk_dv" and fields.get("deterministic") and tile):
        return []
    return [str(hdim), tile[1]] if isinstance(hdim, int) else []


def _without(name: str, unknown: Iterable[str]) -> Finding:
    return Finding(
        f"{name}({', '.join(unknown)})",
        f"parameters that the C functions (qola_c.h) have no value for: no C function calls {name}",
        f"parameters among {', '.join(sorted(_KNOWN))}",
        f"call qola::<namespace>::{name}, which is there",
        "warning",
    )
