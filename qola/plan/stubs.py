"""The two sources that split a kernel instance from its dispatch: a stub, and an entry source.

Composable Kernel's dispatch calls function templates that a header declares and that each kernel
instance's source specialises. In a lazy library a stub specialises them instead and calls what
`qola_lazy::functions` returns; in a kernel library the entry source lists the real ones in the same
order. Neither changes a word of what CK's generators wrote: both repeat declarations from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from qola.codegen.ck.batches import included
from qola.errors import CodegenError, Finding

_SPECIALISATION = re.compile(r"^template\s*<\s*>", re.MULTILINE)
_FUNCTION = re.compile(
    r"^template\s*<\s*>\s*(?P<result>[\w:]+)\s+(?P<name>\w+)<(?P<arguments>[^<>()]*)>\s*"
    r"\((?P<parameters>[^()]*)\)\s*\{",
    re.MULTILINE,
)
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")

_STUBS = """\
// Written by qola (qola/plan/stubs.py): what the dispatch calls, as functions that find the kernel
// instance first. A kernel instance a line: its first row in the library's table, for how many
// archs it has rows, and the template arguments of its functions.
// Make it again: qola plan; do not edit.
{includes}
#include "qola_lazy.h"

{macros}
{lines}
"""
_FUNCTION_STUB = """\
    template <>{end}
    {result} {name}<__VA_ARGS__>({parameters}){end}
    {{{end}
        return reinterpret_cast<decltype(&{name}<__VA_ARGS__>)>({end}
            qola_lazy::functions(row, count)[{position}])({arguments});{end}
    }}"""
_LAUNCH_STUB = """\
    template <>{end}
    {result} {name}<__VA_ARGS__>({parameters}){end}
    {{{end}
        const auto found = qola_lazy::launching(row, count);{end}
        if(found == nullptr){end}
            return {result}();{end}
        return reinterpret_cast<decltype(&{name}<__VA_ARGS__>)>({end}
            found[{position}])({arguments});{end}
    }}"""
#: The type of a parameter of the functions that launch: the stream it is done on.
_STREAM = "stream_config"
_ENTRY = """\
// Written by qola (qola/plan/stubs.py): the functions of a kernel library. The kernel instance's
// source comes before it, by -include.
// Make it again: qola plan; do not edit.
#include "qola_kernel.h"

QOLA_KERNEL_BEGIN
{functions}
QOLA_KERNEL_END
"""


@dataclass(frozen=True)
class Function:
    """A host function that a kernel instance's source specialises."""

    result: str
    name: str
    parameters: str

    @property
    def arguments(self) -> str:
        """Name of the parameters, for a call."""
        named = (parameter.split()[-1] for parameter in self.parameters.split(",") if parameter)
        return ", ".join(name.lstrip("&*") for name in named)

    @property
    def launches(self) -> bool:
        """Whether it launches the kernel; of others the dispatch needs what they return."""
        return _STREAM in self.parameters


@dataclass(frozen=True)
class Interface:
    """What a kernel instance's source has for the dispatch.

    Attributes:
        functions: in the source's order.
        written: template arguments of all of them, as the source writes them: with its aliases.
    """

    functions: tuple[Function, ...]
    written: str
    arguments: str


@dataclass(frozen=True)
class Stub:
    """A kernel instance that is loaded later.

    Attributes:
        row: its first row in the library's table.
        count: number of its rows, one for each arch.
    """

    row: int
    count: int
    interface: Interface


def interface(name: str, source: str) -> Interface:
    """Read from a kernel instance's source which functions it has for the dispatch.

    Args:
        source: its text, as CK generates it.

    Raises:
        CodegenError: the source has another form than the generators of the AITER trees that are
            served give it.
    """
    # Plain searches where they do: a regular expression over 90 MB of sources takes seconds.
    functions = source[source.find("\ntemplate") :]
    found = list(_FUNCTION.finditer(functions))
    written = {_one_line(match["arguments"]) for match in found}
    specialisations = len(_SPECIALISATION.findall(functions))
    if len(written) != 1 or len(found) != specialisations:
        raise CodegenError(
            Finding(
                f"kernel instance {name}",
                f"{specialisations} specialisations, of which {len(found)} are functions, "
                f"for {len(written)} lists of template arguments",
                "specialisations of functions alone, all for the same template arguments",
                "use an AITER tree that this qola serves",
            )
        )
    arguments = written.pop()
    return Interface(
        tuple(
            Function(match["result"], match["name"], _one_line(match["parameters"]))
            for match in found
        ),
        arguments,
        _expanded(arguments, _aliases(source)),
    )


def _aliases(source: str) -> dict[str, str]:
    """Return what each alias at the beginning of a line stands for."""
    found = {}
    for text in source.split("\nusing ")[1:]:
        name, _, rest = text.partition("=")
        found[name.strip()] = rest.partition(";")[0]
    return found


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _expanded(text: str, aliases: Mapping[str, str]) -> str:
    """Return `text` with aliases replaced by what they stand for; none stands for itself."""

    def definition(match: re.Match[str]) -> str:
        word = match[0]
        return _expanded(aliases[word], aliases) if word in aliases else word

    return _one_line(_WORD.sub(definition, text))


def stubs_source(stubs: Sequence[Stub], sources: Iterable[str]) -> str:
    """Return the C++ source of a group's stubs.

    Args:
        sources: texts of kernel instances that include all that the group's do.
    """
    shapes = list(dict.fromkeys(stub.interface.functions for stub in stubs))
    macros = [_macro(number, functions) for number, functions in enumerate(shapes)]
    lines = [
        f"QOLA_STUB_{shapes.index(s.interface.functions)}({s.row}, {s.count}, "
        f"{s.interface.arguments})"
        for s in stubs
    ]
    return _STUBS.format(
        includes="\n".join(f"#include {name}" for name in included(sources)),
        macros="\n".join(macros),
        lines="\n".join(lines),
    )


def _macro(number: int, functions: Sequence[Function]) -> str:
    end = " \\\n"
    bodies = [
        (_LAUNCH_STUB if function.launches else _FUNCTION_STUB).format(
            end=" \\",
            result=function.result,
            name=function.name,
            parameters=function.parameters,
            arguments=function.arguments,
            position=position,
        )
        for position, function in enumerate(functions)
    ]
    return f"#define QOLA_STUB_{number}(row, count, ...){end}" + end.join(bodies) + "\n"


def entry_source(of: Interface) -> str:
    """Return the C++ source that lists a kernel library's functions."""
    functions = "\n".join(
        f"QOLA_KERNEL_FUNCTION({function.name}<{of.written}>)" for function in of.functions
    )
    return _ENTRY.format(functions=functions)
