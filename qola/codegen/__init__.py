"""Kernel generation: CK's and AITER's own generators, driven unmodified in their own processes."""

from qola.codegen.generate import generate
from qola.codegen.receipts import known_receipts
from qola.codegen.types import (
    Explanation,
    GeneratedSource,
    KernelInstance,
    KernelSet,
    Selection,
)

__all__ = [
    "Explanation",
    "GeneratedSource",
    "KernelInstance",
    "KernelSet",
    "Selection",
    "generate",
    "known_receipts",
]
