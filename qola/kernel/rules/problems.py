"""Rules for the problems of a kernel: head dimensions, masks, bias, dropout, padding."""

from __future__ import annotations

from qola.kernel.archs import Archs
from qola.kernel.config import KernelConfig
from qola.kernel.rules.model import OPS, PIPELINE, Wrong, by_trload, is_v3, rule

_SYMMETRIC = ((64, 64), (128, 128))


@rule(
    "hdim",
    "Q, K and V are read 8 elements at once, and a block holds at most 256 of a row",
    (f"{PIPELINE}/block_fmha_pipeline_qr_ks_vs_async.hpp", "support multiple of vector(like 8x)"),
)
def hdim(config: KernelConfig, _archs: Archs) -> Wrong:
    for name in ("hdim_q", "hdim_v"):
        size = getattr(config, name)
        if size % 8 or not 0 < size <= 256:
            yield f"{name} {size}", "a multiple of 8 up to 256"


def _has_bias(config: KernelConfig) -> bool:
    return config.bias not in (None, "no")


@rule(
    "hdim_192_128",
    "CK has this size for prefill, without bias and dropout",
    (f"{OPS}/fmha_fwd.py", "this is used to speedup deepseek prefill case"),
    "warning",
)
def hdim_192_128(config: KernelConfig, _archs: Archs) -> Wrong:
    more = [*([config.bias] if _has_bias(config) else []), *(["dropout"] * bool(config.dropout))]
    if config.family == "fwd" and (config.hdim_q, config.hdim_v) == (192, 128) and more:
        yield f"192x128 with {' and '.join(map(str, more))}", "192x128 with neither"


@rule(
    "logits_bias",
    "the soft cap applies to logits without a bias",
    (f"{OPS}/fmha_fwd.py", "logits_soft_cap is only allowed if no bias"),
)
def logits_bias(config: KernelConfig, _archs: Archs) -> Wrong:
    if config.logits and _has_bias(config):
        yield f"logits with bias {config.bias}", "one of the two"


@rule(
    "symmetric",
    "transposing loads and the third version only support these sizes",
    (f"{OPS}/fmha_fwd.py", "(hdim, hdim_v) not in [(64, 64), (128, 128)]"),
)
def symmetric(config: KernelConfig, _archs: Archs) -> Wrong:
    size = config.hdim_q, config.hdim_v
    if (by_trload(config) or is_v3(config)) and size not in _SYMMETRIC:
        yield f"{config.pipeline} with {size[0]}x{size[1]}", "64x64 or 128x128"


@rule(
    "group_padding",
    "sequence lengths of a group may not be multiples of the tile",
    (f"{OPS}/fmha_fwd.py", "in group mode, spad/skpad must be true"),
)
def group_padding(config: KernelConfig, _archs: Archs) -> Wrong:
    for name in ("spad", "skpad"):
        if config.mode == "group" and getattr(config, name) is False:
            yield f"mode group without {name}", f"{name}, or mode batch"


@rule(
    "async_padding",
    "prefetching checks sequence lengths and head dimensions",
    (f"{PIPELINE}/block_fmha_pipeline_qr_ks_vs_async.hpp", "Problem::kPadHeadDimV == true"),
)
def async_padding(config: KernelConfig, _archs: Archs) -> Wrong:
    for name in ("spad", "dpad", "dvpad"):
        if config.pipeline == "qr_async" and not getattr(config, name):
            yield f"qr_async without {name}", f"{name}, or another pipeline"


@rule(
    "paged",
    "paged-KV prefill reads K and V through a block table",
    (f"{OPS}/fmha_pagedkv_prefill.py", "F_pagedkv"),
)
def paged(config: KernelConfig, _archs: Archs) -> Wrong:
    if config.family == "fwd_pagedkv" and not config.pagedkv:
        yield "no pagedkv", "pagedkv"


@rule(
    "dbias",
    "only an elementwise bias has a gradient",
    (f"{OPS}/fmha_bwd.py", 'if (bias == "no" or bias == "alibi") and dbias == "t"'),
)
def dbias(config: KernelConfig, _archs: Archs) -> Wrong:
    if config.dbias and config.bias != "bias":
        yield f"dbias with bias {config.bias}", "bias bias, or no dbias"


@rule(
    "dropout",
    "a backward with dropout has a kind of dropout",
    ("example/ck_tile/01_fmha/codegen/cpp_symbol_map.py", "DROPOUT_CHECK_MAP = {"),
)
def dropout(config: KernelConfig, _archs: Archs) -> Wrong:
    kind = config.dropout_kind
    if kind is not None and (kind != "no") != config.dropout:
        yield f"dropout {config.dropout} of kind {kind}", "dropout and a kind, or neither"
    if kind is not None and kind.endswith("_storerandval") != config.randval:
        yield f"randval {config.randval} with kind {kind}", "a kind that ends with _storerandval"


@rule(
    "trload_padding",
    "transposing loads of the backward take whole head dimensions or multiples of 8",
    (f"{OPS}/fmha_bwd.py", "tr_load can only work with 8 pad"),
)
def trload_padding(config: KernelConfig, _archs: Archs) -> Wrong:
    loads = config.family == "bwd_dq_dk_dv" and config.trload
    if loads and (config.dpad != config.dvpad or config.dpad == 1):
        yield f"dpad {config.dpad}, dvpad {config.dvpad}", "0 or 8, the same for both"


@rule(
    "max_rows",
    "tiles for a short seqlen_q need mode batch and no mask",
    (f"{OPS}/fmha_bwd.py", 'if (mode == "group" or ("no" not in mask)) and tile.max_seq_q != 0'),
)
def max_rows(config: KernelConfig, _archs: Archs) -> Wrong:
    if config.tile.max_rows and (config.mode == "group" or config.mask):
        yield f"at most {config.tile.max_rows} rows in mode {config.mode}", "mode batch, no mask"
