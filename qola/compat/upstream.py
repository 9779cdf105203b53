"""What AITER's own build would generate: CK's generator runs as it is, unwatched and unfiltered."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from qola.aiter.tree import AiterTree, GeneratorCall, ModuleConfig
from qola.codegen.asm.script import run_script
from qola.codegen.types import KernelSet
from qola.errors import CodegenError, Finding

_HEAVY = "bwd"
"""Direction that is compared for one arch: its generator takes half a minute for two."""


@dataclass(frozen=True)
class Upstream:
    """What the generator writes for a direction.

    Attributes:
        archs: those it was told, the first of which has a dispatch of its own.
        files: digest by name.
    """

    direction: str
    archs: tuple[str, ...]
    files: dict[str, str]


def directions_of(config: ModuleConfig) -> dict[str, GeneratorCall]:
    """Return the call of CK's generator for each direction that a module has."""
    return {direction: call for call in config.ck_calls for direction in call.ck_directions}


def run_upstream(
    tree: AiterTree, call: GeneratorCall, direction: str, archs: Sequence[str]
) -> Upstream:
    """Run CK's generator for a direction.

    Raises:
        CodegenError: it fails.
    """
    script = tree.root / call.script
    told = tuple(archs[-1:] if direction == _HEAVY else archs)
    args = ["-d", direction, "--receipt", call.ck_receipt, "--output_dir", "{}"]
    place = f"CK's generate.py, direction {direction}"
    try:
        files = run_script(script, [*args, "--targets", ",".join(told)], place)
    except CodegenError as error:
        if "exit code 2" not in error.findings[0].found:
            raise
        told = tuple(archs)  # an older one, without targets
        files = run_script(script, args, place)
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    return Upstream(direction, told, digests)


def differences(upstream: Upstream, kernels: KernelSet) -> list[Finding]:
    """Return in what a module generated here without any filter differs from AITER's own."""
    archs = {*upstream.archs}
    ours = {
        f"{kernel.name}.cpp": kernel.sha256
        for kernel in kernels.kernels
        if kernel.direction == upstream.direction
        and archs & {*kernel.archs}
        and not kernel.role.startswith("asm_")
    }
    ours |= {
        source.name: source.sha256
        for source in kernels.sources
        if source.role == "dispatch"
        and source.direction == upstream.direction
        and {*source.archs} == archs
    }
    theirs = upstream.files
    wrong = sorted(n for n in {*ours, *theirs} if ours.get(n) != theirs.get(n))
    return (
        [
            Finding(
                f"direction {upstream.direction}",
                f"{len(wrong)} of {len(theirs)} files differ from those of AITER's own build, "
                f"such as {wrong[0]}",
                "the same bytes, as nothing is filtered",
                "report it with the tree's commit; until then do not use this direction "
                "(drop_directions)",
            )
        ]
        if wrong
        else []
    )
