"""Dispatches: the way of a problem through one, and what is not understood."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qola.aiter.attention import MAIN_ROLE
from qola.attention import AttentionProblem
from qola.codegen.ck.link import NotUnderstoodError
from qola.reference.masks import TOP_LEFT
from qola.verify.dispatch import AssemblyDispatch, Dispatch
from qola.verify.propose import propose
from qola.verify.repository import Repository
from qola.verify.sample import MAX_WORK
from tests.verify.libraries import libraries

QUICKSTART = Path(__file__).parents[2] / "manifests/quickstart.toml"
PROBLEM = AttentionProblem("fwd", "fp16", 64, 64, (100,), (100,), 2, 1, 0.125)


def row(number: int, condition: str) -> str:
    return f"""if({condition}) {{
        using trait_ = fmha_fwd_traits_<{number}>;
        return fmha_fwd_<trait_, ck_tile::gfx950_t>(s, a);
    }}"""


def dispatch(*conditions: str, before: str = "") -> Dispatch:
    """A dispatch with a row for each condition, of kernel k0, k1, ..."""
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


def test_the_first_row_that_fits() -> None:
    """Prevents: a problem handed to a kernel that another stands in front of."""
    of = dispatch(
        "(t.is_group_mode == true) && (true)",
        "(a.seqlen_k != 0 && a.seqlen_k % 64 == 0) && (true /*a.hdim_q % 64 != 0*/)",
        "(a.cu_seqlen_k_ptr == nullptr) && !(t.mask_type != mask_enum::no_mask)",
        "(t.bias_type == bias_enum::no_bias) || (t.has_lse == true)",
    )
    assert of.rows == (("k0",), ("k1",), ("k2",), ("k3",))
    assert of.taken(PROBLEM, "gfx950") == ("k2",)
    assert of.taken(replace(PROBLEM, seqlen_k=(128,)), "gfx950") == ("k1",)
    assert of.taken(replace(PROBLEM, mode="group"), "gfx950") == ("k0",)
    assert of.taken(replace(PROBLEM, **asdict(TOP_LEFT)), "gfx950") == ("k3",)
    for refused in (replace(PROBLEM, dtype="bf16"), replace(PROBLEM, hdim_q=72)):
        assert of.taken(refused, "gfx950") == ()
    assert of.taken(PROBLEM, "gfx942") == ()
    # Two data types of CK's begin alike.
    assert of.taken(replace(PROBLEM, dtype="fp16bf16"), "gfx950") == ()


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("a.new_thing == 3", r"a\.new_thing"),
        ("num_cus < 3", "num_cus"),
        ("get_num_blocks(128) < 3", "get_num_blocks"),
        ("a.seqlen_q ? 1 : 0", "seqlen_q"),
        ('__import__("os").system("true")', "system"),
    ],
)
def test_what_is_not_understood_is_said(condition: str, said: str) -> None:
    """Prevents: a guess at a condition of a later CK, or code of a tree that is run."""
    with pytest.raises(NotUnderstoodError, match=said):
        dispatch(condition).taken(PROBLEM, "gfx950")


@pytest.mark.parametrize("text", ["", "int main() {}", "if(t.hdim_q <= 64) return 1;"])
def test_other_forms_are_refused(text: str) -> None:
    """Prevents: a dispatch without rows, of which each kernel would be called unused."""
    with pytest.raises(NotUnderstoodError):
        Dispatch(text, {})


def test_what_is_launched_instead() -> None:
    """Prevents: a search for problems of a kernel that nothing reaches."""
    of = dispatch(
        "(t.has_lse == true) && (a.hdim_q % 8 == 0)",
        "(true) && (a.hdim_q % 64 == 0) && (t.has_lse == true)",
        "(a.hdim_q % 4 == 0) && (t.has_lse == true)",
    )
    assert of.hidden_by("k1") == ("k0",)
    assert of.hidden_by("k0") == of.hidden_by("k2") == of.hidden_by("k9") == ()


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
    """Prevents: an assembly kernel that AITER's host code gives no such problem to."""
    folder = f"hsa/{arch}/fmha_v3_fwd"
    python = (aiter_tree / "aiter_meta" / folder / "codegen.py").read_text("utf-8")
    host_code = AssemblyDispatch(python[python.index("template<>") :].partition('"""')[0], folder)
    group = replace(PROBLEM, dtype="bf16", hdim_q=128, hdim_v=128, mode="group", use_asm=True)
    found = host_code.taken(replace(group, **changes), arch)
    assert found == tuple(f"{folder}/{file}" for file in files)


def test_entry_points_keep_problems_from_assembly() -> None:
    """Prevents: an assembly kernel for a soft cap, which it would ignore."""
    problem = replace(PROBLEM, use_asm=True, mode="group")
    # No file is read: the answer does not depend on the library.
    library = Repository("libmha_fwd", Path("none"))
    assert library.assembly(replace(problem, logits_soft_cap=30.0), "gfx950") == ()
    assert library.assembly(replace(problem, min_seqlen_q=1), "gfx950") == ()


def test_host_code_of_another_form_is_refused() -> None:
    """Prevents: a problem without an assembly kernel, because nobody read the host code."""
    with pytest.raises(NotUnderstoodError, match="without fmha_fwd_v3"):
        AssemblyDispatch("int main() {}", "hsa/gfx950/fmha_v3_fwd")


@pytest.mark.thorough
def test_unreachable_kernels_are_not_missed(tmp_path: Path, aiter_tree: Path) -> None:
    """Prevents: a problem that goes elsewhere, or nowhere, without kernels that are left out."""
    text = QUICKSTART.read_text("utf-8")
    (tmp_path / "all").mkdir()
    kept = libraries(tmp_path / "all", aiter_tree, text, keep=True)
    for before, after in zip(kept, libraries(tmp_path, aiter_tree, text), strict=True):
        left = {kernel.name for kernel in after.kernels}
        gone = {kernel.name for kernel in before.kernels} - left
        assert gone
        assert all(before.dispatch.hidden_by(name) for name in gone)
        assert not any(after.dispatch.hidden_by(name) for name in left)
        mains = [k for k in before.kernels if k.role == MAIN_ROLE[k.direction]]
        launched: set[str] = set()
        for number in range(2_000):
            chosen = np.random.default_rng(number)
            kernel = mains[number % len(mains)]
            edge = int(chosen.integers(1 << 30))
            sample = propose(kernel.direction, kernel.fields, edge, chosen, MAX_WORK)
            if sample is not None:
                problem = sample.problem
                names = before.dispatch.taken(problem, kernel.archs[0])
                assert after.dispatch.taken(problem, kernel.archs[0]) == names, str(problem)
                launched.update(names)
        assert launched <= left
        assert len(launched) > 0.9 * len(left), "the problems miss too many kernels"
