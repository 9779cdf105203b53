"""Writes the C++ of a module's caller library, which differs between AITER trees."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from qola.aiter.attention import ENTRIES
from qola.plan.model import EntryPoint, Plan, PlannedModule
from qola_base.files import write_if_changed
from qola_base.rule_main import run_main

_CALLER = """\
// Written by qola (qola_lab/launch/__main__.py) from plan.json; do not edit.
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
_CALL = """\
float call_{name}(qola_caller::Values& values, qola_caller::Memory& memory)
{{
    decltype(qola_caller::arguments_of(&QOLA_NS({name}))) args{{}};
    qola_caller::fill(args, values, memory);
{returns}
}}"""


def caller_source(module: PlannedModule) -> str:
    """Return the C++ of a library that calls entry points with values by name.

    It has one C function, ``qola_call``: see qola_lab/caller/qola_caller.h.
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
    return _CALL.format(name=entry.name, returns="\n".join(returns))


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of the rules."""
    parser = argparse.ArgumentParser(prog="qola_lab.launch", description=__doc__)
    parser.add_argument("--plan", required=True, type=Path, help="plan.json")
    parser.add_argument("--module", required=True, help="the module in the plan")
    parser.add_argument("--output", required=True, type=Path, help="file to write")
    args = parser.parse_args(argv)

    def write() -> None:
        plan = Plan.from_json(args.plan.read_text(encoding="utf-8"))
        write_if_changed(args.output, caller_source(plan.module(args.module)))

    return run_main(write)


if __name__ == "__main__":
    sys.exit(main())
