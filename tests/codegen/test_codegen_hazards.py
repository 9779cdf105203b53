"""Dispatch hazards on small, made-up chains: each is found, and nothing else is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from qola.codegen.ck.hazards import find_hazards
from qola.codegen.ck.predicates import REQUESTED, VariantFilter
from qola.codegen.ck.rows import Kernel, Row
from qola.codegen.types import Bucket
from qola.errors import Finding

ONE, TWO = "[[mha_fwd_variants]] #1 (line 3)", "[[mha_fwd_variants]] #2 (line 9)"
KERNEL = Kernel("fwd", "k", None, {}, "")
NUMBERS = count()
#: By the key of each row.
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
    fields = {"dtype": dtype}
    return Row(
        key, None, ("", ()), KERNEL, (), fields, problem, arch, bucket, steps, bm0, conditional
    )


def hazards(
    base: Sequence[Row], kept: Sequence[Row], unreachable: Mapping[str, Bucket] | None = None
) -> list[Finding]:
    return find_hazards("fwd", base, kept, KEEPERS, "receipt 600", unreachable or {})


def test_a_complete_chain_has_none() -> None:
    """Prevents: findings on a selection that serves all it declares."""
    base = [row(h, bias) for h in (64, 128) for bias in ("no", "alibi")]
    assert hazards(base, base) == []
    assert hazards(base, [row(128, "no", ONE)]) == []
    assert hazards(base, [row(64, "no", ONE), row(128, "no", ONE)]) == []


def test_a_hole_the_manifest_makes_is_an_error() -> None:
    """Prevents: hdim 64 with alibi returning -1 though the kept 128 kernel could run it."""
    base = [row(h, bias) for h in (64, 128) for bias in ("no", "alibi")]
    kept = [row(64, "no", ONE), row(128, "no", ONE), row(128, "alibi", TWO)]
    (finding,) = hazards(base, kept)
    assert finding.severity == "error"
    assert finding.place == TWO
    assert "bias=alibi with hdim 128x128 but not 64x64" in finding.found
    assert ONE in finding.found
    assert "(gfx950 bf16)" in finding.found
    assert finding.fix == f"add hdim 64 to {TWO}, or take it out of {ONE}"


def test_a_hole_ck_has_is_a_warning() -> None:
    """Prevents: CK's own 192x128 gap keeping a manifest from being built, or hidden."""
    base = [row((192, 128), "no"), row((192, 192), "no"), row((192, 192), "bias")]
    (finding,) = hazards(base, base)
    assert finding.severity == "warning"
    assert "192x128 bucket has no bias=bias" in finding.found
    assert "receipt 600 has the same gap" in finding.found


def test_a_larger_kernel_that_cannot_pad_serves_nothing() -> None:
    """Prevents: an error where the larger bucket demands head dims that do not fit the smaller."""
    base = [row(64, "no"), row(64, "alibi"), row(128, "no"), row(128, "alibi", steps=(128, 128))]
    kept = [base[0], base[2], base[3]]
    assert hazards(base, kept) == []
    padded = row(128, "alibi", TWO, steps=(8, 8))
    (finding,) = hazards([*base, padded], [base[0], base[2], padded])
    assert finding.severity == "error"


def test_a_conditional_kernel_counts_as_none() -> None:
    """Prevents: a bucket taken for complete because of a kernel for short sequences only."""
    base = [row(64, "no"), row(64, "alibi"), row(128, "no"), row(128, "alibi")]
    kept = [row(64, "no", ONE), row(64, "alibi", ONE, conditional=True), row(128, "alibi", TWO)]
    (finding,) = hazards(base, kept)
    assert finding.severity == "error"
    assert finding.place == TWO


def test_chains_of_other_archs_and_dtypes_do_not_mix() -> None:
    """Prevents: a hole in one dtype hidden by another, and archs reported apart."""
    base = [
        row(h, bias, dtype=d, arch=a)
        for a in ("gfx9", "gfx950")
        for d in ("fp16", "bf16")
        for h in (64, 128)
        for bias in ("no", "alibi")
    ]
    kept = [
        r
        for r in base
        if (r.fields["dtype"], r.bucket[0], dict(r.problem)["bias"]) != ("fp16", 64, "alibi")
    ]
    (finding,) = hazards(base, kept)
    assert "(gfx9 fp16, gfx950 fp16)" in finding.found


def test_unreachable_rows_are_reported() -> None:
    """Prevents: an hour of compiling kernels that nothing reaches, which a manifest keeps."""
    base = [row(h, bias, bm0=None) for h in (64, 32, 96) for bias in ("no", "alibi")]
    front = {base[2].key: (64, 64), base[3].key: (64, 64), base[5].key: (96, 96)}
    bucket, others = hazards(base, base, front)
    assert bucket.severity == others.severity == "warning"
    assert "2 entries stand behind the 64x64 bucket that take" in bucket.found
    assert "1 entries stand behind others that take their problems" in others.found
    assert "hdim 32x32" in bucket.place


def test_an_unreached_bucket_that_alone_has_a_class_is_an_error() -> None:
    """Prevents: hdim 32 with alibi declared, compiled, and answered with -1 by the 64 bucket."""
    base = [row(h, bias) for h in (64, 32) for bias in ("no", "alibi")]
    kept = [row(64, "no", ONE), row(32, "alibi", TWO)]
    errors = [f for f in hazards(base, kept, {kept[1].key: (64, 64)}) if f.severity == "error"]
    assert len(errors) == 1
    assert "bias=alibi with hdim 32x32 but not 64x64" in errors[0].found


def test_the_largest_tile_left_out_is_reported() -> None:
    """Prevents: a small tile silently becoming the fallback for every sequence length."""
    base = [row(64, "no", bm0=128), row(64, "alibi", bm0=32)]
    (finding,) = hazards(base, [row(64, "alibi", ONE, bm0=32)])
    assert finding.severity == "warning"
    assert "leaves out the tile of 128 rows: the one of 32 rows now takes every" in finding.found
    own = row(64, "alibi", bm0=32)
    KEEPERS[own.key] = [VariantFilter(REQUESTED, "[[kernels]]", 600, {}, None)]
    assert hazards(base, [own]) == []


def test_a_class_without_the_largest_tile() -> None:
    """Prevents: long sequences returning -1 where the selection took a class's largest tile."""
    base = [row(64, b, bm0=t) for b in ("no", "alibi") for t in (32, 128)]
    kept = [row(64, "no", ONE, bm0=128), row(64, "alibi", TWO, bm0=32)]
    (finding,) = hazards(base, kept)
    assert finding.severity == "error"
    assert "bias=alibi: no tile above 32 rows" in finding.found
    both = [row(64, "no", bm0=128), row(64, "alibi", bm0=32)]
    (finding,) = hazards(both, both)
    assert finding.severity == "warning"
    assert "receipt 600 has the same gap" in finding.found
