"""Own tiles as they are compiled: launched, and right, on the emulator."""

from __future__ import annotations

import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qola import fmha
from qola.attention import make_problem
from qola.fmha.build import BuiltKernel, built_by
from qola.fmha.registry import Entry, Registry
from qola.fmha.runner import Run, Runner
from qola.reference.masks import BOTTOM_RIGHT
from qola.verify.host import Built
from tests.emulate.caches import random_fp16, run_append

ARCH = "gfx950"


def own(family: str) -> tuple[Built, Entry]:
    """A library, and the kernel of a family that it has."""
    module = "libmha_bwd" if family.startswith("bwd") else "libmha_fwd"
    built = built_by(Path(os.environ["QOLA_TEST_PROGRAM"]).absolute())[module]
    # The kernel with dropout is CK's own (tests/emulate).
    more = {"dropout": False} if family.startswith("bwd") else {}
    (entry,) = Registry.of(module, built.repository).where(family=family, **more)
    return built, entry


def words(run: Run) -> list[str]:
    return [*map(str, run.verdicts), *run.done.findings]


@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (100, 130), (1, 200), (257, 31)])
def test_a_forward_of_an_own_tile(rows: int, columns: int) -> None:
    """Prevents: an own tile that compiles and gives other results than attention."""
    built, entry = own("fwd")
    assert str(entry.config.tile).startswith("b64x64x16x32x32x32_")
    of = make_problem(
        "fwd", "fp16", seqlen_q=rows, seqlen_k=columns, nhead_q=2, hdim=32, return_lse=True
    )
    chosen = np.random.default_rng(3)
    q, k, v = (chosen.normal(size=of.shapes()[n]).astype(np.float16) for n in ("q", "k", "v"))
    run = Runner(built, ARCH).forward(of, q, k, v)
    assert run.launched == (entry.name,)
    assert run.passed, words(run)


@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (40, 100)])
def test_a_backward_of_an_own_tile(rows: int, columns: int) -> None:
    """Prevents: an own tile of the backward with partners that are those of another."""
    built, entry = own("bwd_dq_dk_dv")
    of = make_problem(
        "bwd",
        "fp16",
        seqlen_q=rows,
        seqlen_k=columns,
        nhead_q=2,
        hdim=32,
        return_lse=True,
        deterministic=True,
    )
    shapes = of.shapes() | {"do": of.shapes()["o"]}
    chosen = np.random.default_rng(4)
    given = (chosen.normal(size=shapes[n]).astype(np.float16) for n in ("q", "k", "v", "do"))
    run = Runner(built, ARCH).backward(of, *given)
    assert run.launched[1] == entry.name
    # For the tile's columns, of which CK has none.
    assert "convert_dq_d32_fp16_b64x64_" in run.launched[2]
    assert run.passed, words(run)


@pytest.mark.parametrize(("rows", "new"), [(64, 64), (5, 20), (1, 1), (33, 70)])
def test_rows_appended_by_an_own_tile(rows: int, new: int) -> None:
    """Prevents: an own tile of which a block writes some of its rows, and leaves others."""
    built, entry = own("fwd_appendkv")
    lengths: dict[str, Any] = {"seqlen_q": rows, "seqlen_k": [133, new], "seqlen_knew": new}
    rotated: dict[str, Any] = {"rope_type": "half", "rotary_dim": 64, **asdict(BOTTOM_RIGHT)}
    of = make_problem("fwd_appendkv", "fp16", nhead_q=4, nhead_k=2, hdim=64, **lengths, **rotated)
    run, right = run_append(built, ARCH, of)
    assert run.launched == (entry.name,)
    assert run.passed, words(run)
    for name in ("q", "k", "v"):
        assert np.allclose(run.results[name], getattr(right, name), rtol=2e-3, atol=2e-3)


def test_attention_over_pages_by_an_own_tile() -> None:
    """Prevents: an own tile of paged prefill, of a head dimension that CK has none for."""
    built, entry = own("fwd_pagedkv")
    lengths: dict[str, Any] = {"seqlen_q": [70, 7, 64], "seqlen_k": [140, 30, 256]}
    of = make_problem(
        "pagedkv_prefill",
        "fp16",
        **lengths,
        nhead_q=4,
        hdim=64,
        page_block_size=128,
        **asdict(BOTTOM_RIGHT),
    )
    arrays = [random_fp16(of.shapes()[name], n) for n, name in enumerate(("q", "k", "v"))]
    run = Runner(built, ARCH).forward(of, *arrays)
    assert run.launched == (entry.name,)
    assert run.passed, words(run)


def test_the_guide(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a guide whose own kernel is not what it says."""
    built, entry = own("fwd")
    made = [BuiltKernel(entry.config, entry.name, built)]
    monkeypatch.setattr(fmha, "build_configs", lambda configs, archs: made)
    of = make_problem(
        *("fwd", "fp16"),
        seqlen_q=100,
        seqlen_k=130,
        nhead_q=4,
        nhead_k=2,
        hdim=32,
        batch=2,
        return_lse=True,
    )
    chosen = np.random.default_rng(0)
    q, k, v = (chosen.normal(size=of.shapes()[n]).astype(np.float16) for n in ("q", "k", "v"))
    names: dict[str, Any] = {"own": entry.config, "fmha": fmha, "problem": of}
    names |= {"q": q, "k": k, "v": v}
    text = Path(os.environ["QOLA_TEST_PAGE"]).read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (block,) = (one for one in blocks if "build_configs" in one)
    exec(compile(block, "python.md", "exec"), names)
    assert capsys.readouterr().out == "True True\n"
    (tile,) = re.findall(r'^tile = fmha.Tile.parse\("(\S+)"\)$', text, re.MULTILINE)
    assert str(entry.config.tile) == tile
