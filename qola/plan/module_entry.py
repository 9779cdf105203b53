"""Plans C++ libraries: their functions, the C++ around them, the macros of their sources.

Macros switch AITER's own sources: the plan defines known ones, and warns of unknown ones. A macro
counts if a source of the module names it in an ``#if``, and neither the module's flags nor a
``#define`` in the source or its headers define it: the preprocessor would skip its lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from qola.aiter import module_kinds
from qola.aiter.attention import ATTENTION, attention_of, is_attention
from qola.aiter.declarations import has_variable
from qola.aiter.entry_points import EntryFunction, entry_functions, header_of
from qola.aiter.includes import closure, include_dirs, includes
from qola.aiter.missing_names import Includer, MissingName, missing_headers, unknown_names
from qola.aiter.module_config import missing_ck
from qola.aiter.preprocess import UNKNOWN, Macros, code, conditions, defined_by, without_comments
from qola.aiter.tree import AiterTree, ModuleConfig
from qola.codegen.types import KernelSet
from qola.common.folder import Folder
from qola.common.layout import library_file
from qola.manifest.constants import KNOWN_ARCHS
from qola.plan.c_functions import c_functions
from qola.plan.generate import GeneratedModule
from qola.plan.inputs import find_headers
from qola.plan.model import EntryPoint, HeaderSet, PlannedFile, PlannedModule
from qola.plan.request import ResolvedRequest
from qola.plan.stubs import LazySources
from qola.plan.wrappers import entry_source, public_header
from qola_base.errors import AiterError, Finding, PlanError

_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b((?:.*\\\n)*.*)", re.MULTILINE)
#: How includes of Composable Kernel's headers begin.
_CK_PREFIXES = ("ck/", "ck_tile/", "fmha_")
#: A header of qola, in the v3 sources that it patches.
_PATCHES_INCLUDE = "qola_asm.h"
#: The variable that makes AITER's checks throw, by its namespace and name.
_THROWS = ("aiter_detail", "g_aiter_can_throw")


def _has_ck(main: str, kernels: KernelSet) -> bool:
    return any(k.direction == main and not k.role.startswith("asm_") for k in kernels.kernels)


_MEANING: Mapping[str, Callable[[str, KernelSet], bool]] = {
    # The library has forward kernels of Composable Kernel.
    "FAV2_ON": _has_ck,
    # The library has AITER's assembly kernels.
    "FAV3_ON": lambda main, kernels: bool(kernels.code_objects),
    # The library has no kernels of Composable Kernel as a fallback.
    "ONLY_FAV3": lambda main, kernels: not _has_ck(main, kernels),
}
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
#: Prefixes of macros that ROCm's headers and the compiler define.
_FOREIGN = ("HIP_", "ROCM_", "__")


@dataclass(frozen=True)
class EntryMacros:
    """The macros of a module's sources.

    Attributes:
        flags: definitions in addition to the module's own flags.
        known: the value of each tested macro; None if it is not defined, UNKNOWN if a header may
            define it.
    """

    flags: tuple[str, ...]
    known: Mapping[str, str | None]
    warnings: tuple[Finding, ...]


@dataclass(frozen=True)
class LibraryPlan:
    """A planned library.

    Attributes:
        headers: of its sources and users.
        tested: every macro that its public headers test.
    """

    module: PlannedModule
    headers: HeaderSet
    tested: frozenset[str]
    warnings: tuple[Finding, ...]


def plan_library(
    resolved: ResolvedRequest,
    module: GeneratedModule,
    output: Folder,
    kernels: tuple[int, ...],
    lazy: LazySources,
    includers: Iterable[Includer],
) -> LibraryPlan:
    """Plan a library whose kernel instances were planned; write its public header and entry source.

    Args:
        output: gets include/ and <module>/entry.
        kernels: indices of its kernel instances.
        lazy: the sources of its lazy form.
        includers: texts of kernel instances that together have all of their includes.

    Raises:
        PlanError: the library has no functions, or a source would not compile.
        AiterError: the tree lacks headers, or an entry point is not declared, not defined, or
            cannot be read.
    """
    tree, name = resolved.request.tree, module.spec.name
    header, direction = ATTENTION[name].header, ATTENTION[name].direction
    texts = {source.file: output.text(source.file) for source in module.kernels.sources}
    roots = {root for text in texts.values() for root, _ in includes(text)}
    headers = find_headers(tree, module.config, name, {*roots, f"{header}.h"})
    header_of(tree, module.config)
    macros = entry_macros(tree, module, resolved.archs)
    findings = [
        *missing_includes(tree, module, texts, includers, macros),
        *missing_types(tree, module, texts, macros),
    ]
    if findings:
        raise PlanError(findings)
    functions = module_functions(resolved, module, texts, macros)
    common = f"{tree.csrc_dir}/include/aiter_hip_common.h"
    throws = common in headers.files and has_variable(
        code(tree.text(common), macros.known), *_THROWS
    )
    for_c = c_functions(functions, module.kernels, direction)
    source = entry_source(f"{header}.h", functions, throws=throws, c_functions=for_c.source)
    tested = _tested_by_headers(tree, module.config, headers)

    write = partial(PlannedFile.write, output)
    public = _public_name(module)
    planned = PlannedModule(
        name=name,
        library=library_file(resolved.request.manifest.namespace, name),
        entries=tuple(
            EntryPoint(f.name, len(f.parameters), f.required, f.arguments[len(f.required) :])
            for f in functions
        ),
        entry_source=write(header, f"{name}/entry/{header}.cpp", source),
        kernel_names=write("kernel_names", f"{name}/entry/kernel_names.cpp", for_c.kernels),
        public_header=write(public, f"include/{public}", public_header(f"{header}.h", functions)),
        macros={
            macro: value
            for macro, value in sorted(macros.known.items())
            if value not in (None, UNKNOWN) and macro in tested
        },
        receipt=module.spec.receipt,
        copts=module.config.flags_hip + macros.flags,
        kernels=kernels,
        sources=module.kernels.sources,
        headers=name,
        code_objects=module.kernels.code_objects,
        asm_tables=module.generated_files,
        stubs=tuple(lazy.stubs),
        entry_sources=lazy.entry_sources,
        directions=module.kernels.directions,
    )
    warnings = (*macros.warnings, *for_c.warnings, *v3_off(tree, module, resolved.archs))
    return LibraryPlan(planned, headers, tested, warnings)


def _public_name(module: GeneratedModule) -> str:
    """Return the name of the public header, which includes AITER's."""
    return f"qola_{ATTENTION[module.spec.name].header}.h"


def entry_macros(tree: AiterTree, module: GeneratedModule, archs: Sequence[str]) -> EntryMacros:
    """Decide the macros that a module's own sources test.

    The flags of AITER's entry and of the manifest have precedence over the meaning of a name here.
    """
    known = defined_by(module.config.flags_hip)
    flags: list[str] = []
    warnings: list[Finding] = []
    attention = is_attention(module.config.name)
    main = attention_of(module.config.name).direction if attention else ""
    files = module_kinds.sources(tree, module.config, module.spec.drop_srcs)
    texts = {file: tree.text(file) for file in files}
    tested = {name: place for name, place in _tested_by_sources(texts).items() if name not in known}
    in_headers = _defined_in_headers(tree, module, texts.values()) if tested else frozenset()
    for name, place in tested.items():
        meaning = _MEANING.get(name) if attention else None
        if meaning is not None and meaning(main, module.kernels):
            flags.append(f"-D{name}=1")
            known[name] = "1"
        elif name in in_headers or name.startswith(_FOREIGN):
            known[name] = UNKNOWN
        elif place:
            known[name] = None
            if meaning is None and not _is_of_other_archs(name, archs):
                warnings.append(_unknown_macro(tree, module.spec.name, name, place))
    return EntryMacros(tuple(flags), known, tuple(warnings))


def _tested_by_sources(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the place of each macro that the sources test, "" if these sources define it."""
    found: dict[str, str] = {}
    for file, text in texts.items():
        own = _defines(text)
        for condition in conditions(text):
            place = "" if condition.name in own else f"{file}:{condition.line}"
            found[condition.name] = found.get(condition.name) or place
    return found


def _defined_in_headers(
    tree: AiterTree, module: GeneratedModule, texts: Iterable[str]
) -> frozenset[str]:
    """Return the macros that the included headers of the tree define."""
    roots = {name for text in texts for name, _ in includes(text)}
    headers = closure(tree.root, include_dirs(tree, module.config), sorted(roots))
    return frozenset().union(*(_defines(tree.text(header)) for header in headers))


def _defines(text: str) -> set[str]:
    return set(_DEFINE.findall(without_comments(text))) if "define" in text else set()


def _is_of_other_archs(name: str, archs: Sequence[str]) -> bool:
    """Return whether a macro such as FAV1250_ON names only archs that are not planned for."""
    named = {f"gfx{number}" for number in re.findall(r"\d+", name)} & {*KNOWN_ARCHS}
    return bool(named) and not named & {*archs}


def _unknown_macro(tree: AiterTree, module: str, name: str, place: str) -> Finding:
    users = tree.modules_that_define(name)
    return Finding(
        place,
        f"#if {name}, a macro that nothing defines for {module}: its lines are left out",
        "a macro of the module's flags, or one that this qola knows",
        f'add_flags_extra_cc = ["-D{name}=1"] in the [[modules]] table of {module}, or =0 to say '
        "that it is meant" + (f"; AITER defines it for {', '.join(users)}" if users else ""),
        "warning",
    )


def v3_off(tree: AiterTree, module: GeneratedModule, archs: Sequence[str]) -> tuple[Finding, ...]:
    """Warn if the tree has assembly (v3) kernels of a module, and no generator selects them."""
    subdir = attention_of(module.config.name).asm_subdir
    if module.kernels.code_objects or module.spec.hsa_subdirs == ():
        return ()
    if any(subdir in " ".join((c.script, *c.args)) for c in module.config.generators):
        # The generator gives the reason.
        return ()
    folders = [f"{tree.hsa_dir}/{arch}/{subdir}" for arch in archs]
    counts = {folder: len(list((tree.root / folder).rglob("*.co"))) for folder in folders}
    found = [f"{count} in {folder}" for folder, count in counts.items() if count]
    if not found:
        return ()
    return (
        Finding(
            f"{module.spec.name}.blob_gen_cmd",
            f"no generator of assembly (v3) kernels; code objects: {', '.join(found)}",
            f"a generator that serves {subdir}",
            "nothing, as Composable Kernel serves all problems; hsa_subdirs = [] says it is meant",
            "warning",
        ),
    )


def module_functions(
    resolved: ResolvedRequest,
    module: GeneratedModule,
    sources: Mapping[str, str],
    macros: EntryMacros,
) -> tuple[EntryFunction, ...]:
    """Return the functions of the directions with kernels, and AITER's further functions."""
    kernels = module.kernels
    launched = {k.direction for k in kernels.kernels if not k.role.startswith("asm_")}
    served = {k.direction for k in kernels.kernels}
    if kernels.code_objects:
        # A direction may have assembly kernels only.
        served.add(ATTENTION[module.spec.name].direction)
    if not served:
        raise PlanError(without_kernels(resolved, module))
    entries = {source.file for source in kernels.sources if source.role == "entry"}
    return entry_functions(
        resolved.request.tree,
        module.config,
        served,
        macros.known,
        [text for file, text in sources.items() if file in entries],
        launched=launched,
    )


def without_kernels(resolved: ResolvedRequest, module: GeneratedModule) -> Finding:
    """Return the finding for an attention module whose directions are all dropped."""
    return Finding(
        resolved.place(module.spec, "drop_directions"),
        f"{module.spec.name} without any kernel instance",
        "at least one direction with kernels",
        "drop fewer directions, or remove the module",
    )


def _includers(
    tree: AiterTree, module: GeneratedModule, sources: Mapping[str, str]
) -> Iterator[Includer]:
    """Yield the sources of a module, those copied from the tree with their place in it."""
    copied = {
        f"{module.spec.name}/sources/{Path(file).stem}.cpp": file
        for file in module_kinds.sources(tree, module.config, module.spec.drop_srcs)
    }
    for file, text in sources.items():
        yield Includer(copied.get(file, file), text)
    header = ATTENTION[module.spec.name].header
    yield Includer(_public_name(module), f'#include "{header}.h"\n')


def missing_includes(
    tree: AiterTree,
    module: GeneratedModule,
    sources: Mapping[str, str],
    kernels: Iterable[Includer],
    macros: EntryMacros,
) -> list[Finding]:
    """Find includes of a module's sources and kernel instances whose header does not exist."""
    includers = (*_includers(tree, module, sources), *kernels)
    missing = _missing_headers(tree, module, includers, macros.known)
    return [_missing(module.spec.name, include) for include in missing]


def _missing_headers(
    tree: AiterTree, module: GeneratedModule, includers: Iterable[Includer], macros: Macros
) -> Sequence[MissingName]:
    dirs = include_dirs(tree, module.config)
    generated = frozenset((*module.kernels.headers, _PATCHES_INCLUDE))
    return missing_headers(tree.root, dirs, includers, macros, generated)


def missing_types(
    tree: AiterTree, module: GeneratedModule, sources: Mapping[str, str], macros: EntryMacros
) -> list[Finding]:
    """Find types in a module's sources that this Composable Kernel does not declare."""
    # Generated sources come from the same tree, and need no check.
    files = frozenset(module_kinds.sources(tree, module.config, module.spec.drop_srcs))
    places = {*files, _public_name(module)}
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


def refuse_missing(
    tree: AiterTree,
    module: GeneratedModule,
    texts: Mapping[str, str],
    macros: Macros,
) -> None:
    """Refuse includes of a Python module whose header does not exist.

    Args:
        texts: of its sources by their path.
    """
    name = module.spec.name
    includers = [Includer(file, text) for file, text in texts.items()]
    missing = _missing_headers(tree, module, includers, macros)
    if any(include.name.startswith(_CK_PREFIXES) for include in missing) and not tree.has_ck:
        raise AiterError(missing_ck(tree.root, tree.ck_dir, name))
    if missing:
        raise PlanError(_missing(name, include) for include in missing)


def _missing(module: str, include: MissingName) -> Finding:
    return Finding(
        include.place,
        f'#include "{include.name}", which neither the tree has nor a generator of {module} writes',
        "a header of the tree, of the include directories, or of a generator",
        "name its generator (blob_gen_cmd) or its directory (add_includes), or leave the source "
        "out (drop_srcs)",
    )


def _tested_by_headers(tree: AiterTree, config: ModuleConfig, headers: HeaderSet) -> frozenset[str]:
    """Return the macros that conditions of AITER's public headers and of the module's test.

    Headers below ck_tile/ are for kernels only, not for users of the library.
    """
    folders = (f"{tree.csrc_dir}/include/", *(f"{folder}/" for folder in config.include_dirs))
    found: set[str] = set()
    for file in headers.files:
        if file.startswith(folders):
            for match in _CONDITION.finditer(tree.text(file)):
                found.update(re.findall(r"[A-Za-z_]\w*", match[1]))
    return frozenset(found)


def check_agreement(libraries: Sequence[LibraryPlan]) -> None:
    """Refuse libraries whose public headers test a macro that differs between them."""
    findings = [
        Finding(
            f"qola_config.h {macro}",
            f"{value} in {library.module.name}, {other.module.macros.get(macro, 'not defined')} in "
            f"{other.module.name}",
            "one value: users of a manifest's libraries include the headers of all of them",
            "give both modules the same in flags_extra_cc, or write two manifests",
        )
        for library in libraries
        for macro, value in library.module.macros.items()
        for other in libraries
        if macro in other.tested and other.module.macros.get(macro) != value
    ]
    if findings:
        raise PlanError(findings)
