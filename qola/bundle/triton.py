"""The library of kernels in Triton, and its packs, in a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qola.bundle.pack_files import labels_of_pack
from qola.bundle.record import FileFacts, LibraryFacts, told_module
from qola.layout import TRITON
from qola.plan.model import Plan


@dataclass(frozen=True)
class TritonInput:
    """A library of kernels in Triton.

    Attributes:
        packs: the pack of each arch.
        headers: to include/, by their names there.
    """

    library: str
    packs: Mapping[str, str]
    headers: Mapping[str, str]


def compiler_of(packs: Mapping[str, str]) -> str:
    """Return what compiled the kernels in packs, such as triton 3.9.0."""
    found = {label[2] for arch, pack in packs.items() for label in labels_of_pack(Path(pack), arch)}
    return ", ".join(sorted(found))


def is_own(plan: Plan) -> bool:
    """Return whether all the kernels are qola's, and none from a user's file."""
    return all(kernel.own for kernel in plan.triton)


def module_record(
    plan: Plan, library: LibraryFacts, packs: Mapping[str, FileFacts], compiler: str
) -> dict[str, Any]:
    """Return what manifest.json says of the library, in the form of the other modules."""
    kernels = {one.name: [instance.name for instance in one.instances] for one in plan.triton}
    return {
        **told_module(TRITON, library, library.symbols, kernels),
        "archs": sorted(packs),
        "compiler": compiler,
        "packs": [{"arch": arch, **asdict(facts)} for arch, facts in sorted(packs.items())],
    }
