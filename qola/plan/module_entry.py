"""What leaves a module's library: its functions, the C++ around them, and its macros."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qola.aiter import module_kinds
from qola.aiter.attention import ATTENTION
from qola.aiter.declarations import has_variable
from qola.aiter.entry_points import EntryFunction, entry_functions, header_of
from qola.aiter.includes import include_dirs
from qola.aiter.missing_names import Includer, MissingName, missing_headers, unknown_names
from qola.aiter.module_config import missing_ck
from qola.aiter.preprocess import UNKNOWN, code
from qola.aiter.tree import AiterTree, ModuleConfig
from qola.errors import AiterError, Finding, PlanError
from qola.folder import Folder
from qola.plan.c_functions import c_functions
from qola.plan.entry_macros import EntryMacros, entry_macros, v3_off
from qola.plan.generated import GeneratedModule
from qola.plan.model import EntryPoint, HeaderSet, PlannedFile
from qola.plan.request import ResolvedRequest
from qola.plan.wrappers import wrappers

_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b((?:.*\\\n)*.*)", re.MULTILINE)
#: How includes of Composable Kernel's headers begin.
_OF_CK = ("ck/", "ck_tile/", "fmha_")
#: qola's own, in the v3 sources that it patches.
_PATCHES_INCLUDE = "qola_asm.h"
#: The variable that makes AITER's checks throw.
_THROWS = ("aiter_detail", "g_aiter_can_throw")


@dataclass(frozen=True)
class ModuleEntry:
    """What leaves a library.

    Attributes:
        source: defines its functions.
        kernel_names: defines the table of its kernels.
        header: declares them to users.
        flags: macros of the module's sources beside its own flags.
        macros: those of them, and of its flags, that headers which users read ask for.
        asked: every macro that these headers ask for.
    """

    entries: tuple[EntryPoint, ...]
    source: PlannedFile
    kernel_names: PlannedFile
    header: PlannedFile
    flags: tuple[str, ...]
    macros: Mapping[str, str]
    asked: frozenset[str]
    warnings: tuple[Finding, ...]


def module_entry(
    resolved: ResolvedRequest,
    module: GeneratedModule,
    sources: Mapping[str, str],
    kernels: Iterable[Includer],
    headers: HeaderSet,
    output: Folder,
) -> ModuleEntry:
    """Write the public header and the entry source of a module.

    Args:
        sources: texts of its sources by their path below its own directory.
        kernels: texts of kernel instances that include all that its own do.
        headers: of its sources and users.
        output: gets include/ and <module>/entry.

    Raises:
        PlanError: nothing leaves the library, or a source would not compile.
        AiterError: an entry point is not declared, not defined, or cannot be read.
    """
    tree, name = resolved.request.tree, module.spec.name
    header_of(tree, module.config)
    macros = entry_macros(tree, module, resolved.archs)
    findings = [
        *missing_includes(tree, module, sources, kernels, macros),
        *missing_types(tree, module, sources, macros),
    ]
    if findings:
        raise PlanError(findings)
    functions = module_functions(resolved, module, sources, macros)
    header = ATTENTION[name].header
    common = f"{tree.csrc_dir}/include/aiter_hip_common.h"
    throws = common in headers.files and has_variable(
        code(tree.text(common), macros.known), *_THROWS
    )
    for_c = c_functions(functions, module.kernels, ATTENTION[name].direction)
    texts = wrappers(f"{header}.h", functions, throws=throws, c_functions=for_c.source)
    asked = _asked(tree, module.config, headers)
    return ModuleEntry(
        tuple(
            EntryPoint(f.name, len(f.parameters), f.required, f.arguments[len(f.required) :])
            for f in functions
        ),
        _write(output, header, f"{name}/entry/{header}.cpp", texts.source),
        _write(output, "kernel_names", f"{name}/entry/kernel_names.cpp", for_c.kernels),
        _write(output, f"qola_{header}.h", f"include/qola_{header}.h", texts.header),
        macros.flags,
        {
            name: value
            for name, value in sorted(macros.known.items())
            if value not in (None, UNKNOWN) and name in asked
        },
        asked,
        (*macros.warnings, *for_c.warnings, *v3_off(tree, module, resolved.archs)),
    )


def module_functions(
    resolved: ResolvedRequest,
    module: GeneratedModule,
    sources: Mapping[str, str],
    macros: EntryMacros,
) -> tuple[EntryFunction, ...]:
    """Return the functions of the directions that have kernels, and what goes with them.

    Args:
        sources: texts of its sources by their path below its own directory.

    Raises:
        PlanError: nothing leaves the library.
        AiterError: an entry point is not declared, not defined, or cannot be read.
    """
    kernels = module.kernels
    launched = {k.direction for k in kernels.kernels if not k.role.startswith("asm_")}
    served = {k.direction for k in kernels.kernels}
    if kernels.code_objects:
        # Assembly kernels alone can serve a direction, too.
        served.add(ATTENTION[module.spec.name].direction)
    if not served:
        raise PlanError(
            Finding(
                resolved.place(module.spec, "drop_directions"),
                f"{module.spec.name} without any kernel instance",
                "at least one direction with kernels",
                "drop fewer directions, or remove the module",
            )
        )
    entries = {source.file for source in kernels.sources if source.role == "entry"}
    return entry_functions(
        resolved.request.tree,
        module.config,
        served,
        macros.known,
        [text for file, text in sources.items() if file in entries],
        launched=launched,
    )


def _includers(
    tree: AiterTree, module: GeneratedModule, sources: Mapping[str, str]
) -> Iterator[Includer]:
    """Yield the sources of a module; those copied from the tree with their place in it."""
    copied = {
        f"sources/{Path(file).stem}.cpp": file
        for file in module_kinds.sources(tree, module.config, module.spec.drop_srcs)
    }
    for file, text in sources.items():
        yield Includer(copied.get(file, f"{module.spec.name}/{file}"), text)
    yield Includer(_users(module), f'#include "{ATTENTION[module.spec.name].header}.h"\n')


def _users(module: GeneratedModule) -> str:
    """Return the name of the public header, by which users include AITER's."""
    return f"qola_{ATTENTION[module.spec.name].header}.h"


def missing_includes(
    tree: AiterTree,
    module: GeneratedModule,
    sources: Mapping[str, str],
    kernels: Iterable[Includer],
    macros: EntryMacros,
) -> list[Finding]:
    """Find includes of a module's sources and kernel instances that lead nowhere."""
    dirs = include_dirs(tree, module.config)
    generated = frozenset((*module.kernels.headers, _PATCHES_INCLUDE))
    includers = [*_includers(tree, module, sources), *kernels]
    missing = missing_headers(tree.root, dirs, includers, macros.known, generated)
    return [nowhere(module.spec.name, found.place, found.name) for found in missing]


def missing_types(
    tree: AiterTree, module: GeneratedModule, sources: Mapping[str, str], macros: EntryMacros
) -> list[Finding]:
    """Find types of Composable Kernel that a module's sources use and the one at hand lacks."""
    # What is generated is by generators of the same tree; types in it are theirs.
    files = frozenset(module_kinds.sources(tree, module.config, module.spec.drop_srcs))
    places = {*files, _users(module)}
    own = [source for source in _includers(tree, module, sources) if source.place in places]
    return [
        Finding(
            found.place,
            f"{found.name}, which neither AITER nor the Composable Kernel at hand declares",
            f"the Composable Kernel that this AITER names, at {tree.ck_dir}",
            "git submodule update --init --recursive; or leave the source out (drop_srcs)",
        )
        for found in unknown_names(tree, module.config, own, macros.known)
    ]


def refuse_missing(tree: AiterTree, module: str, missing: Sequence[MissingName]) -> None:
    """Refuse includes that lead nowhere.

    Raises:
        AiterError: they are Composable Kernel's, which the tree does not have.
        PlanError: naming each include.
    """
    if any(one.name.startswith(_OF_CK) for one in missing) and not tree.has_ck:
        raise AiterError(missing_ck(tree.root, tree.ck_dir, module))
    if missing:
        raise PlanError(nowhere(module, one.place, one.name) for one in missing)


def nowhere(module: str, place: str, header: str) -> Finding:
    """Return what to say of an include that leads nowhere."""
    return Finding(
        place,
        f'#include "{header}", which is nowhere in the tree, nor made by a generator of {module}',
        "a header of the tree, of the include directories, or of a generator",
        "name its generator (blob_gen_cmd) or its directory (add_includes), or leave the source "
        "out (drop_srcs)",
    )


def _asked(tree: AiterTree, config: ModuleConfig, headers: HeaderSet) -> frozenset[str]:
    """Return the macros that conditions of AITER's own and of the module's headers name.

    What is below ck_tile/ is read by kernels alone: users get declarations, not code.
    """
    folders = (f"{tree.csrc_dir}/include/", *(f"{folder}/" for folder in config.include_dirs))
    found: set[str] = set()
    for file in headers.files:
        if file.startswith(folders):
            for match in _CONDITION.finditer(tree.text(file)):
                found.update(re.findall(r"[A-Za-z_]\w*", match[1]))
    return frozenset(found)


def check_agreement(modules: Sequence[tuple[str, ModuleEntry]]) -> None:
    """Refuse modules whose headers mean different things in one program.

    Raises:
        PlanError: a macro that headers of both ask for has two values.
    """
    findings = [
        Finding(
            f"qola_config.h {macro}",
            f"{value} in {name}, {other.macros.get(macro, 'not defined')} in {other_name}",
            "one value: users of a manifest's libraries include the headers of all of them",
            "give both modules the same in flags_extra_cc, or write two manifests",
        )
        for name, entry in modules
        for macro, value in entry.macros.items()
        for other_name, other in modules
        if macro in other.asked and other.macros.get(macro) != value
    ]
    if findings:
        raise PlanError(findings)


def _write(output: Folder, name: str, file: str, text: str) -> PlannedFile:
    return PlannedFile(name, file, output.write(file, text))
