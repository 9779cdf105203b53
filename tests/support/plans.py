"""Small plans for tests of code that reads plans; tests only specify the relevant fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from qola.aiter.tree import AiterTree
from qola.common.folder import Folder
from qola.manifest.load import Manifest, loads
from qola.plan.model import (
    EntryPoint,
    HeaderSet,
    KernelInstance,
    KernelUnit,
    Plan,
    PlannedAiter,
    PlannedBatch,
    PlannedFile,
    PlannedModule,
    PythonModule,
    TritonInstance,
    TritonKernel,
)
from qola.plan.planner import build_plan
from qola.plan.request import Request
from qola.plan.resolve import resolve


def plan_text(
    manifest: str | Manifest, tree: AiterTree, output: Path | None = None, /, **changes: Any
) -> Plan:
    """Plan a manifest named m, in memory or in a directory, with changes of the request."""
    loaded = loads(manifest, file="m.toml") if isinstance(manifest, str) else manifest
    request = replace(Request("m", loaded, tree), **changes)
    return build_plan(resolve(request), Folder(output))


def kernel(name: str, **changes: Any) -> KernelInstance:
    """Return a kernel instance of direction fwd for gfx950."""
    fields: dict[str, Any] = {"module": "libmha_fwd", "direction": "fwd", "role": "fwd"}
    fields |= {"archs": ("gfx950",), "sha256": "0" * 64, "fields": {}, "variants": (), "entry": ""}
    return KernelInstance(name, **fields | changes)


def module(name: str = "libmha_fwd", **changes: Any) -> PlannedModule:
    """Return a module without kernel instances."""
    fields: dict[str, Any] = {
        "library": f"ns_{name}.so",
        "entries": (EntryPoint("mha_fwd", 12, ("args", "stream")),),
    }
    header = name.removeprefix("lib")
    fields |= {"entry_source": PlannedFile(header, f"{name}/entry/{header}.cpp", "")}
    fields |= {"kernel_names": PlannedFile("kernel_names", f"{name}/entry/kernel_names.cpp", "")}
    fields |= {"public_header": PlannedFile(f"qola_{header}.h", f"include/qola_{header}.h", "")}
    fields |= {"macros": {}, "receipt": None, "headers": name}
    empty: tuple[str, ...] = ("copts", "kernels", "sources", "code_objects", "asm_tables")
    empty += ("stubs", "entry_sources", "directions")
    return PlannedModule(name, **dict.fromkeys(empty, ()) | fields | changes)


def python_module(name: str, library: str) -> PythonModule:
    """Return a Python module without sources."""
    return PythonModule(name, library, f"PyInit_{name}", (), (), (), (), (), (), (), (), {})


def make_units(
    kernels: Sequence[KernelInstance],
    copts: tuple[str, ...] = (),
    batches: Sequence[PlannedBatch] = (),
) -> tuple[KernelUnit, ...]:
    """Return a unit for each module and direction, with the header set fwd."""
    members: dict[tuple[str, str], list[int]] = {}
    for index, instance in enumerate(kernels):
        members.setdefault((instance.module, instance.direction), []).append(index)
    return tuple(
        KernelUnit(
            name=f"{module}/{direction}",
            kernel_group=direction,
            copts=copts,
            headers="fwd",
            kernels=tuple(indices),
            batches=tuple(batch for batch in batches if {*batch.kernels} <= {*indices}),
        )
        for (module, direction), indices in sorted(members.items())
    )


def plan(*batches: PlannedBatch, copts: tuple[str, ...] = (), **changes: Any) -> Plan:
    """Return an empty plan in the namespace ns for gfx950.

    Missing units and header sets of kernel instances are added, the latter without files.

    Args:
        batches, copts: of the units that are added.
    """
    empty = ("header_sets", "kernels", "modules", "warnings", "inputs", "configs", "licenses")
    fields: dict[str, Any] = dict.fromkeys((*empty, "python_modules", "torch_modules"), ())
    fields |= {"name": "small", "namespace": "ns", "archs": ("gfx950",), "manifest": {}}
    fields |= {"aiter": PlannedAiter("wheel", "", "1", ())}
    fields |= {"units": make_units(changes.get("kernels", ()), copts, batches), **changes}
    known = {headers.name for headers in fields["header_sets"]}
    missing = {unit.headers: None for unit in fields["units"] if unit.headers not in known}
    fields["header_sets"] = (*fields["header_sets"], *(HeaderSet(n, (), ()) for n in missing))
    return Plan(**fields)


def triton_kernel(name: str = "attention_forward", *archs: str, own: bool = True) -> TritonKernel:
    """Return a kernel in Triton with one constexpr."""
    instances = tuple(
        TritonInstance(f"{name}-HDIM_64-{arch}", arch, {"HDIM": "64"}) for arch in archs
    )
    file = PlannedFile(name, f"kernels/{name}.py", "0" * 64)
    return TritonKernel(name, name, own, (file,), {}, archs, {"HDIM": ("64",)}, 0, instances)
