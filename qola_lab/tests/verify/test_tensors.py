"""Tensors in memory: element addresses, the padding between rows, and tables of pages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from qola_lab.problems import AttentionProblem, Layout
from qola_lab.verify.tensors import (
    buffers,
    entry_values,
    filled,
    page_count,
    page_sizes,
    tables,
    tensors,
)

PROBLEM = AttentionProblem(
    "bwd", "bf16", 24, 16, (5, 5), (7, 7), 4, 2, 0.2, return_lse=True, layout=Layout(row_padding=8)
)
PROBLEMS = [
    PROBLEM,
    replace(
        PROBLEM, bias_type="bias", nhead_bias=4, has_dbias=True, deterministic=True
    ).with_layout(order="bhsd"),
    replace(
        PROBLEM,
        mode="group",
        seqlen_q=(5, 0, 3),
        seqlen_k=(7, 2, 0),
        bias_type="bias",
        has_dbias=True,
    ),
    replace(PROBLEM, direction="fwd", bias_type="alibi", batched_alibi_slopes=True, dropout_p=0.5),
    replace(PROBLEM, direction="fwd", dtype="fp8bf16", return_lse=False),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_strides_address_the_values_of_the_reference(problem: AttentionProblem) -> None:
    """Prevents: a kernel that reads other numbers than the reference."""
    inputs = tensors(problem, "gfx950")
    found = buffers(problem, "gfx950")
    strides: Any = entry_values(problem, "gfx950", ())
    values = filled(problem, inputs)
    for name in ("q", "k", "v"):
        buffer = found[name]
        raw = buffer.written(values[name])
        assert len(raw) == buffer.elements
        assert np.array_equal(buffer.read(raw), values[name])
        sequence, row, head, dim = 1, 2, 1, 3
        if problem.is_group_mode:
            start = (inputs.starts_q if name == "q" else inputs.starts_k)[2 if name == "q" else 0]
            place = (start + row) * strides[f"stride_{name}"]
            expected = values[name][start + row, head, dim]
        else:
            place = sequence * strides[f"batch_stride_{name}"] + row * strides[f"stride_{name}"]
            expected = values[name][sequence, row, head, dim]
        place += head * strides[f"nhead_stride_{name}"] + dim
        small = replace(buffer, shape=(1,), strides=(1,))
        assert small.read(raw[place : place + 1]) == expected


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_tensors_do_not_overlap_themselves(problem: AttentionProblem) -> None:
    """Prevents: strides that map two elements to one address."""
    for buffer in buffers(problem, "gfx950").values():
        steps = [np.arange(n) * s for n, s in zip(buffer.shape, buffer.strides, strict=True)]
        places = np.zeros((), np.int64)
        for step in steps:
            places = places[..., None] + step
        assert len(np.unique(places)) == places.size == int(np.prod(buffer.shape))
        assert np.max(places, initial=-1) == buffer.elements - 1


def test_padding_between_rows_is_filled_and_checked() -> None:
    """Prevents: an unnoticed kernel that reads or writes the padding between rows."""
    buffer = buffers(PROBLEM, "gfx950")["dq"]
    raw = buffer.written()
    assert np.isnan(buffer.read(raw)).all()
    assert buffer.is_clean(raw)
    raw[buffer.strides[1] - 1] = 0  # the last padding element between the first two rows
    assert not buffer.is_clean(raw)
    inputs = tensors(PROBLEM, "gfx950")
    q = buffers(PROBLEM, "gfx950")["q"]
    elements = replace(q, shape=(q.elements,), strides=(1,)).read(q.written(inputs.q))
    assert (elements == 208).sum() == q.elements - inputs.q.size > 0


def test_sums_start_at_zero() -> None:
    """Prevents: dQ added to old values in memory."""
    found = buffers(replace(PROBLEM, deterministic=True, seqlen_k=(40, 40)), "gfx950")["dq_acc"]
    assert found.shape == (3, 2, 4, 5, 24)
    assert not found.read(found.written()).any()


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
PAGED_PROBLEMS = [
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


@pytest.mark.parametrize("problem", PAGED_PROBLEMS, ids=str)
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
    prefill = tables(PAGED_PROBLEMS[2])
    assert list(prefill["kv_indptr"]) == [0, 7, 7, 16]
    # Composable Kernel reads past the end; AITER's callers allow for that.
    assert list(prefill["kv_page_indices"][16:]) == [0] * 256
    assert "seqstart_k_ptr" not in prefill


def test_without_pages_there_are_no_tables() -> None:
    """Prevents: table arguments for an entry point that does not take them."""
    problem = PAGED.with_layout(page_block_size=0)
    assert set(tables(problem)) == {"seqstart_q_ptr", "seqstart_k_ptr"}
    assert not page_sizes(problem)
