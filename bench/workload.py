"""The workloads of bench/run: manifests, and patterns of CK's generate.py for the same kernels."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bench.processes import BenchError
from qola.aiter.tree import AiterTree
from qola.common.folder import Folder
from qola.manifest.load import loads
from qola.plan.model import Plan, TorchModule
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
class Source:
    """A source other than kernels that the contenders also compile.

    Attributes:
        generated: generate.py writes it, according to the pattern.
    """

    module: str
    file: str
    generated: bool


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

    def other_sources(self) -> list[Source]:
        """Return dispatch and entry sources."""
        return [
            Source(
                module.name,
                source.file,
                # No pattern selects the dispatch of a direction without kernels.
                source.role == "dispatch" and source.direction in self.kernels,
            )
            for module in self.plan.modules
            for source in module.sources
        ]

    def digests(self) -> dict[str, str]:
        """Return the sha256 of each file that generate.py writes, by name."""
        found = {f"{kernel.name}.cpp": kernel.sha256 for kernel in self.plan.kernels}
        for module in self.plan.modules:
            for source in module.sources:
                if source.role == "dispatch" and source.direction in self.kernels:
                    found[f"{source.name}.cpp"] = source.sha256
        return found

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
    findings = [
        *_listed(place, "which the plan does not have", theirs.keys() - ours.keys()),
        *_listed(place, "not there, though the plan has it", ours.keys() - theirs.keys()),
        *_listed(
            place,
            "other bytes than in the plan",
            {name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]},
        ),
    ]
    if findings:
        raise BenchError(findings, "the kernels to compare are not the same")


def _listed(place: str, fault: str, names: Iterable[str]) -> list[Finding]:
    found = sorted(names)
    if not found:
        return []
    return [
        Finding(
            place,
            f"{len(found)} files {fault}, such as {found[0]}",
            "the kernels of the manifest, no more and no fewer",
            "make the pattern in bench/workload.py fit the manifest in bench/workloads/",
        )
    ]
