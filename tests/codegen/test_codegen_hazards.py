"""Holes in small hand-written dispatch chains: find_hazards reports exactly these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from qola.codegen.ck.hazards import find_hazards
from qola.codegen.ck.rows import Kernel, Row
from qola.codegen.types import Bucket
from qola.kernel.selection import REQUESTED, VariantFilter
from qola_base.errors import Finding

ONE, TWO = "m.toml:3 [[mha_fwd_variants]]", "m.toml:9 [[mha_fwd_variants]]"
NUMBERS = count()
#: Variants that select a row, by the key of the row.
KEEPERS: dict[str, list[VariantFilter]] = {}


def row(
    hdim: int | Bucket,
    bias: str,
    *labels: str,
    arch: str = "gfx950",
    dtype: str = "bf16",
    steps: Bucket = (1, 1),
    bm0: int | None = 128,
    conditional: bool = False,
) -> Row:
    key = str(next(NUMBERS))
    KEEPERS[key] = [VariantFilter(0, label, 600, {}, None) for label in labels]
    bucket = (hdim, hdim) if isinstance(hdim, int) else hdim
    problem = (("mode", "batch"), ("bias", bias))
    kernel = Kernel("fwd", "k", arch, {"dtype": dtype}, "")
    return Row(key, None, ("", ()), kernel, (), problem, bucket, steps, bm0, conditional)


def hazards(
    base: Sequence[Row], selected: Sequence[Row], unreachable: Mapping[str, Bucket] | None = None
) -> list[Finding]:
    return find_hazards("fwd", base, selected, KEEPERS, "receipt 600", unreachable or {})


def test_complete_chain_has_no_hazards() -> None:
    """Prevents: findings for a selection that serves all of its problems."""
    base = [row(h, bias) for h in (64, 128) for bias in ("no", "alibi")]
    assert hazards(base, base) == []
    assert hazards(base, [row(128, "no", ONE)]) == []
    assert hazards(base, [row(64, "no", ONE), row(128, "no", ONE)]) == []


def test_hole_of_the_manifest_is_an_error() -> None:
    """Prevents: hdim 64 with alibi returns -1 although the selected 128 kernel could run it."""
    base = [row(h, bias) for h in (64, 128) for bias in ("no", "alibi")]
    selected = [row(64, "no", ONE), row(128, "no", ONE), row(128, "alibi", TWO)]
    (finding,) = hazards(base, selected)
    assert finding.severity == "error"
    assert finding.place == TWO
    assert "bias=alibi with hdim 128x128 but not 64x64" in finding.found
    assert ONE in finding.found
    assert "(gfx950 bf16)" in finding.found
    assert finding.fix == f"add hdim 64 to {TWO}, or take it out of {ONE}"


def test_hole_of_ck_is_a_warning() -> None:
    """Prevents: CK's 192x128 gap reported as an error, or not reported."""
    base = [row((192, 128), "no"), row((192, 192), "no"), row((192, 192), "bias")]
    (finding,) = hazards(base, base)
    assert finding.severity == "warning"
    assert "192x128 bucket has no bias=bias" in finding.found
    assert "receipt 600 has the same gap" in finding.found


def test_larger_kernel_without_padding_is_no_hole() -> None:
    """Prevents: an error although kernels of the larger bucket cannot pad the smaller head dim."""
    base = [row(64, "no"), row(64, "alibi"), row(128, "no"), row(128, "alibi", steps=(128, 128))]
    selected = [base[0], base[2], base[3]]
    assert hazards(base, selected) == []
    padded = row(128, "alibi", TWO, steps=(8, 8))
    (finding,) = hazards([*base, padded], [base[0], base[2], padded])
    assert finding.severity == "error"


def test_conditional_kernel_leaves_a_hole() -> None:
    """Prevents: a bucket treated as complete because of a kernel for short sequences."""
    base = [row(64, "no"), row(64, "alibi"), row(128, "no"), row(128, "alibi")]
    selected = [row(64, "no", ONE), row(64, "alibi", ONE, conditional=True), row(128, "alibi", TWO)]
    (finding,) = hazards(base, selected)
    assert finding.severity == "error"
    assert finding.place == TWO


def test_chains_of_archs_and_dtypes_are_separate() -> None:
    """Prevents: a hole in one dtype hidden by another dtype, or a finding for each arch."""
    base = [
        row(h, bias, dtype=d, arch=a)
        for a in ("gfx9", "gfx950")
        for d in ("fp16", "bf16")
        for h in (64, 128)
        for bias in ("no", "alibi")
    ]
    selected = [
        r
        for r in base
        if (r.fields["dtype"], r.bucket[0], dict(r.problem)["bias"]) != ("fp16", 64, "alibi")
    ]
    (finding,) = hazards(base, selected)
    assert "(gfx9 fp16, gfx950 fp16)" in finding.found


def test_unreachable_rows_are_reported() -> None:
    """Prevents: an hour spent on unreachable kernels, without a warning."""
    base = [row(h, bias, bm0=None) for h in (64, 32, 96) for bias in ("no", "alibi")]
    front = {base[2].key: (64, 64), base[3].key: (64, 64), base[5].key: (96, 96)}
    bucket, rows = hazards(base, base, front)
    assert bucket.severity == rows.severity == "warning"
    assert "2 entries stand behind the 64x64 bucket that take" in bucket.found
    assert "1 entries stand behind others that take their problems" in rows.found
    assert "hdim 32x32" in bucket.place


def test_class_only_in_an_unreachable_bucket() -> None:
    """Prevents: hdim 32 with alibi compiled, and answered with -1 by the 64 bucket."""
    base = [row(h, bias) for h in (64, 32) for bias in ("no", "alibi")]
    selected = [row(64, "no", ONE), row(32, "alibi", TWO)]
    errors = [
        f for f in hazards(base, selected, {selected[1].key: (64, 64)}) if f.severity == "error"
    ]
    assert len(errors) == 1
    assert "bias=alibi with hdim 32x32 but not 64x64" in errors[0].found


def test_omitted_largest_tile_is_reported() -> None:
    """Prevents: a small tile that silently becomes the fallback for every sequence length."""
    base = [row(64, "no", bm0=128), row(64, "alibi", bm0=32)]
    (finding,) = hazards(base, [row(64, "alibi", ONE, bm0=32)])
    assert finding.severity == "warning"
    assert "leaves out the tile of 128 rows: the one of 32 rows now takes every" in finding.found
    requested = row(64, "alibi", bm0=32)
    KEEPERS[requested.key] = [VariantFilter(REQUESTED, "[[kernels]]", 600, {}, None)]
    assert hazards(base, [requested]) == []


def test_class_without_the_largest_tile() -> None:
    """Prevents: -1 for long sequences because the selection lacks the largest tile of a class."""
    base = [row(64, b, bm0=t) for b in ("no", "alibi") for t in (32, 128)]
    selected = [row(64, "no", ONE, bm0=128), row(64, "alibi", TWO, bm0=32)]
    (finding,) = hazards(base, selected)
    assert finding.severity == "error"
    assert "bias=alibi: no tile above 32 rows" in finding.found
    both = [row(64, "no", bm0=128), row(64, "alibi", bm0=32)]
    (finding,) = hazards(both, both)
    assert finding.severity == "warning"
    assert "receipt 600 has the same gap" in finding.found
