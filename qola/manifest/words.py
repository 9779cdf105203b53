"""Words and bounds of a manifest: what its fields hold is said in these."""

from __future__ import annotations

FWD_DTYPES = ("fp32", "fp16", "bf16", "fp8", "fp8fp16", "fp8bf16", "fp8fp32")
"""Forward data types, in CK's order (FWD_DTYPE_MAP in its codegen/cpp_symbol_map.py)."""

BWD_DTYPES = ("fp32", "fp16", "bf16")
"""Backward data types, in CK's order (BWD_DTYPE_MAP)."""

BIAS_KINDS = ("no", "bias", "alibi")
"""Bias kinds, in CK's order (BIAS_MAP)."""

FMHA_MODES = ("batch", "group")
"""Batch: all sequences of one length. Group: variable lengths, packed (CK's MODE_MAP)."""

DIRECTIONS = ("fwd", "fwd_splitkv", "fwd_appendkv", "pagedkv_prefill", "batch_prefill", "bwd")
"""The words CK's generate.py takes after -d: the modules below its codegen/ops."""

ADDABLE = ("pagedkv_prefill", "fwd_appendkv")
"""Those of them that AITER has no function for, and libmha_fwd can have beside AITER's."""

BUILD_MODES = ("pybind", "cpp_itfs")

NATIVE = "native"
"""The word for "the GPU of this machine" among architectures."""

TESTED_ARCHS = ("gfx942", "gfx950")
"""Architectures that the tests here build libraries for. A plan takes any that the tree has kernels
for, and warns of one that is not among these."""

KNOWN_ARCHS = (
    *("gfx900", "gfx906", "gfx908", "gfx90a", "gfx940", "gfx941", "gfx942", "gfx950"),
    *("gfx1010", "gfx1011", "gfx1012", "gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034"),
    *("gfx1035", "gfx1036", "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151"),
    *("gfx1152", "gfx1153", "gfx1200", "gfx1201", "gfx1250"),
)
"""AMD architectures by their LLVM name, from Vega (GCN5) on, CDNA and RDNA."""

MAX_HDIM = 512
"""No flash-attention kernel of CK goes beyond a head dimension of 256; twice that is a slip."""

BATCH = 16
"""Kernel instances in one compile: most of what batches save, within 2 GB of memory
(docs/internals/batches.md)."""

MAX_BATCH = 64
"""Beyond 32 next to nothing is saved, and a compile takes more memory than actions declare."""

MAX_TEXT = 4096
"""The most characters of a string: more than a path can have."""

MAX_ITEMS = 4096
"""The most items of a list, and tables of an array; AITER has 60 modules."""

DTYPE_ALIASES = (
    *(("float16", "fp16"), ("half", "fp16"), ("f16", "fp16")),
    *(("bfloat16", "bf16"), ("float32", "fp32"), ("float", "fp32"), ("f32", "fp32")),
)
ARCH_ALIASES = (
    *(("mi200", "gfx90a"), ("mi210", "gfx90a"), ("mi250", "gfx90a"), ("mi250x", "gfx90a")),
    *(("mi300", "gfx942"), ("mi300a", "gfx942"), ("mi300x", "gfx942"), ("mi308x", "gfx942")),
    *(("mi325x", "gfx942"), ("mi350", "gfx950"), ("mi350x", "gfx950"), ("mi355x", "gfx950")),
)

# A relative path that stays below its root: no leading slash, no ".." part.
BELOW = r"(?!/)(?!(.*/)?\.\.(/|$)).+"
