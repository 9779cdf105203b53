"""Unreachable rows of small hand-written dispatches: qola finds exactly these rows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from qola.codegen.ck.link import NotUnderstoodError, call_of
from qola.codegen.ck.reachable import (
    conjuncts,
    covering,
    leaves_of,
    read_branches,
    unreachable,
)
from qola.codegen.ck.rows import Kernel, Row

WHOLE = "(a.cu_seqlen_k_ptr == nullptr) && (a.seqlen_k != 0 && a.seqlen_k % 64 == 0)"
OTHER = "(a.cu_seqlen_k_ptr != nullptr) || (a.seqlen_k == 0 || a.seqlen_k % 64 != 0)"


def body(number: int) -> str:
    return f"""
    using trait_ = fmha_fwd_traits_<{number}>;
    return fmha_fwd_<trait_, ck_tile::gfx950_t>(s, a);
"""


def chain(conditions: Sequence[tuple[int, str]]) -> str:
    """Return an if-else chain of rows, each with its number and condition."""
    return "\n else ".join(
        f"if({condition}) {{{body(number)}}}" for number, condition in conditions
    )


def dispatch(buckets: Sequence[tuple[int, Sequence[tuple[int, str]]]]) -> str:
    """Return a dispatch with a bucket for each head dim limit."""
    sizes = "\n else ".join(
        f"if(t.hdim_q <= {limit} && t.hdim_v <= {limit}) {{ {chain(rows)} }}"
        for limit, rows in buckets
    )
    return f'if(t.data_type.compare("fp16") == 0) {{ {sizes} }} return -1;'


def find_unreachable(text: str) -> dict[int, tuple[tuple[int, int], ...]]:
    """Return the numbers of unreachable rows, each with the branches that precede and cover it."""
    leaves = leaves_of(read_branches(text))
    return {
        n: tuple((branch.start, branch.stop) for branch in leaf.front)
        for n, leaf in enumerate(leaves)
        if leaf.front
    }


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (["a.hdim_q % 8 == 0", "a.hdim_q % 64 == 0"], {1: (0,)}),
        (["a.hdim_q % 64 == 0", "a.hdim_q % 8 == 0"], {}),
        (["a.seqlen_q <= 32", "a.seqlen_q <= 16"], {1: (0,)}),
        (["a.seqlen_q <= 16", "a.seqlen_q <= 32"], {}),
        (["(true /*a.hdim_q % 8 != 0*/)", "a.seqlen_q <= 16", "true"], {1: (0,), 2: (0,)}),
        ([WHOLE, OTHER, "a.hdim_q % 8 == 0"], {2: (0, 1)}),
        ([WHOLE, f"({OTHER}) && a.seqlen_q <= 16", "true"], {}),
        ([f"({WHOLE}) && (t.has_lse == true)", OTHER, "true"], {}),
        # The row in between has other traits.
        (["t.has_lse == true", "t.has_lse == false", "(t.has_lse == true) && (true)"], {2: (0,)}),
        (["t.mask_type != mask_enum::no_mask", "t.mask_type == mask_enum::no_mask"], {}),
        (["!(a.seqlen_q <= 16)", "a.seqlen_q <= 16", "a.seqlen_k <= 16"], {2: (0, 1)}),
        (["(false) || (true)", "true"], {1: (0,)}),
        (["false", "true"], {}),
        # A condition that cannot be parsed covers no other row; preceding rows can cover it.
        (["num_blocks(64) < 3", "num_blocks(64) < 3"], {}),
        (["a.b ? true : false", "true", "true"], {2: (1,)}),
        (["(a.b < 1) && (a.c < 1) || (a.d < 1)", "(a.b < 1)"], {}),
    ],
)
def test_rows_covered_by_preceding_rows(
    conditions: list[str], expected: dict[int, tuple[int, ...]]
) -> None:
    """Prevents: kernels that no problem reaches, or an omitted kernel that problems reach."""
    found = find_unreachable(dispatch([(64, list(enumerate(conditions)))]))
    assert found == {n: tuple((i, i + 1) for i in branches) for n, branches in expected.items()}


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ("else if(t.hdim_q <= 32 && t.hdim_v <= 32) {", {2: ((0, 2),)}),
        ("else  if (t.hdim_q <= 32 &&\n  t.hdim_v <= 32)\n{", {2: ((0, 2),)}),
        ("else if(t.hdim_q <= 32 && t.hdim_v <= 32 && a.seqlen_q > 1) {", {2: ((0, 2),)}),
        ("else {", {}),
        ("if(t.hdim_q <= 32 && t.hdim_v <= 32) {", {}),
        ("else if(t.hdim_q <= 32 && t.hdim_v <= 96) {", {}),
        ("else if(t.hdim_q <= 32) {", {}),
    ],
)
def test_buckets_covered_by_preceding_buckets(second: str, expected: dict[int, object]) -> None:
    """Prevents: omitted kernels that the dispatch does reach."""
    first = chain([(0, "t.is_group_mode == true"), (1, "a.hdim_q % 8 == 0")])
    text = (
        f"// t.hdim_q <= 1\nif(t.hdim_q <= 64 && t.hdim_v <= 64) {{ {first} }}\n{second}"
        f"if(t.is_group_mode == true) {{ {body(2)} }} }}"
    )
    assert find_unreachable(text) == expected


def test_type_choice_is_a_single_row() -> None:
    """Prevents: a branch with "if constexpr" counted as two rows, which shifts row numbers."""
    same = "if constexpr (std::is_same_v<T, T>) {" + body(0) + "} else {" + body(1) + "}"
    first = "if(a.hdim_q % 8 == 0) {" + same + "}"
    second = "else if(a.hdim_q % 64 == 0) {" + body(2) + "}"
    text = f"if(t.hdim_q <= 64) {{ {first} {second} }}"
    assert find_unreachable(text) == {1: ((0, 1),)}


def test_independent_conditions_cover_together() -> None:
    """Prevents: a case distinction that omits a case."""
    front = tuple(conjuncts(f"a.p{n} == 1") for n in range(4))
    assert covering(conjuncts("true"), front) == ()
    rest = conjuncts(" && ".join(f"a.p{n} != 1" for n in range(4)))
    assert covering(conjuncts("true"), (*front, rest)) == (0, 1, 2, 3, 4)
    assert covering(conjuncts("a.p0 != 1"), (*front, rest)) == (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("condition", "number"),
    [
        ("a.p == 1 && (a.q == 1 || a.r == 1) && !(a.s == 1 || a.t == 1)", 4),
        ("(a.p == 1 && a.q == 1) && true // a && b", 2),
        ("(a.p == 1) && (a.q == 1) || (a.r == 1)", 1),
        ("a.p == 1", 1),
        ("false && a.p == 1", 1),
    ],
)
def test_conjuncts_of_a_condition(condition: str, number: int) -> None:
    """Prevents: other formulas because a condition is split before it is parsed."""
    assert conjuncts(condition) == conjuncts(f"({condition.partition(' //')[0]})")
    assert len(conjuncts(condition)) == number


@pytest.mark.parametrize("text", ["", "int main() {}", "if(t.hdim_q <= 64) return 1;"])
def test_unknown_dispatch_syntax_is_refused(text: str) -> None:
    """Prevents: a dispatch parsed without rows, so that every kernel is unreachable."""
    with pytest.raises(NotUnderstoodError):
        read_branches(text)


def row(number: int, limit: int) -> Row:
    kernel = Kernel("fwd", f"k{number}", None, {}, "")
    call = call_of(body(number))
    return Row(str(number), number, call, kernel, (kernel,), (), (limit,) * 2, (1, 1))


CONDITIONS = {0: "a.seqlen_q <= 16", 1: "a.hdim_q % 8 == 0", 2: "a.hdim_q % 64 == 0", 3: "true"}
ROWS = [*(row(number, 64) for number in (0, 1, 2)), row(3, 32)]


def render_dispatch(rows: Sequence[Row], conditions: dict[int, str]) -> str:
    limits = dict.fromkeys(row.bucket[0] for row in rows)
    return dispatch(
        [
            (
                limit,
                [(r.registered, conditions[r.registered]) for r in rows if r.bucket[0] == limit],
            )
            for limit in limits
        ]
    )


def test_unreachable_rows_name_covering_rows() -> None:
    """Prevents: an omitted row whose explanation names the wrong covering row."""
    found = unreachable(ROWS, lambda rows: render_dispatch(rows, CONDITIONS))
    assert {key: [r.key for r in front] for key, front in found.items()} == {"2": ["1"], "3": ["0"]}


def test_duplicate_rows_are_kept() -> None:
    """Prevents: omitted kernels that another row with the same call launches."""
    twice = [*ROWS[:3], ROWS[2], row(3, 32)]

    def render(rows: Sequence[Row]) -> str:
        second = [(2, "a.seqlen_k % 7 == 0")] if ROWS[2] in rows else []
        first = [(r.registered, CONDITIONS[r.registered]) for r in rows if r.bucket == (64, 64)]
        return dispatch([(64, [*dict.fromkeys(first), *second])])

    assert unreachable(twice[:4], render) == {}


def test_conditions_that_depend_on_other_rows() -> None:
    """Prevents: rows omitted although the remaining rows then get other conditions."""

    def render(rows: Sequence[Row]) -> str:
        return render_dispatch(
            rows, CONDITIONS if len(rows) == len(ROWS) else {**CONDITIONS, 0: "true"}
        )

    assert unreachable(ROWS, render) == {}


@pytest.mark.parametrize("number", [1, 7])
def test_dispatch_must_match_its_rows(number: int) -> None:
    """Prevents: rows omitted because of a dispatch text that belongs to other rows."""
    text = render_dispatch(ROWS, CONDITIONS).replace("traits_<3>", f"traits_<{number}>")
    assert unreachable(ROWS, lambda _: text) == {}
    assert unreachable(ROWS, lambda _: "return -1;") == {}
