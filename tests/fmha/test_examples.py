"""CK's own example programs launch the kernels that the registry selects.

No program of CK's tree calls batch prefill.
"""

from __future__ import annotations

import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from qola.attention import AttentionProblem, make_problem
from qola.fmha.registry import Registry
from qola.launch.fake_hip import FakeHip, read_log
from qola.reference.masks import BOTTOM_RIGHT, NO_MASK, TOP_LEFT, Mask
from qola.verify.host import Built

#: One launch, and no result to look at: nothing is computed.
_ONCE = ("-v=0", "-warmup=0", "-repeat=1")
_MASKS = {"0": NO_MASK, "1": TOP_LEFT, "2": BOTTOM_RIGHT}
_BIASES = {"n": "no", "e": "bias", "a": "alibi"}

#: What the example is asked for by default; the manifest's data type and head dimension.
_OF = {
    "ci": {"prec": "fp16", "d": "32", "lse": "1"},
    "quickstart": {"prec": "bf16", "d": "128", "lse": "1"},
    "paged": {"prec": "fp16", "d": "128", "lse": "0", "mask": "2"},
    "splitkv": {"prec": "fp16", "d": "32", "lse": "1", "mode": "1"},
}

#: A library, and options of CK's example in its words.
CONFIGURATIONS = [
    ("ci_fwd", "-b=2 -h=2 -s=64"),
    ("ci_fwd", "-b=1 -h=3 -s=100 -s_k=51"),
    ("ci_fwd", "-b=1 -h=2 -s=64 -mask=1"),
    ("quickstart_fwd", "-b=1 -h=2 -s=1024 -mask=2"),
    ("quickstart_fwd", "-b=2 -h=2 -h_k=1 -s=55 -s_k=256"),
    ("quickstart_fwd", "-b=3 -h=2 -h_k=1 -s=200 -s_k=512 -mask=t:128,30"),
    ("quickstart_fwd", "-b=1 -h=2 -s=16 -s_k=64 -d=120 -d_v=120"),
    ("quickstart_fwd", "-mode=1 -b=2 -h=1 -s=99,40 -s_k=32,70 -mask=b:4,35"),
    ("quickstart_fwd", "-b=1 -h=2 -s=64 -bias=e"),
    ("splitkv_fwd", "-b=2 -h=2 -s=33,20 -s_k=520,300 -num_splits=3 -lse=0"),
    ("splitkv_fwd", "-b=2 -h=2 -s=64,64 -s_k=256,256 -num_splits=2"),
    # No whole tiles of K: of a cache in batch mode the example has a length for each sequence.
    ("paged_fwd", "-b=2 -h=4 -h_k=2 -s=100 -s_k=300 -page_block_size=128"),
    ("paged_fwd", "-mode=1 -b=2 -h=2 -s=99,40 -s_k=132,270 -page_block_size=256 -mask=t:64,0"),
    ("paged_fwd", "-b=1 -h=2 -s=64 -s_k=200 -page_block_size=128 -logits_soft_cap=20"),
    ("paged_fwd", "-b=2 -h=4 -h_k=2 -s=33 -s_k=250 -s_knew=33 -page_block_size=128"),
    ("paged_fwd", "-b=1 -h=2 -s=64 -s_k=321 -s_knew=64 -page_block_size=128 -rotary_dim=128"),
    (
        "paged_fwd",
        "-b=2 -h=2 -s=65 -s_k=321 -s_knew=20 -page_block_size=128 -rotary_dim=96"
        " -rotary_interleaved=0",
    ),
    # Appended, and no kernel behind it: of rows that are not in pages, of LSE, of no mask.
    ("paged_fwd", "-b=2 -h=2 -s=64 -s_k=200 -s_knew=64"),
    ("paged_fwd", "-b=1 -h=2 -s=1 -s_k=321 -s_knew=1 -rotary_dim=64 -rotary_interleaved=0"),
    ("paged_fwd", "-b=1 -h=2 -s=20 -s_k=150 -s_knew=10 -page_block_size=128 -lse=1"),
    ("paged_fwd", "-b=1 -h=2 -s=64 -s_k=200 -page_block_size=128 -mask=0"),
    ("splitkv_fwd", "-b=2 -h=2 -s=9,40 -s_k=132,270 -page_block_size=128 -num_splits=2"),
    ("ci_bwd", "-b=1 -h=2 -s=128"),
    ("ci_bwd", "-b=2 -h=4 -h_k=2 -s=100 -s_k=51 -d=24"),
    ("ci_bwd", "-b=1 -h=2 -s=64 -s_k=64 -d=32 -d_v=24"),
    ("ci_bwd", "-b=1 -h=2 -s=128 -deterministic=1"),
]


def read(words: str) -> dict[str, str]:
    return dict(re.findall(r"-(\w+)=(\S+)", words))


def mask_of(word: str) -> Mask:
    if word in _MASKS:
        return _MASKS[word]
    kind, _, window = word.partition(":")
    left, right = map(int, window.split(","))
    return Mask({"t": "top_left", "b": "bottom_right"}[kind], left, right)  # type: ignore[arg-type]


def problems_of(direction: str, asked: dict[str, str]) -> list[AttentionProblem]:
    """What options of the example stand for: a problem for each kernel that it asks for."""
    splits, page, new = (
        int(asked.get(name, default))
        for name, default in (("num_splits", "1"), ("page_block_size", "0"), ("s_knew", "0"))
    )
    group = asked.get("mode") == "1"
    rows = [int(n) for n in asked["s"].split(",")]
    columns = [int(n) for n in asked.get("s_k", asked["s"]).split(",")]
    heads, hdim, batch = int(asked["h"]), int(asked["d"]), int(asked["b"])
    more: dict[str, Any] = {"return_lse": asked["lse"] == "1"} if direction == "fwd" else {}
    if dropped := float(asked.get("p_drop", "0")):
        more |= {"dropout_p": dropped, "drop_seed": 1, "drop_offset": 0}
    sizes: dict[str, Any] = {
        "nhead_q": heads,
        "nhead_k": int(asked.get("h_k", heads)),
        "hdim": (hdim, int(asked.get("d_v", hdim))),
        "page_block_size": page,
        **asdict(mask_of(asked.get("mask", "0"))),
    }

    def attention(of: str) -> AttentionProblem:
        return make_problem(
            of,
            asked["prec"],
            seqlen_q=rows if group else rows[0],
            seqlen_k=columns if group else columns[0],
            batch=1 if group else batch,
            bias_type=_BIASES[asked.get("bias", "n")],
            logits_soft_cap=float(asked.get("logits_soft_cap", "0")),
            deterministic=asked.get("deterministic") == "1",
            num_splits=splits,
            **sizes,
            **more,
        )

    steps = []
    if new:
        rotary = int(asked.get("rotary_dim", "0"))
        rope = "inter" if asked.get("rotary_interleaved", "1") == "1" else "half"
        words: dict[str, Any] = {
            "seqlen_knew": new,
            "rotary_dim": rotary,
            "rope_type": rope if rotary else "no",
        }
        # Of sequences behind the first, the example draws the length.
        ends = columns[:1] * batch
        shape: dict[str, Any] = {"seqlen_q": rows[0], "seqlen_k": ends, **sizes, **words}
        steps.append(make_problem("fwd_appendkv", asked["prec"], **shape))
    if splits > 1:
        direction = "fwd_splitkv"
    elif new or page:
        # Without a kernel of that the example asks split-KV, which the library does not have.
        direction = "pagedkv_prefill"
    return [*steps, attention(direction)]


def path(name: str) -> Path:
    return Path(os.environ[f"QOLA_TEST_{name}"])


@pytest.mark.parametrize(("library", "words"), CONFIGURATIONS)
def test_the_example_launches_what_is_selected(library: str, words: str, tmp_path: Path) -> None:
    """Prevents: a kernel named for a problem, and another one that CK itself would launch."""
    manifest, _, direction = library.rpartition("_")
    asked = _OF[manifest] | read(words)
    plan = path(f"{library}_EMULATED")
    runtime = path("FAKE_HIP").resolve()
    file = path(f"{library}_LIBRARY").resolve()
    # Nothing is called through a caller.
    built = Built(f"libmha_{direction}", plan.parent, file, file, runtime)
    registry = Registry.of(built.module, built.repository)
    options = [
        f"-{name}={value}" for name, value in asked.items() if direction == "fwd" or name != "lse"
    ]
    for arch in built.plan.archs:
        log = tmp_path / arch
        command: list[str | Path] = [path(library).resolve(), *options, *_ONCE]
        run = FakeHip(runtime, arch, timeout=60).run(command, log)
        symbols = built.symbols(arch)
        launched = [symbols.get(launch.kernel, launch.kernel) for launch in read_log(log)]
        selected = [registry.select(of, arch) for of in problems_of(direction, asked)]
        assert launched == [one.name for of in selected for one in of], run.stdout + run.stderr
        assert all(selected) == (run.returncode == 0), run.stdout + run.stderr
