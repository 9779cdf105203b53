"""AITER's op_tests on the emulated GPU, with the modules of op_tests.toml.

Run manually (CONTRIBUTING.md), with the PyTorch that make_torch.py builds. AITER's wheel lacks
op_tests: QOLA_TEST_OP_TESTS is the directory op_tests of its commit.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import running
from tests.torch import aiter_site

PYTHON = os.environ["QOLA_TORCH"]
HARNESS = Path(__file__).with_name("run_op_test.py")
SCRIPTS = Path(os.environ["QOLA_TEST_OP_TESTS"]).resolve()
MODULES = Path(os.environ["QOLA_TEST_MODULES"]).resolve()
TREE = Path(os.environ["QOLA_TEST_AITER_TREE"]).resolve()


@dataclass(frozen=True)
class Case:
    """A script of op_tests with small shapes.

    Attributes:
        kernels: part of the name of a kernel that the script must launch.
        limit: maximum share of wrong elements per comparison, if stricter than AITER's limit.
        fails: pattern of the known error, or of the messages of comparisons that fail.
    """

    script: str
    arguments: str
    kernels: str
    limit: float = 1
    fails: str = ""


#: The table of docs/guide/serving.md, "AITER's own tests".
CASES = {
    "activation": Case("test_activation.py", "-d bf16 -m 4 -n 1024", "aiter18act_and_mul_kernel"),
    "quant": Case(
        "test_quant.py",
        "-d bf16 -m 2 -n 1024 -q fp8_token i8_token fp8_tensor fp8_1x128",
        "aiter37dynamic_per_token_scaled_quant_kernel",
    ),
    "cache": Case(
        "test_kvcache.py",
        "-t bf16tobf16 fp16tofp8 fp16toi8 bf16toi8 -b 1 -c 17",
        "aiter45reshape_and_cache_with_per_token_quant_kernel",
        limit=1e-5,
    ),
    "mha": Case(
        "test_mha.py",
        "-b 1 -n 2 -q 64 -k 64 -d_qk_v 32,32 -m mha -d fp16 --no-causal --no-local "
        "--no-deterministic",
        "FmhaBwdDQDKDVKernel",
    ),
    "topk_per_row": Case("test_topk_per_row.py", "-c 8", "aiter27radix_topk_one_block_kernel"),
    # The function ignores top_k: it writes 2048 indices per row, beyond the end of the tensor.
    "topk_per_row of 8": Case(
        "test_topk_per_row.py",
        "-c 8 -k 8",
        "aiter27radix_topk_one_block_kernel",
        fails=r"(?s)global_store_dword\(.*unmapped: 4 bytes",
    ),
    "topk_per_row of long rows": Case(
        "test_topk_per_row.py", "-c 2 --num_prefix 2100", "aiter27radix_topk_one_block_kernel"
    ),
    "moe_topk_softmax": Case(
        "test_moeTopkSoftmax.py", "-d bf16 -e 32 -t 3 -k 5", "vllm3moe17topkGatingSoftmax"
    ),
    "moe_sorting": Case("test_moe_sorting.py", "-d bf16 -m 7 -e 32 -t 5 -p 0", "MoeSortingKernel"),
    # moe_sorting_fwd frees the workspace before it launches the kernels that use it.
    "moe_sorting of padded tokens": Case(
        "test_moe_sorting.py",
        "-d bf16 -m 7 -e 32 -t 5 -p 1000",
        "MoeSortingMultiPhaseKernel_P0_v2",
        fails=r"(?s)MoeSortingMultiPhaseKernel_P0_v2.*unmapped: 1 bytes",
    ),
}


def run(case: Case, directory: Path) -> dict[str, Any]:
    """Run a script; return its comparisons, kernels and error."""
    result = directory / "result.json"
    aiter_site.install(directory, TREE)
    command: list[str | Path] = [PYTHON, HARNESS, result, SCRIPTS / case.script]
    env = {
        **aiter_site.variables(directory),
        "AITER_JIT_DIR": str(MODULES),
        "PYTHONPATH": f"{HARNESS.parents[2]}:{directory}/site",
    }
    process = running.run([*command, *case.arguments.split()], env=env, cwd=directory)
    if not result.exists():
        raise AssertionError(process.stdout + process.stderr)
    result_data: dict[str, Any] = json.loads(result.read_text("utf-8"))
    return result_data


@pytest.mark.parametrize("name", CASES)
def test_script_of_aiter(name: str, tmp_path: Path) -> None:
    """Prevents: AITER's Python imports a module that computes wrong results."""
    case = CASES[name]
    result = run(case, tmp_path)
    wrong = [
        check["message"]
        for check in result["checks"]
        if check["share"] > min(case.limit, check["limit"])
    ]
    errors = [*wrong, result["error"]] if result["error"] else wrong
    assert any(case.kernels in kernel for kernel in result["kernels"]), result
    if case.fails:
        assert errors
        assert all(re.search(case.fails, error) for error in errors), errors
    else:
        assert not errors
