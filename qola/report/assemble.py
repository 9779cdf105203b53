"""Combines a plan, built libraries and a build log into a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from qola.plan.model import KernelInstance, Plan
from qola.report.data import (
    AssemblyKernel,
    Batch,
    Kernel,
    LeftOut,
    Report,
    ReportedLibrary,
    ReportError,
)
from qola.report.execution_log import KEPT, Compile
from qola.report.library import Library
from qola.report.occupancy import occupancy
from qola_base.code_object.reader import CodeObject, unit_of
from qola_base.code_object.reader import Kernel as DeviceKernel
from qola_base.errors import Finding

_REGISTERS = ("vgprs", "agprs", "sgprs", "lds")


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
        plan: the plan of the libraries; without one, only the batches of kernels are known.
        compiled: compiles by the name of the batch, None without a log.
        date: UTC time of the build.
        command: the command that writes the report.

    Raises:
        ReportError: a library was built from another plan.
    """
    kernels: list[Kernel] = []
    batches: list[Batch] = []
    assembly: list[AssemblyKernel] = []
    for library in libraries:
        instances = _instances_by_batch(plan, library)
        names = {unit_of(name): name for name in (*instances, *(compiled or ()))}
        units = {names.get(unit, unit): code for unit, code in library.units.items()}
        for name, unit in sorted(units.items()):
            made = None if compiled is None else compiled.get(name, Compile(None, KEPT))
            members = instances.get(name, [])
            batch = Batch(
                name=name,
                library=library.file,
                direction=members[0].direction if members else "",
                role=members[0].role if members else "",
                archs=tuple(code.arch for code in unit),
                instances=None if plan is None else len(members),
                kernels=sum(len(code.kernels) for code in unit),
                bytes=sum(code.size for code in unit),
                seconds=made.seconds if made else None,
                source=made.source if made else "",
            )
            batches.append(batch)
            kernels += _kernels(batch, unit, members)
        assembly += _assembly(library, plan)
    aiter = (plan.aiter.version, plan.aiter.id) if plan else ()
    found = sorted({code.arch for library in libraries for code in library.device_code})
    return Report(
        name=plan.name if plan else "",
        archs=plan.archs if plan else tuple(found),
        aiter=" ".join(dict.fromkeys(filter(None, aiter))),
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


def _instances_by_batch(plan: Plan | None, library: Library) -> dict[str, list[KernelInstance]]:
    """Return the kernel instances of a library by batch, in its order; {} without a plan."""
    if plan is None:
        return {}
    found: dict[str, list[KernelInstance]] = {}
    module = next((m for m in plan.modules if m.library == library.file), None)
    if module:
        planned = zip(plan.compiled_as(module), plan.kernels_of(module), strict=True)
        found = {kernel.name: [kernel] for name, kernel in planned if name == kernel.name}
        for unit in plan.units_of(module):
            for batch in unit.batches:
                found[batch.name] = [plan.kernels[index] for index in batch.kernels]
    units = {unit_of(name) for name in found}
    if strange := [unit for unit in library.units if unit not in units]:
        wrong = f"device code of a source with the id {strange[0]}"
        wrong += f", which the plan of {plan.name} does not have"
        if module is None:
            wrong = f"no library of {', '.join(m.library for m in plan.modules)}"
        expected = "a library that was built from this plan"
        fix = "build it anew, or name its own manifest: qola report LIBRARY -m MANIFEST"
        raise ReportError(Finding(library.file, wrong, expected, fix))
    return found


def _kernels(
    batch: Batch, unit: Iterable[CodeObject], members: Sequence[KernelInstance]
) -> Iterator[Kernel]:
    share = None if batch.seconds is None else round(batch.seconds / (batch.kernels or 1), 3)
    for code in unit:
        for instance, kernel in zip(_instances(code, members), code.kernels.values(), strict=True):
            fields = dict(instance.fields) if instance else {}
            q, v = fields.get("hdim_q"), fields.get("hdim_v")
            yield Kernel(
                name=instance.name if instance else "",
                library=batch.library,
                module=members[0].module if members else "",
                direction=batch.direction,
                role=batch.role,
                arch=code.arch,
                dtype=str(fields.get("dtype", "")),
                hdim="x".join(str(size) for size in (q, v) if size is not None),
                mode=str(fields.get("mode", "")),
                fields=fields,
                batch=batch.name,
                code_bytes=kernel.size,
                seconds=share,
                source=batch.source,
                **asdict(kernel.resources),
                **_occupied(code.arch, kernel),
            )


def _instances(code: CodeObject, members: Sequence[KernelInstance]) -> list[KernelInstance | None]:
    """Return the kernel instance of each kernel of a code object.

    Clang writes the kernels of a batch in the order of its sources (tests/report checks that). A
    source may have several kernels (split-KV has one for each way to split); if the sources of a
    batch have different numbers, the instances are unknown.
    """
    each, rest = divmod(len(code.kernels), len(members)) if members else (0, 1)
    if rest:
        return [None] * len(code.kernels)
    return [member for member in members for _ in range(each)]


def _assembly(library: Library, plan: Plan | None) -> Iterator[AssemblyKernel]:
    modules = plan.modules if plan else ()
    keys = {planned.sha256: planned.key for m in modules for planned in m.code_objects}
    for code in library.assembly:
        for kernel in code.kernels.values():
            yield AssemblyKernel(
                key=keys.get(code.sha256, f"sha256 {code.sha256[:12]}"),
                library=library.file,
                arch=code.arch,
                bytes=code.size,
                **{name: getattr(kernel.resources, name) for name in _REGISTERS},
                **_occupied(code.arch, kernel),
            )


def _occupied(arch: str, kernel: DeviceKernel) -> dict[str, Any]:
    """Return the symbol and workgroup of a kernel, and how many waves a SIMD can hold."""
    lds, workgroup = kernel.resources.lds, kernel.max_block
    found = occupancy(arch, kernel.descriptor.vgprs, lds, workgroup)
    waves, limit = found or (None, "")
    return {"symbol": kernel.symbol, "workgroup": workgroup, "waves": waves, "limit": limit}


def _library(library: Library) -> ReportedLibrary:
    return ReportedLibrary(
        library.file,
        library.sha256,
        library.size,
        sum(code.size for code in library.device_code),
        sum(code.size for code in library.assembly),
        library.parts,
    )
