"""Torch modules for each combination of forward variants, as in ROCm/QoLA."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product

from qola.manifest.fields import FILTERED, FWD_VARIANTS
from qola.manifest.types import BuildMode, FwdVariant, Manifest, ModuleSpec

BASE = "module_mha_varlen_fwd"
"""The entry of AITER with their sources and flags."""

_DTYPES = ("bf16", "fp16")
_BIASES = {"no": "nbias", "bias": "bias", "alibi": "alibi"}
_FLAGS = ("mask", "lse", "dropout", "skip", "sink")


def expand_variants(variants: Iterable[FwdVariant]) -> dict[str, tuple[FwdVariant, ...]]:
    """Return the variants of each module, by its name.

    Variants can share modules. A variant without `dtype` stands for bf16 and fp16, as in ROCm/QoLA.
    """
    found: dict[str, tuple[FwdVariant, ...]] = {}
    for variant in variants:
        for name, one in _combinations(variant):
            found[name] = (*found.get(name, ()), one)
    return dict(sorted(found.items()))


def _combinations(variant: FwdVariant) -> Iterator[tuple[str, FwdVariant]]:
    for dtype, bias, *flags in product(
        variant.dtype or _DTYPES, variant.bias, *(getattr(variant, name) for name in _FLAGS)
    ):
        words = [name if on else f"n{name}" for name, on in zip(_FLAGS, flags, strict=True)]
        mask, lse, dropout, skip, sink = flags
        one = replace(variant, mask=(mask,), lse=(lse,), dropout=(dropout,), skip=(skip,))
        one = replace(one, dtype=(dtype,), bias=(bias,), sink=(sink,))
        yield "_".join(["mha_varlen_fwd", dtype, _BIASES[bias], *words]), one


def specs(manifest: Manifest, mode: BuildMode | None) -> tuple[ModuleSpec, ...]:
    """Return implicit ``[[modules]]`` tables for the modules of variants in mode pybind.

    There are none if the manifest declares a module whose kernels the variants select.
    """
    declared = {module.name for module in manifest.modules}
    if (mode or manifest.mode) != "pybind" or declared & {*FILTERED[FWD_VARIANTS]}:
        return ()
    return tuple(ModuleSpec(name, "pybind") for name in expand_variants(manifest.fwd_variants))


def all_modules(manifest: Manifest, mode: BuildMode | None) -> tuple[ModuleSpec, ...]:
    """Return the modules that a manifest declares, and the modules of its variants."""
    return (*manifest.modules, *specs(manifest, mode))
