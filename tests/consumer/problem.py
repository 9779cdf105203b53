"""One attention problem, the row of a table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One attention problem, as a caller of the public entry points states it.

    Attributes:
        direction: "fwd" or "bwd".
        dtype: "fp16", "bf16" or "fp32".
        hdim_q: head dimension of Q and K.
        hdim_v: head dimension of V.
        mode: "batch" (sequences of one length) or "group" (lengths from an array).
        mask: "no", "top_left", "bottom_right" or "window".
        bias: "no", "bias" (elementwise) or "alibi".
        lse: forward stores the log-sum-exp.
        dbias: backward computes the gradient of the bias.
        dropout: probability, 0 for none.
        store_randval: stores dropout's random values.
        deterministic: backward gives the same result on every run.
        batch: number of sequences.
        nhead_q: heads of Q.
        nhead_k: heads of K and V.
        seqlen_q: length of each sequence of Q.
        seqlen_k: length of each sequence of K and V.
        use_ext_asm: assembly (v3) kernels may serve it.
        v3_api_check: only ask whether an assembly kernel would serve it.
        bf16_cvt: how assembly kernels round: 0 to nearest even, 1 to nearest away, 2 to zero.
        atomic_fp32: backward assembly kernels sum dQ up as float.
        soft_cap: forward limit of logits, 0 for none.
        min_seqlen_q: forward skips shorter sequences, 0 for none.
    """

    direction: str
    dtype: str
    hdim_q: int
    hdim_v: int
    mode: str = "batch"
    mask: str = "no"
    bias: str = "no"
    lse: bool = True
    dbias: bool = False
    dropout: float = 0.0
    store_randval: bool = False
    deterministic: bool = False
    batch: int = 2
    nhead_q: int = 4
    nhead_k: int = 2
    seqlen_q: int = 256
    seqlen_k: int = 256
    use_ext_asm: bool = False
    v3_api_check: bool = False
    bf16_cvt: int = 1
    atomic_fp32: bool = True
    soft_cap: float = 0.0
    min_seqlen_q: int = 0

    @property
    def seqlen_q_argument(self) -> int:
        """The entry point's seqlen_q: in group mode AITER passes the total."""
        return self.seqlen_q * (self.batch if self.mode == "group" else 1)

    @property
    def seqlen_k_argument(self) -> int:
        """The entry point's seqlen_k: in group mode AITER passes the total."""
        return self.seqlen_k * (self.batch if self.mode == "group" else 1)
