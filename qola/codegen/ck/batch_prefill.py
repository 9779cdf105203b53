"""Drives CK's batch prefill generator, `codegen/ops/fmha_batch_prefill.py`.

Serves CK as in AITER's 0.1.7 wheels (CK e31a7a4f, November 2025), whose instances carry no
architecture at all: one instance, compiled for every architecture.
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


class BatchPrefillAdapter(Adapter):
    """Direction batch_prefill: one kernel per row."""

    direction = "batch_prefill"
    api_file = "fmha_batch_prefill_api.cpp"
    pool = "FmhaFwdApiPool"
    signatures: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "get_fwd_blobs": ("kernel_filter", "receipt", "optdim_list", "mask_impl")
    }
    problem_fields = ("mode", "vlayout", "logits", "mask", "bias", "lse", "dropout", "squant")

    def arch_tag(self, arch: str) -> str | None:
        """Return None: instances are the same for every architecture."""
        return None

    def base(self, targets: list[str], receipt: int) -> Base:
        """Return the receipt's rows; CK registers one trait per kernel, in the same order."""
        _, kernels = self.ops.get_fwd_blobs("", receipt, OPTDIM, MASK_IMPL)
        return Base([self._row(kernel) for kernel in kernels])

    def _row(self, k: Any) -> Row:
        trait = k.api_trait()
        fields = forward_fields(k, k.F_tile.F_bn1, None)
        return Row(
            key=k.filename,
            trait=trait,
            kernels=(kernel_of("batch_prefill", k, fields),),
            fields=fields,
            problem=self.problem(fields),
            arch=None,
            bucket=(k.F_hdim, k.F_tile.F_bn1),
            steps=(step_of(trait.dcheck, "hdim_q"), step_of(trait.dvcheck, "hdim_v")),
            conditional=not is_unconditional(trait.constraint),
        )
