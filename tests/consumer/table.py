"""The table: problems that the consumer program hands to the libraries of a manifest.

To add a row, add a problem; what has to be launched is predicted from the plan. Where an assembly
kernel has to serve it, the row names the code object.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import product

from tests.consumer.predict import Problem


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        problem: the problem.
        arch: arch of the device.
        modules: assembly code objects that have to be launched in place of planned kernel
            instances, in order, as paths below AITER's `aiter_meta`.
    """

    problem: Problem
    arch: str = "gfx950"
    modules: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What sets the row apart: the arch, and every value that is not the usual one."""
        problem = self.problem
        parts = [self.arch, problem.direction, problem.dtype, f"{problem.hdim_q}x{problem.hdim_v}"]
        usual = Problem("", "", 0, 0)
        for field in fields(Problem)[4:]:
            value = getattr(problem, field.name)
            if value != getattr(usual, field.name):
                parts.append(f"{field.name}={value}")
        return "-".join(parts)


def line_of(problem: Problem) -> str:
    """A problem in the form that the program reads."""
    values = {field.name: getattr(problem, field.name) for field in fields(Problem)}
    return " ".join(
        f"{name}={int(value) if isinstance(value, bool) else value}"
        for name, value in values.items()
    )


def _quickstart() -> Iterator[Row]:
    """bf16, head dimension 128, gfx950, forward with log-sum-exp, no bias, no dropout."""
    # At, around and above the limits of the tiles along Q (16, 32, 128).
    for mask, seqlen_q in product(("no", "bottom_right"), (1, 16, 17, 32, 33, 128, 1000)):
        yield Row(Problem("fwd", "bf16", 128, 128, mask=mask, seqlen_q=seqlen_q))
    # Kinds of masks share a kernel; lengths of K that are no multiple of a tile; one head of K.
    for mask, mode in product(("no", "top_left", "window"), ("batch", "group")):
        yield Row(Problem("fwd", "bf16", 128, 128, mode=mode, mask=mask, seqlen_k=300))
        yield Row(Problem("fwd", "bf16", 128, 128, mode=mode, mask=mask, nhead_k=1))
    # Head dimensions below the bucket's are padded, multiples of 8 only where the kernel needs it.
    for hdim_q, hdim_v in ((120, 120), (64, 64), (128, 64), (72, 128), (40, 40)):
        for mask, seqlen_q in product(("no", "top_left"), (16, 32, 500)):
            yield Row(Problem("fwd", "bf16", hdim_q, hdim_v, mask=mask, seqlen_q=seqlen_q))
        yield Row(Problem("fwd", "bf16", hdim_q, hdim_v, mode="group"))
    yield Row(Problem("fwd", "bf16", 100, 100))
    yield Row(Problem("fwd", "bf16", 100, 100, mode="group"))
    # Outside of the manifest.
    yield Row(Problem("fwd", "fp16", 128, 128))
    yield Row(Problem("fwd", "fp32", 128, 128))
    yield Row(Problem("fwd", "bf16", 192, 128))
    yield Row(Problem("fwd", "bf16", 128, 256))
    yield Row(Problem("fwd", "bf16", 128, 128, lse=False))
    yield Row(Problem("fwd", "bf16", 128, 128, bias="bias"))
    yield Row(Problem("fwd", "bf16", 128, 128, bias="alibi"))
    yield Row(Problem("fwd", "bf16", 128, 128, dropout=0.25))
    yield Row(Problem("fwd", "bf16", 128, 128, mode="group", dropout=0.25))
    yield Row(Problem("fwd", "bf16", 128, 128), arch="gfx942")
    yield Row(Problem("fwd", "bf16", 128, 128, mode="group", mask="top_left"), arch="gfx942")


def _ci() -> Iterator[Row]:
    """fp16, head dimension 32, batch, gfx942 and gfx950: no mask, bias or dropout."""
    for arch in ("gfx942", "gfx950"):
        # Backward kernels are made for whole head dimensions, multiples of 8, and any.
        for hdim_q, hdim_v in (*product((32, 20), (32, 24, 20)), (24, 24), (24, 32)):
            for seqlen_q, seqlen_k in ((128, 128), (100, 128), (16, 300), (1, 1)):
                forward = Problem(
                    "fwd", "fp16", hdim_q, hdim_v, seqlen_q=seqlen_q, seqlen_k=seqlen_k
                )
                yield Row(forward, arch)
                yield Row(replace(forward, direction="bwd"), arch)
        for direction in ("fwd", "bwd"):
            yield Row(Problem(direction, "fp16", 32, 32, nhead_k=4), arch)
            # Outside of the manifest.
            yield Row(Problem(direction, "bf16", 32, 32), arch)
            yield Row(Problem(direction, "fp16", 64, 64), arch)
            yield Row(Problem(direction, "fp16", 32, 64), arch)
            yield Row(Problem(direction, "fp16", 32, 32, mode="group"), arch)
            yield Row(Problem(direction, "fp16", 32, 32, mask="top_left"), arch)
            yield Row(Problem(direction, "fp16", 32, 32, bias="alibi"), arch)
            yield Row(Problem(direction, "fp16", 32, 32, dropout=0.5), arch)
        yield Row(Problem("fwd", "fp16", 32, 32, lse=False), arch)
        yield Row(Problem("bwd", "fp16", 32, 32, bias="bias", dbias=True), arch)
        yield Row(Problem("bwd", "fp16", 32, 32, deterministic=True), arch)


#: Rows by manifest.
TABLE: dict[str, tuple[Row, ...]] = {"ci": tuple(_ci()), "quickstart": tuple(_quickstart())}
