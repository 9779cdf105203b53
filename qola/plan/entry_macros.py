"""Macros that switch AITER's own sources: the plan defines known ones, and warns of unknown ones.

A macro counts if a source of the module names it in an ``#if``, and neither the module's flags nor
a ``#define`` in the source or its headers define it: the preprocessor would skip its lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from qola.aiter import module_kinds
from qola.aiter.attention import attention_of, is_attention
from qola.aiter.includes import closure, include_dirs, includes
from qola.aiter.preprocess import UNKNOWN, conditions, defined_by, without_comments
from qola.aiter.tree import AiterTree
from qola.codegen.types import KernelSet
from qola.manifest.constants import KNOWN_ARCHS
from qola.plan.generate import GeneratedModule
from qola_base.errors import Finding


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
    tested = {name: place for name, place in _tested(texts).items() if name not in known}
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
                warnings.append(_unknown(tree, module.spec.name, name, place))
    return EntryMacros(tuple(flags), known, tuple(warnings))


def _tested(texts: Mapping[str, str]) -> dict[str, str]:
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


def _unknown(tree: AiterTree, module: str, name: str, place: str) -> Finding:
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
