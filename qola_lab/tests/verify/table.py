"""The table: problems that the consumer program passes to the libraries of a manifest.

To add a row, add a problem; predict.py computes the expected launches from the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import product

from qola_lab.tests.verify.predict import ConsumerCall


@dataclass(frozen=True)
class Device:
    """The properties of a GPU that host code reads."""

    arch: str
    cu_count: int  # number of compute units

    @property
    def name(self) -> str:
        """Short name for reports."""
        return f"{self.arch}-{self.cu_count}"


#: MI300X and MI355X.
GFX942 = Device("gfx942", 304)
GFX950 = Device("gfx950", 256)
#: MI308X with the cu_counts that AITER knows, and a gfx942 that AITER does not know.
MI308 = (Device("gfx942", 80), Device("gfx942", 64))
OTHER_GFX942 = Device("gfx942", 228)


@dataclass(frozen=True)
class Row:
    """One row: a problem on a device."""

    problem: ConsumerCall
    device: Device = GFX950

    @property
    def name(self) -> str:
        """The row's identity: the device, and every value that is not the default."""
        problem = self.problem
        hdim = f"{problem.hdim_q}x{problem.hdim_v}"
        parts = [self.device.name, problem.direction, problem.dtype, hdim]
        default = ConsumerCall("", "", 0, 0)
        for field in fields(ConsumerCall)[4:]:
            value = getattr(problem, field.name)
            if value != getattr(default, field.name):
                parts.append(f"{field.name}={value}")
        return "-".join(parts)


def line_of(problem: ConsumerCall) -> str:
    """Return a problem in the format that the program reads."""
    values = {field.name: getattr(problem, field.name) for field in fields(ConsumerCall)}
    return " ".join(
        f"{name}={int(value) if isinstance(value, bool) else value}"
        for name, value in values.items()
    )


def _quickstart() -> Iterator[Row]:
    """Yield bf16, head dimension 128, gfx950, forward with log-sum-exp, no bias, no dropout."""
    # seqlen_q at, around and above the tile sizes (16, 32, 128).
    for mask, seqlen_q in product(("no", "bottom_right"), (1, 16, 17, 32, 33, 128, 1000)):
        yield Row(ConsumerCall("fwd", "bf16", 128, 128, mask=mask, seqlen_q=seqlen_q))
    # Masks, which share a kernel; seqlen_k that is not a multiple of a tile; one head of K.
    for mask, mode in product(("no", "top_left", "window"), ("batch", "group")):
        yield Row(ConsumerCall("fwd", "bf16", 128, 128, mode=mode, mask=mask, seqlen_k=300))
        yield Row(ConsumerCall("fwd", "bf16", 128, 128, mode=mode, mask=mask, nhead_k=1))
    # Head dimensions below the bucket's; multiples of 8 only if the kernel requires them.
    for hdim_q, hdim_v in ((120, 120), (64, 64), (128, 64), (72, 128), (40, 40)):
        for mask, seqlen_q in product(("no", "top_left"), (16, 32, 500)):
            yield Row(ConsumerCall("fwd", "bf16", hdim_q, hdim_v, mask=mask, seqlen_q=seqlen_q))
        yield Row(ConsumerCall("fwd", "bf16", hdim_q, hdim_v, mode="group"))
    yield Row(ConsumerCall("fwd", "bf16", 100, 100))
    yield Row(ConsumerCall("fwd", "bf16", 100, 100, mode="group"))
    # Outside of the manifest.
    yield Row(ConsumerCall("fwd", "fp16", 128, 128))
    yield Row(ConsumerCall("fwd", "fp32", 128, 128))
    yield Row(ConsumerCall("fwd", "bf16", 192, 128))
    yield Row(ConsumerCall("fwd", "bf16", 128, 256))
    yield Row(ConsumerCall("fwd", "bf16", 128, 128, lse=False))
    yield Row(ConsumerCall("fwd", "bf16", 128, 128, bias="bias"))
    yield Row(ConsumerCall("fwd", "bf16", 128, 128, bias="alibi"))
    yield Row(ConsumerCall("fwd", "bf16", 128, 128, dropout=0.25))
    yield Row(ConsumerCall("fwd", "bf16", 128, 128, mode="group", dropout=0.25))
    yield Row(ConsumerCall("fwd", "bf16", 128, 128), GFX942)
    yield Row(ConsumerCall("fwd", "bf16", 128, 128, mode="group", mask="top_left"), GFX942)
    # Assembly kernels: requested, only queried, and problems that they or the manifest exclude.
    for v3_api_check in (False, True):
        requested = ConsumerCall(
            "fwd", "bf16", 128, 128, use_ext_asm=True, v3_api_check=v3_api_check
        )
        masks, modes = ("no", "top_left", "bottom_right", "window"), ("batch", "group")
        for mask, mode in product(masks, modes):
            yield Row(replace(requested, mask=mask, mode=mode))
        yield Row(replace(requested, mask="top_left", seqlen_k=300))
        yield Row(replace(requested, mask="bottom_right", seqlen_k=300))
        yield from map(Row, _beyond_assembly(requested))
        yield Row(replace(requested, lse=False))
        yield Row(requested, GFX942)


def _beyond_assembly(requested: ConsumerCall) -> Iterator[ConsumerCall]:
    """Yield forward problems that assembly kernels do not serve although requested."""
    yield replace(requested, soft_cap=30.0)
    yield replace(requested, min_seqlen_q=1)
    yield replace(requested, dropout=0.25)
    yield replace(requested, bias="alibi")
    yield replace(requested, dtype="fp16")
    yield replace(requested, hdim_q=120, hdim_v=120)
    yield replace(requested, hdim_q=192)


def _asm() -> Iterator[Row]:
    """Yield assembly problems: forward bf16, 128, group; backward bf16, 64, batch; no mask."""
    base = ConsumerCall("fwd", "bf16", 128, 128, mode="group")
    for v3_api_check, device in product((False, True), (GFX950, GFX942, *MI308)):
        requested = replace(base, use_ext_asm=True, v3_api_check=v3_api_check)
        for bf16_cvt, lse in product((0, 1, 2), (True, False)):
            yield Row(replace(requested, bf16_cvt=bf16_cvt, lse=lse), device)
        yield Row(replace(requested, seqlen_q=1, seqlen_k=77), device)
        yield Row(replace(requested, nhead_k=1), device)
        # What the variant leaves out, though AITER has kernels for it.
        yield Row(replace(requested, mask="bottom_right"), device)
        yield Row(replace(requested, mode="batch"), device)
        yield from (Row(problem, device) for problem in _beyond_assembly(requested))
    for device in (GFX950, GFX942, *MI308, OTHER_GFX942):
        for seqlen_q, seqlen_k in ((256, 256), (16, 300)):
            yield Row(replace(base, seqlen_q=seqlen_q, seqlen_k=seqlen_k), device)
    # AITER has no code objects for this cu_count: Composable Kernel serves.
    yield Row(replace(base, use_ext_asm=True), OTHER_GFX942)
    yield Row(replace(base, use_ext_asm=True, lse=False), OTHER_GFX942)
    for v3_api_check, device in product((False, True), (GFX950, GFX942, OTHER_GFX942)):
        requested = ConsumerCall("bwd", "bf16", 64, 64, use_ext_asm=True, v3_api_check=v3_api_check)
        for bf16_cvt, atomic_fp32 in product((0, 1, 2), (True, False)):
            yield Row(replace(requested, bf16_cvt=bf16_cvt, atomic_fp32=atomic_fp32), device)
        # Lengths that are not a multiple of a block, and different lengths of Q and K.
        for seqlen_q, seqlen_k in ((100, 100), (128, 320), (1, 7)):
            for atomic_fp32 in (True, False):
                lengths = replace(requested, seqlen_q=seqlen_q, seqlen_k=seqlen_k)
                yield Row(replace(lengths, atomic_fp32=atomic_fp32), device)
        yield Row(replace(requested, nhead_k=1), device)
        # What the variant leaves out, though AITER has kernels for it.
        yield Row(replace(requested, dtype="fp16"), device)
        yield Row(replace(requested, hdim_q=128, hdim_v=128), device)
        yield Row(replace(requested, hdim_q=56, hdim_v=56), device)
        yield Row(replace(requested, mode="group"), device)
        yield Row(replace(requested, mask="top_left"), device)
        # AITER has no kernels for these problems.
        yield Row(replace(requested, dropout=0.25), device)
        yield Row(replace(requested, bias="bias"), device)
        yield Row(replace(requested, bias="bias", dbias=True), device)
        yield Row(replace(requested, deterministic=True), device)
        yield Row(replace(requested, use_ext_asm=False), device)


def _ci() -> Iterator[Row]:
    """Yield fp16, head dimension 32, batch, gfx942 and gfx950: no mask, bias or dropout."""
    for device in (GFX942, GFX950):
        # Backward kernels serve whole head dimensions, multiples of 8, or any.
        for hdim_q, hdim_v in (*product((32, 20), (32, 24, 20)), (24, 24), (24, 32)):
            for seqlen_q, seqlen_k in ((128, 128), (100, 128), (16, 300), (1, 1)):
                forward = ConsumerCall(
                    "fwd", "fp16", hdim_q, hdim_v, seqlen_q=seqlen_q, seqlen_k=seqlen_k
                )
                yield Row(forward, device)
                yield Row(replace(forward, direction="bwd"), device)
        for direction in ("fwd", "bwd"):
            yield Row(ConsumerCall(direction, "fp16", 32, 32, nhead_k=4), device)
            # Outside of the manifest.
            yield Row(ConsumerCall(direction, "bf16", 32, 32), device)
            yield Row(ConsumerCall(direction, "fp16", 64, 64), device)
            yield Row(ConsumerCall(direction, "fp16", 32, 64), device)
            yield Row(ConsumerCall(direction, "fp16", 32, 32, mode="group"), device)
            yield Row(ConsumerCall(direction, "fp16", 32, 32, mask="top_left"), device)
            yield Row(ConsumerCall(direction, "fp16", 32, 32, bias="alibi"), device)
            yield Row(ConsumerCall(direction, "fp16", 32, 32, dropout=0.5), device)
        yield Row(ConsumerCall("fwd", "fp16", 32, 32, lse=False), device)
        yield Row(ConsumerCall("bwd", "fp16", 32, 32, bias="bias", dbias=True), device)
        yield Row(ConsumerCall("bwd", "fp16", 32, 32, deterministic=True), device)


#: Rows by manifest.
TABLE: dict[str, tuple[Row, ...]] = {
    "asm": tuple(_asm()),
    "ci": tuple(_ci()),
    "quickstart": tuple(_quickstart()),
}
