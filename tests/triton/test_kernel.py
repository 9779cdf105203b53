"""Declarations of kernels: their instances, their arguments, and rejected declarations."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from qola.triton.kernel import OPTIONS, Argument, Kernel, expand
from qola_base.errors import ManifestError

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


def test_instances_of_all_combinations() -> None:
    """Prevents: a combination of constexprs is compiled twice, or never."""
    found = expand(kernel())
    assert [instance.name for instance in found] == sorted(
        f"scale-BLOCK_{block}-dtype_{dtype}-num_warps_4-{arch}"
        for block in ("64", "128")
        for dtype in ("fp16", "bf16")
        for arch in ("gfx942", "gfx1100")
    )
    instance = next(i for i in found if "BLOCK_128-dtype_bf16-num_warps_4-gfx1100" in i.name)
    assert instance.arguments == (
        Argument("x", "*bf16", 16),
        Argument("y", "*bf16", 1),
        Argument("n", "i32", 1),
        Argument("by", "fp32", 1),
    )
    assert instance.constants == {"BLOCK": "128"}
    assert instance.options == {**OPTIONS, "num_warps": 4}
    assert instance.choices_text() == "gfx1100 BLOCK=128 dtype=bf16 num_warps=4"


def test_parameters_with_fixed_values() -> None:
    """Prevents: an argument that the code object does not read, or a missing constant."""
    (instance,) = expand(
        kernel(
            {"dtype": ("fp16",), "BLOCK": ("64",)},
            ("gfx942",),
            {"n": "={BLOCK}", "y": "=0", "by": "=1.5"},
        )
    )
    assert instance.arguments == (Argument("x", "*fp16", 16),)
    assert instance.constants == {"BLOCK": "64", "n": "64", "y": "0", "by": "1.5"}
    assert instance.name == "scale-BLOCK_64-dtype_fp16-gfx942"
    # A constant in the signature is not part of the name.
    (instance,) = expand(
        kernel({"dtype": ("fp16",)}, ("gfx942",), {"n": "i32", "BLOCK": "=64", "LAST": "=0"})
    )
    assert instance.constants == {"BLOCK": "64", "LAST": "0"}
    assert instance.name == "scale-dtype_fp16-gfx942"


def test_additional_value_keeps_names() -> None:
    """Prevents: a cache misses all kernels because a constexpr got another value."""
    before = {instance.name for instance in expand(kernel())}
    after = {instance.name for instance in expand(kernel({**CHOICES, "num_warps": ("4", "8")}))}
    assert before < after
    assert len(after) == 2 * len(before)


@pytest.mark.parametrize(
    ("changed", "expected"),
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
def test_invalid_declarations(changed: dict[str, object], expected: str) -> None:
    """Prevents: an error in a declaration appears as an error of Triton, or as another kernel."""
    with pytest.raises(ManifestError) as caught:
        expand(kernel(**changed))  # type: ignore[arg-type]
    lines = [f"{f.place} {f.found} {f.expected}" for f in caught.value.findings]
    assert any(expected in line for line in lines), lines


def test_annotation_that_is_not_a_string() -> None:
    """Prevents: the error for `n: int` does not suggest a valid annotation."""
    with pytest.raises(ManifestError) as caught:
        expand(kernel(text=TEXT.replace(" n,", " n: int,"), signature={}))
    (finding,) = caught.value.findings
    assert (finding.found, finding.fix[:15]) == ("no type", "annotate it, n:")


def test_all_errors_are_reported() -> None:
    """Prevents: a user corrects a declaration one error per run."""
    with pytest.raises(ManifestError) as caught:
        expand(kernel({"BLOCK": (), "WRONG": ("1",)}, archs=()))
    assert len(caught.value.findings) == 4


@pytest.mark.parametrize(
    ("arch", "lanes"), [("gfx90a", 64), ("gfx942", 64), ("gfx950", 64), ("gfx1100", 32)]
)
def test_lanes_of_a_wave(arch: str, lanes: int) -> None:
    """Prevents: a launch with twice or half the threads."""
    assert {instance.warp_size for instance in expand(kernel(archs=(arch,)))} == {lanes}
