"""Appending to K and V: results of a CK kernel pass, wrong positions and rotations fail."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from qola.aiter.tree import read_tree
from qola.common.folder import Folder
from qola.manifest.load import loads
from qola.plan.planner import build_plan
from qola.plan.request import Request
from qola.plan.resolve import resolve
from qola_base.formats import F64, decoded, encoded
from qola_lab.problems import AttentionProblem, Layout, parse_words
from qola_lab.reference.masks import BOTTOM_RIGHT
from qola_lab.verify.expected import compare, expected
from qola_lab.verify.propose import Fields, propose
from qola_lab.verify.repository import Repository
from qola_lab.verify.run import VerifyRequest, draw, generator
from qola_lab.verify.tensors import arithmetic, buffers, entry_values, filled, tables, tensors

PLAIN = AttentionProblem(
    "fwd_appendkv",
    "fp16",
    32,
    24,
    (5, 5),
    (9, 4),
    4,
    2,
    1.0,
    seqlen_knew=3,
    layout=Layout(row_padding=8),
)
ROTATED = replace(PLAIN, rope_type="half", rotary_dim=16)
PROBLEMS = [
    PLAIN,
    ROTATED,
    replace(ROTATED, rope_type="inter", **asdict(BOTTOM_RIGHT)).with_layout(order="bhsd"),
    replace(ROTATED, **asdict(BOTTOM_RIGHT), dtype="bf16").with_layout(page_block_size=4),
    PLAIN.with_layout(page_block_size=4),
]


class Machine:
    """Memory of a problem, and a kernel that accesses it only by addresses."""

    def __init__(self, problem: AttentionProblem) -> None:
        self.problem = problem
        self.buffers = buffers(problem, "gfx950")
        values = filled(problem, tensors(problem, "gfx950"))
        self.memory = {
            name: decoded(buffer.written(values[name]), buffer.format)
            for name, buffer in self.buffers.items()
        }
        self.arguments: dict[str, Any] = entry_values(problem, "gfx950", ())
        self.tables = tables(problem)

    def at(self, name: str, batch: int, head: int, row: int) -> int:
        """Return the offset of a row of a tensor, in elements."""
        values = self.arguments
        if name in ("k", "v") and self.problem.layout.page_block_size:
            number, row = divmod(row, values["page_block_size"])
            batch = self.tables["block_table_ptr"][
                batch * values["batch_stride_block_table"] + number
            ]
        head_at = head * values[f"nhead_stride_{name}"]
        return int(
            batch * values[f"batch_stride_{name}"] + head_at + row * values[f"stride_{name}"]
        )

    def rotated(self, row: F64, position: int) -> F64:
        """Rotate a row, element by element."""
        half = int(self.arguments["rotary_dim"]) // 2
        result: F64 = row.copy()
        if self.arguments["rope_type"] == 0:
            return result
        for i in range(half):
            a, b = (2 * i, 2 * i + 1) if self.arguments["rope_type"] == 1 else (i, half + i)
            cos, sin = (self.memory[f"rotary_{n}"][position * half + i] for n in ("cos", "sin"))
            result[a] = row[a] * cos - row[b] * sin
            result[b] = row[b] * cos + row[a] * sin
        return result

    def run(self) -> dict[str, F64]:
        """Append and rotate rows; return the contents of all buffers."""
        values, memory = self.arguments, self.memory
        for batch in range(values["batch"]):
            before = int(self.tables["seqlen_k_ptr"][batch])
            for head in range(values["nhead_k"]):
                for n in range(values["seqlen_knew"]):
                    for name, size in (("k", values["hdim_q"]), ("v", values["hdim_v"])):
                        source = self.at(f"{name}new", batch, head, n)
                        row = memory[f"{name}new"][source : source + size]
                        if name == "k":
                            row = self.rotated(row, before + n)
                        target = self.at(name, batch, head, before + n)
                        memory[name][target : target + size] = row
            for head in range(values["nhead_q"]):
                for n in range(values["seqlen_q"]):
                    at = self.at("q", batch, head, n)
                    row = memory["q"][at : at + values["hdim_q"]]
                    memory["q"][at : at + values["hdim_q"]] = self.rotated(
                        row, before + n * values["has_mask"]
                    )
        return {name: buffer.read(self.raw(name)) for name, buffer in self.buffers.items()}

    def raw(self, name: str) -> NDArray[Any]:
        """Return the bits of a buffer's memory."""
        return encoded(self.memory[name], self.buffers[name].format)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_a_correct_append_passes(problem: AttentionProblem) -> None:
    """Prevents: a correct kernel that fails, since its inputs differ from the reference's."""
    machine = Machine(problem)
    found = machine.run()
    inputs = tensors(problem, "gfx950")
    expected_ = expected(problem, inputs, arithmetic(problem, "gfx950", 16))
    assert set(expected_) == {"k", "v"} | ({"q"} if problem.rope_type != "no" else set())
    assert all(verdict.passed for verdict in compare(found, expected_))
    for name, buffer in machine.buffers.items():
        assert buffer.is_clean(machine.raw(name))
        # Buffers that the kernel does not update are inputs.
        assert (buffer.filled == "updated") is (name in expected_)


@pytest.mark.parametrize("problem", PROBLEMS[1:4], ids=str)
def test_another_position_or_rotation_fails(problem: AttentionProblem) -> None:
    """Prevents: error limits that accept every rotation."""
    inputs = tensors(problem, "gfx950")
    expected_ = expected(problem, inputs, arithmetic(problem, "gfx950", 16))
    shifted = Machine(problem)
    shifted.memory |= {n: np.roll(shifted.memory[n], 8) for n in ("rotary_cos", "rotary_sin")}
    verdicts = {verdict.name: verdict for verdict in compare(shifted.run(), expected_)}
    assert [verdicts[name].passed for name in ("k", "q", "v")] == [False, False, True]
    other = Machine(problem)
    other.arguments["rope_type"] = 3 - other.arguments["rope_type"]
    assert not all(verdict.passed for verdict in compare(other.run(), expected_))


def test_overwriting_previous_rows_fails() -> None:
    """Prevents: a kernel that passes although it overwrites rows before the appended rows."""
    inputs = tensors(PLAIN, "gfx950")
    expected_ = expected(PLAIN, inputs, arithmetic(PLAIN, "gfx950", 16))
    machine = Machine(PLAIN)
    machine.tables["seqlen_k_ptr"] = machine.tables["seqlen_k_ptr"] - 1
    verdicts = compare(machine.run(), expected_)
    assert not any(verdict.passed for verdict in verdicts)
    assert parse_words(str(ROTATED).split(), "fwd") == ROTATED


def test_problems_match_the_fields_of_a_kernel() -> None:
    """Prevents: a kernel for rotary embeddings and pages verified without them."""
    fields: Fields = {
        "dtype": "bf16",
        "hdim_q": 128,
        "rope": "half",
        "pagedkv": True,
        "spad": False,
    }
    for edge in range(12):
        sample = propose("fwd_appendkv", fields, edge, generator("k", 0, edge, 0), 1 << 17)
        assert sample is not None
        problem = sample.problem
        assert (problem.rope_type, problem.layout.page_block_size, problem.seqlen_q[0] % 64) == (
            "half",
            128,
            0,
        )
        assert problem.rotary_dim % 16 == 0 < problem.rotary_dim <= problem.hdim_q
        assert min(problem.seqlen_k) >= problem.seqlen_knew > 0
        assert tensors(replace(problem, hdim_q=32, rotary_dim=16), "gfx950").appended is not None


MANIFEST = """
[build]
architectures = ["gfx950"]
mode = "cpp_itfs"
[[modules]]
name = "libmha_fwd"
add_directions = ["fwd_appendkv", "pagedkv_prefill"]
drop_directions = ["fwd", "fwd_splitkv", "batch_prefill"]
hsa_subdirs = []
[[mha_fwd_variants]]
dtype = "bf16"
hdim = 128
has_bias = false
has_alibi = false
"""


def test_each_kernel_has_problems(aiter_tree: Path, tmp_path: Path) -> None:
    """Prevents: append or paged kernels without problems, or with an unparsed dispatch."""
    manifest = loads(MANIFEST, file="m.toml")
    plan = build_plan(resolve(Request("m", manifest, read_tree(aiter_tree))), Folder(tmp_path))
    (tmp_path / "plan.json").write_text(plan.to_json())
    library = Repository("libmha_fwd", tmp_path)
    for direction, count in (("fwd_appendkv", 12), ("pagedkv_prefill", 12)):
        kernels, dispatch = library.of_direction(direction), library.dispatch(direction)
        samples = [
            draw(kernel, kernels, dispatch, VerifyRequest("gfx950", samples=2))
            for kernel in kernels
        ]
        assert len(samples) == count
        assert all(len(kernel_samples.samples) >= 2 for kernel_samples in samples)
