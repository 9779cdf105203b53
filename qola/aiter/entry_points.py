"""Finds the functions of AITER that a library exports, as the tree's own header declares them.

Types, names and defaults of parameters come from the header, under the library's macros.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from qola.aiter.attention import ADDED, ATTENTION, ENTRIES
from qola.aiter.declarations import Function, Parameter, Scope, qualified, read_scope
from qola.aiter.includes import closure, find, include_dirs, includes
from qola.aiter.preprocess import Macros, code, lines
from qola.aiter.tree import AiterTree, ModuleConfig
from qola_base.errors import AiterError, Finding

NAMESPACE = "aiter"
LAUNCHER = "fmha_bwd_launcher"
"""Class of later Composable Kernels that computes the workspace of a backward problem."""

_PUBLIC = "mha_"
#: AITER's structures of arguments. Some trees pass them by value; a library takes a reference, as
#: ROCm/QoLA's does, because users declare its functions (TransformerEngine for gfx1250).
_ARGUMENTS = re.compile(r"mha_\w*args")
_LAUNCHER = re.compile(rf"\b(?:struct|class)\s+{LAUNCHER}\b.*?\bworkspace_size\b", re.DOTALL)


@dataclass(frozen=True)
class EntryFunction:
    """A function of a library, in the manifest's namespace.

    Attributes:
        parameters: all have names; types are qualified for use outside of namespace aiter, AITER's
            arguments are references.
        direction: the direction that it runs, "" if it launches nothing.
        calls: the C++ function that it calls: ``::aiter::mha_fwd``, or one of
            runtime/api/qola_kv.h.
        member: the member of the result to return, such as ``.workspace_size``; "" for all of it.
    """

    name: str
    result: str
    parameters: tuple[Parameter, ...]
    direction: str
    calls: str
    member: str = ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(parameter.name for parameter in self.parameters)

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the parameters without default."""
        return tuple(parameter.name for parameter in self.parameters if not parameter.default)


def entry_functions(
    tree: AiterTree,
    config: ModuleConfig,
    directions: Collection[str],
    macros: Macros,
    sources: Iterable[str],
    *,
    launched: Collection[str] = (),
) -> tuple[EntryFunction, ...]:
    """Return the functions that a module's library exports.

    These are the functions of `directions`; other functions mha_* of the same header that a source
    defines, such as mha_fwd_workspace_size; mha_bwd_workspace_size, if Composable Kernel supports
    it; and qola's functions for directions that AITER has none for.

    Args:
        directions: those with kernels of any kind; `launched` those with kernels of CK.
        macros: all macros of the library's compile.
        sources: texts of the sources that may define the functions.

    Raises:
        AiterError: a function is not declared, not defined, or of an unsupported form.
    """
    dirs = include_dirs(tree, config)
    header = header_of(tree, config)
    declared = [f for scope in _scopes(tree.text(header), macros) for f in scope.functions]
    defined = _defined(sources, macros)
    wanted = {ENTRIES[direction]: direction for direction in directions if direction not in ADDED}
    others = defined - set(ENTRIES.values())
    found = [f for f in declared if f.name in wanted or f.name in others]
    found = _distinct(f for f in found if f.name.startswith(_PUBLIC))
    if problems := list(_problems(header, found, wanted, defined, config.name)):
        raise AiterError(problems)
    names = _names(tree, dirs, header, macros)
    functions = [_entry(f, wanted.get(f.name, ""), names) for f in found]
    if "bwd" in launched and _has_launcher(tree, dirs, header, macros):
        functions.append(_BWD_WORKSPACE)
    functions += [added_entry(direction) for direction in ADDED if direction in directions]
    return tuple(dict.fromkeys(functions))


def header_of(tree: AiterTree, config: ModuleConfig) -> str:
    """Return the tree-relative path of AITER's header with the functions of a module.

    Raises:
        AiterError: the tree lacks this header.
    """
    name = f"{ATTENTION[config.name].header}.h"
    header = find(tree.root, name, include_dirs(tree, config))
    if header is None:
        place = f"{tree.csrc_dir}/include/{name}"
        raise AiterError(Finding(place, "cannot be read: no such file", "a header of AITER"))
    return header


_BWD_WORKSPACE = EntryFunction(
    "mha_bwd_workspace_size",
    "std::size_t",
    (Parameter("const fmha_bwd_traits&", "traits", ""),),
    "",
    f"::{LAUNCHER}",
    ".workspace_size",
)


_STREAM = Parameter("const ck_tile::stream_config&", "stream_config", "")
#: Parameters of qola's own functions after the arguments and the stream.
_ASKED = {
    "pagedkv_prefill": (
        Parameter("std::string", "q_dtype_str", ""),
        Parameter("bool", "is_group_mode", ""),
        Parameter("mask_enum", "mask_type", ""),
        Parameter("bias_enum", "bias_type", ""),
        Parameter("bool", "has_lse", ""),
    ),
    "fwd_appendkv": (
        Parameter("std::string", "q_dtype_str", ""),
        Parameter("rope_enum", "rope_type", ""),
    ),
}


def added_entry(direction: str) -> EntryFunction:
    """Return qola's function for a direction that AITER has none for."""
    name = ADDED[direction]
    arguments = Parameter(f"const f{name}_args&", "args", "")
    parameters = (arguments, _STREAM, *_ASKED[direction])
    return EntryFunction(name, "float", parameters, direction, f"::qola_kv::{name}")


def _distinct(functions: Iterable[Function]) -> list[Function]:
    """Return each overload once: of repeated declarations, the one with most defaults."""
    found: dict[tuple[str, tuple[str, ...] | None], Function] = {}
    for function in functions:
        key = (function.name, _form(function))
        if key not in found or _defaults(found[key]) < _defaults(function):
            found[key] = function
    return list(found.values())


def _form(function: Function) -> tuple[str, ...] | None:
    """Return the parameters' types in a normalised spelling."""
    if function.parameters is None:
        return None
    types = (p.type.replace(f"{NAMESPACE}::", "") for p in function.parameters)
    return tuple(re.sub(r"\s*([&*<>,])\s*", r"\1", written) for written in types)


def _defaults(function: Function) -> int:
    return sum(bool(parameter.default) for parameter in function.parameters or ())


def _problems(
    place: str,
    found: Sequence[Function],
    wanted: Iterable[str],
    defined: Collection[str],
    module: str,
) -> Iterator[Finding]:
    leave = "leave its direction out (drop_directions)"
    forms = {function.name: function for function in found}
    for name in wanted:
        if name not in forms:
            what = f"no declaration of {name}, with the flags of {module}"
            yield Finding(place, what, f"a function {name} in namespace {NAMESPACE}", leave)
        elif name not in defined:
            what = f"{name}, which no source of {module} defines"
            expected = f"a source that defines it, with the flags of {module}"
            yield Finding(place, what, expected, f"{leave}, or its source in (drop_srcs)")
        overloads = [_signature(f) for f in found if f.name == name]
        if len(overloads) > 1:
            what = f"{len(overloads)} forms of {name}: {' and '.join(overloads)}"
            fix = ", or select a form by a macro of its condition (add_flags_extra_cc)"
            yield Finding(place, what, f"one function {name} in namespace {NAMESPACE}", leave + fix)
    for name, function in forms.items():
        if function.parameters is None:
            what = f"{name} has a parameter or a result of an unsupported form"
            expected = "plain parameters: a type, a name, a default; an explicit result type"
            yield Finding(place, what, expected, leave)


def _signature(function: Function) -> str:
    types = (parameter.type for parameter in function.parameters or ())
    return f"{function.name}({', '.join(types)})"


def _entry(function: Function, direction: str, names: frozenset[str]) -> EntryFunction:
    scope = f"{NAMESPACE}::"
    parameters: list[Parameter] = []
    for number, parameter in enumerate(function.parameters or ()):
        name = parameter.name or _name_of(parameter.type, number)
        if name in (other.name for other in parameters):
            name = f"{name}_{number}"
        written = qualified(parameter.type, names, scope)
        if written == scope + parameter.type and _ARGUMENTS.fullmatch(parameter.type):
            written = f"const {written}&"
        parameters.append(Parameter(written, name, qualified(parameter.default, names, scope)))
    return EntryFunction(
        function.name,
        qualified(function.result, names, scope),
        tuple(parameters),
        direction,
        f"::{NAMESPACE}::{function.name}",
    )


def _name_of(written: str, number: int) -> str:
    """Return a name for a parameter without one: mha_bwd_args is args."""
    words = re.findall(r"\w+", re.sub(r"<.*>", "", written))
    last = words[-1] if words else ""
    return "args" if last.endswith("_args") else last if last == "stream_config" else f"p{number}"


def _scopes(text: str, macros: Macros) -> list[Scope]:
    """Return the content of AITER's namespace in a source, under these macros.

    Both branches of an unknown condition are read, separately, because each has its own braces.
    """
    found = {code(text, macros, doubt=doubt): None for doubt in (True, False)}
    return [read_scope(reading, NAMESPACE) for reading in found]


def _defined(sources: Iterable[str], macros: Macros) -> set[str]:
    scopes = (scope for text in sources for scope in _scopes(text, macros))
    return {f.name for scope in scopes for f in scope.functions if f.defined}


def _names(tree: AiterTree, dirs: Iterable[str], header: str, macros: Macros) -> frozenset[str]:
    """Return aiter's types and constants in a header and the headers of AITER that it reaches."""
    own = posixpath.dirname(header) + "/"
    files = closure(tree.root, tuple(dirs), [posixpath.basename(header)])
    texts = (tree.text(file) for file in files if file.startswith(own))
    scopes = (scope for text in texts for scope in _scopes(text, macros))
    return frozenset().union(*(scope.names for scope in scopes))


def _has_launcher(tree: AiterTree, dirs: Iterable[str], header: str, macros: Macros) -> bool:
    text = "\n".join(
        line.text for line in lines(tree.text(header), macros, complete=True) if line.counts
    )
    for name, _ in includes(text):
        path = find(tree.root, name, [posixpath.dirname(header), *dirs])
        if path and _LAUNCHER.search(tree.text(path)):
            return True
    return False
