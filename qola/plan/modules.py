"""What each module of an AITER tree is, what it needs, and whether a plan can be made for it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from qola.aiter.attention import ATTENTION, TORCH_ATTENTION, is_attention
from qola.aiter.module_kinds import ModuleKind, classify, deciding_config, sources
from qola.aiter.tree import AiterTree
from qola.errors import AiterError, QolaError
from qola.folder import Folder
from qola.manifest.load import loads
from qola.manifest.words import TESTED_ARCHS
from qola.plan.planner import build_plan
from qola.plan.request import Request, resolve
from qola.processes import thread_pool

_SCRIPT = re.compile(r"[\w./-]+\.py\b")
#: AITER's class for a kernel in a file below $AITER_ASM_DIR. Attention has these embedded.
_CODE_OBJECT = re.compile(r"\bAiterAsmKernel\b")
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning)\b")
_TABLE = re.compile(r"AITER_CONFIG\w*(?:\.\w+)?")


@dataclass(frozen=True)
class ModuleReport:
    """One module of AITER's configuration.

    Attributes:
        kind: C++ library, torch module, without torch (Python imports it) or C functions.
        needs: torch, hipify, libraries of ROCm beside HIP, generators, tuning tables, files when
            it runs, as far as it needs any; and, where it cannot be planned for the first arch
            that is tried, the first for which it can.
        built: a plan can be made for it.
        why: why not; "" where it can.
    """

    name: str
    kind: str
    needs: tuple[str, ...]
    built: bool
    why: str


def module_reports(tree: AiterTree) -> tuple[ModuleReport, ...]:
    """Return a report of each module, in the order of the configuration."""
    with thread_pool(os.cpu_count()) as pool:
        # Generators run in processes of their own.
        return tuple(pool.map(lambda name: _report(tree, name), tree.module_names()))


def _report(tree: AiterTree, name: str) -> ModuleReport:
    try:
        found = classify(tree, name)
    except AiterError as error:
        needs = tuple(_needs(tree, name, None))
        return ModuleReport(name, "unknown", needs, built=False, why=_line(error))
    needs = (*_needs(tree, name, found), *_files(tree, name, found))
    if name in ATTENTION:
        return ModuleReport(name, "C++ library", needs, built=True, why="")
    python = "without torch" if found.python is not None else "C functions"
    kind = python if found.torch is None else "torch module"
    if name in TORCH_ATTENTION:
        return ModuleReport(name, kind, needs, built=True, why="")
    refusals: list[str] = []
    for arch in dict.fromkeys((*TESTED_ARCHS, *_asm_archs(tree))):
        if why := _refusal(tree, name, arch):
            refusals.append(why)
            continue
        needs = (*needs, f"not for {TESTED_ARCHS[0]}, for {arch}") if refusals else needs
        return ModuleReport(name, kind, needs, built=True, why="")
    return ModuleReport(name, kind, needs, built=False, why=refusals[0])


def _asm_archs(tree: AiterTree) -> Iterator[str]:
    """Yield the archs that AITER has assembly kernels for, sorted: some modules are for one."""
    yield from sorted(path.name for path in (tree.root / tree.hsa_dir).glob("gfx*"))


def _refusal(tree: AiterTree, name: str, arch: str) -> str:
    """Return why a module beside attention cannot be planned for an arch, "" where it can."""
    text = f'[build]\narchitectures = ["{arch}"]\n[[modules]]\nname = "{name}"\n'
    try:
        build_plan(resolve(Request(name, loads(text, file=name), tree)), Folder())
    except QolaError as error:
        # The manifest is made up: a place in it tells nobody anything.
        return _line(error).removeprefix(f"{name}:4 [[modules]].name: ")
    return ""


def _line(error: QolaError) -> str:
    finding = error.findings[0]
    # Of what a generator wrote, Python's own last words say why it ended.
    first, *wrote = finding.found.splitlines()
    why = [line for line in wrote if _RAISED.match(line)][-1:] or wrote
    return " ".join(f"{finding.place}: {' '.join((first, *why))}".split())


def _needs(tree: AiterTree, name: str, found: ModuleKind | None) -> Iterator[str]:
    if found is not None and found.torch is not None:
        yield "torch"
    if tree.entry_text(name, "hipify") == "True":
        yield "hipify"
    if found is not None and found.rocm:
        yield f"of ROCm: {', '.join(found.rocm)}"
    command = tree.entry_text(name, "blob_gen_cmd")
    scripts = dict.fromkeys(script.rsplit("/", 1)[-1] for script in _SCRIPT.findall(command))
    if scripts:
        yield f"generators: {', '.join(scripts)}"
    if tables := dict.fromkeys(_TABLE.findall(command)):
        yield f"tuning tables: {', '.join(tables)}"


def _files(tree: AiterTree, name: str, found: ModuleKind) -> Iterator[str]:
    """Yield what a module looks for when it runs."""
    embedded = found.torch is None and "/hsa/codegen.py" in tree.entry_text(name, "blob_gen_cmd")
    if not is_attention(name) and not embedded:
        own = sources(tree, deciding_config(tree, name), ())
        if any(_CODE_OBJECT.search(tree.text(file)) for file in own):
            yield "when it runs: code objects in $AITER_ASM_DIR"
