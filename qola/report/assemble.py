"""Brings a plan, built libraries and what a build did together into a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from qola.errors import Finding
from qola.plan.model import Plan, PlannedKernel, PlannedModule
from qola.report.compiles import KEPT, Compile
from qola.report.data import AssemblyKernel, Batch, Kernel, LeftOut, Report, ReportedLibrary
from qola.report.device_code import CodeObject, DeviceKernel, Library, ReportError, Unit
from qola.report.occupancy import occupancy


def make_report(
    plan: Plan | None,
    libraries: Sequence[Library],
    compiled: Mapping[str, Compile] | None = None,
    left_out: Iterable[LeftOut] | None = None,
    *,
    date: str = "",
    command: str = "",
) -> Report:
    """Return the report of built libraries.

    Args:
        plan: that they were built from; without one, kernels are known by their batch alone.
        compiled: what a build did by the name of the batch, None where nobody knows.
        date: UTC time of the build; the report's own would differ from run to run.
        command: that writes the report.

    Raises:
        ReportError: a library was built from another plan.
    """
    kernels: list[Kernel] = []
    batches: list[Batch] = []
    assembly: list[AssemblyKernel] = []
    for library in libraries:
        planned = _planned(plan, library)
        for unit in library.units:
            made = None if compiled is None else compiled.get(unit.name, Compile(None, KEPT))
            members = planned.get(unit.name, [])
            batches.append(_batch(library, unit, members, plan is not None, made))
            kernels += _kernels(library, unit, members, made)
        assembly += _assembly(library, plan)
    found = sorted({c.arch for x in libraries for u in x.units for c in u.code_objects})
    return Report(
        name=plan.name if plan else "",
        archs=plan.archs if plan else tuple(found),
        aiter=_aiter(plan) if plan else "",
        date=date,
        compiler=", ".join(sorted({x.compiler for x in libraries} - {""})),
        command=command,
        manifest=plan.manifest if plan else {},
        timed=compiled is not None,
        libraries=tuple(map(_library, libraries)),
        kernels=tuple(kernels),
        batches=tuple(batches),
        assembly=tuple(assembly),
        left_out=None if left_out is None else tuple(left_out),
        warnings=tuple(warning.render() for warning in plan.warnings) if plan else (),
    )


def _aiter(plan: Plan) -> str:
    return " ".join(dict.fromkeys(filter(None, (plan.aiter.version, plan.aiter.id))))


def _planned(plan: Plan | None, library: Library) -> dict[str, list[PlannedKernel]]:
    """Return the kernel instances of a library by what they are compiled in; {} without a plan."""
    if plan is None:
        return {}
    module = next((m for m in plan.modules if m.library == library.file), None)
    found: dict[str, list[PlannedKernel]] = {}
    if module:
        found = dict(_members(plan, module))
    strange = [unit.name for unit in library.units if unit.name not in found]
    if strange:
        libraries = ", ".join(m.library for m in plan.modules)
        have = f"device code of {strange[0]}" if module else f"no library of {libraries}"
        raise ReportError(
            Finding(
                library.file,
                f"{have}, which the plan of {plan.name} does not have" if module else have,
                "a library that was built from this plan",
                "build it anew, or name its own manifest: qola report LIBRARY -m MANIFEST",
            )
        )
    return found


def _members(plan: Plan, module: PlannedModule) -> Iterator[tuple[str, list[PlannedKernel]]]:
    batched = {index: batch for batch in plan.batches for index in batch.kernels}
    for batch in plan.batches:
        if batch.kernels and batch.kernels[0] in module.kernels:
            yield batch.name, [plan.kernels[index] for index in batch.kernels]
    for index in module.kernels:
        if index not in batched:
            yield plan.kernels[index].name, [plan.kernels[index]]


def _batch(
    library: Library,
    unit: Unit,
    members: Sequence[PlannedKernel],
    planned: bool,
    made: Compile | None,
) -> Batch:
    return Batch(
        unit.name,
        library.file,
        members[0].direction if members else "",
        members[0].role if members else "",
        tuple(found.arch for found in unit.code_objects),
        len(members) if planned else None,
        sum(len(found.kernels) for found in unit.code_objects),
        sum(found.size for found in unit.code_objects),
        made.seconds if made else None,
        made.source if made else "",
    )


def _kernels(
    library: Library, unit: Unit, members: Sequence[PlannedKernel], made: Compile | None
) -> Iterator[Kernel]:
    total = sum(len(found.kernels) for found in unit.code_objects)
    for found in unit.code_objects:
        for instance, kernel in zip(_instances(found, members), found.kernels, strict=True):
            fields = dict(instance.fields) if instance else {}
            # What all of a batch have in common.
            first = members[0] if members else None
            took = occupancy(found.arch, kernel.registers, kernel.lds, kernel.workgroup)
            share = made.seconds / total if made and made.seconds is not None else None
            q, v = fields.get("hdim_q"), fields.get("hdim_v")
            yield Kernel(
                name=instance.name if instance else "",
                library=library.file,
                module=first.module if first else "",
                direction=first.direction if first else "",
                role=first.role if first else "",
                arch=found.arch,
                dtype=str(fields.get("dtype", "")),
                hdim="x".join(str(size) for size in (q, v) if size is not None),
                mode=str(fields.get("mode", "")),
                fields=fields,
                batch=unit.name,
                waves=took.waves if took else None,
                limit=took.limit if took else "",
                seconds=None if share is None else round(share, 3),
                source=made.source if made else "",
                **_taken(kernel),
                agprs=kernel.agprs,
                vgpr_spills=kernel.vgpr_spills,
                sgpr_spills=kernel.sgpr_spills,
                scratch=kernel.scratch,
                code_bytes=kernel.code_bytes,
            )


def _instances(found: CodeObject, members: Sequence[PlannedKernel]) -> list[PlannedKernel | None]:
    """Return whose each kernel of a code object is.

    Clang writes the kernels of a batch in the order of its sources (tests/report holds it to
    that). A source may bring several (split-KV has one for each way to split); where not all of
    a batch bring as many, nobody knows whose each is.
    """
    each, rest = divmod(len(found.kernels), len(members)) if members else (0, 1)
    if rest:
        return [None] * len(found.kernels)
    return [member for member in members for _ in range(each)]


def _assembly(library: Library, plan: Plan | None) -> Iterator[AssemblyKernel]:
    keys = {c.sha256: c for module in plan.modules for c in module.code_objects} if plan else {}
    for found in library.assembly:
        known = keys.get(found.sha256)
        for kernel in found.kernels:
            took = occupancy(found.arch, kernel.registers, kernel.lds, kernel.workgroup)
            yield AssemblyKernel(
                key=known.key if known else f"sha256 {found.sha256[:12]}",
                library=library.file,
                arch=found.arch,
                bytes=found.size,
                waves=took.waves if took else None,
                limit=took.limit if took else "",
                **_taken(kernel),
                agprs=kernel.agprs,
            )


def _taken(kernel: DeviceKernel) -> dict[str, Any]:
    names = ("symbol", "vgprs", "sgprs", "lds", "workgroup")
    return {name: getattr(kernel, name) for name in names}


def _library(library: Library) -> ReportedLibrary:
    return ReportedLibrary(
        library.file,
        library.sha256,
        library.size,
        sum(found.size for unit in library.units for found in unit.code_objects),
        sum(found.size for found in library.assembly),
        library.parts,
    )
