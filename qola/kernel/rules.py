"""Rules of configs that Composable Kernel does not check, or checks late or silently.

They decide before anything is generated: the tables and filters of the generators, the conditions
of the dispatch, and sizes whose remainders templates drop. CK's other conditions are static
assertions, which the compiler reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from qola.kernel.archs import Archs, pinned
from qola.kernel.config import KernelConfig
from qola_base.errors import ExitCode, Finding, QolaError

#: Pairs of the found and the expected value.
Wrong = Iterator[tuple[str, str]]
Check = Callable[[KernelConfig, Archs], Wrong]

OPS = "example/ck_tile/01_fmha/codegen/ops"
PIPELINE = "include/ck_tile/ops/fmha/pipeline"
"""Directories of Composable Kernel with the sources of rules."""

_SYMMETRIC = ((64, 64), (128, 128))
#: Families that multiply Q with K, then P with V.
_FORWARD = ("fwd", "fwd_splitkv", "fwd_pagedkv", "batch_prefill")
#: Counts of a tile's block sizes, its products with waves, and those with matrix instructions.
_ARITY = {
    **dict.fromkeys(_FORWARD, (6, 2, 2)),
    "fwd_splitkv_combine": (1, 0, 0),
    "fwd_appendkv": (4, 0, 0),
    "bwd_dq_dk_dv": (9, 3, 2),
    "bwd_dot_do_o": (1, 0, 0),
    "bwd_convert_dq": (2, 0, 0),
}
#: Append-KV: threads of a block, and bytes that a thread reads at once.
_APPENDING, _READ = 256, 16
#: Bytes of an element of K and V; 1 for other data types.
_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}


class InvalidError(QolaError, title="the config is not a valid kernel", exit_code=ExitCode.CODEGEN):
    """A config that breaks rules."""


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        source: a file of CK, and text in it.
    """

    name: str
    reason: str
    source: tuple[str, str]
    check: Check


@dataclass(frozen=True)
class Broken:
    """A rule that a config breaks, with the finding."""

    rule: Rule
    finding: Finding


RULES: dict[str, Rule] = {}
"""All rules by name."""


def validate(config: KernelConfig, archs: Archs | None = None) -> tuple[Broken, ...]:
    """Return every rule that a config breaks, in order; `archs` are the pinned CK's by default."""
    known = pinned() if archs is None else archs
    return tuple(
        Broken(rule, Finding(f"{config.family} {rule.name}", *wrong, rule.reason))
        for rule in RULES.values()
        for wrong in rule.check(config, known)
    )


def check(config: KernelConfig, archs: Archs | None = None) -> None:
    """Raise InvalidError with all findings if a config breaks rules."""
    if findings := [broken.finding for broken in validate(config, archs)]:
        raise InvalidError(findings)


def _rule(reason: str, source: tuple[str, str]) -> Callable[[Check], Check]:
    """Make a rule of a check, which it is named after."""

    def add(check: Check) -> Check:
        name = check.__name__.removeprefix("_")
        RULES[name] = Rule(name, reason, source, check)
        return check

    return add


def _by_trload(config: KernelConfig) -> bool:
    return config.pipeline == "qr_async_trload"


def _is_v3(config: KernelConfig) -> bool:
    return config.pipeline in ("v3", "qr_async_trload_v3")


@_rule(
    "CK writes a kernel for one of its archs; gfx9 is gfx90a and gfx942 too",
    (f"{OPS}/fmha_fwd.py", "def get_factory(target"),
)
def _arch(config: KernelConfig, archs: Archs) -> Wrong:
    known = sorted({offer.arch for offer in archs.offers if offer.arch})
    if config.arch is not None and config.arch not in known:
        yield f"arch {config.arch}", f"one of {', '.join(known)}"


@_rule(
    "a family only has kernels for some archs",
    (f"{OPS}/fmha_fwd_splitkv.py", "def get_factory(target"),
)
def _family(config: KernelConfig, archs: Archs) -> Wrong:
    having = {offer.arch for offer in archs.offers if offer.family == config.family}
    known = {offer.arch for offer in archs.offers}
    if config.arch in known and config.arch not in having:
        words = ", ".join(sorted(arch or "no arch of its own" for arch in having))
        yield f"{config.family} for {config.arch or 'any arch'}", words or "a family of this CK"


@_rule(
    "an arch only has tiles for some data types",
    (f"{OPS}/fmha_fwd.py", "def get_hdim_tile_size_dict(dtype"),
)
def _dtype(config: KernelConfig, archs: Archs) -> Wrong:
    offers = archs.select(config.family, config.arch)
    if offers and config.dtype not in {offer.dtype for offer in offers}:
        yield f"dtype {config.dtype}", f"one of {', '.join(offer.dtype for offer in offers)}"


@_rule(
    "a pipeline is a header of CK that serves a family on an arch",
    ("example/ck_tile/01_fmha/codegen/cpp_symbol_map.py", "PIPELINE_MAP = {"),
)
def _pipeline(config: KernelConfig, archs: Archs) -> Wrong:
    offers = archs.select(config.family, config.arch)
    known = {name for offer in offers for name in offer.pipelines or (None,)}
    if offers and config.pipeline not in known and not (_by_trload(config) or _is_v3(config)):
        yield f"pipeline {config.pipeline}", f"one of {', '.join(sorted(map(str, known)))}"


@_rule(
    "transposing loads are instructions of gfx950",
    (f"{OPS}/fmha_fwd.py", "class KernelComponentFactoryGfx950"),
)
def _trload(config: KernelConfig, archs: Archs) -> Wrong:
    having = sorted({offer.arch or "" for offer in archs.offers if offer.trload})
    if (config.trload or _by_trload(config)) and config.arch not in having:
        yield f"transposing loads on {config.arch}", f"one of {', '.join(having)}"
    forward = config.family == "fwd" and config.trload is not None and not _is_v3(config)
    if forward and config.trload != _by_trload(config):
        found = f"trload {config.trload} with pipeline {config.pipeline}"
        yield found, "both, or neither"


@_rule(
    "CK lists the archs of the third version of the forward",
    ("example/ck_tile/01_fmha/codegen/cpp_symbol_map.py", "PIPELINE_ENUM_MAP = {"),
)
def _v3(config: KernelConfig, archs: Archs) -> Wrong:
    having = {offer.arch for offer in archs.offers if config.pipeline in offer.pipelines}
    if _is_v3(config) and config.arch not in having:
        words = ", ".join(sorted(map(str, having)))
        yield f"pipeline {config.pipeline} on {config.arch}", words or "a pipeline of this CK"


@_rule(
    "Q, K and V are read 8 elements at once, and a block holds at most 256 of a row",
    (f"{PIPELINE}/block_fmha_pipeline_qr_ks_vs_async.hpp", "support multiple of vector(like 8x)"),
)
def _hdim(config: KernelConfig, _archs: Archs) -> Wrong:
    for name in ("hdim_q", "hdim_v"):
        size = getattr(config, name)
        if size % 8 or not 0 < size <= 256:
            yield f"{name} {size}", "a multiple of 8 up to 256"


@_rule(
    "the soft cap applies to logits without a bias",
    (f"{OPS}/fmha_fwd.py", "logits_soft_cap is only allowed if no bias"),
)
def _logits_bias(config: KernelConfig, _archs: Archs) -> Wrong:
    if config.logits and config.bias not in (None, "no"):
        yield f"logits with bias {config.bias}", "one of the two"


@_rule(
    "transposing loads and the third version only support these sizes",
    (f"{OPS}/fmha_fwd.py", "(hdim, hdim_v) not in [(64, 64), (128, 128)]"),
)
def _symmetric(config: KernelConfig, _archs: Archs) -> Wrong:
    size = config.hdim_q, config.hdim_v
    if (_by_trload(config) or _is_v3(config)) and size not in _SYMMETRIC:
        yield f"{config.pipeline} with {size[0]}x{size[1]}", "64x64 or 128x128"


def _sizes(config: KernelConfig) -> tuple[int, int, int]:
    tile = config.tile
    return len(tile.block), len(tile.waves), len(tile.warps)


def _numbers(config: KernelConfig) -> list[int]:
    tile = config.tile
    return [*tile.block, *(n for of in (*tile.waves, *tile.warps) for n in of)]


def _uneven(parts: Mapping[str, tuple[int, int]]) -> Wrong:
    """Yield the sizes that are not multiples of their divisors."""
    for name, (size, step) in parts.items():
        if size % step:
            yield f"{name} {size}", f"a multiple of {step}"


def _is_whole(config: KernelConfig) -> bool:
    """Whether a tile has all the numbers that other rules use, and all are positive."""
    return _sizes(config) == _ARITY[config.family] and min(_numbers(config)) > 0


def _too_small(config: KernelConfig, of_q: int, of_v: int) -> Wrong:
    if of_q < config.hdim_q or of_v < config.hdim_v:
        sizes = f"{config.hdim_q}x{config.hdim_v}"
        yield f"a tile of {of_q}x{of_v} for head dimensions {sizes}", "at least as much"


@_rule(
    "the templates of a family have a fixed number of sizes",
    (f"{PIPELINE}/tile_fmha_shape.hpp", "BlockTile::at(number<5>{})"),
)
def _arity(config: KernelConfig, _archs: Archs) -> Wrong:
    found, wanted = _sizes(config), _ARITY[config.family]
    for part, has, needs in zip(("block", "waves", "warps"), found, wanted, strict=True):
        if has != needs:
            yield f"{has} numbers or products of {part}", f"{needs} for {config.family}"
    # CK leaves convert_dq's second number at 0 if it is unused.
    if config.family != "bwd_convert_dq" and any(number < 1 for number in _numbers(config)):
        yield f"{min(_numbers(config))} in a tile", "numbers above 0"


@_rule(
    "-1 leaves the blocks per compute unit to the pipeline; other values are compiler hints",
    (f"{OPS}/fmha_fwd.py", "-1 will let pipeline decide the occupancy"),
)
def _per_cu(config: KernelConfig, _archs: Archs) -> Wrong:
    if config.tile.per_cu is not None and config.tile.per_cu != -1 and config.tile.per_cu < 1:
        yield f"{config.tile.per_cu} blocks", "-1, or 1 and more"


@_rule(
    "sequence lengths of a group may not be multiples of the tile",
    (f"{OPS}/fmha_fwd.py", "in group mode, spad/skpad must be true"),
)
def _group_padding(config: KernelConfig, _archs: Archs) -> Wrong:
    for name in ("spad", "skpad"):
        if config.mode == "group" and getattr(config, name) is False:
            yield f"mode group without {name}", f"{name}, or mode batch"


@_rule(
    "prefetching checks sequence lengths and head dimensions",
    (f"{PIPELINE}/block_fmha_pipeline_qr_ks_vs_async.hpp", "Problem::kPadHeadDimV == true"),
)
def _async_padding(config: KernelConfig, _archs: Archs) -> Wrong:
    for name in ("spad", "dpad", "dvpad"):
        if config.pipeline == "qr_async" and not getattr(config, name):
            yield f"qr_async without {name}", f"{name}, or another pipeline"


@_rule(
    "paged-KV prefill reads K and V through a block table",
    (f"{OPS}/fmha_pagedkv_prefill.py", "F_pagedkv"),
)
def _paged(config: KernelConfig, _archs: Archs) -> Wrong:
    if config.family == "fwd_pagedkv" and not config.pagedkv:
        yield "no pagedkv", "pagedkv"


@_rule(
    "only an elementwise bias has a gradient",
    (f"{OPS}/fmha_bwd.py", 'if (bias == "no" or bias == "alibi") and dbias == "t"'),
)
def _dbias(config: KernelConfig, _archs: Archs) -> Wrong:
    if config.dbias and config.bias != "bias":
        yield f"dbias with bias {config.bias}", "bias bias, or no dbias"


@_rule(
    "a backward with dropout has a kind of dropout",
    ("example/ck_tile/01_fmha/codegen/cpp_symbol_map.py", "DROPOUT_CHECK_MAP = {"),
)
def _dropout(config: KernelConfig, _archs: Archs) -> Wrong:
    kind = config.dropout_kind
    if kind is not None and (kind != "no") != config.dropout:
        yield f"dropout {config.dropout} of kind {kind}", "dropout and a kind, or neither"
    if kind is not None and kind.endswith("_storerandval") != config.randval:
        yield f"randval {config.randval} with kind {kind}", "a kind that ends with _storerandval"


@_rule(
    "transposing loads of the backward take whole head dimensions or multiples of 8",
    (f"{OPS}/fmha_bwd.py", "tr_load can only work with 8 pad"),
)
def _trload_padding(config: KernelConfig, _archs: Archs) -> Wrong:
    loads = config.family == "bwd_dq_dk_dv" and config.trload
    if loads and (config.dpad != config.dvpad or config.dpad == 1):
        yield f"dpad {config.dpad}, dvpad {config.dvpad}", "0 or 8, the same for both"


@_rule(
    "tiles for a short seqlen_q need mode batch and no mask",
    (f"{OPS}/fmha_bwd.py", 'if (mode == "group" or ("no" not in mask)) and tile.max_seq_q != 0'),
)
def _max_rows(config: KernelConfig, _archs: Archs) -> Wrong:
    if config.tile.max_rows and (config.mode == "group" or config.mask):
        yield f"at most {config.tile.max_rows} rows in mode {config.mode}", "mode batch, no mask"


@_rule("an arch has matrix instructions of fixed sizes", (f"{OPS}/fmha_fwd.py", "F_wm0: int"))
def _warps(config: KernelConfig, archs: Archs) -> Wrong:
    offers = [of for of in archs.offers if (of.arch, of.dtype) == (config.arch, config.dtype)]
    known = {warps for offer in offers for warps in offer.warps}
    for warps in dict.fromkeys(config.tile.warps):
        if offers and warps not in known:
            words = ", ".join("x".join(map(str, one)) for one in sorted(known))
            yield f"{'x'.join(map(str, warps))} for {config.dtype}", f"one of {words}"


@_rule(
    "a tile consists of whole tiles of waves, and the head dimension of whole steps",
    (f"{PIPELINE}/tile_fmha_shape.hpp", "kQKHeaddim should be divisible by kK0"),
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
    yield from _uneven(parts)
    yield from _too_small(config, most, n1)


@_rule(
    "the threads of a block copy whole rows, and each a part of one",
    (f"{PIPELINE}/block_fmha_pipeline_problem.hpp", "static constexpr index_t kBlockSize = 256"),
)
def _append_tile(config: KernelConfig, _archs: Archs) -> Wrong:
    if config.family != "fwd_appendkv" or not _is_whole(config):
        return
    of_rows, of_columns, of_q, of_v = config.tile.block
    yield from _too_small(config, of_q, of_v)
    each = _READ // _BYTES.get(config.dtype, 1)
    lanes = 64 if (config.arch or "").startswith("gfx9") else 32
    for name, size, rows in (
        ("bd", of_q, {"bs": of_rows, "bsk": of_columns}),
        ("bdv", of_v, {"bsk of V": of_columns}),
    ):
        threads = size // each
        if size % each or lanes % threads:
            yield f"{name} {size}", f"{each} times a power of two, {each * lanes} at most"
        else:
            yield from _uneven({n: (count, _APPENDING // threads) for n, count in rows.items()})


@_rule(
    "the backward's products consist of whole tiles of waves, and cover the head dimension of Q",
    (f"{PIPELINE}/tile_fmha_shape.hpp", "struct TileFmhaBwdShape"),
)
def _backward_tile(config: KernelConfig, _archs: Archs) -> Wrong:
    if config.family != "bwd_dq_dk_dv" or not _is_whole(config):
        return
    m0, n0, k0, k1, k2, _, k4, of_q, of_v = config.tile.block
    (m_s, n_s, _), (m_v, n_v, _), (m_q, n_q, _) = config.tile.waves
    (m, n, k), (of_m, of_n, of_k) = config.tile.warps
    if of_q != config.hdim_q:
        yield f"bhdq {of_q}", str(config.hdim_q)
    parts = {
        "bm0": (m0, m_s * m),
        "bn0": (n0, n_s * n),
        "bk0": (k0, k),
        "bk2": (k2, k),
        "bn0 of dV": (n0, m_v * of_m),
        "bhdv": (of_v, n_v * of_n),
        "bk1": (k1, of_k),
        "bm0 of dQ": (m0, m_q * m),
        "bhdq": (of_q, n_q * n),
        "bk4": (k4, min(k, k4)),
        "bhdq of steps": (of_q, k0),
        "bhdv of steps": (of_v, k2),
        "bn0 of steps": (n0, k4),
    }
    yield from _uneven(parts)
