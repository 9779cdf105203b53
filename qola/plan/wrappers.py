"""The C++ around a library's entry points: its public header, and the source that defines them.

The declarations come from the tree (`qola.aiter.entry_points`), everything else is fixed.
"""

from __future__ import annotations

from collections.abc import Sequence

from qola.aiter.attention import ADDED
from qola.aiter.entry_points import EntryFunction
from qola_base.errors import AiterError, Finding

_WIDTH = 100
_ASM = "use_ext_asm"
#: The type of the parameter with the stream and whether to measure time.
_STREAM = "stream_config"
#: The parameter with AITER's name of the type of Q, K and V.
_TYPE = "q_dtype_str"

#: Error for a public header in C++ without HIP, which Composable Kernel's headers need.
_GUARD = (
    "Compile this file as HIP: in Bazel put it into a qola_cc_library, in CMake set LANGUAGE HIP, "
    "elsewhere use hipcc. A host compiler takes qola_c.h, which has the same functions for C."
)
_HEADER = """\
// Written by qola (qola/plan/wrappers.py) from {header} of an AITER tree.
// Make it again: qola plan; do not edit.
//
// The functions of AITER's {header} that the libraries of the manifest have, in its namespace{own}.
// Those that launch kernels return the time in milliseconds where the stream configuration
// measures, 0 or more on success, and a negative status (qola_common.h) when nothing was launched;
// asked whether assembly (v3) kernels would serve, 1 where they would. A function that is not
// declared here is not in the library: the manifest leaves its direction out, or the tree has none.
#pragma once

#ifndef __HIP__
#error "qola_{header} includes HIP and Composable Kernel. {guard}"
#else

#include "qola_common.h"

#include "{header}"

#include <cstddef>

QOLA_NS_BEGIN

{declarations}

QOLA_NS_END

#endif // __HIP__
"""
_SOURCE = """\
// Written by qola (qola/plan/wrappers.py) from {header} of an AITER tree: the functions that leave
// the library. Make it again: qola plan; do not edit.
#include "qola_{header}"

{include}#include "qola_entry.h"
{added}
#ifdef QOLA_ASM
#include "qola_asm_domain.h"
#endif

QOLA_NS_BEGIN

{definitions}

QOLA_NS_END
{c_functions}"""
_ABOUT = {
    "fwd": "Runs one forward problem on the stream of the stream configuration.",
    "fwd_splitkv": "Runs one forward problem with K and V split among workgroups, then combined.",
    "batch_prefill": "Runs one forward problem over a paged K and V cache.",
    "pagedkv_prefill": "Runs one forward problem over K and V in pages that a block table names.",
    "fwd_appendkv": "Appends rows to K and V, paged or not, and rotates them and Q where asked to.",
    "bwd": "Runs one backward problem on the stream of the stream configuration.",
    "": "Answers from the host alone; 0 where it cannot, and the reason on standard error.",
}
#: Part of the comment in a library to which the manifest adds directions.
_BEYOND = ",\n// and those of Composable Kernel that AITER has no function for"
#: Conditions for assembly kernels in addition to `qola_asm_serves`: the forward kernels silently
#: ignore a soft cap and skipped sequences.
_CONDITIONS = {"fwd": ("{args}.logits_soft_cap == 0.f", "{args}.min_seqlen_q == 0"), "bwd": ()}
_PROBLEM = (
    _TYPE,
    "{args}.hdim_q",
    "{args}.hdim_v",
    "is_group_mode",
    "mask_type != mask_enum::no_mask",
    "bias_type != bias_enum::no_bias",
)
_DROPOUT = "{args}.p_drop > 0.f"
#: The arguments of `qola_asm_serves`.
_SERVES = {
    "fwd": (*_PROBLEM, "has_lse", _DROPOUT),
    "bwd": (*_PROBLEM, _DROPOUT, "has_dbias", "deterministic"),
}


def public_header(header: str, functions: Sequence[EntryFunction]) -> str:
    """Return the text of qola_<header>, which declares the entry points of AITER's `header`."""
    return _HEADER.format(
        guard=_GUARD,
        header=header,
        own=_BEYOND if any(f.direction in ADDED for f in functions) else "",
        declarations="\n\n".join(
            f"/// {_ABOUT[f.direction]}\n{_signature(f, 'QOLA_API ', defaults=True)};"
            for f in functions
        ),
    )


def entry_source(
    header: str, functions: Sequence[EntryFunction], *, throws: bool = False, c_functions: str = ""
) -> str:
    """Return the C++ source that defines the entry points of AITER's `header`.

    Args:
        throws: AITER's checks end the process unless a variable makes them throw.
        c_functions: C++ that defines the C functions.

    Raises:
        AiterError: a function has `use_ext_asm`, but lacks parameters of `qola_asm_serves`.
    """
    return _SOURCE.format(
        header=header,
        definitions="\n\n".join(_definition(f, header, throws) for f in functions),
        include='#include "qola_c_entry.h"\n' if c_functions else "",
        added='#include "qola_kv.h"\n' if any(f.direction in ADDED for f in functions) else "",
        c_functions=f"\n{c_functions}" if c_functions else "",
    )


def _signature(function: EntryFunction, before: str = "", *, defaults: bool = False) -> str:
    parts = [
        f"{p.type} {p.name}{f' = {p.default}' if defaults and p.default else ''}"
        for p in function.parameters
    ]
    return _listed(f"{before}{function.result} {function.name}", parts)


def _listed(head: str, parts: Sequence[str], after: str = "") -> str:
    """Return a parenthesised list after `head`, in one line if it fits, else a part a line."""
    line = f"{head}({', '.join(parts)}){after}"
    if len(line) < _WIDTH:
        return line
    indent = ",\n" + " " * (len(head) + 1)
    return f"{head}({indent.join(parts)}){after}"


def _definition(function: EntryFunction, header: str, throws: bool) -> str:
    chooses = function.direction in _SERVES and _ASM in function.arguments
    arguments = ["use_asm" if chooses and a == _ASM else a for a in function.arguments]
    # In later trees a member of the arguments selects assembly kernels.
    if function.direction == "fwd" and not chooses:
        arguments[0] = f"qola_entry::for_assembly({arguments[0]})"
    streams = [p.name for p in function.parameters if _STREAM in p.type and function.direction]
    indent = " " * (12 if streams else 8)
    call = _listed(f"{indent}return {function.calls}", arguments, f"{function.member};")
    lines = []
    if throws:
        lines = [
            "    // AITER ends the process where this is false.",
            "    const qola_entry::Restored throwing(::aiter_detail::g_aiter_can_throw, true);",
        ]
    if chooses:
        lines += ["#ifdef QOLA_ASM", _narrowed(function, header), "#endif"]
    if function.direction:
        asm = _ASM if chooses else "false"
        lambda_ = f"[&](bool{' use_asm' if chooses else ''})"
        lines.append(f'    return qola_entry::answer("{function.name}", {asm}, {lambda_} {{')
    else:
        lines.append(f'    return qola_entry::value("{function.name}", [&] {{')
    if streams:
        # Trees without the parameter have the name of the type in the arguments.
        names = [p.name for p in function.parameters if p.name == _TYPE]
        checked = ", ".join([function.arguments[0], *names])
        lines.append(f"        qola_entry::check_reach({checked});")
    # A lazy library repeats the call while kernels are missing, on the same stream.
    for name in streams:
        again = f"qola_entry::repeatable({function.arguments[0]}, {name}, [&](const auto& {name})"
        call = f"        return {again} {{\n{call}\n        }});"
    lines += [call, "    });"]
    return "\n".join([_signature(function), "{", *lines, "}"])


def _narrowed(function: EntryFunction, header: str) -> str:
    """Return the statement that restricts assembly kernels to the manifest's problems for them."""
    direction = function.direction
    names = (term.split()[0] for term in _SERVES[direction] if not term.startswith("{args}"))
    missing = [name for name in names if name not in function.arguments]
    if missing:
        raise AiterError(
            Finding(
                header,
                f"{function.name} has {_ASM}, and no {', '.join(missing)}",
                "the parameters that tell which problems assembly kernels serve",
                "leave the assembly kernels out (hsa_subdirs = [])",
            )
        )
    args = function.arguments[0]
    conditions = [term.format(args=args) for term in _CONDITIONS[direction]]
    serves = [term.format(args=args) for term in _SERVES[direction]]
    indent = " " * len(f"    {_ASM} = ")
    first = f"    {_ASM} = {' && '.join([_ASM, *conditions])} &&\n"
    return first + _listed(f"{indent}qola_asm_serves", serves, ";")
