"""CK's example programs launch the kernels that the registry selects.

CK's tree has no example program for batch prefill.
"""

from __future__ import annotations

import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from gfxemu.fake_hip import FakeHip, read_log
from qola_lab.fmha.registry import Registry
from qola_lab.problems import AttentionProblem, make_problem
from qola_lab.reference.masks import BOTTOM_RIGHT, NO_MASK, TOP_LEFT, Mask
from qola_lab.verify.host import Built

#: Launch once, and do not check results: the fake runtime does not run kernels.
_ONCE = ("-v=0", "-warmup=0", "-repeat=1")
_MASKS = {"0": NO_MASK, "1": TOP_LEFT, "2": BOTTOM_RIGHT}
_BIASES = {"n": "no", "e": "bias", "a": "alibi"}

#: Default options of the examples: data type and head dimension of the manifest.
_DEFAULTS = {
    "ci": {"prec": "fp16", "d": "32", "lse": "1"},
    "quickstart": {"prec": "bf16", "d": "128", "lse": "1"},
    "paged": {"prec": "fp16", "d": "128", "lse": "0", "mask": "2"},
    "splitkv": {"prec": "fp16", "d": "32", "lse": "1", "mode": "1"},
}

#: A library, and command-line options of CK's example.
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
    # With a cache in batch mode, each sequence has a length: K is not in whole tiles.
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
    # No attention kernel, possibly after an append: rows without pages, LSE, or no mask.
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


def parse_options(words: str) -> dict[str, str]:
    return dict(re.findall(r"-(\w+)=(\S+)", words))


def parse_mask(text: str) -> Mask:
    if text in _MASKS:
        return _MASKS[text]
    kind, _, window = text.partition(":")
    left, right = map(int, window.split(","))
    return Mask({"t": "top_left", "b": "bottom_right"}[kind], left, right)  # type: ignore[arg-type]


def example_problems(direction: str, options: dict[str, str]) -> list[AttentionProblem]:
    """Return a problem for each kernel that the options of the example request."""
    splits, page, new = (
        int(options.get(name, default))
        for name, default in (("num_splits", "1"), ("page_block_size", "0"), ("s_knew", "0"))
    )
    group = options.get("mode") == "1"
    seqlens_q = [int(n) for n in options["s"].split(",")]
    seqlens_k = [int(n) for n in options.get("s_k", options["s"]).split(",")]
    nhead_q, hdim, batch = int(options["h"]), int(options["d"]), int(options["b"])
    forward_fields: dict[str, Any] = (
        {"return_lse": options["lse"] == "1"} if direction == "fwd" else {}
    )
    if dropout := float(options.get("p_drop", "0")):
        forward_fields |= {"dropout_p": dropout, "drop_seed": 1, "drop_offset": 0}
    sizes: dict[str, Any] = {
        "nhead_q": nhead_q,
        "nhead_k": int(options.get("h_k", nhead_q)),
        "hdim": (hdim, int(options.get("d_v", hdim))),
        "page_block_size": page,
        **asdict(parse_mask(options.get("mask", "0"))),
    }

    def attention(direction_: str) -> AttentionProblem:
        return make_problem(
            direction_,
            options["prec"],
            seqlen_q=seqlens_q if group else seqlens_q[0],
            seqlen_k=seqlens_k if group else seqlens_k[0],
            batch=1 if group else batch,
            bias_type=_BIASES[options.get("bias", "n")],
            logits_soft_cap=float(options.get("logits_soft_cap", "0")),
            deterministic=options.get("deterministic") == "1",
            num_splits=splits,
            **sizes,
            **forward_fields,
        )

    steps = []
    if new:
        rotary = int(options.get("rotary_dim", "0"))
        rope = "inter" if options.get("rotary_interleaved", "1") == "1" else "half"
        append_fields: dict[str, Any] = {
            "seqlen_knew": new,
            "rotary_dim": rotary,
            "rope_type": rope if rotary else "no",
        }
        # The example chooses random lengths for all sequences but the first.
        ends = seqlens_k[:1] * batch
        shape: dict[str, Any] = {
            "seqlen_q": seqlens_q[0],
            "seqlen_k": ends,
            **sizes,
            **append_fields,
        }
        steps.append(make_problem("fwd_appendkv", options["prec"], **shape))
    if splits > 1:
        direction = "fwd_splitkv"
    elif new or page:
        # Without a paged-prefill kernel, the example tries split-KV, which the library lacks.
        direction = "pagedkv_prefill"
    return [*steps, attention(direction)]


def path(name: str) -> Path:
    return Path(os.environ[f"QOLA_TEST_{name}"])


@pytest.mark.parametrize(("library", "arguments"), CONFIGURATIONS)
def test_examples_launch_the_selected_kernels(library: str, arguments: str, tmp_path: Path) -> None:
    """Prevents: a kernel selected for a problem that differs from the kernel that CK launches."""
    manifest, _, direction = library.rpartition("_")
    options = _DEFAULTS[manifest] | parse_options(arguments)
    plan = path(f"{library}_EMULATED")
    runtime = path("FAKE_HIP").resolve()
    file = path(f"{library}_LIBRARY").resolve()
    # The test does not use the caller: any file will do.
    built = Built(f"libmha_{direction}", plan.parent, file, file, runtime)
    registry = Registry.of(built.module, built.repository)
    command_options = [
        f"-{name}={value}" for name, value in options.items() if direction == "fwd" or name != "lse"
    ]
    for arch in built.plan.archs:
        log = tmp_path / arch
        command: list[str | Path] = [path(library).resolve(), *command_options, *_ONCE]
        run = FakeHip(runtime, arch, timeout=60).run(command, log)
        symbols = built.symbols(arch)
        launched = [symbols.get(launch.kernel, launch.kernel) for launch in read_log(log)]
        selected = [
            registry.select(problem, arch) for problem in example_problems(direction, options)
        ]
        assert launched == [entry.name for selection in selected for entry in selection], (
            run.stdout + run.stderr
        )
        assert all(selected) == (run.returncode == 0), run.stdout + run.stderr
