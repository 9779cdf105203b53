"""Dispatches: the way of a problem through one, and what is not understood."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from qola.codegen.ck.link import NotUnderstoodError
from qola.codegen.types import FieldValue
from qola.launch.problems import MAIN_ROLE
from qola.reference.dropout import Dropout
from qola.reference.masks import TOP_LEFT
from qola.verify.dispatch import Dispatch
from qola.verify.problem import Problem
from qola.verify.sample import MAX_WORK, draw, propose
from tests.consumer import predict
from tests.consumer.problem import Problem as ConsumerProblem
from tests.python.verify.libraries import Library, libraries

QUICKSTART = Path(__file__).parents[3] / "manifests/quickstart.toml"
PROBLEM = Problem("fwd", "fp16", 64, 64, False, (100,), (100,), 2, 1, 0.125)


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
    assert of.taken(replace(PROBLEM, columns=(128,)), "gfx950") == ("k1",)
    assert of.taken(replace(PROBLEM, group=True), "gfx950") == ("k0",)
    assert of.taken(replace(PROBLEM, mask=TOP_LEFT), "gfx950") == ("k3",)
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


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, aiter_tree: Path) -> list[Library]:
    return libraries(tmp_path_factory.mktemp("library"), aiter_tree)


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
            problem = propose(kernel.direction, kernel.fields, edge, chosen, MAX_WORK)
            if problem is not None:
                names = before.dispatch.taken(problem, kernel.archs[0])
                assert after.dispatch.taken(problem, kernel.archs[0]) == names, str(problem)
                launched.update(names)
        assert launched <= left
        assert len(launched) > 0.9 * len(left), "the problems miss too many kernels"


def consumer_problem(problem: Problem) -> ConsumerProblem | None:
    """The problem as the consumer program states it, None where it cannot."""
    if problem.group and len(set(problem.rows)) + len(set(problem.columns)) > 2:
        return None
    mask = "no" if problem.mask.kind == "no" else "window"
    return ConsumerProblem(
        problem.direction,
        problem.dtype,
        problem.hdim_q,
        problem.hdim_v,
        "group" if problem.group else "batch",
        mask,
        problem.bias,
        problem.lse,
        problem.dbias,
        problem.dropout.probability if problem.dropout else 0.0,
        deterministic=problem.deterministic,
        batch=problem.batch,
        nhead_q=problem.nhead_q,
        nhead_k=problem.nhead_k,
        seqlen_q=problem.rows[0],
        seqlen_k=problem.columns[0],
        soft_cap=problem.soft_cap,
        min_seqlen_q=problem.min_rows,
    )


def test_every_kernel_is_in_a_row(found: list[Library]) -> None:
    """Prevents: kernels that no problem is ever drawn for."""
    for library in found:
        named = {name for row in library.dispatch.rows for name in row}
        assert named == {kernel.name for kernel in library.kernels}


def test_as_the_plan_predicts(found: list[Library]) -> None:
    """Prevents: conditions read in another way than a second reader of the plan has them."""
    compared = 0
    for library in found:
        plan = {
            "archs": library.plan.archs,
            "kernels": [asdict(kernel) for kernel in library.kernels],
            "modules": [],
        }
        for kernel in library.kernels[::7]:
            device = kernel.archs[0]
            problems = draw(kernel, library.kernels, library.dispatch, device, 4).problems
            for problem in problems:
                # A mask, dropout or bias more, and lengths that are others.
                changed = [
                    problem,
                    replace(problem, mask=TOP_LEFT),
                    replace(problem, dropout=Dropout(0.5)),
                    replace(problem, rows=(17,) * problem.batch),
                    replace(problem, columns=(64,) * problem.batch, lse=not problem.lse),
                    replace(problem, hdim_q=8, hdim_v=16),
                ]
                for one in changed:
                    row = consumer_problem(one)
                    if row is None:
                        continue
                    expected = predict.predict(plan, row, device, 304)
                    names = tuple(str(launched["name"]) for launched in expected.launches)
                    assert library.dispatch.taken(one, device) == names, str(one)
                    compared += 1
    assert compared > 300


def test_names_of_fields_that_problems_follow(found: list[Library]) -> None:
    """Prevents: a field of kernels that problems are drawn without, and so by chance alone."""
    followed = {
        *("dtype", "hdim_q", "hdim_v", "mode", "mask", "bias", "lse", "dropout", "dbias", "skip"),
        *("deterministic", "logits", "tile", "max_seqlen_q"),
    }
    # What follows from lengths, head dimensions and the device, and what is the same for all.
    others = {
        *("arch_tag", "dpad", "dvpad", "spad", "skpad", "pipeline", "trload", "vlayout", "squant"),
        *("dropout_kind", "store_randval"),
    }
    fields: dict[str, set[FieldValue]] = {}
    for library in found:
        for kernel in library.kernels:
            for name, value in kernel.fields.items():
                fields.setdefault(name, set()).add(value)
    assert set(fields) <= followed | others
    assert fields["squant"] == {False}
    assert fields["vlayout"] == {"row"}
