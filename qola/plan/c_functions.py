"""The C functions of a module: what differs between trees, for cc/api/qola_c_entry.h.

qola_c_fill.h beside it maps a C caller's fields to AITER's arguments, member by member, as far as
the compiler finds them. Written here is what C++ cannot ask: the kernels, and the names of
parameters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from qola.aiter.attention import ENTRIES
from qola.aiter.entry_points import EntryFunction
from qola.codegen.types import CodeObject, KernelInstance, KernelSet
from qola.errors import Finding

#: The parameters behind arguments and stream that `qola_c_entry::Parameters` has a value for.
_KNOWN = frozenset(
    {
        *("q_dtype_str", "is_group_mode", "mask_type", "bias_type", "has_lse", "has_dbias"),
        *("has_sink", "is_store_randval", "deterministic", "use_ext_asm", "is_v3_atomic_fp32"),
        *("how_v3_bf16_cvt", "qscale_type", "seqstart_q_padding_ptr", "seqstart_k_padding_ptr"),
        *("seqlen_q_padded", "seqlen_k_padded", "is_v3_api_check"),
    }
)
_ENTRY = """\
namespace {{

struct {name}_of_c
{{
    using Args = std::decay_t<{args}>;
    static constexpr const char* name              = "{name}";
    static constexpr std::string_view parameters[] = {{{parameters}}};
    static constexpr qola_c_entry::Kernel kernels[] = {{
{kernels}
    }};
    template <class More>
    static float call(const Args& args, const ck_tile::stream_config& stream, const More& more)
    {{
        return QOLA_NS({name})({arguments});
    }}
}};

}} // namespace

QOLA_C_DEFINE({name}, {name}_of_c)
"""
#: Rows of Q and of K in a tile's name.
_TILE = re.compile(r"b\d+x(\d+)")


def c_functions(
    functions: Sequence[EntryFunction], kernels: KernelSet, direction: str
) -> tuple[str, tuple[Finding, ...]]:
    """Return the C++ that defines the C functions of a module, and warnings.

    Args:
        direction: of the module's assembly kernels.
    """
    texts, warnings = [], []
    for function in functions:
        if function.name not in ENTRIES.values():
            continue
        unknown = [n for n in function.required[2:] if n not in _KNOWN]
        if unknown:
            warnings.append(_without(function.name, unknown))
            continue
        objects = kernels.code_objects if function.direction == direction else ()
        own = [k for k in kernels.kernels if k.direction == function.direction]
        texts.append(
            _ENTRY.format(
                name=function.name,
                args=function.parameters[0].type,
                parameters=", ".join(map(json.dumps, function.arguments)),
                kernels="\n".join(f"        {line}," for line in _rows(own, objects)),
                arguments=", ".join(["args", "stream", *_passed(function)]),
            )
        )
    return "\n".join(texts), tuple(warnings)


def _passed(function: EntryFunction) -> Iterator[str]:
    """Yield the values behind arguments and stream; the first unknown has a default."""
    for name in function.arguments[2:]:
        if name not in _KNOWN:
            return
        yield f"more.{name}"


def _rows(kernels: Iterable[KernelInstance], objects: Iterable[CodeObject]) -> Iterator[str]:
    for kernel in kernels:
        values = [json.dumps(kernel.name), json.dumps(",".join(kernel.archs)), *_split(kernel)]
        yield f"{{{', '.join(values)}}}"
    for found in objects:
        yield f"{{{json.dumps(found.key)}, {json.dumps(found.arch)}}}"


def _split(kernel: KernelInstance) -> list[str]:
    """Return a deterministic backward kernel's head dimension, and rows of K in its tile."""
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
