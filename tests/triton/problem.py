"""Attention problems for Triton kernels: tensors, launch arguments and expected results."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qola.triton.kernel import Argument, Instance, Kernel, expand
from qola_base.formats import BF16, F64, FP16, Format, Rounding, decoded, encoded, rounded
from qola_lab.reference.attention import Attention, Forward, Sequence, summed_up
from qola_lab.reference.dropout import Dropout, philox4x32
from qola_lab.reference.limits import Arithmetic, backward_with_limits, forward_with_limits
from qola_lab.reference.masks import BOTTOM_RIGHT, EVERY, NO_MASK, TOP_LEFT

KERNELS = Path(__file__).absolute().parents[2] / "qola/triton/kernels"
SOURCES = {"attention_forward": KERNELS / "attention_forward.py"} | {
    f"attention_backward_{part}": KERNELS / "attention_backward.py"
    for part in ("delta", "dkdv", "dq")
}
#: Elements between the rows of a tensor, to detect kernels that ignore strides.
_GAP = 8
_MASKS = (NO_MASK, TOP_LEFT, BOTTOM_RIGHT)

Array = NDArray[Any]
Values = Mapping[str, Any]
#: Runs a kernel: instance, arguments by name, grid. Arrays represent their addresses.
Run = Callable[[Instance, Values, tuple[int, int, int]], None]


def pack_arguments(arguments: Iterable[Argument], values: Mapping[str, int | float]) -> bytes:
    """Return the kernarg segment: each value aligned to its size, then two null pointers."""
    result = b""
    formats = [(argument.format, values[argument.name]) for argument in arguments]
    for letter, value in [*formats, ("Q", 0), ("Q", 0)]:
        result += bytes(-len(result) % struct.calcsize(letter))
        result += struct.pack(f"<{letter}", value)
    return result


@dataclass(frozen=True)
class WordDropout(Dropout):
    """Dropout of the Triton kernels: a 32-bit word of Philox 4x32-10 per element of P."""

    @property
    def keep_probability(self) -> float:
        """Probability that an element is kept."""
        return 1 - float(np.float32(self.probability))

    @property
    def below(self) -> int:
        """Elements with words below this number are kept."""
        return min(2**32 - 1, int(2**32 * self.keep_probability))

    @property
    def scale(self) -> float:
        """The factor of kept elements."""
        return float(np.float32(1 / self.keep_probability))

    def factors(
        self,
        batch: int,
        heads: int,
        rows: int,
        columns: int,
        part: tuple[slice, slice] = (EVERY, EVERY),
    ) -> F64:
        """Return the factor of each element of P, in some heads and rows."""
        counter = np.zeros((heads, rows, columns, 4), np.uint32)
        counter[..., 0] = np.arange(columns)
        counter[..., 1] = np.arange(rows)[:, None]
        counter[..., 2] = (batch * heads + np.arange(heads))[:, None, None]
        counter[..., 3] = self.offset
        words = philox4x32(counter, (self.seed & 0xFFFFFFFF, self.seed >> 32), 10)[..., 0]
        return np.where(words[part] < self.below, self.scale, 0.0)


@dataclass(frozen=True)
class TritonCase:
    """A batch of sequences.

    Attributes:
        lengths: (seqlen_q, seqlen_k) of each sequence; without `varlen`, all are equal.
        causal: 0 no mask, 1 top left, 2 bottom right.
        bias: "no", "heads" for a bias per head, "all" for a bias that all heads share.
        dropout: probability that an element of P is dropped.
        rounding: conversion of the kernel's float32 to 16 bits.
    """

    lengths: tuple[tuple[int, int], ...] = ((50, 70),)
    heads: int = 2
    heads_k: int = 2
    hdim: int = 64
    dtype: str = "fp16"
    causal: int = 0
    varlen: bool = False
    bias: str = "no"
    dropout: float = 0.0
    block: tuple[int, int] = (32, 16)
    rounding: Rounding = "nearest_even"
    options: Mapping[str, int] = field(default_factory=dict)

    @property
    def format(self) -> Format:
        """Format of the tensors."""
        return {"fp16": FP16, "bf16": BF16}[self.dtype]

    def instance(self, function: str, arch: str = "gfx942") -> Instance:
        """Return the kernel instance for this problem."""
        choices: dict[str, object] = {"dtype": self.dtype, "HDIM": self.hdim, **self.options}
        choices |= {"BLOCK_M": self.block[0], "VARLEN": self.varlen}
        if function != "attention_backward_delta":
            choices |= {"BLOCK_N": self.block[1], "CAUSAL": self.causal}
            choices |= {"BIAS": self.bias != "no", "DROPOUT": self.dropout > 0}
        if function == "attention_backward_dq":
            choices["DBIAS"] = self.bias != "no"
        source = SOURCES[function]
        (kernel_instance,) = expand(
            Kernel(
                name=function,
                source=str(source),
                text=source.read_text("utf-8"),
                function=function,
                choices={name: (str(value),) for name, value in choices.items()},
                archs=(arch,),
            )
        )
        return kernel_instance

    @cached_property
    def attention(self) -> Attention:
        """The attention function to compute."""
        drop = WordDropout(self.dropout, 2**40 + 7, 3) if self.dropout else None
        scale = float(np.float32(1 / math.sqrt(self.hdim)))
        return Attention(scale, _MASKS[self.causal], dropout=drop)

    @cached_property
    def arithmetic(self) -> Arithmetic:
        """The number formats and rounding of the kernels."""
        return Arithmetic(self.format, self.format, self.rounding, self.rounding)

    @cached_property
    def starts(self) -> tuple[list[int], list[int]]:
        """Start positions of the sequences, of Q and of K."""
        ends = np.cumsum([(0, 0), *self.lengths], axis=0)
        return ends[:, 0].tolist(), ends[:, 1].tolist()

    @cached_property
    def tensors(self) -> list[tuple[Sequence, F64]]:
        """Each sequence, and its dO."""
        generator = np.random.default_rng(11)

        def random_values(*size: int) -> F64:
            return rounded(generator.normal(size=size), self.format)

        sequences = []
        for number, (rows, columns) in enumerate(self.lengths):
            bias = random_values(self.heads, rows, columns) if self.bias != "no" else None
            if self.bias == "all" and bias is not None:
                bias = np.broadcast_to(bias[:1], bias.shape)
            q = random_values(rows, self.heads, self.hdim)
            k, v = (random_values(columns, self.heads_k, self.hdim) for _ in range(2))
            sequences.append((Sequence(q, k, v, bias, number=number), random_values(*q.shape)))
        return sequences


@dataclass
class Memory:
    """Tensors of a problem in memory, with concatenated sequences.

    Layout [position, head, hdim], 16 bits; each row is followed by a gap of NaN.
    """

    problem: TritonCase
    arrays: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tensors = self.problem.tensors
        for name in ("q", "k", "v"):
            self._put(name, np.concatenate([getattr(sequence, name) for sequence, _ in tensors]))
        self._put("do", np.concatenate([do for _, do in tensors]))
        for name, template in (("o", "q"), ("dq", "q"), ("dk", "k"), ("dv", "v")):
            self.arrays[name] = np.full_like(self.arrays[template], 0x7FFF)
        rows = self.arrays["q"].shape[0]
        for name in ("lse", "delta"):
            self.arrays[name] = np.full((self.problem.heads, rows), np.nan, np.float32)
        widest = max(columns for _, columns in self.problem.lengths)
        shape = (self.problem.heads, rows, widest)
        self.arrays["bias"] = np.full(shape, 0x7FFF, np.uint16)
        self.arrays["dbias"] = np.zeros(shape, np.uint16)
        for (sequence, _), first in zip(tensors, self.problem.starts[0], strict=False):
            if sequence.bias is not None:
                at = np.s_[:, first : first + sequence.bias.shape[1], : sequence.bias.shape[2]]
                self.arrays["bias"][at] = encoded(sequence.bias, self.problem.format)
        for name, starts in zip(("starts_q", "starts_k"), self.problem.starts, strict=True):
            self.arrays[name] = np.array(starts, np.int32)

    def _put(self, name: str, values: F64) -> None:
        wide = np.full((*values.shape[:2], values.shape[2] + _GAP), np.nan)
        wide[..., : values.shape[2]] = values
        self.arrays[name] = encoded(wide, self.problem.format)

    def arguments(self, instance: Instance) -> dict[str, Any]:
        """Return the values of a kernel's arguments."""
        values = self.values()
        return {argument.name: values[argument.name] for argument in instance.arguments}

    def values(self) -> dict[str, Any]:
        """Return the values of all arguments of all kernels."""
        problem = self.problem
        rows, columns = problem.lengths[0]
        drop = problem.attention.dropout or WordDropout(0.0)
        assert isinstance(drop, WordDropout)
        found: dict[str, Any] = dict(self.arrays)
        for name in ("q", "k", "v", "o", "do", "dq", "dk", "dv"):
            row, head, _ = (size // 2 for size in self.arrays[name].strides)
            length = columns if name in ("k", "v", "dk", "dv") else rows
            batch = 0 if problem.varlen else length * row
            found |= {f"{name}_batch": batch, f"{name}_head": head, f"{name}_row": row}
        bias_rows, head, row = 0 if problem.varlen else rows, *self.arrays["bias"].shape[1:]
        for name in ("bias", "dbias"):
            head_stride = 0 if problem.bias == "all" and name == "bias" else head * row
            found |= {
                f"{name}_batch": bias_rows * row,
                f"{name}_head": head_stride,
                f"{name}_row": row,
            }
        total = self.arrays["lse"].shape[1]
        found |= {"lse_batch": 0 if problem.varlen else rows, "lse_head": total}
        found |= {"rows": rows, "columns": columns, "group": problem.heads // problem.heads_k}
        found["scale"] = problem.attention.softmax_scale
        found |= {"seed": drop.seed, "offset": drop.offset}
        found |= {"keep_below": drop.below, "keep_scale": drop.scale}
        return found

    def value(self, name: str, sequence: int) -> F64:
        """Return a result of a sequence; check that gaps are unchanged."""
        positions = self.problem.starts[name in ("dk", "dv")]
        at = slice(positions[sequence], positions[sequence + 1])
        if name == "lse":
            return self.arrays[name][:, at].astype(np.float64)
        if name == "dbias":
            columns = self.problem.lengths[sequence][1]
            return decoded(self.arrays[name][:, at, :columns], self.problem.format)
        gap = self.arrays[name][..., self.problem.hdim :]
        assert (gap == 0x7FFF).all(), f"{name}: written between rows"
        return decoded(self.arrays[name][at, :, : self.problem.hdim], self.problem.format)


def _launch(memory: Memory, run: Run, function: str, arch: str) -> None:
    problem = memory.problem
    instance = problem.instance(function, arch)
    by_column = function == "attention_backward_dkdv"
    longest = max(length[by_column] for length in problem.lengths)
    tiles = -(-longest // problem.block[by_column])
    heads = problem.heads_k if by_column else problem.heads
    run(instance, memory.arguments(instance), (tiles, heads, len(problem.lengths)))


def check(problem: TritonCase, run: Run, arch: str = "gfx942") -> None:
    """Run forward and backward, and compare each result with float64."""
    memory = Memory(problem)
    _launch(memory, run, "attention_forward", arch)
    check_forward(memory)
    for part in ("delta", "dkdv", "dq"):
        _launch(memory, run, f"attention_backward_{part}", arch)
    check_backward(memory)


def check_forward(memory: Memory) -> None:
    """Compare the results of a forward with float64."""
    problem = memory.problem
    for number, (sequence, _) in enumerate(problem.tensors):
        exact, limits = forward_with_limits(problem.attention, sequence, problem.arithmetic)
        _compare("o", memory.value("o", number), exact.o, limits.o)
        _compare("lse", memory.value("lse", number), exact.lse, limits.lse)


def check_backward(memory: Memory) -> None:
    """Compare the results of a backward with float64."""
    problem = memory.problem
    for number, (sequence, do) in enumerate(problem.tensors):
        left = Forward(memory.value("o", number), memory.value("lse", number))
        sums = problem.attention, sequence, do, left, problem.arithmetic
        expected, limits = backward_with_limits(*sums)
        for name in ("dq", "dk", "dv", "dbias"):
            if name == "dbias" and problem.bias == "no":
                continue
            value, limit = getattr(expected, name), getattr(limits, name)
            if name in ("dk", "dv"):
                value, limit = (summed_up(x, problem.heads_k) for x in (value, limit))
            _compare(name, memory.value(name, number), value, limit)


def _compare(name: str, result: F64, expected: F64, limit: F64) -> None:
    both_infinite = np.isneginf(result) & np.isneginf(expected)
    with np.errstate(invalid="ignore"):
        error = np.where(both_infinite, 0.0, np.abs(result - expected))
    wrong = ~(error <= np.where(both_infinite, 0.0, limit))
    if wrong.any():
        at = tuple(int(indices[0]) for indices in np.nonzero(wrong))
        raise AssertionError(
            f"{name}{list(at)} is {result[at]}, should be {expected[at]},"
            f" off by at most {limit[at]};"
            f" {int(wrong.sum())} of {wrong.size}"
        )
