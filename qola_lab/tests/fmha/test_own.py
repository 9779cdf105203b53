"""User-defined tiles: compiled, launched, and correct on the emulator."""

from __future__ import annotations

import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qola_lab import fmha
from qola_lab.fmha.build import BuiltKernel, built_by
from qola_lab.fmha.registry import Entry, Registry
from qola_lab.fmha.runner import Runner
from qola_lab.problems import make_problem
from qola_lab.reference.masks import BOTTOM_RIGHT
from qola_lab.tests.emulated.runs import arrays, fault_text, run_append
from qola_lab.verify.host import Built

PROGRAM = Path(os.environ["QOLA_TEST_PROGRAM"]).absolute()
ARCH = "gfx950"


def find_own_kernel(family: str) -> tuple[Built, Entry]:
    """Return the library with the user-defined kernel of a family, and the kernel's entry."""
    module = "libmha_bwd" if family.startswith("bwd") else "libmha_fwd"
    built = built_by(PROGRAM)[module]
    # The kernel with dropout is one of CK's (gfxemu/tests).
    other_fields = {"dropout": False} if family.startswith("bwd") else {}
    (entry,) = Registry.of(module, built.repository).where(family=family, **other_fields)
    return built, entry


@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(64, 64), (100, 130), (1, 200), (257, 31)])
def test_a_forward_of_an_own_tile(seqlen_q: int, seqlen_k: int) -> None:
    """Prevents: a user-defined forward tile that compiles but computes wrong results."""
    built, entry = find_own_kernel("fwd")
    assert str(entry.config.tile).startswith("b64x64x16x32x32x32_")
    problem = make_problem(
        "fwd", "fp16", seqlen_q=seqlen_q, seqlen_k=seqlen_k, nhead_q=2, hdim=32, return_lse=True
    )
    run = Runner(built, ARCH).forward(problem, *arrays(problem, "q", "k", "v"))
    assert run.launched == (entry.name,)
    assert run.passed, fault_text(run)


@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(64, 64), (40, 100)])
def test_a_backward_of_an_own_tile(seqlen_q: int, seqlen_k: int) -> None:
    """Prevents: a user-defined backward tile launched with helper kernels of another tile."""
    built, entry = find_own_kernel("bwd_dq_dk_dv")
    problem = make_problem(
        "bwd",
        "fp16",
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k,
        nhead_q=2,
        hdim=32,
        return_lse=True,
        deterministic=True,
    )
    run = Runner(built, ARCH).backward(problem, *arrays(problem, "q", "k", "v", "do"))
    assert run.launched[1] == entry.name
    # convert_dq for the tile's size along K, which CK does not have.
    assert "convert_dq_d32_fp16_b64x64_" in run.launched[2]
    assert run.passed, fault_text(run)


@pytest.mark.parametrize(("seqlen_q", "seqlen_knew"), [(64, 64), (5, 20), (1, 1), (33, 70)])
def test_rows_appended_by_an_own_tile(seqlen_q: int, seqlen_knew: int) -> None:
    """Prevents: a user-defined append tile whose blocks write only some of their rows."""
    built, entry = find_own_kernel("fwd_appendkv")
    lengths: dict[str, Any] = {
        "seqlen_q": seqlen_q,
        "seqlen_k": [133, seqlen_knew],
        "seqlen_knew": seqlen_knew,
    }
    rotated: dict[str, Any] = {"rope_type": "half", "rotary_dim": 64, **asdict(BOTTOM_RIGHT)}
    problem = make_problem(
        "fwd_appendkv", "fp16", nhead_q=4, nhead_k=2, hdim=64, **lengths, **rotated
    )
    run, expected = run_append(built, ARCH, problem)
    assert run.launched == (entry.name,)
    assert run.passed, fault_text(run)
    for name in ("q", "k", "v"):
        assert np.allclose(run.results[name], getattr(expected, name), rtol=2e-3, atol=2e-3)


def test_attention_over_pages_by_an_own_tile() -> None:
    """Prevents: a wrong user-defined tile of paged prefill, for an hdim that CK lacks."""
    built, entry = find_own_kernel("fwd_pagedkv")
    lengths: dict[str, Any] = {"seqlen_q": [70, 7, 64], "seqlen_k": [140, 30, 256]}
    problem = make_problem(
        "pagedkv_prefill",
        "fp16",
        **lengths,
        nhead_q=4,
        hdim=64,
        page_block_size=128,
        **asdict(BOTTOM_RIGHT),
    )
    run = Runner(built, ARCH).forward(problem, *arrays(problem, "q", "k", "v"))
    assert run.launched == (entry.name,)
    assert run.passed, fault_text(run)


def test_the_guide_for_own_kernels(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a guide whose own-kernel example fails, or has another tile than the built one."""
    built, entry = find_own_kernel("fwd")
    builds = [BuiltKernel(entry.config, entry.name, built)]
    monkeypatch.setattr(fmha, "build_configs", lambda configs, archs: builds)
    problem = make_problem(
        *("fwd", "fp16"),
        seqlen_q=100,
        seqlen_k=130,
        nhead_q=4,
        nhead_k=2,
        hdim=32,
        batch=2,
        return_lse=True,
    )
    names: dict[str, Any] = {"own": entry.config, "fmha": fmha, "problem": problem}
    names |= zip("qkv", arrays(problem, "q", "k", "v"), strict=True)
    text = Path(os.environ["QOLA_TEST_PAGE"]).read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (block,) = (candidate for candidate in blocks if "build_configs" in candidate)
    exec(compile(block, "python.md", "exec"), names)
    assert capsys.readouterr().out == "True True\n"
    (tile,) = re.findall(r'^tile = fmha.Tile.parse\("(\S+)"\)$', text, re.MULTILINE)
    assert str(entry.config.tile) == tile
