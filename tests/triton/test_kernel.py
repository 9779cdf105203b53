"""Kernels as they are declared: their compiles, their arguments, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from qola.errors import ManifestError
from qola.triton.kernel import OPTIONS, Argument, Kernel, expand

TEXT = """
import triton
import triton.language as tl

@triton.jit
def scaled(x: "*{dtype}:16", y: "*{dtype}", n, by: "fp32", BLOCK: tl.constexpr,
           ROUND: "tl.constexpr" = False, *, LAST: tl.constexpr = 1):
    pass
"""
CHOICES = {"dtype": ("fp16", "bf16"), "BLOCK": ("64", "128"), "num_warps": ("4",)}


def kernel(
    choices: Mapping[str, tuple[str, ...]] = CHOICES,
    archs: tuple[str, ...] = ("gfx942", "gfx1100"),
    signature: Mapping[str, str] | None = None,
    text: str = TEXT,
    function: str = "scaled",
) -> Kernel:
    types = {"n": "i32"} if signature is None else signature
    return Kernel("scale", "kernels.py", text, function, choices, archs, types)


def test_the_matrix() -> None:
    """Prevents: a combination of choices that is compiled twice, or never."""
    found = expand(kernel())
    assert [one.name for one in found] == sorted(
        f"scale-BLOCK_{block}-dtype_{dtype}-num_warps_4-{arch}"
        for block in ("64", "128")
        for dtype in ("fp16", "bf16")
        for arch in ("gfx942", "gfx1100")
    )
    one = next(one for one in found if "BLOCK_128-dtype_bf16-num_warps_4-gfx1100" in one.name)
    assert one.arguments == (
        Argument("x", "*bf16", 16),
        Argument("y", "*bf16", 1),
        Argument("n", "i32", 1),
        Argument("by", "fp32", 1),
    )
    assert one.constants == {"BLOCK": "128"}
    assert one.options == {**OPTIONS, "num_warps": 4}
    assert one.choices_text() == "gfx1100 BLOCK=128 dtype=bf16 num_warps=4"


def test_parameters_that_are_always_the_same() -> None:
    """Prevents: an argument that the code object does not read, or a value that it is without."""
    (one,) = expand(
        kernel(
            {"dtype": ("fp16",), "BLOCK": ("64",)},
            ("gfx942",),
            {"n": "={BLOCK}", "y": "=0", "by": "=1.5"},
        )
    )
    assert one.arguments == (Argument("x", "*fp16", 16),)
    assert one.constants == {"BLOCK": "64", "n": "64", "y": "0", "by": "1.5"}
    assert one.name == "scale-BLOCK_64-dtype_fp16-gfx942"
    # A constant that has one value need not be in names.
    (one,) = expand(
        kernel({"dtype": ("fp16",)}, ("gfx942",), {"n": "i32", "BLOCK": "=64", "LAST": "=0"})
    )
    assert one.constants == {"BLOCK": "64", "LAST": "0"}
    assert one.name == "scale-dtype_fp16-gfx942"


def test_one_more_value_renames_nothing() -> None:
    """Prevents: a cache that misses all kernels because a choice got one more value."""
    before = {one.name for one in expand(kernel())}
    after = {one.name for one in expand(kernel({**CHOICES, "num_warps": ("4", "8")}))}
    assert before < after
    assert len(after) == 2 * len(before)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"choices": {**CHOICES, "BLOK": ("1",)}}, "choices BLOK one of BLOCK, LAST, ROUND, dtype"),
        ({"choices": {"dtype": ("fp16",)}}, "choices nothing for BLOCK"),
        ({"choices": {"BLOCK": ("64",)}}, "choices nothing for dtype"),
        ({"choices": {**CHOICES, "BLOCK": ()}}, "choices.BLOCK [] values, each once"),
        ({"choices": {**CHOICES, "BLOCK": ("1", "1")}}, "choices.BLOCK ['1', '1'] values"),
        ({"choices": {**CHOICES, "BLOCK": ("a/b",)}}, "choices.BLOCK 'a/b' letters"),
        ({"choices": {**CHOICES, "num_warps": ("all",)}}, "num_warps 'all' a number"),
        ({"choices": {**CHOICES, "dtype": ("half",)}}, "scaled: x *half:16 a type"),
        ({"archs": ()}, "archs none"),
        ({"signature": {}}, "scaled: n no type"),
        ({"signature": {"n": "i32:12"}}, "scaled: n i32:12 a type"),
        ({"signature": {"n": "="}}, "scaled: n = a type"),
        ({"signature": {"n": "i32", "BLOCK": "=1"}}, "signature BLOCK =1 = and a value"),
        ({"signature": {"n": "i32", "LAST": "i32"}}, "signature LAST i32 = and a value"),
        ({"signature": {"n": "=a b"}}, "scaled: n =a b a type"),
        ({"signature": {"n": "i32", "m": "i32"}}, "signature m parameters: by, n, x, y"),
        ({"function": "scale"}, "kernels.py no function scale one of its functions: scaled"),
        ({"text": "def scaled(:"}, "kernels.py:1 invalid syntax a file in Python"),
        ({"choices": {**CHOICES, "BLOCK": ("1" * 200,)}}, "more than 200 characters"),
    ],
)
def test_what_is_refused(changed: dict[str, object], words: str) -> None:
    """Prevents: a slip in a declaration that shows as an error of Triton, or as another kernel."""
    with pytest.raises(ManifestError) as caught:
        expand(kernel(**changed))  # type: ignore[arg-type]
    told = [f"{one.place} {one.found} {one.expected}" for one in caught.value.findings]
    assert any(words in line for line in told), told


def test_an_expression_is_no_type() -> None:
    """Prevents: `n: int` refused without a word of what to write."""
    with pytest.raises(ManifestError) as caught:
        expand(kernel(text=TEXT.replace(" n,", " n: int,"), signature={}))
    (finding,) = caught.value.findings
    assert (finding.found, finding.fix[:15]) == ("no type", "annotate it, n:")


def test_all_that_is_wrong_is_told() -> None:
    """Prevents: a user who mends one slip after the other."""
    with pytest.raises(ManifestError) as caught:
        expand(kernel({"BLOCK": (), "WRONG": ("1",)}, archs=()))
    assert len(caught.value.findings) == 4


@pytest.mark.parametrize(
    ("arch", "lanes"), [("gfx90a", 64), ("gfx942", 64), ("gfx950", 64), ("gfx1100", 32)]
)
def test_lanes_of_a_wave(arch: str, lanes: int) -> None:
    """Prevents: a launch with twice or half the threads."""
    assert {one.warp_size for one in expand(kernel(archs=(arch,)))} == {lanes}
