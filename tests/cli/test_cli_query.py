"""Queries, explanations and tables of the command line, with invented kernel instances."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from qola.cli.console import align, size, table
from qola.codegen.types import Explanation
from qola.manifest.load import loads
from qola.query.kernels import (
    Item,
    QueryError,
    count,
    make_item,
    rule_of,
    select,
    summary,
    verdicts,
)
from qola_base.errors import Finding
from qola_base.progress import duration


def item(
    name: str, dtype: str, q: int, v: int, direction: str = "fwd", **more: str | bool | None
) -> Item:
    """Make a kernel instance for gfx950; split-KV instances are for gfx942 too."""
    fields = {"dtype": dtype, "hdim_q": q, "hdim_v": v, **more}
    archs = ["gfx950"] if direction == "fwd" else ["gfx942", "gfx950"]
    return make_item(name, "libmha_fwd", direction, direction, archs, fields.items())


ITEMS = [
    item("fwd_d64_bf16_batch_mask", "bf16", 64, 64, mode="batch", mask=True),
    item("fwd_d128_bf16_batch_nmask", "bf16", 128, 128, mode="batch", mask=False),
    item("fwd_d128_fp16_group_mask", "fp16", 128, 128, mode="group", mask=True),
    item("fwd_d192_fp16_group_mask", "fp16", 192, 128, mode="group", mask=True),
    item("splitkv_d128_bf16", "bf16", 128, 128, "fwd_splitkv", arch=None),
]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ([], [0, 1, 2, 3, 4]),
        (["hdim=128"], [1, 2, 4]),
        (["hdim=128x128"], [1, 2, 4]),
        (["hdim=64,192x128"], [0, 3]),
        (["hdim_v=128"], [1, 2, 3, 4]),
        (["dtype=bf16", "mode=batch"], [0, 1]),
        (["mask=yes"], [0, 2, 3]),
        (["mask=yes,no"], [0, 1, 2, 3]),
        (["mask=no"], [1]),
        (["has_mask=false"], [1]),
        (["has_mask=yes"], [0, 2, 3]),
        (["mask_type=no"], [1]),
        (["mask_type=causal,top_left", "mode=batch"], [0]),
        (["mask=TRUE"], [0, 2, 3]),
        (["mask=t,f"], [0, 1, 2, 3]),
        (["mask=1"], [0, 2, 3]),
        (["mask=0"], [1]),
        (["arch=gfx942"], [4]),
        (["arch=gfx950"], [0, 1, 2, 3, 4]),
        (["direction=fwd_splitkv"], [4]),
        (["fwd_d128_fp16_group_mask"], [2]),
        (["*_mask"], [0, 2, 3]),
        (["*_mask", "mode=group", "hdim=192x128"], [3]),
        (["splitkv_d128_bf16", "fwd_d64_bf16_batch_mask"], [0, 4]),
        (["@repo//fwd:fwd_d128_fp16_group_mask"], [2]),
        (["bazel-out/bin/_objs/x/fwd_d128_fp16_group_mask.pic.o"], [2]),
        (["fwd/fwd_d128_fp16_group_mask.cpp"], [2]),
    ],
)
def test_queries(query: Sequence[str], expected: Sequence[int]) -> None:
    """Prevents: a query selects wrong kernels."""
    assert select(ITEMS, query) == expected


FIELDS = "arch, direction, dtype, hdim, hdim_q, hdim_v, mask, mode, module or role"
NO_NAME = "no kernel instance of that name"
NAMES = "a name, or a pattern in quotes such as '*_d128_bf16_*'"
PATTERN = "'*d128*' is a pattern that finds 3 kernel instances"
NO_FP61 = "no kernel instance with dtype fp61"
HDIMS = "64, 64x64, 128, 128x128 or 192x128"
NOT_ALL = "no kernel instance that has all of it"
TOGETHER = "fields and names that occur together"


@pytest.mark.parametrize(
    "findings",
    [
        [Finding("dtyp=bf16", "unknown field 'dtyp'", FIELDS, "did you mean dtype=bf16?")],
        [Finding("dtype=fp61,bf16", NO_FP61, "bf16 or fp16", "did you mean dtype=fp16?")],
        [Finding("hdim=512", "no kernel instance with hdim 512", HDIMS)],
        [Finding("module=x", "no kernel instance with module x", "libmha_fwd")],
        [Finding("direction=x", "no kernel instance with direction x", "fwd or fwd_splitkv")],
        [Finding("mode=x", "no kernel instance with mode x", "batch or group")],
        [Finding("mask=", "no kernel instance with mask empty", "no or yes")],
        [Finding("fwd_d96_bf16_batch_mask", NO_NAME, NAMES)],
        [Finding("d128", NO_NAME, NAMES, PATTERN)],
        [Finding("mode=batch dtype=fp16", NOT_ALL, TOGETHER)],
        [
            Finding("zzz=1", "unknown field 'zzz'", FIELDS),
            Finding("nothing_like_it", NO_NAME, NAMES),
        ],
    ],
)
def test_queries_that_find_nothing(findings: list[Finding]) -> None:
    """Prevents: a query with a typing error returns an empty result."""
    query = [term for finding in findings for term in finding.place.split()]
    with pytest.raises(QueryError) as caught:
        select(ITEMS, query)
    assert caught.value.exit_code == 2
    assert list(caught.value.findings) == findings


@pytest.mark.parametrize("query", [[], ["hdim=64"], ["fwd_*"]])
def test_an_empty_plan(query: list[str]) -> None:
    """Prevents: a traceback if no module of the manifest has kernel instances."""
    with pytest.raises(QueryError, match="no kernel instance at all"):
        select([], query)


def test_counting() -> None:
    """Prevents: table counts do not add up, or 128 sorts before 64."""
    rows = count(ITEMS)
    assert [row.key[1:] for row in rows] == [
        ("fwd", "fwd", "gfx950", "64x64"),
        ("fwd", "fwd", "gfx950", "128x128"),
        ("fwd", "fwd", "gfx950", "192x128"),
        ("fwd_splitkv", "fwd_splitkv", "gfx942,gfx950", "128x128"),
    ]
    assert rows[1].by_dtype == {"bf16": 1, "fp16": 1}
    assert rows[1].by_mode == {"batch": 1, "group": 1}
    assert rows[3].by_mode == {"-": 1}
    assert sum(row.total for row in rows) == len(ITEMS)


MANIFEST = loads(
    """\
[[modules]]
name = "libmha_fwd"
receipt = 700
[[modules]]
name = "libmha_bwd"
[[mha_fwd_variants]]
dtype = "bf16"
[[mha_fwd_variants]]
dtype = ["bf16", "fp16"]
hdim = 64
""",
    file="m.toml",
)


def explanation(name: str, kept_by: tuple[int, ...], dropped_by: str) -> Explanation:
    return Explanation(name, "fwd", "fwd", ("gfx950",), {"mask": True}, kept_by, dropped_by)


def test_reasons_name_variant_receipt_or_rule() -> None:
    """Prevents: an explanation does not name a line of the manifest or a rule."""
    fwd, bwd = MANIFEST.modules
    results = verdicts(
        MANIFEST,
        [
            (fwd, [explanation("a", (0, 1), ""), explanation("b", (), "receipt 700: no")]),
            (fwd, [explanation("c", (), "")]),
            (bwd, [explanation("d", (), "")]),
        ],
    )
    assert [(v.item.name, v.word, v.reasons) for v in results] == [
        ("a", "in", ("m.toml:6 [[mha_fwd_variants]]", "m.toml:8 [[mha_fwd_variants]]")),
        ("b", "out", ("receipt 700: no",)),
        ("c", "in", ("all of receipt 700 (m.toml:3 [[modules]].receipt)",)),
        ("d", "in", ("all of the receipt in AITER's own configuration",)),
    ]
    assert results[3].item.show("module") == "libmha_bwd"


def test_the_summary_is_by_rule() -> None:
    """Prevents: the summary has a line for each combination of values."""
    fwd = MANIFEST.modules[0]
    nearest = "no variant has it; the nearest, m.toml:6 [[mha_fwd_variants]], lacks"
    reasons = [
        "no variant has dtype=fp16 hdim=64x64",
        "no variant has dtype=fp16 hdim=96x128",
        f"{nearest} dtype=fp16",
        "receipt 700: lse must be yes",
        "",
        "unreachable: rows before it in the dispatch take all its problems: k8, k9 (kept by x)",
    ]
    explained = [explanation(f"k{i}", (), reason) for i, reason in enumerate(reasons)]
    results = verdicts(MANIFEST, [(fwd, explained)])
    assert [(r.kept, r.rule, r.count) for r in summary(results)] == [
        (True, "all of receipt 700 (m.toml:3 [[modules]].receipt)", 1),
        (False, "no variant has this dtype, hdim", 2),
        (False, f"{nearest} this dtype", 1),
        (False, "receipt 700: lse must be yes", 1),
        (False, "unreachable: rows before it in the dispatch take all its problems (kept by x)", 1),
    ]
    assert rule_of(results[3]) == "receipt 700: lse must be yes"


def test_plain_tables_are_complete() -> None:
    """Prevents: without a terminal, names are truncated to a terminal's width."""
    rows = [("a" * 200, "1"), ("[[b]]", "200")]
    text = table("Title", ("name", "n"), rows, ("total", "201"), numbers=1)
    title, head, *lines = text.splitlines()
    assert title == "Title"
    assert head == "name" + " " * 196 + "    n"
    assert lines == [
        "a" * 200 + "    1",
        "[[b]]" + " " * 195 + "  200",
        "total" + " " * 195 + "  201",
    ]
    assert align([("a", ""), ("bb", "")], 2) == ["a", "bb"]


def test_quantities() -> None:
    """Prevents: an estimate shows seconds for long times, or sizes have a wrong unit."""
    times = (0.4, 45, 89, 91, 720, 5340, 5400, 12000, 36000, 3600 * 57.3)
    shown = "0 s, 45 s, 89 s, 2 min, 12 min, 89 min, 1 h 30 min, 3 h 20 min, 10 h, 57 h"
    assert ", ".join(map(duration, times)) == shown
    counts = (0, 999, 1500, 123_456, 5e9, 5e13)
    assert ", ".join(map(size, counts)) == "0 B, 999 B, 1.5 kB, 123 kB, 5.0 GB, 50000 GB"
