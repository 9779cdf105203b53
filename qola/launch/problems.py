"""The problems that a library is handed: those its kernels say they serve, in a plan's words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import product

from qola.aiter.attention import ATTENTION, ENTRIES
from qola.codegen.types import FieldValue
from qola.plan.model import Plan, PlannedModule

#: CK's numbers for rotations (rope_enum).
_ROPES = {"inter": 1, "half": 2}
#: Of a mask, and of none: bottom right, which AITER's assembly kernels know for every length.
_MASK = {True: 2, False: 0}
_BIAS = {"no": 0, "bias": 1, "alibi": 2}
#: What AITER's assembly kernels serve on one arch or another; no plan lists it.
_ASM_DTYPES = ("bf16", "fp16")
_ASM_HDIMS = ((128, 128), (64, 64), (192, 128), (192, 192), (256, 256))


#: Role of the kernel instances that a direction's problems are for; others come along.
MAIN_ROLE = {
    "fwd": "fwd",
    "fwd_splitkv": "splitkv",
    "batch_prefill": "batch_prefill",
    "pagedkv_prefill": "pagedkv",
    "fwd_appendkv": "appendkv",
    "bwd": "dq_dk_dv",
}


@dataclass(frozen=True)
class Problem:
    """One call of an entry point, in the names and numbers of cc/launch/qola_launch.h.

    Attributes:
        skip: sequences below a length are skipped.
        pages: K and V lie in pages that a block table names.
        rope: how rows are rotated that are appended; 0 for not at all.
        assembly: the caller allows assembly (v3) kernels.
    """

    entry: str
    dtype: str
    hdim_q: int
    hdim_v: int
    group: bool
    mask: int = 0
    bias: int = 0
    lse: bool = False
    dropout: bool = False
    dbias: bool = False
    deterministic: bool = False
    logits: bool = False
    skip: bool = False
    sink: bool = False
    pages: bool = False
    rope: int = 0
    assembly: bool = False

    def line(self) -> str:
        """Return the problem as the program reads it."""
        values = {field.name: getattr(self, field.name) for field in fields(Problem)}
        texts = {n: int(v) if isinstance(v, bool) else v for n, v in values.items()}
        return " ".join(f"{name}={text}" for name, text in texts.items())

    def __str__(self) -> str:
        """Return what sets the problem apart: a value that is not the usual one."""
        head = f"{self.dtype} {self.hdim_q}x{self.hdim_v} {'group' if self.group else 'batch'}"
        usual = [(field.name, field.default) for field in fields(Problem)[5:]]
        values = [(name, getattr(self, name)) for name, default in usual]
        more = [
            name if value is True else f"{name}={value}"
            for (name, value), (_, default) in zip(values, usual, strict=True)
            if value != default
        ]
        return " ".join([head, *more])


def problems(plan: Plan, module: PlannedModule, direction: str) -> tuple[Problem, ...]:
    """Return problems for the entry point of a direction, each once.

    One for what each kernel instance says it serves, with assembly kernels allowed and not; and,
    for what has no such words, a small grid: assembly kernels, and directions that cannot be
    followed.
    """
    entry = ENTRIES[direction]
    own = [k.fields for k in plan.kernels_of(module) if k.role == MAIN_ROLE[direction]]
    found = dict.fromkeys([*_of_kernels(entry, own)] or _grid(entry))
    main = ATTENTION[module.name].direction if module.name in ATTENTION else ""
    if direction == main and module.code_objects:
        found |= dict.fromkeys(replace(problem, assembly=True) for problem in [*found])
        found |= dict.fromkeys(replace(problem, assembly=True) for problem in _grid(entry))
    return tuple(found)


_FLAGS = ("lse", "dropout", "dbias", "deterministic", "logits", "skip", "sink")


def _of_kernels(entry: str, kernels: Iterable[Mapping[str, FieldValue]]) -> Iterator[Problem]:
    for kernel in kernels:
        # What appends has no modes.
        if not {"dtype", "hdim_q"} <= set(kernel) or not {"mode", "rope"} & set(kernel):
            return
        q, v = kernel["hdim_q"], kernel.get("hdim_v")
        if isinstance(q, str) or isinstance(v, str):
            return
        yield Problem(
            entry,
            str(kernel["dtype"]),
            int(q or 0),
            int(v or q or 0),
            group=kernel.get("mode") == "group",
            mask=_MASK[kernel.get("mask", False) not in (False, "no")],
            bias=_BIAS.get(str(kernel.get("bias", "no")), 0),
            pages=bool(kernel.get("pagedkv", False)),
            rope=_ROPES.get(str(kernel.get("rope")), 0),
            **{name: bool(kernel.get(name, False)) for name in _FLAGS},
        )


def _grid(entry: str) -> Iterator[Problem]:
    for dtype, (q, v), group, mask in product(
        _ASM_DTYPES, _ASM_HDIMS, (False, True), _MASK.values()
    ):
        plain = Problem(entry, dtype, q, v, group, mask)
        yield plain
        yield replace(plain, lse=True)
        yield replace(plain, lse=True, sink=True)
