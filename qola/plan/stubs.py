"""Sources that split a kernel instance from its dispatch, for lazy libraries.

Composable Kernel's dispatch calls function templates that a header declares and that each kernel
instance's source specialises. In a lazy library a stub specialises them and calls the function that
`qola_lazy::functions` returns. In a kernel library the entry source lists the real functions in the
same order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from qola.codegen.ck.batches import included
from qola.codegen.types import KernelInstance
from qola.common.folder import Folder
from qola.plan.model import PlannedFile
from qola_base.errors import CodegenError, Finding
from qola_base.files import sha256_of_text

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
class HostFunction:
    """A host function that a kernel instance's source specialises."""

    result: str
    name: str
    parameters: str

    @property
    def arguments(self) -> str:
        """Names of the parameters, for a call."""
        named = (parameter.split()[-1] for parameter in self.parameters.split(",") if parameter)
        return ", ".join(name.lstrip("&*") for name in named)


@dataclass(frozen=True)
class Interface:
    """The functions of a kernel instance that the dispatch calls.

    Attributes:
        functions: in the source's order.
        written: their common template arguments as the source writes them, with its aliases.
        arguments: the same without aliases.
    """

    functions: tuple[HostFunction, ...]
    written: str
    arguments: str


class LazySources:
    """Writes the sources of a module's lazy library and of its kernel libraries, by group."""

    def __init__(self, output: Folder, module: str) -> None:
        self.stubs: list[PlannedFile] = []
        self._output = output
        self._module = module
        self._rows = 0
        self._entries: dict[str, PlannedFile] = {}

    @property
    def entry_sources(self) -> tuple[PlannedFile, ...]:
        """The entry sources, sorted by name."""
        return tuple(sorted(self._entries.values(), key=lambda source: source.name))

    def add(
        self,
        group: str,
        instances: Sequence[KernelInstance],
        texts: Sequence[str],
        roots: Sequence[tuple[str, ...]],
    ) -> list[str]:
        """Write stubs and entry sources of a group; return the entry source of each instance.

        Args:
            instances: the group's kernel instances; each gets a row for each arch.
            texts: their sources.
            roots: the headers that each includes.
        """
        stubs = []
        names = []
        for kernel, text in zip(instances, texts, strict=True):
            found = read_interface(kernel.name, text)
            stubs.append((self._rows, len(kernel.archs), found))
            self._rows += len(kernel.archs)
            names.append(self._entry(kernel.role, found))
        # Thousands of sources have the same includes: read one source for each set of includes.
        distinct: dict[tuple[str, ...], str] = {}
        for headers, text in zip(roots, texts, strict=True):
            distinct.setdefault(headers, text)
        text = stubs_source(stubs, distinct.values())
        self.stubs.append(self._write(group, f"stubs/{group}.cpp", text))
        return names

    def _entry(self, role: str, interface: Interface) -> str:
        text = kernel_entry_source(interface)
        if text not in self._entries:
            arch = re.search(r"ck_tile::(\w+)_t", interface.written)
            name = f"{role}_{arch[1]}" if arch else role
            if any(source.name == name for source in self._entries.values()):
                # The first entry source of a role and arch has the plain name.
                name = f"{name}_{sha256_of_text(text)[:8]}"
            self._entries[text] = self._write(name, f"entries/{name}.cpp", text)
        return self._entries[text].name

    def _write(self, name: str, file: str, text: str) -> PlannedFile:
        return PlannedFile.write(self._output, name, f"{self._module}/{file}", text)


def read_interface(name: str, source: str) -> Interface:
    """Find the functions that a kernel instance's source specialises for the dispatch.

    Raises:
        CodegenError: the source differs from those of the supported AITER trees.
    """
    # A regular expression over 90 MB of sources takes seconds: find the first template first.
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
                "only specialisations of functions, all for the same template arguments",
                "use an AITER tree that this version of qola supports",
            )
        )
    arguments = written.pop()
    return Interface(
        tuple(
            HostFunction(match["result"], match["name"], _one_line(match["parameters"]))
            for match in found
        ),
        arguments,
        _expand(arguments, _read_aliases(source)),
    )


def _read_aliases(source: str) -> dict[str, str]:
    """Return the type of each alias at the beginning of a line."""
    found = {}
    for text in source.split("\nusing ")[1:]:
        name, _, rest = text.partition("=")
        found[name.strip()] = rest.partition(";")[0]
    return found


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _expand(text: str, aliases: Mapping[str, str]) -> str:
    """Return `text` with aliases replaced by their types; no alias contains itself."""

    def definition(match: re.Match[str]) -> str:
        word = match[0]
        return _expand(aliases[word], aliases) if word in aliases else word

    return _one_line(_WORD.sub(definition, text))


def stubs_source(stubs: Sequence[tuple[int, int, Interface]], sources: Iterable[str]) -> str:
    """Return the C++ source of a group's stubs.

    Args:
        stubs: the first row of each kernel instance in the library's table, the number of its rows,
            one for each arch, and its interface.
        sources: texts of kernel instances that together have all includes of the group.
    """
    shapes = list(dict.fromkeys(interface.functions for _, _, interface in stubs))
    macros = [_macro(number, functions) for number, functions in enumerate(shapes)]
    lines = [
        f"QOLA_STUB_{shapes.index(found.functions)}({row}, {count}, {found.arguments})"
        for row, count, found in stubs
    ]
    return _STUBS.format(
        includes="\n".join(f"#include {name}" for name in included(sources)),
        macros="\n".join(macros),
        lines="\n".join(lines),
    )


def _macro(number: int, functions: Sequence[HostFunction]) -> str:
    end = " \\\n"
    bodies = [
        # The dispatch needs the results of functions that do not launch.
        (_LAUNCH_STUB if _STREAM in function.parameters else _FUNCTION_STUB).format(
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


def kernel_entry_source(interface: Interface) -> str:
    """Return the C++ source that lists a kernel library's functions."""
    functions = "\n".join(
        f"QOLA_KERNEL_FUNCTION({function.name}<{interface.written}>)"
        for function in interface.functions
    )
    return _ENTRY.format(functions=functions)
