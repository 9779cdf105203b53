"""Rules for archs, families, data types and pipelines."""

from __future__ import annotations

from qola.kernel.archs import Archs
from qola.kernel.config import KernelConfig
from qola.kernel.rules.model import OPS, Wrong, by_trload, is_v3, rule


@rule(
    "arch",
    "CK writes a kernel for one of its archs; gfx9 is gfx90a and gfx942 too",
    (f"{OPS}/fmha_fwd.py", "def get_factory(target"),
)
def arch(config: KernelConfig, archs: Archs) -> Wrong:
    known = sorted({offer.arch for offer in archs.offers if offer.arch})
    if config.arch is not None and config.arch not in known:
        yield f"arch {config.arch}", f"one of {', '.join(known)}"


@rule(
    "family",
    "a family only has kernels for some archs",
    (f"{OPS}/fmha_fwd_splitkv.py", "def get_factory(target"),
)
def family(config: KernelConfig, archs: Archs) -> Wrong:
    having = {offer.arch for offer in archs.offers if offer.family == config.family}
    known = {offer.arch for offer in archs.offers}
    if config.arch in known and config.arch not in having:
        words = ", ".join(sorted(arch or "no arch of its own" for arch in having))
        yield f"{config.family} for {config.arch or 'any arch'}", words or "a family of this CK"


@rule(
    "dtype",
    "an arch only has tiles for some data types",
    (f"{OPS}/fmha_fwd.py", "def get_hdim_tile_size_dict(dtype"),
)
def dtype(config: KernelConfig, archs: Archs) -> Wrong:
    offers = archs.select(config.family, config.arch)
    if offers and config.dtype not in {offer.dtype for offer in offers}:
        yield f"dtype {config.dtype}", f"one of {', '.join(offer.dtype for offer in offers)}"


@rule(
    "pipeline",
    "a pipeline is a header of CK that serves a family on an arch",
    ("example/ck_tile/01_fmha/codegen/cpp_symbol_map.py", "PIPELINE_MAP = {"),
)
def pipeline(config: KernelConfig, archs: Archs) -> Wrong:
    offers = archs.select(config.family, config.arch)
    known = {name for offer in offers for name in offer.pipelines or (None,)}
    if offers and config.pipeline not in known and not (by_trload(config) or is_v3(config)):
        yield f"pipeline {config.pipeline}", f"one of {', '.join(sorted(map(str, known)))}"


@rule(
    "trload",
    "transposing loads are instructions of gfx950",
    (f"{OPS}/fmha_fwd.py", "class KernelComponentFactoryGfx950"),
)
def trload(config: KernelConfig, archs: Archs) -> Wrong:
    having = sorted({offer.arch or "" for offer in archs.offers if offer.trload})
    if (config.trload or by_trload(config)) and config.arch not in having:
        yield f"transposing loads on {config.arch}", f"one of {', '.join(having)}"
    forward = config.family == "fwd" and config.trload is not None and not is_v3(config)
    if forward and config.trload != by_trload(config):
        found = f"trload {config.trload} with pipeline {config.pipeline}"
        yield found, "both, or neither"


@rule(
    "v3",
    "CK lists the archs of the third version of the forward",
    ("example/ck_tile/01_fmha/codegen/cpp_symbol_map.py", "PIPELINE_ENUM_MAP = {"),
)
def v3(config: KernelConfig, archs: Archs) -> Wrong:
    having = {offer.arch for offer in archs.offers if config.pipeline in offer.pipelines}
    if is_v3(config) and config.arch not in having:
        words = ", ".join(sorted(map(str, having)))
        yield f"pipeline {config.pipeline} on {config.arch}", words or "a pipeline of this CK"
