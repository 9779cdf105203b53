"""Drives CK's forward generator, `codegen/ops/fmha_fwd.py`.

Serves CK as in AITER's 0.1.7 wheels (CK e31a7a4f, November 2025): `get_fwd_blobs` with the
parameters below, kernels with a `template`, traits keyed by arch, dtype and (hdim, bn1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from qola.codegen.adapter import (
    MASK_IMPL,
    OPTDIM,
    Adapter,
    Base,
    Kernel,
    Row,
    is_unconditional,
    pipeline_fields,
    prefix_of,
    step_of,
)


class FwdAdapter(Adapter):
    """Direction fwd: one kernel per row."""

    direction = "fwd"
    api_file = "fmha_fwd_api.cpp"
    signatures: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "get_fwd_blobs": ("targets", "kernel_filter", "receipt", "optdim_list", "mask_impl")
    }
    problem_fields = (
        "mode",
        "vlayout",
        "logits",
        "mask",
        "bias",
        "lse",
        "dropout",
        "squant",
        "skip",
    )

    def base(self, targets: list[str], receipt: int) -> Base:
        """Return the receipt's rows; CK registers one trait per kernel, in the same order."""
        _, kernels = self.ops.get_fwd_blobs(targets, "", receipt, OPTDIM, MASK_IMPL)
        return Base([self._row(kernel) for kernel in kernels])

    def api(self, rows: Sequence[Row]) -> str:
        """Return the dispatch of a fresh pool that holds the traits of `rows` alone."""
        pool = self.ops.FmhaFwdApiPool(MASK_IMPL)
        for row in rows:
            pool.register_traits(row.trait)
        return str(pool.api)

    def _row(self, k: Any) -> Row:
        trait = k.api_trait()
        fields = {
            **pipeline_fields(k.F_pipeline),
            "dtype": k.F_dtype,
            "hdim_q": k.F_hdim,
            "hdim_v": k.F_tile.F_bn1,
            "mode": k.F_mode,
            "tile": k.F_tile.name,
            "arch_tag": k.F_arch.name,
        }
        kernel = Kernel(
            "fwd", k.filename.removesuffix(".cpp"), k.F_arch.name, fields, lambda: str(k.template)
        )
        return Row(
            key=k.filename,
            trait=trait,
            kernels=(kernel,),
            fields=fields,
            problem=self.problem(fields),
            arch=k.F_arch.name,
            device_prefix=prefix_of(k.F_arch),
            bucket=(k.F_hdim, k.F_tile.F_bn1),
            steps=(step_of(trait.dcheck, "hdim_q"), step_of(trait.dvcheck, "hdim_v")),
            bm0=trait.bm0,
            conditional=not is_unconditional(trait.constraint),
        )
