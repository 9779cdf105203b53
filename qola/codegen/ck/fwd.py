"""Drives CK's forward generator, `codegen/ops/fmha_fwd.py`.

Serves CK as in AITER's 0.1.7 wheels (CK e31a7a4f, November 2025): `get_fwd_blobs` with the
parameters below, kernels with a `template`, traits keyed by arch, dtype and (hdim, bn1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from qola.codegen.ck.adapter import (
    MASK_IMPL,
    OPTDIM,
    Adapter,
    Base,
    Row,
    forward_fields,
    is_unconditional,
    kernel_of,
    step_of,
)


class FwdAdapter(Adapter):
    """Direction fwd: one kernel per row."""

    direction = "fwd"
    api_file = "fmha_fwd_api.cpp"
    pool = "FmhaFwdApiPool"
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

    def _row(self, k: Any) -> Row:
        trait = k.api_trait()
        fields = forward_fields(k, k.F_tile.F_bn1, k.F_arch.name)
        return Row(
            key=k.filename,
            trait=trait,
            kernels=(kernel_of("fwd", k, fields),),
            fields=fields,
            problem=self.problem(fields),
            arch=k.F_arch.name,
            bucket=(k.F_hdim, k.F_tile.F_bn1),
            steps=(step_of(trait.dcheck, "hdim_q"), step_of(trait.dvcheck, "hdim_v")),
            bm0=trait.bm0,
            conditional=not is_unconditional(trait.constraint),
        )
