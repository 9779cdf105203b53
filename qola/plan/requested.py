"""Kernels that a manifest names one by one: assigns them to modules, and checks them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from qola.aiter.attention import ATTENTION
from qola.codegen.ck.receipts import FAMILIES
from qola.codegen.types import RequestedKernel
from qola.errors import Finding
from qola.kernel.rules.check import validate
from qola.manifest.kernels import KERNELS, KernelSpec
from qola.manifest.load import Manifest
from qola.manifest.words import ADDABLE

#: By direction, the library that has its kernels.
_LIBRARY = {
    direction: module for module, of in ATTENTION.items() for direction in FAMILIES[of.direction]
}


def requested_kernels(manifest: Manifest, module: str) -> tuple[RequestedKernel, ...]:
    """Return the kernels that the manifest names for a module."""
    return tuple(
        RequestedKernel(spec.describe(), spec.config)
        for spec in manifest.kernels
        if _LIBRARY[spec.config.direction] == module
    )


def check_requested(manifest: Manifest) -> Iterator[Finding]:
    """Yield a finding for each kernel without a module, and for each rule that a kernel breaks."""
    modules = {spec.name: spec for spec in manifest.modules}
    for spec in manifest.kernels:
        place = manifest.place(KERNELS.name, spec.index, "names")
        direction = spec.config.direction
        library = _LIBRARY[direction]
        module = modules.get(library)
        if module is None:
            found = f"{spec.config.name} without the module that has it"
            fix = f'add the lines\n[[modules]]\nname = "{library}"\nmode = "cpp_itfs"'
            yield Finding(place, found, f"a [[modules]] table of {library}", fix)
        elif direction in ADDABLE and direction not in module.add_directions:
            found = f"{spec.config.name}: direction {direction}, which {library} does not have here"
            fix = f'add_directions = ["{direction}"]'
            yield Finding(place, found, f"a direction that {library} is given", fix)
        yield from _broken(spec, place)


def _broken(spec: KernelSpec, place: str) -> Iterator[Finding]:
    for broken in validate(spec.config):
        name = broken.rule.name
        found = f"{spec.config.name} breaks the rule {name}: {broken.finding.found}"
        yield replace(broken.finding, place=place, found=found)
