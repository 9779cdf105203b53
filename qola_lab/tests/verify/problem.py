"""One attention problem of the consumer program's table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ConsumerCall:
    """One attention problem, with the parameters of the public entry points."""

    direction: str  # "fwd" or "bwd"
    dtype: str  # "fp16", "bf16" or "fp32"
    hdim_q: int  # head dimension of Q and K
    hdim_v: int  # head dimension of V
    mode: str = "batch"  # "batch" (sequences of equal length) or "group" (lengths from an array)
    mask: str = "no"  # "no", "top_left", "bottom_right" or "window"
    bias: str = "no"  # "no", "bias" (elementwise) or "alibi"
    lse: bool = True  # forward stores the log-sum-exp
    dbias: bool = False  # backward computes the gradient of the bias
    dropout: float = 0.0  # probability, 0 for none
    store_randval: bool = False  # stores dropout's random values
    deterministic: bool = False  # backward gives the same result on every run
    batch: int = 2  # number of sequences
    nhead_q: int = 4  # heads of Q
    nhead_k: int = 2  # heads of K and V
    seqlen_q: int = 256  # length of each sequence of Q
    seqlen_k: int = 256  # length of each sequence of K and V
    use_ext_asm: bool = False  # allows assembly (v3) kernels
    v3_api_check: bool = False  # only query whether an assembly kernel would serve the problem
    bf16_cvt: int = 1  # how assembly kernels round: 0 to nearest even, 1 to nearest away, 2 to zero
    atomic_fp32: bool = True  # backward assembly kernels sum dQ up as float
    soft_cap: float = 0.0  # forward limit of logits, 0 for none
    min_seqlen_q: int = 0  # forward skips shorter sequences, 0 for none

    @property
    def seqlen_q_argument(self) -> int:
        """The entry point's seqlen_q: in group mode AITER passes the total."""
        return self.seqlen_q * (self.batch if self.mode == "group" else 1)

    @property
    def seqlen_k_argument(self) -> int:
        """The entry point's seqlen_k: in group mode AITER passes the total."""
        return self.seqlen_k * (self.batch if self.mode == "group" else 1)
