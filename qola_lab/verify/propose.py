"""Proposes problems near the sizes of a kernel: its tiles, head dimensions and masks.

Only the library's host code decides which of AITER's assembly (v3) kernels and their helper kernels
serves a problem: it is called with many problems, and the recorded launches show the kernel. Names
of code objects are hints that keep the number of calls low. A wrong hint leaves a kernel without
problems, which the outcome reports.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import PurePosixPath
from typing import Any, TypeVar

import numpy as np

from qola.codegen.types import FieldValue
from qola.kernel.config import Tile
from qola_lab.problems import AttentionProblem, Layout, TestData
from qola_lab.reference.masks import BOTTOM_RIGHT, NO_MASK, TOP_LEFT, Mask
from qola_lab.verify.case import Sample

#: Heads of Q, and of K and V: few, so that problems can be long.
HEADS = ((1, 1), (2, 1), (4, 2), (3, 3), (6, 2), (5, 1))
#: Those of models. Kernels divide the number of a head of Q, and a wrong quotient may be right for
#: the first heads.
MODEL_HEADS = ((8, 8), (16, 8), (24, 8), (64, 8))
Fields = Mapping[str, FieldValue]
"""Of a kernel instance, as a plan has them."""
EVERY = 64
"""Lengths of K, from 1, that one problem has: the columns that most kernels take at once."""
#: Rows of Q where there are many heads: a row, and several of a wave.
_FEW_ROWS = (1, 2, 5, 16)
_DROPS = (0.1, 0.25, 0.5, 0.8)
_CAPS = (2.0, 10.0, 50.0)
#: Rows of a page: the fewest that AITER's own callers of split-KV allow; batch prefill knows 1.
_PAGE = 128

#: Of Q, K, V and dO. With the last one, scores of a row differ by hundreds: a maximum that leaves
#: a column out is seen, since its exponential overflows.
_MAGNITUDES = (1.0, 1.0, 0.25, 3.0, 12.0)
#: Rows of a tile of Q, and of K, in kernels that append.
_ROWS = 64
#: Dimensions that are rotated are a multiple of it.
_ROTARY = 16
#: Elements between a row and the next one.
_ROW_PADDINGS = (0, 0, 8, 64)

T = TypeVar("T")


def pick(chosen: np.random.Generator, of: Sequence[T]) -> T:
    """Return one of some values."""
    return of[int(chosen.integers(len(of)))]


def tile_of(fields: Fields) -> tuple[int, int]:
    """Return rows of Q and columns of K that a kernel takes at once, as its tile's name begins."""
    sizes = str(fields.get("tile", "")).split("_")[0].removeprefix("b").split("x")
    rows, columns = ([int(size) for size in sizes if size.strip("0").isdigit()] + [64, 64])[:2]
    return rows, columns


def lengths(tile: int) -> tuple[int, ...]:
    """Return lengths at and near the edges of tiles, and a few others."""
    at = (tile, tile + 1, 2 * tile, tile - 1, 1, 2 * tile + 7, 4 * tile, tile // 2 + 3)
    return tuple(length for length in (*at, 3 * tile - 1) if length > 0)


def head_dims(bucket: int) -> tuple[int, ...]:
    """Return head dimensions that go to a bucket, itself first."""
    less = (bucket, bucket - 8, bucket - 16, bucket - 4, bucket - 1, bucket // 2 + 8, bucket // 2)
    return tuple(size for size in less if size > 0)


def propose(
    direction: str,
    fields: Fields,
    edge: int,
    chosen: np.random.Generator,
    max_work: int,
    *,
    many: bool = False,
    every_length: bool = False,
) -> Sample | None:
    """Return a problem near the sizes in a kernel's fields, None if it would be too large.

    Args:
        edge: which lengths and head dimensions: 0 has whole tiles and the kernel's own.
        chosen: random generator for all other choices; their order decides the problem of a seed.
        many: with the head counts of models, and often few rows.
        every_length: in group mode, with further sequences of each length of K up to `EVERY`, and
            few heads, unless that is too large.
    """
    if direction == "fwd_appendkv":
        return _propose_append(fields, edge, chosen, many=many)

    def chance(share: float) -> bool:
        return bool(chosen.random() < share)

    group = fields.get("mode") == "group"
    rows, columns = _propose_lengths(fields, edge, chosen, group=group)
    if many:
        # Not always: some kernels take only whole tiles, others no short sequences of K.
        if chance(0.5):
            few = pick(chosen, _FEW_ROWS)
            rows = [min(length, few) for length in rows]
        if chance(0.7):
            most = max_work // (max(1, *rows) * MODEL_HEADS[-1][0])
            columns = [min(length, max(tile_of(fields)[1], most)) for length in columns]
    if every_length and group:
        further = _propose_every_length(fields, chosen)
        extra = sum(r * c for r, c in zip(*further, strict=True))
        if extra + sum(r * c for r, c in zip(rows, columns, strict=True)) <= max_work:
            rows, columns = rows + further[0], columns + further[1]
    pairs = sum(r * c for r, c in zip(rows, columns, strict=True))
    heads = [h for h in (MODEL_HEADS if many else HEADS) if h[0] * pairs <= max_work]
    if not heads:
        return None
    nhead_q, nhead_k = pick(chosen, heads[:2] if len(rows) > EVERY else heads)
    bias = str(fields.get("bias") or "no")
    hdim_q, hdim_v = (int(fields.get(name) or 0) for name in ("hdim_q", "hdim_v"))
    hdim_v = hdim_v or hdim_q
    hdim = hdim_q if edge == 0 or chance(0.4) else pick(chosen, head_dims(hdim_q))
    if chance(0.5):
        hdim_v = min(hdim, hdim_v)
    elif not chance(0.5):
        hdim_v = pick(chosen, head_dims(hdim_v))
    skip = min([r for r in rows if r], default=1) if fields.get("skip") else 0
    if skip and max(rows) <= skip:
        return None  # All of it would be skipped.
    usual = float(np.float32(hdim**-0.5))
    more: dict[str, Any] = {
        "softmax_scale": usual if chance(0.8) else float(np.float32(usual * 0.75))
    }
    more |= asdict(_mask(edge, chosen, rows, columns) if _masked(fields) else Mask())
    more["nhead_bias"] = nhead_q if bias == "bias" and chance(0.5) else 1
    more["batched_alibi_slopes"] = bias == "alibi" and chance(0.5)
    # For split-KV, the kernel that combines splits decides whether the LSE is written.
    lse = bool(fields["lse"]) if "lse" in fields else direction == "bwd" or chance(0.5)
    more |= _dropout(chosen) if fields.get("dropout") else {}
    more["logits_soft_cap"] = float(chosen.choice(_CAPS)) if fields.get("logits") else 0.0
    more["num_splits"] = pick(chosen, (2, 3, 5)) if direction == "fwd_splitkv" else 1
    page = 1 if direction == "batch_prefill" else _PAGE if fields.get("pagedkv") else 0
    order = "bhsd" if chance(0.3) and not group else "bshd"
    row_padding = pick(chosen, _ROW_PADDINGS)
    magnitudes = _MAGNITUDES if peaks_fit(direction, fields) else _MAGNITUDES[:-1]
    data = TestData(pick(chosen, magnitudes), int(chosen.integers(1 << 32)))
    problem = AttentionProblem(
        direction=direction,
        dtype=str(fields.get("dtype")),
        hdim_q=hdim,
        hdim_v=hdim_v,
        seqlen_q=tuple(rows),
        seqlen_k=tuple(columns),
        nhead_q=nhead_q,
        nhead_k=nhead_k,
        mode="group" if group else "batch",
        bias_type=bias,
        return_lse=lse,
        has_dbias=bool(fields.get("dbias")),
        deterministic=bool(fields.get("deterministic")),
        min_seqlen_q=skip,
        layout=Layout(order, row_padding, page, data.seed),
        **more,
    )
    return Sample(problem, data)


def _propose_lengths(
    fields: Fields, edge: int, chosen: np.random.Generator, *, group: bool
) -> tuple[list[int], list[int]]:
    """Return the lengths of sequences of Q, and of K."""
    rows_at_once, columns_at_once = tile_of(fields)
    all_rows, all_columns = lengths(rows_at_once), lengths(columns_at_once)
    tile = Tile.parse(str(fields.get("tile")))
    if tile is not None and (most := tile.max_rows):
        all_rows = tuple(min(length, most) for length in all_rows)
    count = 2 + edge % 3 if group else 1 + edge % 2
    if group:
        rows = [all_rows[edge % len(all_rows)]]
        rows += [pick(chosen, all_rows) for _ in range(count - 1)]
        columns = [all_columns[edge % len(all_columns)]]
        columns += [pick(chosen, all_columns) for _ in range(count - 1)]
        if edge == 1 or chosen.random() < 0.3:
            # Of an empty sequence, Q, K or both.
            empty = int(chosen.integers(3))
            place = 1 + int(chosen.integers(count - 1))
            rows[place] = rows[place] if empty == 0 else 0
            columns[place] = columns[place] if empty == 1 else 0
    else:
        rows = [all_rows[edge % len(all_rows)]] * count
        columns = [all_columns[(edge + edge // len(all_rows)) % len(all_columns)]] * count
        if chosen.random() < 0.2:
            columns = [rows[0]] * count
    # Does not change later samples.
    ends = chosen.spawn(1)[0]
    if edge and ends.random() < 0.5:
        # Each column of a tile has an instruction of its own that masks it at K's end.
        columns = [any_end(ends, length, columns_at_once) for length in columns]
        columns = columns if group else columns[:1] * count
    return rows, columns


def _propose_every_length(
    fields: Fields, chosen: np.random.Generator
) -> tuple[list[int], list[int]]:
    """Return sequences of K of each length: each column of a tile is the last one of a sequence."""
    columns = [int(length) for length in 1 + chosen.permutation(EVERY)]
    # Rows of a mask that begins at the first key see the last one only if there are as many.
    rows = columns if _masked(fields) else [1, *[2] * (EVERY - 1)]
    tile = Tile.parse(str(fields.get("tile")))
    most = tile.max_rows if tile is not None else 0
    return [min(length, most or length) for length in rows], columns


def _propose_append(
    fields: Fields, edge: int, chosen: np.random.Generator, *, many: bool
) -> Sample:
    """Return a problem of fwd_appendkv."""
    every = [length for length in lengths(_ROWS) if length <= _ROWS or not many]
    new = every[edge % len(every)]
    rows = new if edge == 0 or chosen.random() < 0.3 else pick(chosen, every)
    if not fields.get("spad"):
        rows = -(-rows // _ROWS) * _ROWS
    size = int(fields.get("hdim_q") or 0)
    hdim = size if edge == 0 or chosen.random() < 0.5 else pick(chosen, head_dims(size))
    rope = str(fields.get("rope") or "no")
    rotary = 0
    if rope != "no":
        hdim = hdim if hdim >= _ROTARY else size
        most = hdim // _ROTARY
        rotary = _ROTARY * (most if edge == 0 else pick(chosen, range(1, most + 1)))
    nhead_q, nhead_k = pick(chosen, MODEL_HEADS if many else HEADS[:4])
    # Rows that are there before: none, up to a page, and beyond.
    counts = (0, 1, _ROWS, 77, _PAGE - 3, _PAGE, _PAGE + 40)
    before = [pick(chosen, counts) for _ in range(1 + edge % 2)]
    hdim_v = hdim if chosen.random() < 0.5 else pick(chosen, head_dims(size))
    mask = BOTTOM_RIGHT if chosen.random() < 0.5 else NO_MASK
    order = "bhsd" if chosen.random() < 0.3 else "bshd"
    row_padding = pick(chosen, _ROW_PADDINGS)
    seed = int(chosen.integers(1 << 32))
    problem = AttentionProblem(
        direction="fwd_appendkv",
        dtype=str(fields.get("dtype")),
        hdim_q=hdim,
        hdim_v=hdim_v,
        seqlen_q=(rows,) * len(before),
        seqlen_k=tuple(place + new for place in before),
        nhead_q=nhead_q,
        nhead_k=nhead_k,
        softmax_scale=1.0,
        **asdict(mask),
        seqlen_knew=new,
        rope_type=rope,
        rotary_dim=rotary,
        layout=Layout(order, row_padding, _PAGE if fields.get("pagedkv") else 0, seed),
    )
    return Sample(problem, TestData(seed=seed))


def any_end(chosen: np.random.Generator, length: int, tile: int) -> int:
    """Return a length that ends at any column of the same tile; 0 stays 0."""
    return length - int(chosen.integers(min(length, tile))) if length else 0


def peaks_fit(direction: str, fields: Fields) -> bool:
    """Whether results of the largest magnitude are numbers: gradients and 8 bits overflow."""
    return direction != "bwd" and fields.get("dtype") in ("fp16", "bf16")


def _masked(fields: Fields) -> bool:
    return fields.get("mask", False) not in (False, None, "no", "s_no")


def _mask(
    edge: int, chosen: np.random.Generator, rows: Sequence[int], columns: Sequence[int]
) -> Mask:
    """Return a causal mask or a window; from the bottom right, rows may have no keys."""
    longest = max(*rows, *columns, 2)
    left, right = (int(chosen.integers(longest)) for _ in range(2))
    kinds = (
        BOTTOM_RIGHT,
        TOP_LEFT,
        Mask("bottom_right", left, 0),
        Mask("top_left", left, right),
        Mask("bottom_right", left, right),
        Mask("bottom_right", 0, 0),
        Mask("top_left", -1, right),
    )
    return kinds[edge % len(kinds)]


def _dropout(chosen: np.random.Generator) -> dict[str, int | float]:
    seed, offset = (int(n) for n in chosen.integers(1 << 63, size=2))
    probability = float(chosen.choice(_DROPS))
    offset = offset if seed % 2 else offset % 1000
    return {"dropout_p": probability, "drop_seed": seed, "drop_offset": offset}


ASSEMBLY_CALLS = 400
"""Calls of the entry point for each sample."""
#: Rows of Q and columns of K that such kernels take at once.
_TILES = ("b64x64", "b128x128", "b128x192", "b256x64")
_HDIMS = ((64, 64), (128, 128), (192, 192), (192, 128))
_DTYPES = ("bf16", "fp16")
#: Data types by the word for them in names of code objects.
_NAMED = {**{dtype: dtype for dtype in _DTYPES}, "fp8": "fp8bf16"}
#: AITER's numbers for how float32 becomes bf16.
_CONVERSIONS = {"rtne": 0, "rtna": 1, "rtz": 2}
#: Compute units by which AITER takes a device for an MI308.
_MI308 = 80
_HDIM = re.compile(r"hd(\d+)")


@dataclass(frozen=True)
class Hints:
    """Properties of problems that a kernel may serve.

    Attributes:
        sums: values of is_v3_atomic_fp32.
        cu_count: see Device.
    """

    dtypes: tuple[str, ...] = _DTYPES
    hdims: tuple[tuple[int, int], ...] = _HDIMS
    groups: tuple[bool, ...] = (False, True)
    masks: tuple[str, ...] = ("no", "causal", "window")
    sums: tuple[bool, ...] = (True, False)
    conversion: int = 1
    cu_count: int = 0


def hints_of_code_object(key: str) -> Hints:
    """Return the hints in AITER's name of a code object."""
    path = PurePosixPath(key)
    words = path.stem.split("_")
    sizes = [int(found[1]) for word in words if (found := _HDIM.fullmatch(word))]
    masks = {"causal": "causal", "swa": "window"}
    shuffles = "shuffle" in words
    return Hints(
        dtypes=tuple(dtype for word, dtype in _NAMED.items() if word in words) or _DTYPES,
        hdims=((sizes[0], sizes[-1]),) if sizes else _HDIMS,
        groups=("group" in words,),
        masks=Hints.masks
        if shuffles
        else tuple(m for w, m in masks.items() if w in words) or ("no",),
        sums=(False,) if shuffles or "a16" in words else (True,),
        conversion=next((n for word, n in _CONVERSIONS.items() if word in words), 1),
        cu_count=_MI308 if "MI308" in path.parts else 0,
    )


def hints_of_fields(
    fields: Mapping[str, FieldValue], code_objects: Sequence[str]
) -> Iterator[Hints]:
    """Yield hints for a kernel with these fields that runs before or after code objects."""
    dtype, group = str(fields.get("dtype")), fields.get("mode") == "group"
    for hints in map(hints_of_code_object, code_objects):
        if dtype in hints.dtypes and group in hints.groups and not hints.cu_count:
            yield replace(hints, dtypes=(dtype,), groups=(group,))


def propose_assembly(
    direction: str,
    hints: Hints,
    edge: int,
    chosen: np.random.Generator,
    max_work: int,
    *,
    many: bool,
    every_length: bool = False,
) -> Sample | None:
    """Return a problem that a kernel with these hints may serve; arguments are as of `propose`."""

    def one(of: Sequence[T]) -> T:
        return pick(chosen, of)

    hdim_q, hdim_v = one(hints.hdims)
    fields: dict[str, FieldValue] = {
        "dtype": one(hints.dtypes),
        "hdim_q": hdim_q,
        "hdim_v": hdim_v,
        "mode": "group" if one(hints.groups) else "batch",
        "tile": one(_TILES),
    }
    how = {"many": many, "every_length": every_length}
    sample = propose(direction, fields, edge, chosen, max_work, **how)
    if sample is None:
        return None
    problem = sample.problem
    longest = max(*problem.seqlen_q, *problem.seqlen_k, 2)
    left, right = (int(chosen.integers(1, longest)) for _ in range(2))
    masks = {
        "no": (NO_MASK,),
        "causal": (BOTTOM_RIGHT, TOP_LEFT),
        "window": (Mask("top_left", left, right), Mask("bottom_right", left, right)),
    }
    problem = replace(
        problem,
        **asdict(one(masks[one(hints.masks)])),
        use_asm=True,
        how_v3_bf16_cvt=hints.conversion,
        is_v3_atomic_fp32=one(hints.sums),
    )
    return replace(sample, problem=problem)
