"""Libraries whose kernels nothing launches: each answer of theirs would be -1."""

from __future__ import annotations

from dataclasses import replace

from qola.aiter.tree import AiterTree
from qola.codegen.asm.later import unreached
from qola.errors import Finding
from qola.plan.generated import GeneratedModule


def judged(tree: AiterTree, module: GeneratedModule) -> tuple[Finding, ...]:
    """Return what generators say of a module; kernels never launched are an error if no other is.

    A library with other kernels can be used, and keeps the warning.
    """
    dead = _dead(tree, module)
    fix = (
        f"leave {module.spec.name} out of the manifest, or use another commit of AITER, whose "
        "entry point calls it (a fork or a patch may)"
    )
    return tuple(
        replace(finding, severity="error", fix=fix) if finding in dead else finding
        for finding in module.kernels.warnings
    )


def _dead(tree: AiterTree, module: GeneratedModule) -> list[Finding]:
    """Return the warnings of kernels that nothing launches, of a library that has no others."""
    if not module.config.without_ck:
        return []
    archs: dict[str, set[str]] = {}
    for code_object in module.kernels.code_objects:
        folder = code_object.key.removeprefix(f"hsa/{code_object.arch}/").partition("/")[0]
        archs.setdefault(folder, set()).add(code_object.arch)
    found: list[Finding] = []
    for folder, of in archs.items():
        reached = {folder: sorted(of)}
        dead = list(unreached(tree, module.config, module.spec.drop_srcs, reached))
        if not dead:
            return []
        found += dead
    return found
