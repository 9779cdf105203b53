"""Composable Kernel's names for problems: data types, traits and conditions of its dispatch."""

from __future__ import annotations

import re

from qola_base.formats import BF8, BF8_FNUZ, BF16, FP8, FP8_FNUZ, FP16, FP32, Format
from qola_lab.problems.problem import AttentionProblem

#: Formats of Q, K, V and P, and of O.
_FORMATS = {
    "fp32": (FP32, FP32),
    "fp16": (FP16, FP16),
    "bf16": (BF16, BF16),
    "fp8": (FP8, FP8),
    "fp8bf16": (FP8, BF16),
    "fp8fp32": (FP8, FP32),
    "bf8": (BF8, BF8),
}
DTYPES = tuple(_FORMATS)
"""Names of the data types whose formats are known."""
#: Formats of gfx942 in place of the OCP ones.
_FNUZ = {FP8: FP8_FNUZ, BF8: BF8_FNUZ}

MASK_TYPES = {"no": "no_mask", "top_left": "mask_top_left", "bottom_right": "mask_bottom_right"}
"""Values of mask_type, in the order of mask_enum, with the trait's names."""
BIAS_TYPES = {"no": "no_bias", "bias": "elementwise_bias", "alibi": "alibi"}
"""Values of bias_type, in the order of bias_enum, with the trait's names."""
ROPE_TYPES = {"no": "none", "inter": "interleaved", "half": "half_rotated"}
"""Values of rope_type, in the order of rope_enum, with the trait's names."""


def formats(dtype: str, arch: str) -> tuple[Format, Format]:
    """Return the formats of the inputs and of the results of a data type; KeyError if unknown."""
    given, out = _FORMATS[dtype]
    if arch.startswith("gfx94"):
        return _FNUZ.get(given, given), _FNUZ.get(out, out)
    return given, out


def traits_of(problem: AttentionProblem) -> dict[str, bool | int | str]:
    """Return the members of `t`, the traits, that conditions of a dispatch read."""
    return {
        "data_type": problem.dtype,
        "hdim_q": problem.hdim_q,
        "hdim_v": problem.hdim_v,
        "is_group_mode": problem.is_group_mode,
        "is_v_rowmajor": True,
        "has_logits_soft_cap": problem.logits_soft_cap > 0,
        "mask_type": MASK_TYPES[problem.mask_type],
        "bias_type": BIAS_TYPES[problem.bias_type],
        "has_lse": problem.return_lse,
        "has_dropout": problem.dropout_p > 0,
        "do_fp8_static_quant": False,
        "use_pagedkv": problem.layout.page_block_size > 0,
        "rope_type": ROPE_TYPES[problem.rope_type],
        "qscale_type": "no_scale",
        "skip_min_seqlen_q": problem.min_seqlen_q > 0,
        "has_sink": problem.has_sink,
        "has_dbias": problem.has_dbias,
        "is_store_randval": False,
        "is_deterministic": problem.deterministic,
        "how_v3_bf16_cvt": problem.how_v3_bf16_cvt,
    }


#: Text of a condition, and the same with fields of problems.
_CONDITIONS = (
    (r"begins\(device_name, '(\w+)'\)", r"arch=\1"),
    (r"!\((.*) == (.*)\)", r"\1 != \2"),
    (r"\b[ta]\.data_type\b", "dtype"),
    (r"\b[ta]\.is_group_mode == True\b", "mode=group"),
    (r"\b[ta]\.is_group_mode == False\b", "mode=batch"),
    (r"\b[ta]\.has_lse\b", "return_lse"),
    (r"\b[ta]\.has_dropout\b", "dropout_p"),
    (r"\b[ta]\.skip_min_seqlen_q\b", "min_seqlen_q"),
    (r"\b[ta]\.use_pagedkv\b", "page_block_size"),
    (r"\b[ta]\.has_logits_soft_cap\b", "logits_soft_cap"),
    (r"\b[ta]\.is_deterministic\b", "deterministic"),
    (r"\b[ta]\.", ""),
    (r"'(?:no_mask|no_bias)'", "no"),
    (r"'elementwise_bias'", "bias"),
    (r"'(?:mask_)?(\w+)'", r"\1"),
    (r"\bTrue\b", "yes"),
    (r"\bFalse\b", "no"),
    (r" == ", "="),
)


def condition_text(condition: str) -> str:
    """Return a condition of a dispatch with the fields of problems."""
    for pattern, text in _CONDITIONS:
        condition = re.sub(pattern, text, condition)
    return condition
