"""The C functions of entry points other than mha_fwd and mha_bwd."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from gfxemu.fake_hip import FakeHip, Launch, read_log

FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
SPLITKV = Path(os.environ["QOLA_TEST_SPLITKV"]).resolve()
PAGED = Path(os.environ["QOLA_TEST_PAGED"]).resolve()
OK, UNAVAILABLE, UNSUPPORTED, INVALID = 0, -4, -5, -6

_PROGRAM = """
import json, sys
from pathlib import Path
from tests.library.calls import Caller
from qola_lab.tests.verify.predict import ConsumerCall
from qola_lab.tests.verify.table import Row, line_of
bundle, namespace, entry, fields, cases = sys.argv[1:6]
caller = Caller(Path(bundle), namespace, Path(bundle, "include/qola_c.h"))
library = caller.libraries["fwd"]
function = lambda name: getattr(library, f"qola_{namespace}_{entry}{name}")
problem = ConsumerCall("fwd", "fp16", mode="group", **json.loads(fields))
for case in json.loads(cases):
    args = caller.args(dict(word.split("=", 1) for word in line_of(problem).split()))
    args.drop_seed = args.drop_offset = 0
    space = case.pop("space", 1)
    for name, value in case.items():
        if value == "memory":
            value = caller.starts(2, 16)
        setattr(args, name, caller.ffi.NULL if value is None else value)
    found, size = caller.ffi.new("qola_found*"), caller.ffi.new("uint64_t*")
    found.struct_size = caller.ffi.sizeof("qola_found")
    asked = [function("_find")(args, found), function("_workspace_size")(args, size)]
    if size[0]:
        args.workspace, args.workspace_size = caller.memory(size[0]), int(size[0] * space)
    status = function("")(args, caller.stream())
    error = caller.ffi.string(function("_last_error")()).decode()
    words = lambda text: caller.ffi.string(text).decode() if text else None
    stages = [words(s.kernel) or words(s.symbol) for s in list(found.stages)[: found.stage_count]]
    count = function("_kernel_count")()
    names = [words(function("_kernel_name")(number)) for number in range(count)]
    print("\\n" + json.dumps([asked, size[0], stages, status, error, names]))
"""


def answers(
    bundle: Path, entry: str, fields: dict[str, Any], cases: list[dict[str, Any]], tmp_path: Path
) -> tuple[list[list[Any]], list[Launch]]:
    """Return the answer for each case, and all launches.

    Args:
        bundle: the directory of a bundle, named after its manifest.
        entry: the entry point, such as mha_fwd_splitkv.
        fields: those of the ConsumerCall that all cases start from.
        cases: members of qola_mha_args to replace.
        tmp_path: for the log of launches.
    """
    namespace = bundle.name.removesuffix("_lazy")
    hip = FakeHip(FAKE, "gfx950", (bundle / "lib",))
    words = [bundle, namespace, entry, json.dumps(fields), json.dumps(cases)]
    command = [sys.executable, "-c", _PROGRAM, *map(str, words)]
    env = {"QOLA_LAZY": "never", "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    result = hip.run(command, tmp_path / "log", **env)
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if line.startswith("[")]
    return [json.loads(line) for line in lines], read_log(tmp_path / "log")


def test_splits_use_the_workspace(tmp_path: Path) -> None:
    """Prevents: accumulators lie outside of the caller's workspace, or do not exist."""
    cases: list[dict[str, Any]] = [{"num_splits": 2}, {"num_splits": 4}, {}]
    cases += [{"num_splits": 2, "space": 0.9}]
    cases += [{"num_splits": 2, "drop_seed": 1}]
    fields = {"hdim_q": 32, "hdim_v": 32}
    results, launches = answers(SPLITKV, "mha_fwd_splitkv", fields, cases, tmp_path)
    two, four, none, small, seed = results
    assert two[0] == four[0] == [OK, OK]
    # Per split: floats for 2 sequences of 256 rows and 4 heads, for log-sum-exp and O.
    assert two[1] >= 2 * 2 * 256 * 4 * (32 + 1) * 4
    assert abs(four[1] - 2 * two[1]) <= 1024
    assert [two[3], four[3]] == [OK, OK]
    assert [*two[2], *four[2]] == [launch.kernel for launch in launches]
    assert len(two[2]) == 2
    assert (none[0], none[3]) == ([INVALID, INVALID], INVALID)
    assert "num_splits: 0" in none[4]
    assert small[3] == INVALID
    assert "workspace_size" in small[4]
    assert seed[3] == UNSUPPORTED
    assert "drop_seed: set, and mha_fwd_splitkv" in seed[4]
    assert all("splitkv" in name for name in two[5])


def test_pages(tmp_path: Path) -> None:
    """Prevents: a C caller cannot pass a paged cache."""
    pages: dict[str, Any] = {"num_pages": 32, "kv_indptr": "memory", "kv_page_indices": "memory"}
    cases = [{**pages, "seqstart_k": None}, pages]
    fields = {"hdim_q": 128, "hdim_v": 128}
    results, launches = answers(PAGED, "mha_batch_prefill", fields, cases, tmp_path)
    served, other = results
    assert served[0] == [OK, OK]
    (kernel,) = served[2]
    assert kernel in served[5]
    # A lazy library without a compiler cannot launch.
    assert served[3] == UNAVAILABLE
    # AITER's arguments have no seqstart_k.
    assert other[3] == UNSUPPORTED
    assert "seqstart_k" in other[4]
    assert launches == []
