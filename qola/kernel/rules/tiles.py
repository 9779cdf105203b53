"""Rules for tiles."""

from __future__ import annotations

from collections.abc import Mapping

from qola.kernel.archs import Archs
from qola.kernel.config import KernelConfig
from qola.kernel.rules.model import OPS, PIPELINE, Wrong, rule

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
#: Steps of the head dimension in addition to powers of two.
_HEAD_TILES = (48, 96, 160, 192)
#: Bytes of an element of K and V; 1 for other data types.
_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
#: Copies of K and V in LDS, for pipelines that prefetch.
_COPIES = {"qr_async": 3}


@rule(
    "arity",
    "the templates of a family have a fixed number of sizes",
    (f"{PIPELINE}/tile_fmha_shape.hpp", "BlockTile::at(number<5>{})"),
)
def arity(config: KernelConfig, _archs: Archs) -> Wrong:
    found, wanted = _sizes(config), _ARITY[config.family]
    for part, has, needs in zip(("block", "waves", "warps"), found, wanted, strict=True):
        if has != needs:
            yield f"{has} numbers or products of {part}", f"{needs} for {config.family}"
    # CK leaves convert_dq's second number at 0 if it is unused.
    if config.family != "bwd_convert_dq" and any(number < 1 for number in _numbers(config)):
        yield f"{min(_numbers(config))} in a tile", "numbers above 0"


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


@rule(
    "mfma",
    "for head dimension 256, CK schedules matrix instructions eight at a time",
    (f"{PIPELINE}/block_fmha_pipeline_qr_ks_vs.hpp", "static_assert(NumMfmaInsts % 8 == 0)"),
)
def mfma(config: KernelConfig, _archs: Archs) -> Wrong:
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


@rule(
    "per_cu",
    "-1 leaves the blocks per compute unit to the pipeline; other values are compiler hints",
    (f"{OPS}/fmha_fwd.py", "-1 will let pipeline decide the occupancy"),
)
def per_cu(config: KernelConfig, _archs: Archs) -> Wrong:
    if config.tile.per_cu is not None and config.tile.per_cu != -1 and config.tile.per_cu < 1:
        yield f"{config.tile.per_cu} blocks", "-1, or 1 and more"


@rule(
    "waves",
    "the waves of the other products are multiples of those of the first",
    (f"{PIPELINE}/tile_fmha_shape.hpp", "static_assert(NumGemm1Warps % NumGemm0Warps == 0)"),
)
def waves(config: KernelConfig, _archs: Archs) -> Wrong:
    counts = [m * n * k for m, n, k in config.tile.waves]
    if any(n < 1 for of in config.tile.waves for n in of):
        yield "a product without waves", "1 and more along m, n and k"
    elif config.family == "bwd_dq_dk_dv" and len(set(counts)) > 1:
        yield f"products of {', '.join(map(str, counts))} waves", "as many of each"
    elif any(count % counts[0] for count in counts):
        yield f"products of {', '.join(map(str, counts))} waves", "multiples of the first"


@rule(
    "combine_tile",
    "the combine kernel processes bn1 columns of O at a time",
    (f"{OPS}/fmha_fwd_splitkv.py", "static_assert({F_bn1} % {F_bn1comb} == 0)"),
)
def combine_tile(config: KernelConfig, _archs: Archs) -> Wrong:
    combines = config.family == "fwd_splitkv_combine" and _is_whole(config)
    if combines and config.hdim_v % config.tile.block[0]:
        yield f"{config.tile.block[0]} columns of {config.hdim_v}", "a divisor of hdim_v"


@rule(
    "warps",
    "an arch has matrix instructions of fixed sizes",
    (f"{OPS}/fmha_fwd.py", "F_wm0: int"),
)
def warps(config: KernelConfig, archs: Archs) -> Wrong:
    offers = [of for of in archs.offers if (of.arch, of.dtype) == (config.arch, config.dtype)]
    known = {warps for offer in offers for warps in offer.warps}
    for warps in dict.fromkeys(config.tile.warps):
        if offers and warps not in known:
            words = ", ".join("x".join(map(str, one)) for one in sorted(known))
            yield f"{'x'.join(map(str, warps))} for {config.dtype}", f"one of {words}"


@rule(
    "whole_tile",
    "a tile consists of whole tiles of waves, and the head dimension of whole steps",
    (f"{PIPELINE}/tile_fmha_shape.hpp", "kQKHeaddim should be divisible by kK0"),
)
def whole_tile(config: KernelConfig, _archs: Archs) -> Wrong:
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


def _too_small(config: KernelConfig, of_q: int, of_v: int) -> Wrong:
    if of_q < config.hdim_q or of_v < config.hdim_v:
        sizes = f"{config.hdim_q}x{config.hdim_v}"
        yield f"a tile of {of_q}x{of_v} for head dimensions {sizes}", "at least as much"


@rule(
    "append_tile",
    "the threads of a block copy whole rows, and each a part of one",
    (f"{PIPELINE}/block_fmha_pipeline_problem.hpp", "static constexpr index_t kBlockSize = 256"),
)
def append_tile(config: KernelConfig, _archs: Archs) -> Wrong:
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


@rule(
    "head_tile",
    "CK has code for these sizes of Q in registers",
    (
        f"{PIPELINE}/tile_fmha_shape.hpp",
        "only Headdim of 48, 96, 160, 192 and power-of-two is supported",
    ),
)
def head_tile(config: KernelConfig, _archs: Archs) -> Wrong:
    if config.family in _FORWARD and _is_whole(config):
        most = config.tile.block[5]
        if most & (most - 1) and most not in _HEAD_TILES:
            yield f"bk0max {most}", "a power of two, 48, 96, 160 or 192"


@rule(
    "steps",
    "a pipeline that loads K during multiplication needs at least two steps of the head dimension",
    (f"{PIPELINE}/block_fmha_pipeline_qr_ks_vs.hpp", "static_assert(2 <= k0_loops)"),
)
def steps(config: KernelConfig, _archs: Archs) -> Wrong:
    if config.family in _FORWARD and config.pipeline in ("qr", "qs") and _is_whole(config):
        step, most = config.tile.block[2], config.tile.block[5]
        if most < 2 * step:
            yield f"bk0 {step} with {config.pipeline}", f"at most {most // 2}, half of bk0max"


@rule(
    "backward_tile",
    "the backward's five products share operands, which relates the sizes of its tile",
    (f"{PIPELINE}/block_fmha_bwd_dq_dk_dv_pipeline_kr_ktr_vr.hpp", "kM0 should equal to kK1"),
)
def backward_tile(config: KernelConfig, _archs: Archs) -> Wrong:
    if config.family != "bwd_dq_dk_dv" or not _is_whole(config):
        return
    m0, n0, k0, k1, k2, k3, k4, of_q, of_v = config.tile.block
    (m_s, n_s, _), (m_v, n_v, _), (m_q, n_q, _) = config.tile.waves
    (m, n, k), (of_m, of_n, of_k) = config.tile.warps
    same = {"bk1": (k1, m0), "bk3": (k3, m0), "bhdq": (of_q, config.hdim_q)}
    for name, (size, wanted) in same.items():
        if size != wanted:
            yield f"{name} {size}", str(wanted)
    if config.tile.max_rows not in (None, 0, m0):
        yield f"at most {config.tile.max_rows} rows", f"0, or the {m0} of the tile"
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


@rule(
    "lds",
    "the LDS of a block holds K or V of a step, with copies for prefetching",
    ("include/ck_tile/core/arch/arch.hpp", "get_smem_capacity()"),
)
def lds(config: KernelConfig, archs: Archs) -> Wrong:
    if config.family not in _FORWARD or not _is_whole(config):
        return
    _, n0, k0, n1, k1, _ = config.tile.block
    size = _BYTES.get(config.dtype, 1) * _COPIES.get(config.pipeline or "", 1)
    least, most = size * max(n0 * k0, n1 * k1), archs.lds_of(config.arch)
    if least > most:
        yield f"{least} bytes of LDS at least", f"up to {most} on {config.arch or 'any arch'}"
