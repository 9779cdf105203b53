"""A small plan, and a library that could be built from this plan."""

from __future__ import annotations

from typing import Any

from qola.codegen.types import CodeObject as PlannedCodeObject
from qola.plan.model import KernelInstance, Plan, PlannedBatch
from qola.report.data import LeftOut, Part
from qola.report.execution_log import Compile
from qola.report.library import Library
from qola_base.code_object.reader import CodeObject, Descriptor, Kernel, Resources, unit_of
from qola_base.errors import Finding
from tests.support import plans


def instance(name: str, **changes: Any) -> KernelInstance:
    fields = {"dtype": "bf16", "hdim_q": 128, "hdim_v": 128, "mode": "batch"}
    return plans.kernel(name, fields=fields | changes.pop("fields", {}), **changes)


def device_kernel(symbol: str, registers: int = 104, **changes: int) -> Kernel:
    resources = Resources(**{"vgprs": 100, "sgprs": 58, "lds": 12480} | changes)
    # COMPUTE_PGM_RSRC1 counts registers in eights.
    descriptor = Descriptor(0, 0, 0, 0, registers // 8 - 1, 0, 0, 0, 0, 0)
    return Kernel(symbol, 0, 3400, descriptor, (), 256, resources)


def code_object(*kernels: Kernel, arch: str = "gfx950", digest: str = "c0") -> CodeObject:
    return CodeObject(arch, b"", {k.symbol: k for k in kernels}, 30_000, digest)


PLAN: Plan = plans.plan(
    PlannedBatch("fwd_bf16_2_abc", (1, 0), "batches/x.cpp", ""),
    archs=("gfx942", "gfx950"),
    manifest={"namespace": "ns", "patches_dir": "<b>"},
    kernels=(
        instance("fwd_d128_mask"),
        instance("fwd_d128_nmask"),
        instance("fwd_d192", fields={"hdim_q": 192}),
        instance(
            "splitkv_d128", direction="fwd_splitkv", role="splitkv", archs=("gfx942", "gfx950")
        ),
    ),
    modules=(
        plans.module(
            kernels=(0, 1, 2, 3),
            code_objects=(
                PlannedCodeObject("hsa/gfx942/fwd/a.co", "a.co", "gfx942", "a5", 30_000),
            ),
        ),
    ),
    warnings=(Finding("it.toml:3 [build]", "<b>this</b>", "that", "", "warning"),),
)

LIBRARY = Library(
    "ns_libmha_fwd.so",
    400_000,
    "11" * 32,
    {
        unit_of("fwd_bf16_2_abc"): (
            code_object(device_kernel("nmask"), device_kernel("mask", vgprs=130, registers=136)),
        ),
        unit_of("fwd_d192"): (code_object(device_kernel("d192", vgpr_spills=7, scratch=32)),),
        unit_of("splitkv_d128"): tuple(
            code_object(device_kernel(f"even_{arch}"), device_kernel(f"odd_{arch}"), arch=arch)
            for arch in ("gfx942", "gfx950")
        ),
    },
    (
        code_object(
            device_kernel("assembly", lds=65536, vgprs=512, registers=512),
            arch="gfx942",
            digest="a5",
        ),
    ),
    (
        Part("host code", 150_000),
        Part("device code", 130_000),
        Part("constants and data", 90_000),
        Part("assembly kernels", 30_000),
    ),
    "AMD clang version 19.0.0",
)

COMPILED = {"fwd_bf16_2_abc": Compile(30.5, "compiled"), "splitkv_d128": Compile(0.1, "disk cache")}

LEFT_OUT = (
    LeftOut("libmha_fwd", "fwd", "fwd", "no variant has this hdim", 40),
    LeftOut("libmha_fwd", "fwd", "fwd", "unreachable: a bucket before it takes all", 3),
)
