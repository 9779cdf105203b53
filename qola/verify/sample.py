"""Samples problems that a library sends to a kernel instance, the edges of its tiles first."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np

from qola.aiter.attention import MAIN_ROLE
from qola.attention import AttentionProblem, Layout, TestData
from qola.kernel.tile import Tile
from qola.plan.model import KernelInstance
from qola.reference.masks import BOTTOM_RIGHT, TOP_LEFT, Mask
from qola.verify import append_sample
from qola.verify.case import Sample
from qola.verify.dispatch import Dispatch, rows_of
from qola.verify.edges import (
    HEADS,
    MODEL_HEADS,
    Fields,
    has_many_heads,
    head_dims,
    lengths,
    tile_of,
)

#: Proposals for each sample; with _CALLS each proposal calls the library.
_ATTEMPTS = 900
_CALLS = 100
#: Of a problem, unless the caller says otherwise: two heads of 256 x 256.
MAX_WORK = 1 << 17
#: Rows of Q where there are many heads: a row, and several of a wave.
_FEW_ROWS = (1, 2, 5, 16)
_DROPS = (0.1, 0.25, 0.5, 0.8)
_CAPS = (2.0, 10.0, 50.0)
#: Rows of a page: the fewest that AITER's own callers of split-KV allow; batch prefill knows 1.
_PAGE = 128

#: Of Q, K, V and dO. With the last one, scores of a row differ by hundreds: a maximum that leaves
#: a column out is seen, since its exponential overflows.
_MAGNITUDES = (1.0, 1.0, 0.25, 3.0, 12.0)

T = TypeVar("T", int, float)

#: Proposes a sample: random generator, number of the edge to try or None for any, and whether it
#: has many heads.
Proposal = Callable[[np.random.Generator, int | None, bool], Sample | None]
#: Returns the names of the kernels that a problem launches.
Launched = Callable[[AttentionProblem], Sequence[str]]


@dataclass(frozen=True)
class KernelSamples:
    """Problems of a kernel instance.

    Attributes:
        missing: why there are fewer than requested, else empty.
        cu_count: see Device.
    """

    kernel: str
    samples: tuple[Sample, ...]
    missing: str = ""
    cu_count: int = 0


def draw(
    kernel: KernelInstance,
    kernels: Sequence[KernelInstance],
    dispatch: Dispatch,
    device: str,
    samples: int,
    seed: int = 0,
    max_work: int = MAX_WORK,
) -> KernelSamples:
    """Return problems that a kernel instance is launched for, the same for a seed.

    Args:
        kernels: of its library. A helper kernel has no fields for masks and lengths, and is
            sampled by the fields of the main kernels that it runs with.
        device: its arch.
        samples: how many problems.
        max_work: of each, see `AttentionProblem.work`.
    """
    fields = _of_mains(kernels, kernel.direction)
    rows = rows_of(dispatch, kernel.name)
    mains = sorted({name for row in rows for name in row if name in fields})
    if not mains:
        return KernelSamples(kernel.name, (), "no row of the dispatch launches it")
    if all(fields[name].get("squant") for name in mains):
        return KernelSamples(
            kernel.name, (), "AITER's entry points do not ask for static quantization"
        )
    if front := dispatch.hidden_by(kernel.name):
        others = [name for name in front if name in fields]
        missing = f"unreachable: all that it could take goes to {', '.join(others[:4])}"
        missing += f" or another of {len(others)}" if len(others) > 4 else ""
        return KernelSamples(kernel.name, (), missing)
    proposal = _proposal(kernel.direction, [fields[name] for name in mains], max_work)
    taken: Launched = lambda problem: dispatch.taken(problem, device)  # noqa: E731
    return search(kernel.name, proposal, taken, samples, seed, _ATTEMPTS)


def draw_by_calls(
    kernel: KernelInstance,
    kernels: Sequence[KernelInstance],
    launched: Launched,
    samples: int,
    seed: int,
    max_work: int,
    cu_count: int = 0,
) -> KernelSamples:
    """Draw problems by calling the library, for a dispatch that cannot be parsed.

    Args:
        launched: calls the entry point.
        cu_count: of the device that `launched` uses.
    """
    fields = _of_mains(kernels, kernel.direction)
    own = [fields[kernel.name]] if kernel.name in fields else [*fields.values()]
    shapes = [shape for shape in own if shape.get("dtype") and shape.get("hdim_q")]
    if not shapes:
        return KernelSamples(kernel.name, (), "its data type and head dimension are unknown")
    proposal = _proposal(kernel.direction, shapes, max_work)
    return search(kernel.name, proposal, launched, samples, seed, _CALLS, cu_count)


def _of_mains(kernels: Sequence[KernelInstance], direction: str) -> dict[str, Fields]:
    main = MAIN_ROLE[direction]
    return {one.name: one.fields for one in kernels if one.role == main}


def _proposal(direction: str, shapes: Sequence[Fields], max_work: int) -> Proposal:
    def proposed(chosen: np.random.Generator, edge: int | None, many: bool) -> Sample | None:
        shape = shapes[int(chosen.integers(len(shapes)))]
        return propose(direction, shape, some_edge(chosen, edge), chosen, max_work, many=many)

    return proposed


def search(
    name: str,
    proposal: Proposal,
    launched: Launched,
    samples: int,
    seed: int,
    attempts: int,
    cu_count: int = 0,
) -> KernelSamples:
    """Draw problems until a kernel is launched for enough of them; equal for equal seeds.

    Args:
        attempts: proposals for each sample.
        cu_count: of the device that the problems are for.
    """
    found: dict[Sample, None] = {}
    for number in range(samples):
        for attempt in range(attempts):
            chosen = generator(name, seed, number, attempt)
            # Some kernels take no problem that is small enough with many heads.
            many = has_many_heads(number) and attempt < attempts // 3
            sample = proposal(chosen, number if attempt == 0 else None, many)
            if sample is None or sample in found:
                continue
            if name in launched(sample.problem):
                found[sample] = None
                break
    missing = ""
    if len(found) < samples:
        missing = f"{samples - len(found)} of {samples} problems not found among {attempts} each"
    return KernelSamples(name, tuple(found), missing, cu_count)


def generator(name: str, seed: int, number: int, attempt: int) -> np.random.Generator:
    """Return the random generator of an attempt, equal for equal arguments."""
    text = f"{name} {seed} {number} {attempt}".encode()
    digest = int.from_bytes(hashlib.sha256(text).digest()[:16], "little")
    return np.random.Generator(np.random.PCG64(digest))


def some_edge(chosen: np.random.Generator, edge: int | None) -> int:
    """Return the edge that is to be tried, any where that is left open."""
    return int(chosen.integers(1 << 30)) if edge is None else edge


def propose(
    direction: str,
    fields: Fields,
    edge: int,
    chosen: np.random.Generator,
    max_work: int,
    *,
    many: bool = False,
) -> Sample | None:
    """Return a problem near the sizes in a kernel's fields, None if it would be too large.

    Args:
        edge: which lengths and head dimensions: 0 has whole tiles and the kernel's own.
        chosen: random generator for all other choices.
        many: with the head counts of models, and often few rows.
    """
    if direction == "fwd_appendkv":
        return append_sample.propose(fields, edge, chosen, many=many)

    def one(of: Sequence[T]) -> T:
        return of[int(chosen.integers(len(of)))]

    def chance(share: float) -> bool:
        return bool(chosen.random() < share)

    rows_at_once, columns_at_once = tile_of(fields)
    group = fields.get("mode") == "group"
    all_rows, all_columns = lengths(rows_at_once), lengths(columns_at_once)
    tile = Tile.parse(str(fields.get("tile")))
    if tile is not None and (most := tile.max_rows):
        all_rows = tuple(min(length, most) for length in all_rows)
    hdim_q, hdim_v = (int(fields.get(name) or 0) for name in ("hdim_q", "hdim_v"))
    count = 2 + edge % 3 if group else 1 + edge % 2
    if group:
        rows = [all_rows[edge % len(all_rows)], *(one(all_rows) for _ in range(count - 1))]
        columns = [all_columns[edge % len(all_columns)]]
        columns += [one(all_columns) for _ in range(count - 1)]
        if edge == 1 or chance(0.3):
            # Of an empty sequence, Q, K or both.
            empty = int(chosen.integers(3))
            place = 1 + int(chosen.integers(count - 1))
            rows[place] = rows[place] if empty == 0 else 0
            columns[place] = columns[place] if empty == 1 else 0
    else:
        rows = [all_rows[edge % len(all_rows)]] * count
        columns = [all_columns[(edge + edge // len(all_rows)) % len(all_columns)]] * count
        if chance(0.2):
            columns = [rows[0]] * count
    # Does not change later samples.
    ends = chosen.spawn(1)[0]
    if edge and ends.random() < 0.5:
        # Each column of a tile has an instruction of its own that masks it at K's end.
        columns = [any_end(ends, length, columns_at_once) for length in columns]
        columns = columns if group else columns[:1] * count
    if many:
        # Not always: some kernels take only whole tiles, others no short sequences of K.
        if chance(0.5):
            few = one(_FEW_ROWS)
            rows = [min(length, few) for length in rows]
        if chance(0.7):
            most = max_work // (max(1, *rows) * MODEL_HEADS[-1][0])
            columns = [min(length, max(columns_at_once, most)) for length in columns]
    pairs = sum(r * c for r, c in zip(rows, columns, strict=True))
    heads = [h for h in (MODEL_HEADS if many else HEADS) if h[0] * pairs <= max_work]
    if not heads:
        return None
    nhead_q, nhead_k = heads[int(chosen.integers(len(heads)))]
    bias = str(fields.get("bias") or "no")
    hdim = hdim_q if edge == 0 or chance(0.4) else one(head_dims(hdim_q))
    hdim_v = hdim_v or hdim_q
    alike = hdim if hdim <= hdim_v else hdim_v
    of_v = alike if chance(0.5) else hdim_v if chance(0.5) else one(head_dims(hdim_v))
    usual = float(np.float32(hdim**-0.5))
    skip = min([r for r in rows if r], default=1) if fields.get("skip") else 0
    if skip and max(rows) <= skip:
        return None  # All of it would be skipped.
    softmax_scale = usual if chance(0.8) else float(np.float32(usual * 0.75))
    mask = _mask(edge, chosen, rows, columns) if _masked(fields) else Mask()
    nhead_bias = nhead_q if bias == "bias" and chance(0.5) else 1
    batched_slopes = bias == "alibi" and chance(0.5)
    # For split-KV, the kernel that combines splits decides whether the LSE is written.
    lse = bool(fields["lse"]) if "lse" in fields else direction == "bwd" or chance(0.5)
    dropout = _dropout(chosen) if fields.get("dropout") else {}
    soft_cap = float(chosen.choice(_CAPS)) if fields.get("logits") else 0.0
    num_splits = one((2, 3, 5)) if direction == "fwd_splitkv" else 1
    page = 1 if direction == "batch_prefill" else _PAGE if fields.get("pagedkv") else 0
    order = "bhsd" if chance(0.3) and not group else "bshd"
    row_padding = one((0, 0, 8, 64))
    magnitude = one(_MAGNITUDES if peaks_fit(direction, fields) else _MAGNITUDES[:-1])
    data = TestData(magnitude, int(chosen.integers(1 << 32)))
    problem = AttentionProblem(
        direction=direction,
        dtype=str(fields.get("dtype")),
        hdim_q=hdim,
        hdim_v=of_v,
        seqlen_q=tuple(rows),
        seqlen_k=tuple(columns),
        nhead_q=nhead_q,
        nhead_k=nhead_k,
        softmax_scale=softmax_scale,
        mode="group" if group else "batch",
        **asdict(mask),
        bias_type=bias,
        nhead_bias=nhead_bias,
        batched_alibi_slopes=batched_slopes,
        return_lse=lse,
        **dropout,
        logits_soft_cap=soft_cap,
        has_dbias=bool(fields.get("dbias")),
        deterministic=bool(fields.get("deterministic")),
        min_seqlen_q=skip,
        num_splits=num_splits,
        layout=Layout(order, row_padding, page, data.seed),
    )
    return Sample(problem, data)


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


def _dropout(chosen: np.random.Generator) -> dict[str, Any]:
    seed, offset = (int(n) for n in chosen.integers(1 << 63, size=2))
    probability = float(chosen.choice(_DROPS))
    offset = offset if seed % 2 else offset % 1000
    return {"dropout_p": probability, "drop_seed": seed, "drop_offset": offset}


def coverage(problems: Sequence[AttentionProblem], fields: Fields) -> tuple[str, ...]:
    """Return the edge cases that problems of a kernel cover."""
    return tuple(dict.fromkeys(edge for one in problems for edge in _edges(one, fields)))


def _edges(problem: AttentionProblem, fields: Fields) -> Iterator[str]:
    rows_at_once, columns_at_once = tile_of(fields)
    partial_q, partial_k = (
        any(length % tile for length in lengths)
        for lengths, tile in ((problem.seqlen_q, rows_at_once), (problem.seqlen_k, columns_at_once))
    )
    if partial_q:
        yield "a partial tile of Q"
    if partial_k:
        yield "a partial tile of K"
    if not partial_q and not partial_k:
        yield "whole tiles"
    if (problem.nhead_q, problem.nhead_k) in MODEL_HEADS:
        yield "many heads"
    if problem.nhead_q > problem.nhead_k:
        yield "shared heads"
    if problem.hdim_q < int(fields.get("hdim_q") or 0):
        yield "a smaller head"
    if 0 in problem.seqlen_q or 0 in problem.seqlen_k:
        yield "an empty sequence"
    if len(set(problem.seqlen_q)) > 1:
        yield "uneven sequences"
    if problem.mask_type != "no" and problem.window_size_left >= 0:
        yield "a window"
    lengths = zip(problem.seqlen_q, problem.seqlen_k, strict=True)
    if not all(problem.mask.allowed(r, c).any(axis=1).all() for r, c in lengths):
        yield "rows without keys"
