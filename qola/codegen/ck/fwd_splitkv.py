"""Drives CK's split-KV generator, `codegen/ops/fmha_fwd_splitkv.py`.

Serves CK as in AITER's 0.1.7 wheels (CK e31a7a4f, November 2025). Mind the parameters: mask_impl
comes before optdim_list here, after it in fmha_fwd, and is missing for the combine kernels.
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
    UnservedCkError,
    forward_fields,
    kernel_of,
    normalised,
    step_of,
)


class FwdSplitKvAdapter(Adapter):
    """Direction fwd_splitkv: a row calls its own kernel and two combine kernels, by lse."""

    direction = "fwd_splitkv"
    api_file = "fmha_fwd_splitkv_api.cpp"
    pool = "FmhaFwdSplitKVApiPool"
    signatures: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "get_fwd_splitkv_blobs": (
            "targets",
            "kernel_filter",
            "receipt",
            "mask_impl",
            "optdim_list",
        ),
        "get_fwd_splitkv_combine_blobs": ("targets", "kernel_filter", "receipt", "optdim_list"),
    }
    problem_fields = ("mode", "vlayout", "logits", "mask", "bias", "squant", "pagedkv")

    def base(self, targets: list[str], receipt: int) -> Base:
        """Return the receipt's rows, and the combine kernels that none of them calls."""
        combines = self.ops.get_fwd_splitkv_combine_blobs(targets, "", receipt, OPTDIM)
        kernels = self.ops.get_fwd_splitkv_blobs(targets, "", receipt, MASK_IMPL, OPTDIM)
        by_shape: dict[tuple[Any, ...], list[Any]] = {}
        for c in combines:
            by_shape.setdefault(_shape(c), []).append(c)
        rows = [self._row(k, by_shape.get(_shape(k), [])) for k in kernels]
        used = {kernel.name for row in rows for kernel in row.kernels}
        loose = [kernel for kernel in map(_combine, combines) if kernel.name not in used]
        return Base(rows, loose)

    def _row(self, k: Any, combines: list[Any]) -> Row:
        # The trait takes the tile of the combine kernel without lse; CK's write_blobs has it so.
        tiles = [c.F_tile for c in combines if c.F_pipeline.F_lse == "f"]
        if len(tiles) != 1:
            raise UnservedCkError(f"{len(tiles)} combine kernels for {k.name}", "exactly one")
        trait = self._trait(k, tiles[0].F_bn1)
        fields = forward_fields(k, k.F_hdim, k.F_arch.name)
        # Every split kernel writes lse for the combine step; callers get it or not from there.
        del fields["lse"]
        return Row(
            key=k.filename,
            trait=trait,
            kernels=(kernel_of("splitkv", k, fields), *map(_combine, combines)),
            fields=fields,
            problem=self.problem(fields),
            arch=k.F_arch.name,
            bucket=(k.F_hdim, k.F_hdim),
            steps=(step_of(trait.dcheck, "hdim_q"), step_of(trait.dvcheck, "hdim_v")),
        )

    def _trait(self, k: Any, bn1comb: int) -> Any:
        """Return the trait CK's write_blobs makes for a kernel; it has no function for that."""
        tile, pipe = k.F_tile, k.F_pipeline
        return self.ops.FmhaFwdSplitKVApiTrait(
            arch=k.F_arch,
            pipeline_tag=pipe.tag,
            hdim=k.F_hdim,
            dtype=k.F_dtype,
            mode=k.F_mode,
            bm0=tile.F_bm0,
            bn0=tile.F_bn0,
            bk0=tile.F_bk0,
            bn1=tile.F_bn1,
            bk1=tile.F_bk1,
            bk0max=tile.F_bk0max,
            vlayout=pipe.F_vlayout,
            logits=pipe.F_logits,
            mask=pipe.F_mask,
            bias=pipe.F_bias,
            lse=pipe.F_lse,
            squant=pipe.F_squant,
            pagedkv=pipe.F_pagedkv,
            spad=pipe.F_spad,
            skpad=pipe.F_skpad,
            dpad=pipe.F_dpad,
            dvpad=pipe.F_dvpad,
            bn1comb=bn1comb,
        )


def _shape(k: Any) -> tuple[Any, ...]:
    """What a split kernel and its combine kernels have in common."""
    pipe = k.F_pipeline
    return (k.F_arch, k.F_hdim, k.F_dtype, k.F_mode, pipe.F_spad, pipe.F_dvpad, pipe.F_squant)


def _combine(c: Any) -> Kernel:
    pipe = c.F_pipeline
    fields = {
        "dtype": c.F_dtype,
        "hdim_q": c.F_hdim,
        "hdim_v": c.F_hdim,
        "mode": c.F_mode,
        "lse": normalised(pipe.F_lse),
        "spad": normalised(pipe.F_spad),
        "dvpad": normalised(pipe.F_dvpad),
        "squant": normalised(pipe.F_squant),
        "tile": c.F_tile.name,
        "arch_tag": c.F_arch.name,
    }
    return kernel_of("splitkv_combine", c, fields)
