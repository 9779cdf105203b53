"""The workloads of bench/run: manifests, and patterns of CK's generate.py for the same kernels."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bench.processes import BenchError
from qola.aiter.tree import AiterTree
from qola.codegen.types import GeneratedSource
from qola.common.folder import Folder
from qola.manifest.load import loads
from qola.plan.model import Plan, PlannedModule, TorchModule
from qola.plan.planner import build_plan
from qola.plan.request import Request
from qola.plan.resolve import resolve
from qola_base.errors import Finding

DIRECTORY = Path(__file__).resolve().parent / "workloads"
ARCH = "gfx950"
# AITER's C++ interface; the patterns select the subset that the manifests' receipt 700 contains.
RECEIPT = 600
MODULES = {"fwd": "libmha_fwd", "bwd": "libmha_bwd"}
"""AITER's module by direction."""


@dataclass(frozen=True)
class Workload:
    """A manifest, and the same manifest with one more variant.

    Attributes:
        name: name of the manifest, and of the manifest's further variant.
        patterns: pattern of generate.py (fnmatch) by direction.
        more: patterns for the manifest with the further variant; {} if there is none.
        modules: Python modules other than attention that are compared.
    """

    name: str
    patterns: Mapping[str, str]
    more: Mapping[str, str]
    modules: tuple[str, ...] = ()

    @property
    def parts(self) -> Mapping[str, str]:
        """The parts that are compared: AITER's module by direction, or by its own name."""
        return {name: MODULES.get(name, name) for name in (*self.patterns, *self.modules)}

    def only(self, modules: Collection[str]) -> Workload:
        """Return the workload with only some of its modules; without any of them, with all."""
        return replace(self, modules=tuple(m for m in self.modules if m in modules) or self.modules)

    def manifest(self, *, more: bool) -> str:
        """Return the manifest's text, with or without the further variant."""
        names = [self.name] + ([f"{self.name}_variant"] if more and self.more else [])
        texts = [(DIRECTORY / f"{name}.toml").read_text(encoding="utf-8") for name in names]
        head, *tables = "".join(texts).split("[[modules]]\n")
        if self.modules:
            tables = [
                t for t in tables if any(f'name = "{module}"\n' in t for module in self.modules)
            ]
        return "[[modules]]\n".join([head, *tables])


_BACKWARD = (
    "*_d64_bf16_b64_group_*"
    "@*_d64_bf16_b64x0_group_*"
    "@*_d64_bf16_group_*_nbias_ndbias_*mask_ndropout_ndeterministic*"
)
WORKLOADS = {
    "families": Workload(
        name="families",
        patterns={
            # nbias and alibi.
            "fwd": "*_d128_bf16_batch_*_nlogits_[na]*_lse_*_nskip_nsquant_*",
            "bwd": _BACKWARD,
        },
        more={
            "fwd": "*_d128_bf16_batch_*_nlogits_*_lse_*_nskip_nsquant_*",
            "bwd": _BACKWARD,
        },
    ),
    "modules": Workload(
        name="modules",
        patterns={},
        more={},
        modules=(
            "module_cache",
            "module_gemm_a8w8",
            "module_moe_ck2stages",
            "module_moe_sorting",
            "module_norm",
            "module_quant",
            "module_rmsnorm",
        ),
    ),
    "quick": Workload(
        name="quick",
        patterns={
            "fwd": "*_d32_bf16_group_*_nlogits_nbias_nmask_lse_ndropout_nskip_nsquant_*",
        },
        more={
            "fwd": "*_d32_bf16_group_*_nlogits_nbias_*mask_lse_ndropout_nskip_nsquant_*",
        },
    ),
}


@dataclass(frozen=True)
class Planned:
    """A workload's plan.

    Attributes:
        kernels: names of the kernel instances by direction; of the sources of a Python module, by
            its name.
    """

    plan: Plan
    directory: Path
    kernels: Mapping[str, tuple[str, ...]]

    def own_sources(self, module: PlannedModule) -> list[str]:
        """Return the files of a module's sources that generate.py does not write."""
        return [source.file for source in module.sources if not self._is_generated(source)]

    def digests(self) -> dict[str, str]:
        """Return the sha256 of each file that generate.py writes, by name."""
        sources = (source for module in self.plan.modules for source in module.sources)
        return {f"{kernel.name}.cpp": kernel.sha256 for kernel in self.plan.kernels} | {
            f"{source.name}.cpp": source.sha256 for source in sources if self._is_generated(source)
        }

    def _is_generated(self, source: GeneratedSource) -> bool:
        # No pattern selects the dispatch of a direction without kernels.
        return source.role == "dispatch" and source.direction in self.kernels

    def batches(self) -> dict[str, dict[str, list[str]]]:
        """Return the kernel instances of each batch by direction.

        A kernel instance outside batches is a batch of its own name.
        """
        found: dict[str, dict[str, list[str]]] = {direction: {} for direction in self.kernels}
        for torch in self.plan.torch_modules:
            if torch.name in found:
                found[torch.name] = source_batches(torch)
        for module in self.plan.modules:
            names = self.plan.compiled_as(module)
            for name, kernel in zip(names, self.plan.kernels_of(module), strict=True):
                found[kernel.direction].setdefault(name, []).append(kernel.name)
        return found

    def counts(self) -> dict[str, int]:
        """Return the number of kernel instances by direction."""
        return {direction: len(names) for direction, names in sorted(self.kernels.items())}


def source_batches(module: TorchModule) -> dict[str, list[str]]:
    """Return the sources of each compile of a module: of a batch, or one by its own name."""
    members = {
        batch: [Path(file).stem for file in files if file.endswith(".cpp")]
        for batch, files in module.batch_files.items()
    }
    return {source.name: members.get(source.name, [source.name]) for source in module.sources}


def plan(workload: Workload, tree: AiterTree, directory: Path, *, more: bool) -> Planned:
    """Plan a workload."""
    directory.mkdir(parents=True)
    manifest = loads(workload.manifest(more=more), file=f"{workload.name}.toml")
    planned = build_plan(resolve(Request("bench", manifest, tree)), Folder(directory))
    kernels: dict[str, list[str]] = {}
    for kernel in planned.kernels:
        kernels.setdefault(kernel.direction, []).append(kernel.name)
    for module in planned.torch_modules:
        if module.name in workload.modules:
            kernels[module.name] = [n for names in source_batches(module).values() for n in names]
    return Planned(planned, directory, {d: tuple(sorted(names)) for d, names in kernels.items()})


def check_same(ours: Mapping[str, str], theirs: Mapping[str, str], place: str) -> None:
    """Check that both sides compile the same files.

    Args:
        ours: sha256 by file name, of the plan.

    Raises:
        BenchError: a file is missing on one side, or differs.
    """
    names = ours.keys() | theirs.keys()
    if different := sorted(name for name in names if ours.get(name) != theirs.get(name)):
        raise BenchError(
            Finding(
                place,
                f"{len(different)} files that the plan does not have, or has with other bytes, or "
                f"that only the plan has: {', '.join(different[:3])}",
                "the kernels of the manifest, no more and no fewer",
                "make the pattern in bench/workload.py fit the manifest in bench/workloads/",
            ),
            "the kernels to compare are not the same",
        )
