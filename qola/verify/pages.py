"""K and V in pages, and the tables of pages."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qola.attention import AttentionProblem
from qola.reference.formats import F64

#: Pages that no sequence has, among the others.
_SPARE = 3
#: Zeros after the last entry of a list of pages. Batch prefill prefetches the entries of the next
#: tile of 128 rows (ROCm/rocm-libraries#6932 clamps it), so it reads up to two tiles from where a
#: short sequence begins. AITER's own tests append 128, which a short last sequence exceeds.
_BEHIND = 256


def count(problem: AttentionProblem) -> int:
    """Return how many pages there are."""
    return sum(_counts(problem)) + _SPARE


def tables(problem: AttentionProblem) -> dict[str, NDArray[np.int32]]:
    """Return which pages sequences have, by the names of arguments; nothing without pages."""
    if not problem.layout.page_block_size:
        return {}
    lists = _lists(problem)
    if problem.direction == "batch_prefill":
        starts = np.cumsum([0, *map(len, lists)]).astype(np.int32)
        indices = np.concatenate([*lists, np.zeros(_BEHIND, np.int32)])
        found = {"kv_indptr": starts, "kv_page_indices": indices}
        if problem.layout.page_block_size > 1:
            size = problem.layout.page_block_size
            full = zip(problem.seqlen_k, _counts(problem), strict=True)
            found["kv_last_page_lens"] = np.array([k - (n - 1) * size for k, n in full], np.int32)
        return found
    # Entries that a kernel must not read name a page that does not exist.
    table = np.full((problem.batch, max(1, *_counts(problem))), count(problem), np.int32)
    for row, own in zip(table, lists, strict=True):
        row[: len(own)] = own
    return {"block_table_ptr": table.ravel()}


def sizes(problem: AttentionProblem) -> dict[str, int]:
    """Return the arguments with the size and number of pages."""
    size = problem.layout.page_block_size
    if not size:
        return {}
    if problem.direction == "batch_prefill":
        return {"num_total_pages": count(problem)} | ({"page_block_size": size} if size > 1 else {})
    return {"page_block_size": size, "batch_stride_block_table": max(1, *_counts(problem))}


def laid_out(problem: AttentionProblem, tensor: F64, others: float) -> F64:
    """Return K or V as it lies in pages, [rows of all pages, heads, hdim].

    Args:
        others: value of rows that belong to no sequence.
    """
    heads = tensor.shape[-2:]
    found = np.full((count(problem) * problem.layout.page_block_size, *heads), others)
    found[rows(problem)] = tensor.reshape(-1, *heads)
    return found


def _counts(problem: AttentionProblem) -> list[int]:
    return [-(-columns // problem.layout.page_block_size) for columns in problem.seqlen_k]


def _lists(problem: AttentionProblem) -> list[NDArray[np.int32]]:
    """Return the pages of each sequence in its order: those of one lie anywhere."""
    order = np.random.default_rng([problem.layout.page_seed, 1]).permutation(count(problem))
    return np.split(order.astype(np.int32), np.cumsum(_counts(problem)))[:-1]


def rows(problem: AttentionProblem) -> NDArray[np.int64]:
    """Return the rows of all pages that positions of K are in, sequence by sequence."""
    within = np.arange(problem.layout.page_block_size)
    found = [
        (own.astype(np.int64)[:, None] * problem.layout.page_block_size + within).ravel()[:columns]
        for own, columns in zip(_lists(problem), problem.seqlen_k, strict=True)
    ]
    return np.concatenate(found)
