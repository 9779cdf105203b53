"""K and V in pages: what the tables lead to is what the reference computes with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from qola.attention import AttentionProblem, Layout
from qola.verify.memory import buffers, filled, page_count, page_sizes, tables
from qola.verify.tensors import tensors
from qola.verify.values import entry_values

PAGED = AttentionProblem(
    "fwd_splitkv",
    "fp16",
    16,
    8,
    (5, 0, 3),
    (7, 0, 9),
    4,
    2,
    0.25,
    mode="group",
    layout=Layout(page_block_size=4, row_padding=8),
)
PROBLEMS = [
    PAGED,
    replace(PAGED, mode="batch", seqlen_q=(5, 5), seqlen_k=(9, 9)).with_layout(order="bhsd"),
    replace(PAGED, direction="batch_prefill").with_layout(page_block_size=1),
]


def row_of(
    problem: AttentionProblem, values: dict[str, int], name: str, sequence: int, place: int
) -> int:
    """Where a kernel looks for a position of K or V, as Composable Kernel computes it."""
    of = tables(problem)
    if problem.direction == "batch_prefill":
        page = of["kv_page_indices"][of["kv_indptr"][sequence] + place]
        return int(page) * values[f"stride_{name}"]
    number, within = divmod(place, values["page_block_size"])
    page = of["block_table_ptr"][sequence * values["batch_stride_block_table"] + number]
    return int(page) * values[f"batch_stride_{name}"] + within * values[f"stride_{name}"]


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_tables_lead_to_the_values_of_the_reference(problem: AttentionProblem) -> None:
    """Prevents: a kernel that is handed other keys than the reference."""
    given, found = tensors(problem, "gfx950"), buffers(problem, "gfx950")
    values: Any = entry_values(problem, "gfx950", ())
    contents = filled(problem, given)
    for name, hdim in (("k", problem.hdim_q), ("v", problem.hdim_v)):
        buffer = found[name]
        raw = buffer.written(contents[name])
        flat = replace(buffer, shape=(len(raw),), strides=(1,)).read(raw)
        for number, sequence in enumerate(given.sequences(problem)):
            wanted = getattr(sequence, name)
            for place in range(problem.seqlen_k[number]):
                row = row_of(problem, values, name, number, place)
                for head in range(problem.nhead_k):
                    at = row + head * values[f"nhead_stride_{name}"]
                    assert np.array_equal(flat[at : at + hdim], wanted[place, head])
        # What no sequence has is what is between rows, too.
        of_sequences = sum(problem.seqlen_k) * problem.nhead_k * hdim
        assert (flat != 208).sum() == of_sequences < flat.size


def test_pages_lie_anywhere_and_the_table_does_not_lead_further() -> None:
    """Prevents: pages in their order, which a kernel that looks at no table gets right."""
    table = tables(PAGED)["block_table_ptr"].reshape(3, -1)
    used = [*table[0, :2], *table[2]]
    assert used != sorted(used)
    assert len(set(used)) == len(used)
    assert set(table[1]) | {table[0, 2]} == {page_count(PAGED)}
    assert max(used) < page_count(PAGED)
    prefill = tables(PROBLEMS[2])
    assert list(prefill["kv_indptr"]) == [0, 7, 7, 16]
    # Composable Kernel reads behind the end, as AITER's own callers know.
    assert list(prefill["kv_page_indices"][16:]) == [0] * 256
    assert "seqstart_k_ptr" not in prefill


def test_without_pages_there_are_no_tables() -> None:
    """Prevents: arguments that an entry point does not take."""
    problem = PAGED.with_layout(page_block_size=0)
    assert set(tables(problem)) == {"seqstart_q_ptr", "seqstart_k_ptr"}
    assert not page_sizes(problem)
