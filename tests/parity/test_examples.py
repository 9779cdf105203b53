"""CK's own example programs launch the kernels that the registry selects."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from qola.fmha.problem import Problem, problem
from qola.fmha.registry import Registry
from qola.launch.fake_hip import FakeHip, read_log
from qola.reference.dropout import Dropout
from qola.reference.masks import BOTTOM_RIGHT, NO_MASK, TOP_LEFT, Mask
from qola.verify.run import Built

#: One launch, and no result to look at: nothing is computed.
_ONCE = ("-v=0", "-warmup=0", "-repeat=1")
_MASKS = {"0": NO_MASK, "1": TOP_LEFT, "2": BOTTOM_RIGHT}
_BIASES = {"n": "no", "e": "bias", "a": "alibi"}

#: What the example is asked for by default; the manifest's data type and head dimension.
_OF = {
    "ci": {"prec": "fp16", "d": "32", "lse": "1"},
    "quickstart": {"prec": "bf16", "d": "128", "lse": "1"},
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


def problem_of(direction: str, asked: dict[str, str]) -> Problem:
    """The problem that options of the example stand for."""
    splits = int(asked.get("num_splits", "1"))
    group = asked.get("mode") == "1"
    rows = [int(n) for n in asked["s"].split(",")]
    columns = [int(n) for n in asked.get("s_k", asked["s"]).split(",")]
    heads, hdim = int(asked["h"]), int(asked["d"])
    more: dict[str, Any] = {"lse": asked["lse"] == "1"} if direction == "fwd" else {}
    if dropped := float(asked.get("p_drop", "0")):
        more["dropout"] = Dropout(dropped, 1, 0)
    if splits > 1:
        direction = "fwd_splitkv"
    return problem(
        direction,
        asked["prec"],
        rows=rows if group else rows[0],
        columns=columns if group else columns[0],
        batch=int(asked["b"]),
        heads=heads,
        heads_k=int(asked.get("h_k", heads)),
        hdim=hdim,
        hdim_v=int(asked.get("d_v", hdim)),
        mask=mask_of(asked.get("mask", "0")),
        bias=_BIASES[asked.get("bias", "n")],
        deterministic=asked.get("deterministic") == "1",
        splits=splits,
        **more,
    )


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
        selected = [one.name for one in registry.select(problem_of(direction, asked), arch)]
        assert launched == selected, run.stdout + run.stderr
        assert bool(selected) == (run.returncode == 0), run.stdout + run.stderr
