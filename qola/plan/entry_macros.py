"""Macros by which AITER's own sources are switched: which a plan defines, and which it warns of.

They are found by reading: whatever a source of the module asks for in an ``#if`` and neither its
flags nor a ``#define`` in it or in its headers define. What the few that are known mean is said
here; any other is a warning, since its lines would be left out without a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from qola.aiter import module_kinds
from qola.aiter.attention import attention_of, is_attention
from qola.aiter.includes import closure, include_dirs, includes
from qola.aiter.preprocess import UNKNOWN, conditions, defined_by, without_comments
from qola.aiter.tree import AiterTree, ModuleConfig
from qola.codegen.types import KernelSet
from qola.errors import Finding
from qola.manifest.constants import KNOWN_ARCHS
from qola.manifest.load import ModuleSpec
from qola.plan.generated import GeneratedModule


def _has_ck(main: str, kernels: KernelSet) -> bool:
    return any(k.direction == main and not k.role.startswith("asm_") for k in kernels.kernels)


_MEANING: Mapping[str, Callable[[str, KernelSet], bool]] = {
    # Composable Kernel's forward kernels are there.
    "FAV2_ON": _has_ck,
    # AITER's assembly kernels are in the library.
    "FAV3_ON": lambda main, kernels: bool(kernels.code_objects),
    # There is no kernel of Composable Kernel to turn to.
    "ONLY_FAV3": lambda main, kernels: not _has_ck(main, kernels),
}
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
#: Macros of ROCm's headers and of the compiler.
_OF_OTHERS = ("HIP_", "ROCM_", "__")


@dataclass(frozen=True)
class EntryMacros:
    """The macros of a module's sources.

    Attributes:
        flags: what is defined beside the module's own flags.
        known: every macro that these sources ask for; None for one that is not defined, UNKNOWN for
            one that a header may define.
        warnings: macros that nobody here knows.
    """

    flags: tuple[str, ...]
    known: Mapping[str, str | None]
    warnings: tuple[Finding, ...]


def entry_macros(tree: AiterTree, module: GeneratedModule, archs: Sequence[str]) -> EntryMacros:
    """Decide the macros that a module's own sources ask for.

    The flags of AITER's entry and of the manifest win over what a name means here.
    """
    known = defined_by(module.config.flags_hip)
    flags: list[str] = []
    warnings: list[Finding] = []
    attention = is_attention(module.config.name)
    main = attention_of(module.config.name).direction if attention else ""
    asked = _asked(tree, module.config, module.spec)
    asked = {name: place for name, place in asked.items() if name not in known}
    elsewhere = _defined_elsewhere(tree, module.config, module.spec) if asked else frozenset()
    for name, place in asked.items():
        meaning = _MEANING.get(name) if attention else None
        if meaning is not None and meaning(main, module.kernels):
            flags.append(f"-D{name}=1")
            known[name] = "1"
        elif name in elsewhere or name.startswith(_OF_OTHERS):
            known[name] = UNKNOWN
        elif place:
            known[name] = None
            if meaning is None and not _of_other_archs(name, archs):
                warnings.append(_unknown(tree, module.spec.name, name, place))
    return EntryMacros(tuple(flags), known, tuple(warnings))


def _asked(tree: AiterTree, config: ModuleConfig, spec: ModuleSpec) -> dict[str, str]:
    """Return the macros whose value a module's own sources ask for, each with its place.

    That is "" for one which each source that asks for it defines under some condition.
    """
    found: dict[str, str] = {}
    for file in module_kinds.sources(tree, config, spec.drop_srcs):
        text = tree.text(file)
        own = _defines(text)
        for condition in conditions(text):
            place = "" if condition.name in own else f"{file}:{condition.line}"
            found[condition.name] = found.get(condition.name) or place
    return found


def _defined_elsewhere(tree: AiterTree, config: ModuleConfig, spec: ModuleSpec) -> frozenset[str]:
    """Return the macros that the tree's headers define which a module's sources include."""
    files = module_kinds.sources(tree, config, spec.drop_srcs)
    roots = {name for file in files for name, _ in includes(tree.text(file))}
    headers = closure(tree.root, include_dirs(tree, config), sorted(roots))
    return frozenset().union(*(_defines(tree.text(header)) for header in headers))


def _defines(text: str) -> set[str]:
    return set(_DEFINE.findall(without_comments(text))) if "define" in text else set()


def _of_other_archs(name: str, archs: Sequence[str]) -> bool:
    """Whether a macro names an arch, as FAV1250_ON does, that is not planned for."""
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
    """Warn where assembly (v3) kernels lie in the tree and no generator serves them."""
    name = module.spec.name
    subdir = attention_of(module.config.name).asm_subdir
    if module.kernels.code_objects or module.spec.hsa_subdirs == ():
        return ()
    calls = (" ".join((call.script, *call.args)) for call in module.config.generators)
    folders = [f"{tree.hsa_dir}/{arch}/{subdir}" for arch in archs]
    found = [f"{len(_objects(tree, f))} in {f}" for f in folders if _objects(tree, f)]
    if not found or any(subdir in call for call in calls):
        # With a generator, that one says why.
        return ()
    return (
        Finding(
            f"{name}.blob_gen_cmd",
            f"no generator of assembly (v3) kernels; code objects: {', '.join(found)}",
            f"a generator that serves {subdir}",
            "nothing, as Composable Kernel serves all problems; hsa_subdirs = [] says it is meant",
            "warning",
        ),
    )


def _objects(tree: AiterTree, folder: str) -> list[str]:
    return [path.name for path in (tree.root / folder).rglob("*.co")]
