"""The program that calls a library: what differs between the trees of AITER."""

from __future__ import annotations

from qola.aiter.attention import ENTRIES
from qola.plan.model import EntryPoint, PlannedModule

_PROGRAM = """\
// Written by qola (qola/launch/program.py) from plan.json; do not edit.
#include "{header}"

#include "qola_launch.h"

namespace {{

{calls}

}} // namespace

int main(int, char** argv)
{{
    return qola_launch::run(argv[1],
                            {{
{table}
                            }});
}}
"""
_CALL = """\
float call_{name}(
    const qola_launch::Problem& problem, qola_launch::Memory& memory, hipStream_t stream)
{{
    [[maybe_unused]] const qola_launch::Values values(problem);
    decltype(qola_launch::arguments_of(&QOLA_NS({name}))) args{{}};
    qola_launch::fill(args, problem, memory);
    return QOLA_NS({name})({arguments});
}}"""


def program(module: PlannedModule) -> str:
    """Return the C++ of a program that calls the entry points of a library.

    Their arguments and stream come first; what else a caller has to give is known by its name, and
    the compiler names one that is not.
    """
    entries = [entry for entry in module.entries if entry.name in ENTRIES.values()]
    return _PROGRAM.format(
        header=module.public_header.name,
        calls="\n\n".join(map(_call, entries)),
        table="\n".join(f'{" " * 32}{{"{e.name}", call_{e.name}}},' for e in entries),
    )


_CALLER = """\
// Written by qola (qola/launch/program.py) from plan.json; do not edit.
#include "{header}"

#include "qola_caller.h"

namespace {{

{calls}

}} // namespace

extern "C" const char* qola_call(const char* entry, const char* values, float* status)
{{
    return qola_caller::call({{
{table}
                             }},
                             entry,
                             values,
                             status);
}}
"""
_CALLER_CALL = """\
float call_{name}(qola_caller::Values& values, qola_launch::Memory& memory)
{{
    decltype(qola_launch::arguments_of(&QOLA_NS({name}))) args{{}};
    qola_caller::fill(args, values, memory);
{returns}
}}"""


def caller(module: PlannedModule) -> str:
    """Return the C++ of a library that calls the entry points with values given by name.

    It has one C function: ``qola_call``, see cc/launch/qola_caller.h.
    """
    entries = [entry for entry in module.entries if entry.name in ENTRIES.values()]
    return _CALLER.format(
        header=module.public_header.name,
        calls="\n\n".join(map(_call_by_name, entries)),
        table="\n".join(f'{" " * 33}{{"{e.name}", call_{e.name}}},' for e in entries),
    )


def _call_by_name(entry: EntryPoint) -> str:
    # A parameter with a default is passed where it and those before it are given.
    returns = []
    for count in range(len(entry.optional), -1, -1):
        given = [f'"{name}"' for name in entry.optional[:count]]
        names = [*(f'"{name}"' for name in entry.required[2:]), *given]
        call = f"    return QOLA_NS({entry.name})("
        if given:
            returns.append(f"    if(values.has({', '.join(given)}))")
            call = f"    {call}"
        more = [f"qola_caller::Parameter(values, {name})" for name in names]
        stream = "ck_tile::stream_config{nullptr}"
        arguments = f",\n{' ' * len(call)}".join(["args", stream, *more])
        returns.append(f"{call}{arguments});")
    return _CALLER_CALL.format(name=entry.name, returns="\n".join(returns))


def _call(entry: EntryPoint) -> str:
    more = [f"values.{name}" for name in entry.required[2:]]
    indent = " " * len(f"    return QOLA_NS({entry.name})(")
    arguments = f",\n{indent}".join(["args", "ck_tile::stream_config{stream}", *more])
    return _CALL.format(name=entry.name, arguments=arguments)
