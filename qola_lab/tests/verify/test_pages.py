"""K and V in pages: the tables must address the values of the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from qola_lab.problems import AttentionProblem, Layout
from qola_lab.verify.tensors import buffers, filled, page_count, page_sizes, tables, tensors
from qola_lab.verify.values import entry_values

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
    problem: AttentionProblem, values: dict[str, int], name: str, sequence: int, position: int
) -> int:
    """Return the offset at which CK reads a position of K or V, in elements."""
    tables_ = tables(problem)
    if problem.direction == "batch_prefill":
        page = tables_["kv_page_indices"][tables_["kv_indptr"][sequence] + position]
        return int(page) * values[f"stride_{name}"]
    number, within = divmod(position, values["page_block_size"])
    page = tables_["block_table_ptr"][sequence * values["batch_stride_block_table"] + number]
    return int(page) * values[f"batch_stride_{name}"] + within * values[f"stride_{name}"]


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_tables_address_the_values_of_the_reference(problem: AttentionProblem) -> None:
    """Prevents: a kernel that reads other keys or values than the reference."""
    inputs, found = tensors(problem, "gfx950"), buffers(problem, "gfx950")
    values: Any = entry_values(problem, "gfx950", ())
    contents = filled(problem, inputs)
    for name, hdim in (("k", problem.hdim_q), ("v", problem.hdim_v)):
        buffer = found[name]
        raw = buffer.written(contents[name])
        flat = replace(buffer, shape=(len(raw),), strides=(1,)).read(raw)
        for number, sequence in enumerate(inputs.sequences(problem)):
            expected = getattr(sequence, name)
            for position in range(problem.seqlen_k[number]):
                row = row_of(problem, values, name, number, position)
                for head in range(problem.nhead_k):
                    at = row + head * values[f"nhead_stride_{name}"]
                    assert np.array_equal(flat[at : at + hdim], expected[position, head])
        # Unused positions have the fill value of the padding between rows.
        used = sum(problem.seqlen_k) * problem.nhead_k * hdim
        assert (flat != 208).sum() == used < flat.size


def test_pages_are_shuffled_and_unused_entries_are_invalid() -> None:
    """Prevents: pages in order, for which a kernel that ignores the block table is correct."""
    table = tables(PAGED)["block_table_ptr"].reshape(3, -1)
    used = [*table[0, :2], *table[2]]
    assert used != sorted(used)
    assert len(set(used)) == len(used)
    assert set(table[1]) | {table[0, 2]} == {page_count(PAGED)}
    assert max(used) < page_count(PAGED)
    prefill = tables(PROBLEMS[2])
    assert list(prefill["kv_indptr"]) == [0, 7, 7, 16]
    # Composable Kernel reads past the end; AITER's callers allow for that.
    assert list(prefill["kv_page_indices"][16:]) == [0] * 256
    assert "seqstart_k_ptr" not in prefill


def test_without_pages_there_are_no_tables() -> None:
    """Prevents: table arguments for an entry point that does not take them."""
    problem = PAGED.with_layout(page_block_size=0)
    assert set(tables(problem)) == {"seqstart_q_ptr", "seqstart_k_ptr"}
    assert not page_sizes(problem)
