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


def _call(entry: EntryPoint) -> str:
    more = [f"values.{name}" for name in entry.required[2:]]
    indent = " " * len(f"    return QOLA_NS({entry.name})(")
    arguments = f",\n{indent}".join(["args", "ck_tile::stream_config{stream}", *more])
    return _CALL.format(name=entry.name, arguments=arguments)
