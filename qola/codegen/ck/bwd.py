"""Drives CK's backward generator, `codegen/ops/fmha_bwd.py`.

Serves CK as in AITER's 0.1.7 wheels (CK e31a7a4f, November 2025). Mind the parameters: mask_impl
comes before optdim_list here. A row calls three kernels (dot_do_o, dq_dk_dv, convert_dq), which
are shared between rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from qola.codegen.ck.adapter import (
    MASK_IMPL,
    OPTDIM,
    Adapter,
    Base,
    Kernel,
    Row,
    kernel_of,
    mask_of,
    normalised,
    step_of,
)
from qola.codegen.types import FieldValue


class BwdAdapter(Adapter):
    """Direction bwd."""

    direction = "bwd"
    api_file = "fmha_bwd_api.cpp"
    pool = "FmhaBwdApiPool"
    register = "register_dq_dk_dv_traits"
    signatures: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "get_bwd_blobs": ("targets", "filter_list", "receipt", "mask_impl", "optdim_list")
    }
    problem_fields = ("mode", "mask", "bias", "dbias", "dropout", "store_randval", "deterministic")

    def base(self, targets: list[str], receipt: int) -> Base:
        """Return the receipt's rows in the order of CK's chain: by arch, dtype, hdim."""
        pool, *_ = self.ops.get_bwd_blobs(targets, "", receipt, MASK_IMPL, OPTDIM)
        made: dict[Any, Kernel] = {}
        return Base(
            [
                self._row(trait, made)
                for by_dtype in pool.dq_dk_dv_pool.values()
                for by_hdim in by_dtype.values()
                for traits in by_hdim.values()
                for trait in traits
            ]
        )

    def _row(self, t: Any, made: dict[Any, Kernel]) -> Row:
        fields: dict[str, FieldValue] = {
            **_common(t, t.arch),
            "mask": mask_of(t.mask),
            "bias": t.bias,
            "dbias": normalised(t.dbias),
            "dropout": t.dropout != "no",
            "dropout_kind": t.dropout,
            "store_randval": t.dropout.endswith("_storerandval"),
            "deterministic": normalised(t.deterministic),
            "dpad": t.dpad,
            "dvpad": t.dvpad,
            "trload": normalised(t.tr_load),
            "tile": t.tile.name,
            "max_seqlen_q": t.tile.max_seq_q,
        }
        main = t.dq_dk_dv_kernel
        kernels = [_kernel(made, "dot_do_o", t.dot_do_o_kernel), _main(made, main, fields)]
        if not t.convert_dq_kernel.disabled:
            kernels.append(_kernel(made, "convert_dq", t.convert_dq_kernel))
        return Row(
            key=f"{main.filename} {t.spad1d}",
            trait=t,
            kernels=tuple(kernels),
            fields=fields,
            problem=self.problem(fields),
            arch=t.arch.name,
            bucket=(t.hdim, t.hdim),
            steps=(step_of(t.dcheck, "hdim_q"), step_of(t.dvcheck, "hdim_v")),
            conditional=bool(t.max_seq_q_cond or t.extra_cond),
        )


def _common(k: Any, arch: Any) -> dict[str, FieldValue]:
    hdim, dtype, mode = (
        (k.F_hdim, k.F_dtype, k.F_mode) if hasattr(k, "F_hdim") else (k.hdim, k.dtype, k.mode)
    )
    return {"dtype": dtype, "hdim_q": hdim, "hdim_v": hdim, "mode": mode, "arch_tag": arch.name}


def _main(made: dict[Any, Kernel], k: Any, fields: dict[str, FieldValue]) -> Kernel:
    if k not in made:
        made[k] = kernel_of("dq_dk_dv", k, fields)
    return made[k]


def _kernel(made: dict[Any, Kernel], role: str, k: Any) -> Kernel:
    """Return the helper kernel `k` of CK, made once for all rows that share it."""
    if k not in made:
        fields: dict[str, FieldValue] = {
            **_common(k, k.F_arch),
            "spad": normalised(k.F_spad),
            "tile": f"b{k.F_bm0}",
        }
        if role == "dot_do_o":
            fields["dvpad"] = normalised(k.F_dvpad)
        else:
            fields["tile"] = f"b{k.F_bm0}x{k.F_bn0}"
            fields["dpad"] = normalised(k.F_dpad)
            fields["deterministic"] = normalised(k.F_deterministic)
        made[k] = kernel_of(role, k, fields)
    return made[k]
