"""What each module of an AITER tree is, what it needs, and whether a plan can be made for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from qola.aiter.attention import ATTENTION, TORCH_ATTENTION
from qola.aiter.module_kinds import ModuleKind, classify
from qola.aiter.tree import AiterTree
from qola.errors import AiterError, QolaError
from qola.folder import Folder
from qola.manifest.fields import TESTED_ARCHS
from qola.manifest.load import loads
from qola.plan.python_module import plan_python_module
from qola.plan.request import Request, resolve

_SCRIPT = re.compile(r"[\w./-]+\.py\b")
_TABLE = re.compile(r"AITER_CONFIG\w*(?:\.\w+)?")


@dataclass(frozen=True)
class ModuleReport:
    """One module of AITER's configuration.

    Attributes:
        kind: C++ library, torch module or without torch.
        needs: torch, hipify, generators and tuning tables, as far as it needs any.
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
    return tuple(_report(tree, name) for name in tree.module_names())


def _report(tree: AiterTree, name: str) -> ModuleReport:
    try:
        found = classify(tree, name)
    except AiterError as error:
        needs = tuple(_needs(tree, name, None))
        return ModuleReport(name, "unknown", needs, built=False, why=_line(error))
    needs = tuple(_needs(tree, name, found))
    if name in ATTENTION:
        return ModuleReport(name, "C++ library", needs, built=True, why="")
    if found.torch is not None:
        why = ""
        if name not in TORCH_ATTENTION:
            why = f"PyTorch without attention ({found.torch.file} includes {found.torch.name})"
        return ModuleReport(name, "torch module", needs, built=not why, why=why)
    why = _refusal(tree, name)
    return ModuleReport(name, "without torch", needs, built=not why, why=why)


def _refusal(tree: AiterTree, name: str) -> str:
    """Return why a module that needs no PyTorch cannot be planned, "" where it can."""
    text = f'[build]\narchitectures = ["{TESTED_ARCHS[0]}"]\n[[modules]]\nname = "{name}"\n'
    try:
        resolved = resolve(Request(name, loads(text, file=name), tree))
        plan_python_module(resolved, resolved.modules[0], Folder())
    except QolaError as error:
        # The manifest is made up: a place in it tells nobody anything.
        return _line(error).removeprefix(f"{name}:4 [[modules]].name: ")
    return ""


def _line(error: QolaError) -> str:
    finding = error.findings[0]
    return " ".join(f"{finding.place}: {finding.found}".split())


def _needs(tree: AiterTree, name: str, found: ModuleKind | None) -> Iterator[str]:
    if found is not None and found.torch is not None:
        yield "torch"
    if tree.entry_text(name, "hipify") == "True":
        yield "hipify"
    command = tree.entry_text(name, "blob_gen_cmd")
    scripts = dict.fromkeys(script.rsplit("/", 1)[-1] for script in _SCRIPT.findall(command))
    if scripts:
        yield f"generators: {', '.join(scripts)}"
    if tables := dict.fromkeys(_TABLE.findall(command)):
        yield f"tuning tables: {', '.join(tables)}"
