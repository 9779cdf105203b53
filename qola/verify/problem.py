"""One call of an entry point, down to the last length: what a kernel is tried with."""

from __future__ import annotations

import json
import math
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, get_type_hints

from qola.errors import Finding, QolaError
from qola.json_types import WrongValueError, parse_json, reader
from qola.reference.attention import Attention
from qola.reference.dropout import Dropout
from qola.reference.masks import Mask

#: AITER's numbers for masks and biases (mask_enum, bias_enum).
MASKS = {"no": 0, "top_left": 1, "bottom_right": 2}
BIASES = {"no": 0, "bias": 1, "alibi": 2}
ROPES = {"no": 0, "inter": 1, "half": 2}
"""CK's numbers for rotations (rope_enum)."""


@dataclass(frozen=True)
class Problem:
    """A call of an entry point.

    Attributes:
        direction: fwd, fwd_splitkv, batch_prefill, pagedkv_prefill, fwd_appendkv or bwd.
        dtype: CK's word for it: bf16, fp16, fp32, fp8, fp8bf16, ...
        group: sequences lie one behind the other; else all have the same lengths.
        rows, columns: length of Q, and of K and V, of each sequence.
        bias: no, bias or alibi.
        bias_heads: heads of the elementwise bias, 1 or nhead_q.
        batched_slopes: each sequence has slopes of its own.
        min_rows: sequences with at most so many rows are skipped; 0 for none.
        page: rows of K and V in a page, of which each sequence has a list; 0 where they are not
            in pages.
        new: rows that are appended to K and V of each sequence, the last of its columns; in batch
            mode, too, sequences may have another number of columns then. 0 of other directions.
        rope: how these and the rows of Q are rotated: no, inter or half.
        rotary: head dimensions that are rotated.
        assembly: whether AITER's assembly (v3) kernels may serve it.
        conversion: AITER's number for how they round to bf16: 0 to nearest even, 1 to nearest and
            away from zero, 2 toward zero.
        dq_in_float: whether they add up shares of dQ in float32, or in 16 bits.
        units: compute units of the device, by which kernels are chosen, too; 0 for the largest.
        order: of what is next to each other in memory: bshd or bhsd.
        more_stride: elements between a row and the next that belong to neither.
        magnitude: standard deviation of Q, K, V and dO.
        data_seed: of the numbers in them.
    """

    direction: str
    dtype: str
    hdim_q: int
    hdim_v: int
    group: bool
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    nhead_q: int
    nhead_k: int
    scale: float
    mask: Mask = field(default_factory=Mask)
    bias: str = "no"
    bias_heads: int = 1
    batched_slopes: bool = False
    lse: bool = False
    dropout: Dropout | None = None
    soft_cap: float = 0.0
    dbias: bool = False
    deterministic: bool = False
    min_rows: int = 0
    splits: int = 1
    page: int = 0
    new: int = 0
    rope: str = "no"
    rotary: int = 0
    assembly: bool = False
    conversion: int = 1
    dq_in_float: bool = True
    units: int = 0
    order: str = "bshd"
    more_stride: int = 0
    magnitude: float = 1.0
    data_seed: int = 0

    @property
    def batch(self) -> int:
        """Number of sequences."""
        return len(self.rows)

    @property
    def attention(self) -> Attention:
        """What is computed."""
        return Attention(self.scale, self.mask, self.soft_cap, self.dropout)

    @property
    def work(self) -> int:
        """Pairs of a query and a key, over all heads: what a run takes time by."""
        pairs = sum(rows * columns for rows, columns in zip(self.rows, self.columns, strict=True))
        return pairs * self.nhead_q

    @property
    def sharing(self) -> int:
        """How many heads of Q share one of K and V: more than 1 with grouped queries."""
        return self.nhead_q // self.nhead_k

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of Q, K, V and O, the same for their gradients, and of LSE.

        A gradient of K or V has a head for each of Q. Of a problem that appends to K and V, they
        are as large as the largest then is, and there is no O.
        """
        found: dict[str, tuple[int, ...]] = {}
        sizes = {
            "q": (self.rows, self.nhead_q, self.hdim_q),
            "k": (self.columns, self.nhead_k, self.hdim_q),
            "v": (self.columns, self.nhead_k, self.hdim_v),
            "o": (self.rows, self.nhead_q, self.hdim_v),
        }
        for name, (lengths, heads, hdim) in sizes.items():
            most = max(lengths)
            of = (most, heads) if self.order == "bshd" else (heads, most)
            found[name] = (sum(lengths), heads, hdim) if self.group else (self.batch, *of, hdim)
        rows = (sum(self.rows),) if self.group else (self.rows[0],)
        found["lse"] = (self.nhead_q, *rows) if self.group else (self.batch, self.nhead_q, *rows)
        return found

    def operations(self, *, seen: bool = False) -> int:
        """Return the multiplications and additions of its matrix products.

        Two products of a forward, Q K^T and P V; five of a backward, the first again.

        Args:
            seen: count only keys that the mask lets a query see.
        """
        pairs = sum(
            int(self.mask.allowed(rows, columns).sum()) if seen else rows * columns
            for rows, columns in zip(self.rows, self.columns, strict=True)
        )
        width = self.hdim_q + self.hdim_v
        width = 3 * self.hdim_q + 2 * self.hdim_v if self.direction == "bwd" else width
        return 2 * pairs * self.nhead_q * width

    def traits(self) -> dict[str, Any]:
        """Return what a dispatch reads of `t`, CK's traits."""
        return {
            "data_type": self.dtype,
            "hdim_q": self.hdim_q,
            "hdim_v": self.hdim_v,
            "is_group_mode": self.group,
            "is_v_rowmajor": True,
            "has_logits_soft_cap": self.soft_cap > 0,
            "mask_type": "no_mask" if self.mask.kind == "no" else f"mask_{self.mask.kind}",
            "bias_type": {"no": "no_bias", "bias": "elementwise_bias"}.get(self.bias, self.bias),
            "has_lse": self.lse,
            "has_dropout": self.dropout is not None,
            "do_fp8_static_quant": False,
            "use_pagedkv": self.page > 0,
            "rope_type": ("none", "interleaved", "half_rotated")[ROPES[self.rope]],
            "qscale_type": "no_scale",
            "skip_min_seqlen_q": self.min_rows > 0,
            "has_sink": False,
            "has_dbias": self.dbias,
            "is_store_randval": False,
            "is_deterministic": self.deterministic,
        }

    def arguments(self) -> dict[str, Any]:
        """Return what a dispatch reads of `a`, CK's arguments: what AITER's callers put there.

        Of sequences one behind the other, seqlen_q and seqlen_k are their sums.
        """
        total = sum if self.group else max
        return {
            "hdim_q": self.hdim_q,
            "hdim_v": self.hdim_v,
            "batch": self.batch,
            "nhead_q": self.nhead_q,
            "nhead_k": self.nhead_k,
            "seqlen_q": total(self.rows),
            "seqlen_k": total(self.columns),
            "max_seqlen_q": max(self.rows),
            "max_seqlen_k": max(self.columns),
            "num_splits": self.splits,
            "block_table_ptr": self.page or None,
            "cu_seqlen_q_ptr": None,
            "cu_seqlen_k_ptr": None,
            "seqlen_k_ptr": None,
        }

    def to_json(self) -> str:
        """Return the problem as a line that `from_json` reads."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Problem:
        """Return the problem of a line of `to_json`; what is left out is as usual.

        Raises:
            QolaError: it is not such a line.
        """
        try:
            values = _read(Problem, parse_json(text))
            return Problem(**values)
        except WrongValueError as error:
            found = str(error).removeprefix(": ")
            finding = Finding("problem", found, "a line of JSON, as Problem.to_json writes it")
            raise QolaError(finding, "a problem cannot be read") from None

    def __str__(self) -> str:
        """Return what sets the problem apart, in words."""
        words = [self.direction, self.dtype, f"{self.hdim_q}x{self.hdim_v}"]
        words.append("group" if self.group else "batch")
        lengths = [f"{r}x{c}" for r, c in zip(self.rows, self.columns, strict=True)]
        words.append("+".join(lengths) if self.group else f"{self.batch} of {lengths[0]}")
        words.append(f"heads {self.nhead_q}/{self.nhead_k}")
        if self.mask.kind != "no":
            words.append(f"{self.mask.kind}({self.mask.left},{self.mask.right})")
        if self.bias != "no":
            words.append(self.bias)
        if self.dropout is not None:
            words.append(f"dropout {self.dropout.probability:g}")
        if self.soft_cap:
            words.append(f"cap {self.soft_cap:g}")
        if self.page:
            words.append(f"pages of {self.page}")
        if self.new:
            words.append(f"appends {self.new} of {', '.join(map(str, self.columns))}")
        if self.rope != "no":
            words.append(f"rotates {self.rotary} {self.rope}")
        if self.min_rows:
            words.append(f"skips {self.min_rows} rows")
        if self.assembly:
            words.append("assembly")
            words += [("rtne", "rtna", "rtz")[self.conversion]] if self.dtype == "bf16" else []
            words += ["dq in 16 bits"] if not self.dq_in_float else []
        words += [f"{self.units} compute units"] if self.units else []
        words += [w for w in ("lse", "dbias", "deterministic") if getattr(self, w)]
        return " ".join(words)


def _read(kind: type[Problem | Mask | Dropout], data: Any) -> dict[str, Any]:
    """Return the values of an object in JSON that may leave out what has a default.

    Raises:
        WrongValueError: a key is unknown or missing, or a value is of another type.
    """
    if type(data) is not dict:
        raise WrongValueError(f": {repr(data)[:80]}, expected an object")
    hints = get_type_hints(kind)
    known = {one.name: one.default is MISSING for one in fields(kind)}
    needed = [name for name, missing in known.items() if missing and name != "mask"]
    for name in [*(n for n in data if n not in known), *(n for n in needed if n not in data)]:
        raise WrongValueError(f".{name[:80]}: {'an unknown key' if name in data else 'left out'}")
    found: dict[str, Any] = {}
    for name, value in data.items():
        part: type[Mask | Dropout] | None = {"mask": Mask, "dropout": Dropout}.get(name)
        try:
            if part is not None:
                found[name] = (
                    None if value is None and part is Dropout else part(**_read(part, value))
                )
            else:
                # A whole number stands for a float, too.
                hint = int | float if hints[name] is float else hints[name]
                found[name] = reader(hint)(value)
                if hint is not hints[name] and not abs(value) < math.inf:
                    raise WrongValueError(f": {value}, expected a finite number")
        except WrongValueError as error:
            raise WrongValueError(f".{name}{error}") from None
    return found
