"""Values that a manifest may have, by CK's, LLVM's and AITER's names, and limits."""

from __future__ import annotations

from collections.abc import Mapping

FWD_DTYPES = ("fp32", "fp16", "bf16", "fp8", "fp8fp16", "fp8bf16", "fp8fp32")
"""Forward data types, in CK's order (FWD_DTYPE_MAP in its codegen/cpp_symbol_map.py)."""

BWD_DTYPES = ("fp32", "fp16", "bf16")
"""Backward data types, in CK's order (BWD_DTYPE_MAP)."""

TRITON_DTYPES = ("fp16", "bf16", "fp32")
"""Data types of Triton kernels, by Triton's names."""

BIAS_KINDS = ("no", "bias", "alibi")
"""Bias kinds, in CK's order (BIAS_MAP)."""

FMHA_MODES = ("batch", "group")
"""Batch: all sequences have one length. Group: packed sequences of any length (CK's MODE_MAP)."""

CAUSAL_MASKS = ("no", "top_left", "bottom_right")
"""Masks by the value of the constant CAUSAL of a Triton kernel: 0, 1, 2."""

DIRECTIONS = ("fwd", "fwd_splitkv", "fwd_appendkv", "pagedkv_prefill", "batch_prefill", "bwd")
"""Values of the option -d of CK's generate.py: the modules below its codegen/ops."""

ADDABLE = ("pagedkv_prefill", "fwd_appendkv")
"""Directions without a function in AITER, which libmha_fwd can have in addition to AITER's."""

KERNEL_KINDS = ("assembly", "composable_kernel", "triton")
"""Kinds of kernels by the names of qola_order.hpp, in the default order of preference."""

BUILD_MODES = ("pybind", "cpp_itfs")
"""Modes of a module."""

AITER = "aiter"
"""Mode of a manifest whose modules AITER's own Python imports."""

NATIVE = "native"
"""The architectures of the GPUs in this machine."""

TESTED_ARCHS = ("gfx942", "gfx950")
"""Architectures that qola's tests build libraries for. A plan accepts every arch that the tree has
kernels for, and warns about one that is not in this list."""

PARTLY_TESTED_ARCHS = ("gfx90a", "gfx1201")
"""Architectures for which tests build forward attention of Composable Kernel, and nothing else."""

OTHER_ARCHS = "any other that the tree has kernels for"
"""Stands for the architectures of KNOWN_ARCHS in messages: no tree has kernels for all of them."""

KNOWN_ARCHS = (
    *("gfx900", "gfx906", "gfx908", "gfx90a", "gfx940", "gfx941", "gfx942", "gfx950"),
    *("gfx1010", "gfx1011", "gfx1012", "gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034"),
    *("gfx1035", "gfx1036", "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151"),
    *("gfx1152", "gfx1153", "gfx1200", "gfx1201", "gfx1250"),
)
"""AMD architectures from Vega (GCN5) on, CDNA and RDNA, by LLVM name."""

PROFILES: Mapping[str, int] = {
    "ck_default": 0,
    "ck_extended": 1,
    "flash_fwd": 2,
    "flash_bwd": 3,
    "pytorch": 4,
    "aiter_batch": 100,
    "aiter_group": 200,
    "aiter_bwd_batch": 300,
    "aiter_bwd_group": 400,
    "aiter_cpp": 600,
    "te": 700,
    "fp32_all": 800,
    "fp32_min": 801,
    "fp8_test": 888,
}
"""CK's receipts by name: the profiles of its own dispatcher, and TransformerEngine's set."""

MAX_HDIM = 512
"""Twice the largest head dimension of CK's flash-attention kernels: a larger value is a slip."""

BATCH = 16
"""Kernel instances per compile. More saves little and needs over 2 GB of memory
(docs/internals/batches.md)."""

MAX_BATCH = 64
"""Beyond 32 almost no time is saved, and a compile needs more memory than actions declare."""

MAX_INTEGER = 2**31 - 1
"""The largest int of C++: CK's generators write integers into C++."""


def describe_receipt(receipt: int) -> str:
    """Return a receipt as messages write it: ``700 (te)``."""
    names = [name for name, number in PROFILES.items() if number == receipt]
    return f"{receipt} ({names[0]})" if names else str(receipt)
