"""The table: problems that the consumer program hands to the libraries of a manifest.

To add a row, add a problem; what has to be launched is predicted from the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import product

from tests.verify.problem import ConsumerCall


@dataclass(frozen=True)
class Device:
    """A GPU as far as host code sees it."""

    arch: str  # its arch
    cu_count: int  # its compute units

    @property
    def name(self) -> str:
        """Short name for reports."""
        return f"{self.arch}-{self.cu_count}"


#: MI300X and MI355X.
GFX942 = Device("gfx942", 304)
GFX950 = Device("gfx950", 256)
#: MI308X as AITER knows it, and a gfx942 that it does not know.
MI308 = (Device("gfx942", 80), Device("gfx942", 64))
OTHER_GFX942 = Device("gfx942", 228)


@dataclass(frozen=True)
class Row:
    """One row: a problem on a device."""

    problem: ConsumerCall
    device: Device = GFX950

    @property
    def name(self) -> str:
        """What sets the row apart: the device, and every value that is not the usual one."""
        problem = self.problem
        hdim = f"{problem.hdim_q}x{problem.hdim_v}"
        parts = [self.device.name, problem.direction, problem.dtype, hdim]
        usual = ConsumerCall("", "", 0, 0)
        for field in fields(ConsumerCall)[4:]:
            value = getattr(problem, field.name)
            if value != getattr(usual, field.name):
                parts.append(f"{field.name}={value}")
        return "-".join(parts)


def line_of(problem: ConsumerCall) -> str:
    """A problem in the form that the program reads."""
    values = {field.name: getattr(problem, field.name) for field in fields(ConsumerCall)}
    return " ".join(
        f"{name}={int(value) if isinstance(value, bool) else value}"
        for name, value in values.items()
    )


def _quickstart() -> Iterator[Row]:
    """bf16, head dimension 128, gfx950, forward with log-sum-exp, no bias, no dropout."""
    # At, around and above the limits of the tiles along Q (16, 32, 128).
    for mask, seqlen_q in product(("no", "bottom_right"), (1, 16, 17, 32, 33, 128, 1000)):
        yield Row(ConsumerCall("fwd", "bf16", 128, 128, mask=mask, seqlen_q=seqlen_q))
    # Kinds of masks share a kernel; lengths of K that are no multiple of a tile; one head of K.
    for mask, mode in product(("no", "top_left", "window"), ("batch", "group")):
        yield Row(ConsumerCall("fwd", "bf16", 128, 128, mode=mode, mask=mask, seqlen_k=300))
        yield Row(ConsumerCall("fwd", "bf16", 128, 128, mode=mode, mask=mask, nhead_k=1))
    # Head dimensions below the bucket's are padded, multiples of 8 only where the kernel needs it.
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
    # Assembly kernels: asked for, only asked about, and not for what they do not do or the manifest
    # does not ask for.
    for v3_api_check in (False, True):
        asked = ConsumerCall("fwd", "bf16", 128, 128, use_ext_asm=True, v3_api_check=v3_api_check)
        masks, modes = ("no", "top_left", "bottom_right", "window"), ("batch", "group")
        for mask, mode in product(masks, modes):
            yield Row(replace(asked, mask=mask, mode=mode))
        yield Row(replace(asked, mask="top_left", seqlen_k=300))
        yield Row(replace(asked, mask="bottom_right", seqlen_k=300))
        yield from map(Row, _beyond_assembly(asked))
        yield Row(replace(asked, lse=False))
        yield Row(asked, GFX942)


def _beyond_assembly(asked: ConsumerCall) -> Iterator[ConsumerCall]:
    """Forward problems that go to other kernels although assembly kernels are asked for."""
    yield replace(asked, soft_cap=30.0)
    yield replace(asked, min_seqlen_q=1)
    yield replace(asked, dropout=0.25)
    yield replace(asked, bias="alibi")
    yield replace(asked, dtype="fp16")
    yield replace(asked, hdim_q=120, hdim_v=120)
    yield replace(asked, hdim_q=192)


def _asm() -> Iterator[Row]:
    """Forward bf16, 128, group; backward bf16, 64, batch; no mask: assembly kernels."""
    usual = ConsumerCall("fwd", "bf16", 128, 128, mode="group")
    for v3_api_check, device in product((False, True), (GFX950, GFX942, *MI308)):
        asked = replace(usual, use_ext_asm=True, v3_api_check=v3_api_check)
        for bf16_cvt, lse in product((0, 1, 2), (True, False)):
            yield Row(replace(asked, bf16_cvt=bf16_cvt, lse=lse), device)
        yield Row(replace(asked, seqlen_q=1, seqlen_k=77), device)
        yield Row(replace(asked, nhead_k=1), device)
        # What the variant leaves out, though AITER has kernels for it.
        yield Row(replace(asked, mask="bottom_right"), device)
        yield Row(replace(asked, mode="batch"), device)
        yield from (Row(problem, device) for problem in _beyond_assembly(asked))
    for device in (GFX950, GFX942, *MI308, OTHER_GFX942):
        for seqlen_q, seqlen_k in ((256, 256), (16, 300)):
            yield Row(replace(usual, seqlen_q=seqlen_q, seqlen_k=seqlen_k), device)
    # No code objects are made for its size: Composable Kernel serves.
    yield Row(replace(usual, use_ext_asm=True), OTHER_GFX942)
    yield Row(replace(usual, use_ext_asm=True, lse=False), OTHER_GFX942)
    for v3_api_check, device in product((False, True), (GFX950, GFX942, OTHER_GFX942)):
        asked = ConsumerCall("bwd", "bf16", 64, 64, use_ext_asm=True, v3_api_check=v3_api_check)
        for bf16_cvt, atomic_fp32 in product((0, 1, 2), (True, False)):
            yield Row(replace(asked, bf16_cvt=bf16_cvt, atomic_fp32=atomic_fp32), device)
        # Lengths that are no multiple of a block, and lengths that differ.
        for seqlen_q, seqlen_k in ((100, 100), (128, 320), (1, 7)):
            for atomic_fp32 in (True, False):
                lengths = replace(asked, seqlen_q=seqlen_q, seqlen_k=seqlen_k)
                yield Row(replace(lengths, atomic_fp32=atomic_fp32), device)
        yield Row(replace(asked, nhead_k=1), device)
        # What the variant leaves out, though AITER has kernels for it.
        yield Row(replace(asked, dtype="fp16"), device)
        yield Row(replace(asked, hdim_q=128, hdim_v=128), device)
        yield Row(replace(asked, hdim_q=56, hdim_v=56), device)
        yield Row(replace(asked, mode="group"), device)
        yield Row(replace(asked, mask="top_left"), device)
        # What AITER has no kernels for.
        yield Row(replace(asked, dropout=0.25), device)
        yield Row(replace(asked, bias="bias"), device)
        yield Row(replace(asked, bias="bias", dbias=True), device)
        yield Row(replace(asked, deterministic=True), device)
        yield Row(replace(asked, use_ext_asm=False), device)


def _ci() -> Iterator[Row]:
    """fp16, head dimension 32, batch, gfx942 and gfx950: no mask, bias or dropout."""
    for device in (GFX942, GFX950):
        # Backward kernels are made for whole head dimensions, multiples of 8, and any.
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
