"""Dispatch of problems to kernels, and refusal of dispatches that qola cannot parse."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qola.aiter.attention import MAIN_ROLE
from qola.codegen.ck.link import NotUnderstoodError
from qola_lab.problems import AttentionProblem
from qola_lab.reference.masks import TOP_LEFT
from qola_lab.tests.verify.libraries import libraries
from qola_lab.verify.propose import propose
from qola_lab.verify.repository import AssemblyDispatch, Dispatch, Repository
from qola_lab.verify.run import MAX_WORK

QUICKSTART = Path(__file__).parents[3] / "manifests/quickstart.toml"
PROBLEM = AttentionProblem("fwd", "fp16", 64, 64, (100,), (100,), 2, 1, 0.125)


def row(number: int, condition: str) -> str:
    return f"""if({condition}) {{
        using trait_ = fmha_fwd_traits_<{number}>;
        return fmha_fwd_<trait_, ck_tile::gfx950_t>(s, a);
    }}"""


def dispatch(*conditions: str, before: str = "") -> Dispatch:
    """Build a dispatch with a row for each condition, with kernels k0, k1, ..."""
    chain = "\n else ".join(row(n, condition) for n, condition in enumerate(conditions))
    text = f"""
    bool get() {{ T props{{}}; if(failed()) {{ return false; }} return true; }}
    float fmha_fwd(traits t, args a) {{
        float r = -1;
        if(device_name.compare(0, 6, "gfx950") == 0) {{
            if(t.data_type.compare("fp16") == 0) {{
                {before}
                if(t.hdim_q <= 64 && t.hdim_v <= 64) {{ {chain} }}
                else if(t.hdim_q <= 128) {{ return -1; }}
            }}
        }}
        return r;
    }}"""
    sources = {
        f"k{n}": f"using trait_ = fmha_fwd_traits_<{n}>; fmha_fwd_<trait_, ck_tile::gfx950_t>"
        for n in range(len(conditions))
    }
    return Dispatch(text, sources)


def test_the_first_matching_row_wins() -> None:
    """Prevents: a problem assigned to a kernel although an earlier row serves it."""
    chain = dispatch(
        "(t.is_group_mode == true) && (true)",
        "(a.seqlen_k != 0 && a.seqlen_k % 64 == 0) && (true /*a.hdim_q % 64 != 0*/)",
        "(a.cu_seqlen_k_ptr == nullptr) && !(t.mask_type != mask_enum::no_mask)",
        "(t.bias_type == bias_enum::no_bias) || (t.has_lse == true)",
    )
    assert chain.rows == (("k0",), ("k1",), ("k2",), ("k3",))
    assert chain.taken(PROBLEM, "gfx950") == ("k2",)
    assert chain.taken(replace(PROBLEM, seqlen_k=(128,)), "gfx950") == ("k1",)
    assert chain.taken(replace(PROBLEM, mode="group"), "gfx950") == ("k0",)
    assert chain.taken(replace(PROBLEM, **asdict(TOP_LEFT)), "gfx950") == ("k3",)
    for refused in (replace(PROBLEM, dtype="bf16"), replace(PROBLEM, hdim_q=72)):
        assert chain.taken(refused, "gfx950") == ()
    assert chain.taken(PROBLEM, "gfx942") == ()
    # "fp16bf16" begins with another data type of CK, "fp16".
    assert chain.taken(replace(PROBLEM, dtype="fp16bf16"), "gfx950") == ()


@pytest.mark.parametrize(
    ("condition", "name"),
    [
        ("a.new_thing == 3", r"a\.new_thing"),
        ("num_cus < 3", "num_cus"),
        ("get_num_blocks(128) < 3", "get_num_blocks"),
        ("a.seqlen_q ? 1 : 0", "seqlen_q"),
        ('__import__("os").system("true")', "system"),
    ],
)
def test_unknown_conditions_are_errors(condition: str, name: str) -> None:
    """Prevents: a guess at a condition of a later CK, or execution of code from a tree."""
    with pytest.raises(NotUnderstoodError, match=name):
        dispatch(condition).taken(PROBLEM, "gfx950")


def test_hidden_kernels_are_found() -> None:
    """Prevents: a search for problems of a kernel that no problem reaches."""
    chain = dispatch(
        "(t.has_lse == true) && (a.hdim_q % 8 == 0)",
        "(true) && (a.hdim_q % 64 == 0) && (t.has_lse == true)",
        "(a.hdim_q % 4 == 0) && (t.has_lse == true)",
    )
    assert chain.hidden_by("k1") == ("k0",)
    assert chain.hidden_by("k0") == chain.hidden_by("k2") == chain.hidden_by("k9") == ()


CAUSAL = {"mask_type": "bottom_right", "window_size_right": 0}


@pytest.mark.parametrize(
    ("arch", "changes", "files"),
    [
        ("gfx950", CAUSAL, ("fwd_hd128_bf16_causal_group.co",)),
        ("gfx950", {}, ("fwd_hd128_bf16_group.co",)),
        ("gfx950", {**CAUSAL, "hdim_q": 192}, ("fwd_hd192_hd128_bf16_causal_group.co",)),
        ("gfx950", {**CAUSAL, "window_size_left": 64}, ()),
        ("gfx950", {**CAUSAL, "dtype": "fp16"}, ()),
        ("gfx950", {"bias_type": "alibi"}, ()),
        (
            "gfx942",
            {**CAUSAL, "how_v3_bf16_cvt": 2},
            tuple(f"{gpu}/fwd_hd128_bf16_causal_rtz_group.co" for gpu in ("MI300", "MI308")),
        ),
        ("gfx942", {**CAUSAL, "hdim_q": 192}, ()),
    ],
)
def test_the_assembly_kernel_of_a_problem(
    aiter_tree: Path, arch: str, changes: dict[str, Any], files: tuple[str, ...]
) -> None:
    """Prevents: an assembly kernel reported for a problem that AITER's host code excludes."""
    folder = f"hsa/{arch}/fmha_v3_fwd"
    python = (aiter_tree / "aiter_meta" / folder / "codegen.py").read_text("utf-8")
    host_code = AssemblyDispatch(python[python.index("template<>") :].partition('"""')[0], folder)
    group = replace(PROBLEM, dtype="bf16", hdim_q=128, hdim_v=128, mode="group", use_asm=True)
    found = host_code.taken(replace(group, **changes), arch)
    assert found == tuple(f"{folder}/{file}" for file in files)


def test_entry_points_keep_problems_from_assembly() -> None:
    """Prevents: an assembly kernel reported for a soft cap or min_seqlen_q, which it ignores."""
    problem = replace(PROBLEM, use_asm=True, mode="group")
    # No file is read: the answer does not depend on the library.
    library = Repository("libmha_fwd", Path("none"))
    assert library.assembly(replace(problem, logits_soft_cap=30.0), "gfx950") == ()
    assert library.assembly(replace(problem, min_seqlen_q=1), "gfx950") == ()


def test_unknown_host_code_is_refused() -> None:
    """Prevents: "no assembly kernel" reported because qola could not parse the host code."""
    with pytest.raises(NotUnderstoodError, match="without fmha_fwd_v3"):
        AssemblyDispatch("int main() {}", "hsa/gfx950/fmha_v3_fwd")


@pytest.mark.thorough
def test_removing_unreachable_kernels_keeps_the_dispatch(tmp_path: Path, aiter_tree: Path) -> None:
    """Prevents: problems that get another kernel, or none, when unreachable kernels are removed."""
    text = QUICKSTART.read_text("utf-8")
    (tmp_path / "all").mkdir()
    all_libraries = libraries(tmp_path / "all", aiter_tree, text, keep=True)
    for before, after in zip(all_libraries, libraries(tmp_path, aiter_tree, text), strict=True):
        reachable = {kernel.name for kernel in after.kernels}
        removed = {kernel.name for kernel in before.kernels} - reachable
        assert removed
        assert all(before.dispatch.hidden_by(name) for name in removed)
        assert not any(after.dispatch.hidden_by(name) for name in reachable)
        mains = [k for k in before.kernels if k.role == MAIN_ROLE[k.direction]]
        launched: set[str] = set()
        for number in range(2_000):
            rng = np.random.default_rng(number)
            kernel = mains[number % len(mains)]
            edge = int(rng.integers(1 << 30))
            sample = propose(kernel.direction, kernel.fields, edge, rng, MAX_WORK)
            if sample is not None:
                problem = sample.problem
                names = before.dispatch.taken(problem, kernel.archs[0])
                assert after.dispatch.taken(problem, kernel.archs[0]) == names, str(problem)
                launched.update(names)
        assert launched <= reachable
        assert len(launched) > 0.9 * len(reachable), "the problems miss too many kernels"
