"""An attention problem, with the layout, device and data of a run, and CK's names for it."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import MISSING, asdict, dataclass, fields, replace
from typing import Any

from qola_base.errors import ExitCode, QolaError
from qola_base.formats import BF8, BF8_FNUZ, BF16, FP8, FP8_FNUZ, FP16, FP32, Format
from qola_base.json_types import JsonObject
from qola_lab.reference.attention import Attention
from qola_lab.reference.dropout import Dropout
from qola_lab.reference.masks import BOTTOM_RIGHT, Mask, MaskType


class ProblemError(QolaError, title="the problem is not valid", exit_code=ExitCode.USAGE):
    """A problem that is not valid, or arrays that do not fit their problem."""


@dataclass(frozen=True)
class Layout:
    """How tensors lie in memory.

    Attributes:
        order: order of sequence and head dimension, bshd or bhsd; group mode has bshd only.
        row_padding: elements between a row and the next one.
        page_block_size: rows of K and V in a page; 0 for K and V without pages.
        page_seed: of the order of the pages in their pool.
    """

    order: str = "bshd"
    row_padding: int = 0
    page_block_size: int = 0
    page_seed: int = 0


@dataclass(frozen=True)
class Device:
    """A GPU, real or emulated.

    Attributes:
        cu_count: number of compute units, which host code may dispatch by; 0 for the number that
            the largest GPU of the arch has.
    """

    arch: str
    cu_count: int = 0


@dataclass(frozen=True)
class TestData:
    """Random contents of tensors.

    Attributes:
        magnitude: standard deviation of Q, K, V and dO.
        seed: of the random generator.
    """

    __test__ = False  # Pytest: not a class of tests.

    magnitude: float = 1.0
    seed: int = 0


STANDARD_NORMAL = TestData()


@dataclass(frozen=True)
class AttentionProblem:
    """The arguments of one call of an attention entry point, without tensors.

    Attributes:
        direction: fwd, fwd_splitkv, batch_prefill, pagedkv_prefill, fwd_appendkv or bwd.
        dtype: Composable Kernel's name: bf16, fp16, fp32, fp8, fp8bf16, ...
        seqlen_q, seqlen_k: length of each sequence of Q, and of K and V.
        mode: batch (equal lengths) or group (the sequences are concatenated).
        mask_type: no, top_left or bottom_right: the corner in which the diagonal begins or ends.
        window_size_left, window_size_right: keys before and after the diagonal that a query sees;
            -1 for all.
        bias_type: no, bias (elementwise) or alibi.
        nhead_bias: heads of the elementwise bias, 1 or nhead_q.
        batched_alibi_slopes: each sequence has its own slopes.
        logits_soft_cap: limit of the logits, 0 for none.
        min_seqlen_q: sequences with at most this many rows of Q are skipped, 0 for none.
        num_splits: parts of K and V in fwd_splitkv.
        seqlen_knew: rows that fwd_appendkv appends to K and V of each sequence; seqlen_k counts
            them. Sequences may then differ in seqlen_k in batch mode too.
        rope_type: rotation of appended rows and of Q: no, inter or half.
        rotary_dim: head dimensions that are rotated.
        has_sink: each head of Q has a score without a key that takes part in the softmax.
        use_asm: AITER's assembly (v3) kernels may serve the problem.
        how_v3_bf16_cvt: AITER's number for how these round to bf16: 0 to nearest even, 1 to nearest
            and away from zero, 2 toward zero.
        is_v3_atomic_fp32: whether these accumulate dQ in float32, or in 16 bits.
    """

    direction: str
    dtype: str
    hdim_q: int
    hdim_v: int
    seqlen_q: tuple[int, ...]
    seqlen_k: tuple[int, ...]
    nhead_q: int
    nhead_k: int
    softmax_scale: float
    mode: str = "batch"
    mask_type: MaskType = "no"
    window_size_left: int = -1
    window_size_right: int = -1
    bias_type: str = "no"
    nhead_bias: int = 1
    batched_alibi_slopes: bool = False
    return_lse: bool = False
    dropout_p: float = 0.0
    drop_seed: int = 0
    drop_offset: int = 0
    logits_soft_cap: float = 0.0
    has_dbias: bool = False
    deterministic: bool = False
    min_seqlen_q: int = 0
    num_splits: int = 1
    seqlen_knew: int = 0
    rope_type: str = "no"
    rotary_dim: int = 0
    has_sink: bool = False
    use_asm: bool = False
    how_v3_bf16_cvt: int = 1
    is_v3_atomic_fp32: bool = True
    layout: Layout = Layout()

    @property
    def batch(self) -> int:
        """Number of sequences."""
        return len(self.seqlen_q)

    @property
    def is_group_mode(self) -> bool:
        """Whether the sequences are concatenated."""
        return self.mode == "group"

    def with_layout(self, **changes: Any) -> AttentionProblem:
        """Return the problem with other fields of its layout."""
        return replace(self, layout=replace(self.layout, **changes))

    @property
    def mask(self) -> Mask:
        """The mask: the keys that each query sees."""
        return Mask(self.mask_type, self.window_size_left, self.window_size_right)

    @property
    def dropout(self) -> Dropout | None:
        """Dropout of P, None without it."""
        if not self.dropout_p:
            return None
        return Dropout(self.dropout_p, self.drop_seed, self.drop_offset)

    @property
    def attention(self) -> Attention:
        """The function that the problem computes, whatever its tensors."""
        return Attention(self.softmax_scale, self.mask, self.logits_soft_cap, self.dropout)

    @property
    def work(self) -> int:
        """Number of pairs of a query and a key, over all heads; run time is proportional to it."""
        pairs = sum(q * k for q, k in zip(self.seqlen_q, self.seqlen_k, strict=True))
        return pairs * self.nhead_q

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of q, k, v, o and lse.

        Gradients have the shape of their tensor, but those of K and V have nhead_q heads. K and V
        that rows are appended to are as long as the longest sequence is afterwards.
        """
        found: dict[str, tuple[int, ...]] = {}
        for name, seqlens, nhead, hdim in (
            ("q", self.seqlen_q, self.nhead_q, self.hdim_q),
            ("k", self.seqlen_k, self.nhead_k, self.hdim_q),
            ("v", self.seqlen_k, self.nhead_k, self.hdim_v),
            ("o", self.seqlen_q, self.nhead_q, self.hdim_v),
        ):
            longest = max(seqlens)
            rows = (longest, nhead) if self.layout.order == "bshd" else (nhead, longest)
            whole = (self.batch, *rows, hdim)
            found[name] = (sum(seqlens), nhead, hdim) if self.is_group_mode else whole
        batch = (self.batch, self.nhead_q, self.seqlen_q[0])
        found["lse"] = (self.nhead_q, sum(self.seqlen_q)) if self.is_group_mode else batch
        return found

    def to_fields(self) -> JsonObject:
        """Return all fields by name as JSON values, with those of the layout among them."""
        values = asdict(self)
        layout: JsonObject = values.pop("layout")
        return values | layout

    def to_json(self) -> str:
        """Return the problem as a line of JSON, which `parse_lines` reads."""
        return json.dumps(self.to_fields(), sort_keys=True)

    def __str__(self) -> str:
        """Return the problem as FIELD=VALUE words, which `parse_words` reads."""
        values = self.to_fields()
        if self.mask == BOTTOM_RIGHT:
            values |= {"mask_type": "causal", "window_size_right": -1}
        hdims = (self.hdim_q, self.hdim_v)
        words = [f"direction={self.direction}", f"dtype={self.dtype}"]
        words.append(f"hdim={'x'.join(map(str, dict.fromkeys(hdims)))}")
        seqlens = self.seqlen_q, self.seqlen_k
        if not self.is_group_mode and all(len(set(lengths)) == 1 for lengths in seqlens):
            seqlens = self.seqlen_q[:1], self.seqlen_k[:1]
            words += [f"batch={self.batch}"] if self.batch > 1 else []
        for name, lengths in zip(("seqlen_q", "seqlen_k"), seqlens, strict=True):
            words.append(f"{name}={','.join(map(str, lengths))}")
        words += [f"nhead_q={self.nhead_q}", f"nhead_k={self.nhead_k}"]
        usual = DEFAULTS | {"softmax_scale": default_scale(self.hdim_q)}
        words += [
            f"{name}={('no', 'yes')[value] if isinstance(value, bool) else value}"
            for name, value in values.items()
            if name in usual and value != usual[name]
        ]
        return " ".join(words)


DEFAULTS = {
    field.name: field.default
    for kind in (AttentionProblem, Layout)
    for field in fields(kind)
    if field.default is not MISSING and field.name != "layout"
}
"""Fields that a problem need not name, with their default values."""


def default_scale(hdim_q: int) -> float:
    """Return 1 / sqrt(hdim_q) as a float32, in which kernels get it."""
    (scale,) = struct.unpack("f", struct.pack("f", hdim_q**-0.5))
    return float(scale)


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
