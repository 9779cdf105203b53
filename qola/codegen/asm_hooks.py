"""AITER's own hooks for embedded code objects, which AITERs from d32b0cb on have."""

from __future__ import annotations

from qola.aiter import AiterTree

_HOOKS = ("#include AITER_EMBEDDED_HSA_HEADER", "AITER_EMBEDDED_HSA_MAP.find(")


def embedding_defines(tree: AiterTree) -> tuple[str, ...]:
    """Return the compiler flags that make a tree's hooks find what the library embeds.

    They lead to `qola_asm_hsa_map.h`, beside which the library needs `qola_asm.cpp` and a table.
    The keys are the same as everywhere. As AITER writes them, these hooks come second to the
    environment variable AITER_ASM_DIR, and a failing HIP call still ends the process.

    Args:
        tree: the AITER tree.

    Returns:
        The flags; () where the tree has no hooks.
    """
    header = tree.root / tree.csrc_dir / "include/aiter_hip_common.h"
    text = header.read_text(encoding="utf-8") if header.is_file() else ""
    if not all(hook in text for hook in _HOOKS):
        return ()
    return ('-DAITER_EMBEDDED_HSA_HEADER="qola_asm_hsa_map.h"',)
