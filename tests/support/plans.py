"""Small plans for tests of code that reads plans; tests only specify the relevant fields."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from qola.aiter.tree import AiterTree
from qola.common.folder import Folder
from qola.manifest.load import Manifest, loads
from qola.plan.model import (
    EntryPoint,
    HeaderSet,
    KernelGroup,
    KernelInstance,
    Plan,
    PlannedAiter,
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
    fields |= {
        "kernel_group": changes.get("direction", "fwd"),
        "archs": ("gfx950",),
        "sha256": "0" * 64,
    }
    fields |= {"fields": {}, "variants": (), "headers": "fwd", "entry": ""}
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


def kernel_group(*copts: str, headers: str = "fwd") -> KernelGroup:
    """Return a kernel group."""
    return KernelGroup(copts, headers)


def plan(**changes: Any) -> Plan:
    """Return an empty plan in the namespace ns for gfx950.

    Missing kernel groups and header sets of kernel instances are added, without files.
    """
    empty = ("header_sets", "kernels", "modules", "warnings", "inputs", "configs", "licenses")
    fields: dict[str, Any] = dict.fromkeys(
        (*empty, "python_modules", "torch_modules", "batches"), ()
    )
    fields |= {"name": "small", "namespace": "ns", "archs": ("gfx950",), "manifest": {}}
    fields |= {"aiter": PlannedAiter("wheel", "", "1", ()), "kernel_groups": {}}
    fields |= changes
    for instance in fields["kernels"]:
        group = {instance.kernel_group: kernel_group(headers=instance.headers)}
        fields["kernel_groups"] = {**group, **fields["kernel_groups"]}
        if instance.headers not in {headers.name for headers in fields["header_sets"]}:
            fields["header_sets"] = (*fields["header_sets"], HeaderSet(instance.headers, (), ()))
    return Plan(**fields)


def triton_kernel(name: str = "attention_forward", *archs: str, own: bool = True) -> TritonKernel:
    """Return a kernel in Triton with one constexpr."""
    instances = tuple(
        TritonInstance(f"{name}-HDIM_64-{arch}", arch, {"HDIM": "64"}) for arch in archs
    )
    file = PlannedFile(name, f"kernels/{name}.py", "0" * 64)
    return TritonKernel(name, name, own, (file,), {}, archs, {"HDIM": ("64",)}, 0, instances)
