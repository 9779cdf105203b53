"""Measures the speed of the emulator, in instructions of waves per second of CPU time.

    ./bazelw build //gfxemu/fake_hip @qola_quickstart//:libmha_fwd{,_caller}
    python3 -m bench.emulate --runtime libamdhip64.so.7 --library quickstart_libmha_fwd.so \
        --caller libmha_fwd_caller.so --arch gfx950 --dtype bf16 --dim 128

Runs a forward of one sequence and four heads with several numbers of concurrent waves, after one
warm-up call, and prints a JSON object. Bazel's engine is used if bazel-bin has one: build
//gfxemu:engines, and copy the libraries that it names beside gfxemu/engine.c.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gfxemu import native
from gfxemu.hip import Hip
from gfxemu.launch import Options


def main(argv: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="bench.emulate", description=__doc__)
    for name in ("runtime", "library", "caller"):
        parser.add_argument(f"--{name}", required=True, type=Path)
    parser.add_argument("--arch", default="gfx950")
    parser.add_argument("--dtype", default="bf16", choices=["bf16", "fp16"])
    parser.add_argument("--dim", default=128, type=int)
    parser.add_argument("--rows", default=512, type=int)
    parser.add_argument("--waves", default=[4, 8, 16, 32], nargs="+", type=int)
    parser.add_argument("--calls", default=5, type=int, help="of which the fastest counts")
    args = parser.parse_args(argv)
    hip = Hip(args.runtime, args.arch)
    hip.load(args.library)
    call = hip.caller(args.caller)
    values = _values(hip, args.dtype, args.dim, args.rows)
    call("mha_fwd", values)
    rates = {}
    for waves in args.waves:
        hip.device.options = Options(waves=waves)
        seconds = math.inf
        for _ in range(args.calls):
            before = len(hip.launches)
            start = time.process_time()
            call("mha_fwd", values)
            seconds = min(seconds, time.process_time() - start)
        count = sum(one.result.instructions for one in hip.launches[before:] if one.result)
        rates[str(waves)] = round(count / seconds)
    engine = native.find_library(os.environ).name
    report = {"arch": args.arch, "engine": engine, "instructions": count}
    print(json.dumps(report | {"instructions_per_second_by_waves": rates}, indent=2))
    return 0


def _values(hip: Hip, dtype: str, dim: int, rows: int, heads: int = 4) -> dict[str, Any]:
    random = np.random.default_rng(1).standard_normal((1, rows, heads, dim)).astype(np.float32)
    raw = random.astype(np.float16) if dtype == "fp16" else random.view(np.uint32) >> np.uint32(16)
    tensor = raw if dtype == "fp16" else raw.astype(np.uint16)
    values: dict[str, Any] = {
        "q_dtype_str": dtype,
        "is_group_mode": False,
        "mask_type": 0,
        "bias_type": 0,
        "use_ext_asm": False,
        "has_lse": True,
        "batch": 1,
        "nhead_q": heads,
        "nhead_k": heads,
        "hdim_q": dim,
        "hdim_v": dim,
        "seqlen_q": rows,
        "seqlen_k": rows,
        "max_seqlen_q": rows,
        "window_size_left": -1,
        "window_size_right": -1,
        "scale_s": 1 / math.sqrt(dim),
        "scale_p": 1,
        "scale_o": 1,
        "lse_ptr": hip.allocate(np.zeros((heads, rows), np.float32)),
        "nhead_stride_lse": rows,
        "batch_stride_lse": heads * rows,
    }
    for name in ("q", "k", "v", "o"):
        values[f"{name}_ptr"] = hip.allocate(tensor)
        values |= {f"stride_{name}": heads * dim, f"nhead_stride_{name}": dim}
        values[f"batch_stride_{name}"] = rows * heads * dim
    return values


if __name__ == "__main__":
    sys.exit(main())
