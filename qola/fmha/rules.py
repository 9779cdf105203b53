"""What a config has to keep to so that Composable Kernel can be compiled for it, rule by rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from qola.errors import ExitCode, Finding, QolaError, Severity
from qola.fmha.archs import Archs, pinned
from qola.fmha.config import KernelConfig

#: What is wrong, and what would be right.
Wrong = Iterator[tuple[str, str]]
Check = Callable[[KernelConfig, Archs], Wrong]

_OPS = "example/ck_tile/01_fmha/codegen/ops"
_PIPELINE = "include/ck_tile/ops/fmha/pipeline"
#: Families that multiply Q with K, then P with V.
_FORWARD = ("fwd", "fwd_splitkv", "fwd_pagedkv", "batch_prefill")
#: Numbers of a tile's block, its products with waves, and those with matrix instructions.
_ARITY = {
    **dict.fromkeys(_FORWARD, (6, 2, 2)),
    "fwd_splitkv_combine": (1, 0, 0),
    "fwd_appendkv": (4, 0, 0),
    "bwd_dq_dk_dv": (9, 3, 2),
    "bwd_dot_do_o": (1, 0, 0),
    "bwd_convert_dq": (2, 0, 0),
}
#: Bytes of an element of K and V, 1 of the rest.
_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
#: Copies of K and V in LDS, of a pipeline that loads ahead.
_COPIES = {"qr_async": 3}
_SYMMETRIC = ((64, 64), (128, 128))


class InvalidError(QolaError):
    """A config that breaks rules."""

    exit_code = ExitCode.CODEGEN
    default_title = "no kernel can be made of the config"


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        reason: why there is one.
        source: where it is from: a file of CK, and words in it.
        severity: where it is a warning, CK is just said to have few such kernels.
    """

    name: str
    reason: str
    source: tuple[str, str]
    check: Check
    severity: Severity = "error"


@dataclass(frozen=True)
class Broken:
    """A rule that a config breaks, and how."""

    rule: Rule
    finding: Finding


RULES: dict[str, Rule] = {}
"""All rules by name: fifteen that CK's own dispatcher has too, the last of them in parts by family,
then those for tiles of one's own."""


def _rule(
    name: str, reason: str, source: tuple[str, str], severity: Severity = "error"
) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        RULES[name] = Rule(name, reason, source, check, severity)
        return check

    return add


def validate(config: KernelConfig, archs: Archs | None = None) -> tuple[Broken, ...]:
    """Return every rule that a config breaks, in the order of `RULES`.

    Args:
        archs: what there is for each arch, by default in the pinned CK.
    """
    known = pinned() if archs is None else archs
    return tuple(
        Broken(rule, Finding(f"{config.family} {rule.name}", *wrong, rule.reason, rule.severity))
        for rule in RULES.values()
        for wrong in rule.check(config, known)
    )


def check(config: KernelConfig, archs: Archs | None = None) -> None:
    """Refuse a config that CK cannot be compiled for.

    Raises:
        InvalidError: with all that is wrong.
    """
    findings = [broken.finding for broken in validate(config, archs)]
    if any(finding.severity == "error" for finding in findings):
        raise InvalidError(findings)


@_rule(
    "arch",
    "CK writes a kernel for one of its archs; gfx9 is gfx90a and gfx942 too",
    (f"{_OPS}/fmha_fwd.py", "def get_factory(target"),
)
def _arch(config: KernelConfig, archs: Archs) -> Wrong:
    known = sorted({offer.arch for offer in archs.offers if offer.arch})
    if config.arch is not None and config.arch not in known:
        yield f"arch {config.arch}", f"one of {', '.join(known)}"


@_rule(
    "family",
    "a family has kernels for some archs alone",
    (f"{_OPS}/fmha_fwd_splitkv.py", "def get_factory(target"),
)
def _family(config: KernelConfig, archs: Archs) -> Wrong:
    having = {offer.arch for offer in archs.offers if offer.family == config.family}
    known = {offer.arch for offer in archs.offers}
    if config.arch in known and config.arch not in having:
        words = ", ".join(sorted(arch or "no arch of its own" for arch in having))
        yield f"{config.family} for {config.arch or 'any arch'}", words or "a family of this CK"


@_rule(
    "dtype",
    "tiles are listed by data type, and an arch lacks some",
    (f"{_OPS}/fmha_fwd.py", "def get_hdim_tile_size_dict(dtype"),
)
def _dtype(config: KernelConfig, archs: Archs) -> Wrong:
    offers = archs.of(config.family, config.arch)
    if offers and config.dtype not in {offer.dtype for offer in offers}:
        yield f"dtype {config.dtype}", f"one of {', '.join(offer.dtype for offer in offers)}"


@_rule(
    "pipeline",
    "a pipeline is a header of CK that serves a family on an arch",
    ("example/ck_tile/01_fmha/codegen/cpp_symbol_map.py", "PIPELINE_MAP = {"),
)
def _pipeline(config: KernelConfig, archs: Archs) -> Wrong:
    offers = archs.of(config.family, config.arch)
    known = {name for offer in offers for name in offer.pipelines or (None,)}
    if offers and config.pipeline not in known and not (_by_trload(config) or _is_v3(config)):
        yield f"pipeline {config.pipeline}", f"one of {', '.join(sorted(map(str, known)))}"


def _by_trload(config: KernelConfig) -> bool:
    return config.pipeline == "qr_async_trload"


def _is_v3(config: KernelConfig) -> bool:
    return config.pipeline in ("v3", "qr_async_trload_v3")


@_rule(
    "trload",
    "loads that transpose are instructions of gfx950",
    (f"{_OPS}/fmha_fwd.py", "class KernelComponentFactoryGfx950"),
)
def _trload(config: KernelConfig, archs: Archs) -> Wrong:
    having = sorted({offer.arch or "" for offer in archs.offers if offer.trload})
    if (config.trload or _by_trload(config)) and config.arch not in having:
        yield f"transposing loads on {config.arch}", f"one of {', '.join(having)}"
    forward = config.family == "fwd" and config.trload is not None and not _is_v3(config)
    if forward and config.trload != _by_trload(config):
        found = f"trload {config.trload} with pipeline {config.pipeline}"
        yield found, "both of it, or neither"


@_rule(
    "v3",
    "the third version of the forward is for archs that CK lists it for",
    ("example/ck_tile/01_fmha/codegen/cpp_symbol_map.py", "PIPELINE_ENUM_MAP = {"),
)
def _v3(config: KernelConfig, archs: Archs) -> Wrong:
    having = {offer.arch for offer in archs.offers if config.pipeline in offer.pipelines}
    if _is_v3(config) and config.arch not in having:
        words = ", ".join(sorted(map(str, having)))
        yield f"pipeline {config.pipeline} on {config.arch}", words or "a pipeline of this CK"


@_rule(
    "hdim",
    "Q, K and V are read 8 elements at once, and a block holds at most 256 of a row",
    (f"{_PIPELINE}/block_fmha_pipeline_qr_ks_vs_async.hpp", "support multiple of vector(like 8x)"),
)
def _hdim(config: KernelConfig, _archs: Archs) -> Wrong:
    for name in ("hdim_q", "hdim_v"):
        size = getattr(config, name)
        if size % 8 or not 0 < size <= 256:
            yield f"{name} {size}", "a multiple of 8 up to 256"


@_rule(
    "hdim_192_128",
    "CK has this size for prefill, without bias and dropout",
    (f"{_OPS}/fmha_fwd.py", "this is used to speedup deepseek prefill case"),
    "warning",
)
def _hdim_192_128(config: KernelConfig, _archs: Archs) -> Wrong:
    more = [*([config.bias] if _has_bias(config) else []), *(["dropout"] * bool(config.dropout))]
    if config.family == "fwd" and (config.hdim_q, config.hdim_v) == (192, 128) and more:
        yield f"192x128 with {' and '.join(map(str, more))}", "192x128 with neither"


def _has_bias(config: KernelConfig) -> bool:
    return config.bias not in (None, "no")


@_rule(
    "logits_bias",
    "the soft cap is on logits without a bias",
    (f"{_OPS}/fmha_fwd.py", "logits_soft_cap is only allowed if no bias"),
)
def _logits_bias(config: KernelConfig, _archs: Archs) -> Wrong:
    if config.logits and _has_bias(config):
        yield f"logits with bias {config.bias}", "one of the two"


@_rule(
    "symmetric",
    "transposing loads, and the third version, are written for these sizes",
    (f"{_OPS}/fmha_fwd.py", "(hdim, hdim_v) not in [(64, 64), (128, 128)]"),
)
def _symmetric(config: KernelConfig, _archs: Archs) -> Wrong:
    size = config.hdim_q, config.hdim_v
    if (_by_trload(config) or _is_v3(config)) and size not in _SYMMETRIC:
        yield f"{config.pipeline} with {size[0]}x{size[1]}", "64x64 or 128x128"


@_rule(
    "arity",
    "a family's kernels are templates of so many numbers",
    (f"{_PIPELINE}/tile_fmha_shape.hpp", "BlockTile::at(number<5>{})"),
)
def _arity(config: KernelConfig, _archs: Archs) -> Wrong:
    found, wanted = _sizes(config), _ARITY[config.family]
    for what, has, needs in zip(("block", "waves", "warps"), found, wanted, strict=True):
        if has != needs:
            yield f"{has} numbers or products of {what}", f"{needs} for {config.family}"


def _sizes(config: KernelConfig) -> tuple[int, int, int]:
    tile = config.tile
    return len(tile.block), len(tile.waves), len(tile.warps)


def _is_whole(config: KernelConfig) -> bool:
    """Whether a tile has all the numbers that other rules are about, none of them 0."""
    every = [
        *config.tile.block,
        *(n for of in (*config.tile.waves, *config.tile.warps) for n in of),
    ]
    return _sizes(config) == _ARITY[config.family] and min(every) > 0


@_rule(
    "mfma",
    "of 256 head dimensions, CK schedules matrix instructions eight at a time",
    (f"{_PIPELINE}/block_fmha_pipeline_qr_ks_vs.hpp", "static_assert(NumMfmaInsts % 8 == 0)"),
)
def _mfma(config: KernelConfig, _archs: Archs) -> Wrong:
    # Archs whose waves have 64 lanes.
    wide = (config.arch or "").startswith("gfx9")
    if (config.family, config.pipeline, config.hdim_q) != ("fwd", "qr", 256) or not wide:
        return
    if _is_whole(config):
        tile = config.tile
        (m, n, k), (waves_m, waves_n, _) = tile.warps[0], tile.waves[0]
        count = (tile.block[0] // m) * (tile.block[1] // n) * (tile.block[2] // k)
        count //= waves_m * waves_n
        if count % 8:
            yield f"{count} matrix instructions a step", "a multiple of 8"


@_rule(
    "per_cu",
    "-1 leaves the blocks of a compute unit to the pipeline; others are asked of the compiler",
    (f"{_OPS}/fmha_fwd.py", "-1 will let pipeline decide the occupancy"),
)
def _per_cu(config: KernelConfig, _archs: Archs) -> Wrong:
    if config.tile.per_cu is not None and config.tile.per_cu != -1 and config.tile.per_cu < 1:
        yield f"{config.tile.per_cu} blocks", "-1, or 1 and more"


@_rule(
    "waves",
    "the waves of the first product are those of the others, or a part of them",
    (f"{_PIPELINE}/tile_fmha_shape.hpp", "static_assert(NumGemm1Warps % NumGemm0Warps == 0)"),
)
def _waves(config: KernelConfig, _archs: Archs) -> Wrong:
    counts = [m * n * k for m, n, k in config.tile.waves]
    if any(n < 1 for of in config.tile.waves for n in of):
        yield "a product without waves", "1 and more along m, n and k"
    elif any(count % counts[0] for count in counts):
        yield f"products of {', '.join(map(str, counts))} waves", "multiples of the first"


@_rule(
    "group_padding",
    "lengths of a group are not known to be those of whole tiles",
    (f"{_OPS}/fmha_fwd.py", "in group mode, spad/skpad must be true"),
)
def _group_padding(config: KernelConfig, _archs: Archs) -> Wrong:
    for name in ("spad", "skpad"):
        if config.mode == "group" and getattr(config, name) is False:
            yield f"mode group without {name}", f"{name}, or mode batch"


@_rule(
    "async_padding",
    "what is loaded ahead is checked against lengths and head dimensions",
    (f"{_PIPELINE}/block_fmha_pipeline_qr_ks_vs_async.hpp", "Problem::kPadHeadDimV == true"),
)
def _async_padding(config: KernelConfig, _archs: Archs) -> Wrong:
    for name in ("spad", "dpad", "dvpad"):
        if config.pipeline == "qr_async" and not getattr(config, name):
            yield f"qr_async without {name}", f"{name}, or another pipeline"


@_rule(
    "paged",
    "paged-KV prefill reads K and V by a table of pages",
    (f"{_OPS}/fmha_pagedkv_prefill.py", "F_pagedkv"),
)
def _paged(config: KernelConfig, _archs: Archs) -> Wrong:
    if config.family == "fwd_pagedkv" and not config.pagedkv:
        yield "no pagedkv", "pagedkv"


@_rule(
    "combine_tile",
    "splits are put together so many columns of O at a time",
    (f"{_OPS}/fmha_fwd_splitkv.py", "static_assert({F_bn1} % {F_bn1comb} == 0)"),
)
def _combine_tile(config: KernelConfig, _archs: Archs) -> Wrong:
    combines = config.family == "fwd_splitkv_combine" and _is_whole(config)
    if combines and config.hdim_v % config.tile.block[0]:
        yield f"{config.tile.block[0]} columns of {config.hdim_v}", "a divisor of hdim_v"


@_rule(
    "dbias",
    "only a bias of elements has a gradient",
    (f"{_OPS}/fmha_bwd.py", 'if (bias == "no" or bias == "alibi") and dbias == "t"'),
)
def _dbias(config: KernelConfig, _archs: Archs) -> Wrong:
    if config.dbias and config.bias != "bias":
        yield f"dbias with bias {config.bias}", "bias bias, or no dbias"


@_rule(
    "dropout",
    "the backward has a kind of dropout where it has dropout",
    ("example/ck_tile/01_fmha/codegen/cpp_symbol_map.py", "DROPOUT_CHECK_MAP = {"),
)
def _dropout(config: KernelConfig, _archs: Archs) -> Wrong:
    kind = config.dropout_kind
    if kind is not None and (kind != "no") != config.dropout:
        yield f"dropout {config.dropout} of kind {kind}", "dropout and a kind, or no of both"
    if kind is not None and kind.endswith("_storerandval") != config.randval:
        yield f"randval {config.randval} with kind {kind}", "a kind that ends with _storerandval"


@_rule(
    "trload_padding",
    "transposing loads of the backward take whole head dimensions or multiples of 8",
    (f"{_OPS}/fmha_bwd.py", "tr_load can only work with 8 pad"),
)
def _trload_padding(config: KernelConfig, _archs: Archs) -> Wrong:
    loads = config.family == "bwd_dq_dk_dv" and config.trload
    if loads and (config.dpad != config.dvpad or config.dpad == 1):
        yield f"dpad {config.dpad}, dvpad {config.dvpad}", "0 or 8, the same of both"


@_rule(
    "max_rows",
    "tiles for few rows of Q are for one length a batch, without a mask",
    (f"{_OPS}/fmha_bwd.py", 'if (mode == "group" or ("no" not in mask)) and tile.max_seq_q != 0'),
)
def _max_rows(config: KernelConfig, _archs: Archs) -> Wrong:
    if config.tile.max_rows and (config.mode == "group" or config.mask):
        yield f"at most {config.tile.max_rows} rows in mode {config.mode}", "mode batch, no mask"


@_rule(
    "warps",
    "matrix instructions of an arch have certain sizes",
    (f"{_OPS}/fmha_fwd.py", "F_wm0: int"),
)
def _warps(config: KernelConfig, archs: Archs) -> Wrong:
    offers = [of for of in archs.offers if (of.arch, of.dtype) == (config.arch, config.dtype)]
    known = {warps for offer in offers for warps in offer.warps}
    for warps in dict.fromkeys(config.tile.warps):
        if offers and warps not in known:
            words = ", ".join("x".join(map(str, one)) for one in sorted(known))
            yield f"{'x'.join(map(str, warps))} for {config.dtype}", f"one of {words}"


@_rule(
    "whole_tile",
    "a tile is a number of waves' tiles, and the head dimension a number of steps",
    (f"{_PIPELINE}/tile_fmha_shape.hpp", "kQKHeaddim should be divisible by kK0"),
)
def _whole_tile(config: KernelConfig, _archs: Archs) -> Wrong:
    if config.family not in _FORWARD or not _is_whole(config):
        return
    m0, n0, k0, n1, k1, most = config.tile.block
    (waves_m, waves_n, _), (waves_m1, waves_n1, _) = config.tile.waves
    (m, n, k), (of_m1, of_n1, of_k1) = config.tile.warps
    parts = {
        "bm0": (m0, waves_m * m),
        "bm0 of P": (m0, waves_m1 * of_m1),
        "bn0": (n0, waves_n * n),
        "bk0": (k0, k),
        "bn1": (n1, waves_n1 * of_n1),
        "bk1": (k1, of_k1),
        "bk0max": (most, k0),
        "bn0 of P": (n0, k1),
    }
    for name, (size, step) in parts.items():
        if size % step:
            yield f"{name} {size}", f"a multiple of {step}"
    if most < config.hdim_q or n1 < config.hdim_v:
        sizes = f"{config.hdim_q}x{config.hdim_v}"
        yield f"a tile of {most}x{n1} for head dimensions {sizes}", "at least as much"


@_rule(
    "lds",
    "K and V of a step lie in the LDS of a block, as often as a pipeline loads ahead",
    ("include/ck_tile/core/arch/arch.hpp", "get_smem_capacity()"),
)
def _lds(config: KernelConfig, archs: Archs) -> Wrong:
    if config.family not in _FORWARD or not _is_whole(config):
        return
    _, n0, k0, n1, k1, _ = config.tile.block
    size = _BYTES.get(config.dtype, 1) * _COPIES.get(config.pipeline or "", 1)
    least, most = size * max(n0 * k0, n1 * k1), archs.lds_of(config.arch)
    if least > most:
        yield f"{least} bytes of LDS at least", f"up to {most} on {config.arch or 'any arch'}"
