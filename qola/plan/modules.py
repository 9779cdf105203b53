"""Reports each module of an AITER tree: its kind, its needs, and whether it can be planned."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from qola.aiter.attention import ATTENTION, TORCH_ATTENTION
from qola.aiter.module_config import missing_ck
from qola.aiter.module_kinds import ModuleKind, classify
from qola.aiter.tree import AiterTree
from qola.common.extras import MissingPackagesError
from qola.common.folder import Folder
from qola.common.processes import thread_pool
from qola.manifest.constants import AITER, TESTED_ARCHS
from qola.manifest.load import loads
from qola.plan.planner import build_plan
from qola.plan.request import Request, ResolvedRequest
from qola.plan.resolve import resolve
from qola_base.errors import AiterError, QolaError
from qola_base.progress import log

_SCRIPT = re.compile(r"[\w./-]+\.py\b")
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning)\b")
_TABLE = re.compile(r"AITER_CONFIG\w*(?:\.\w+)?")
#: The quoted expression of AITER's configuration at the beginning of an error.
_EXPRESSION = re.compile(r"^.*?: (['\"]).*\1: (?:the name `[^`]*`: )?")
_STEPS = 5
"""Number of progress reports."""


@dataclass(frozen=True)
class ModuleReport:
    """One module of AITER's configuration.

    Attributes:
        kind: C++ library, torch module, without torch (Python imports it) or C functions.
        needs: torch, hipify, further libraries of ROCm, generators, tuning tables; and the first
            arch that can be planned if it is not the first one tried.
        built: it can be planned.
        why: the error if it cannot, else "".
        cause: the root cause of the error, the same text for all modules with this cause.
    """

    name: str
    kind: str
    needs: tuple[str, ...]
    built: bool
    why: str
    cause: str = ""


def module_reports(tree: AiterTree, archs: Sequence[str] = ()) -> tuple[ModuleReport, ...]:
    """Return a report of each module, in the order of the configuration.

    Args:
        archs: plan each module for all of these together; () to find one arch that it has.
    """
    names = tree.module_names()
    log.info(f"planning each of {len(names)} modules")
    step = -(-len(names) // _STEPS)
    reports: list[ModuleReport] = []
    with thread_pool(os.cpu_count()) as pool:
        # Generators run in processes of their own.
        for report in pool.map(lambda name: _report(tree, name, tuple(archs)), names):
            reports.append(report)
            if len(reports) % step == 0 and len(reports) < len(names):
                log.info(f"{len(reports)} of {len(names)} modules planned")
    return tuple(reports)


def _report(tree: AiterTree, name: str, archs: tuple[str, ...]) -> ModuleReport:
    def report(kind: str, needs: tuple[str, ...], why: str) -> ModuleReport:
        cause = _cause(tree, name, why) if why else ""
        return ModuleReport(name, kind, needs, built=not why, why=why, cause=cause)

    try:
        found = classify(tree, name)
    except AiterError as error:
        return report("unknown", tuple(_needs(tree, name, None)), _line(error))
    needs = tuple(_needs(tree, name, found))
    python = "without torch" if found.python is not None else "C functions"
    kind = python if found.torch is None else "torch module"
    if name in (*ATTENTION, *TORCH_ATTENTION):
        kind = "C++ library" if name in ATTENTION else kind
        # Not generated: their generators take minutes, and serve every arch and variant.
        return report(kind, needs, _refusal(tree, name, archs or TESTED_ARCHS[:1], generate=False))
    if archs:
        return report(kind, needs, _refusal(tree, name, archs))
    # Some modules support only one of the archs with assembly kernels.
    asm_archs = sorted(path.name for path in (tree.root / tree.hsa_dir).glob("gfx*"))
    first = ""
    for arch in dict.fromkeys((*TESTED_ARCHS, *asm_archs)):
        why = _refusal(tree, name, (arch,))
        if not why:
            needs = (*needs, f"not for {TESTED_ARCHS[0]}, for {arch}") if first else needs
            return report(kind, needs, "")
        first = first or why
    return report(kind, needs, first)


def filtered_kernels(
    tree: AiterTree, name: str, archs: Sequence[str], variants: str
) -> tuple[int, str]:
    """Return the number of kernel instances of an attention module, and why it cannot be planned.

    Args:
        variants: tables of a manifest in mode aiter that filter the module.
    """
    try:
        resolved = _resolve(tree, name, archs, f'mode = "{AITER}"', variants)
        return len(build_plan(resolved, Folder()).kernels), ""
    except MissingPackagesError:
        raise
    except QolaError as error:
        return 0, " ".join(error.findings[0].found.split())


def _resolve(
    tree: AiterTree, name: str, archs: Sequence[str], build: str = "", more: str = ""
) -> ResolvedRequest:
    listed = ", ".join(f'"{arch}"' for arch in archs)
    module = f'[[modules]]\nname = "{name}"\n'
    text = f"[build]\n{build}\narchitectures = [{listed}]\n{module}{more}"
    return resolve(Request(name, loads(text, file=name), tree))


def _refusal(tree: AiterTree, name: str, archs: Sequence[str], *, generate: bool = True) -> str:
    """Return the error of planning a module for some archs, "" if it can be planned."""
    try:
        resolved = _resolve(tree, name, archs)
        if generate:
            build_plan(resolved, Folder())
    except MissingPackagesError:
        raise
    except QolaError as error:
        # The user has no such manifest, so a place in it is useless.
        return _line(error).removeprefix(f"{name}:4 [[modules]].name: ")
    return ""


def _cause(tree: AiterTree, name: str, why: str) -> str:
    """Return the root cause without the name of the module."""
    missing = missing_ck(tree.root, tree.ck_dir, name)
    if missing.found in why:
        return f"no Composable Kernel in {tree.ck_dir}: {missing.fix}"
    why = _EXPRESSION.sub("", why.replace(f" {name}.", " "))
    return why.replace(f"module {name}", "the module").replace(name, "the module")


def _line(error: QolaError) -> str:
    finding = error.findings[0]
    # The last exception in a generator's output is the reason.
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
