"""Torch modules of all kinds, built against a PyTorch without HIP: import and functions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.torch.torch_programs import link, output_of

LIBRARIES = [Path(name).resolve() for name in os.environ["QOLA_TEST_LIBRARIES"].split()]
FUNCTIONS = {
    "module_activation": "gelu_and_mul gelu_tanh_and_mul scaled_silu_and_mul silu_and_mul",
    "module_cache": "concat_and_cache_mla copy_blocks cp_gather_indexer_k_quant_cache "
    "indexer_k_quant_and_cache reshape_and_cache reshape_and_cache_flash "
    "reshape_and_cache_with_block_quant reshape_and_cache_with_block_quant_for_asm_pa "
    "reshape_and_cache_with_pertoken_quant swap_blocks",
    "module_fmha_v3_bwd": "fmha_v3_bwd",
    "module_fmha_v3_fwd": "fmha_v3_fwd",
    "module_fmha_v3_varlen_bwd": "fmha_v3_varlen_bwd",
    "module_fmha_v3_varlen_fwd": "fmha_v3_varlen_fwd",
    "module_mha_batch_prefill": "mha_batch_prefill",
    "module_mha_bwd": "mha_bwd",
    "module_mha_varlen_bwd": "mha_varlen_bwd",
    "module_mha_varlen_fwd": "mha_varlen_fwd",
    "module_moe_sorting": "moe_sorting_fwd",
    "module_pos_encoding": "batched_rotary_embedding rotary_embedding_fwd",
    "module_quant": "dynamic_per_group_scaled_quant_fp4 dynamic_per_tensor_quant "
    "dynamic_per_token_scaled_quant partial_transpose smooth_per_token_scaled_quant "
    "static_per_tensor_quant",
    "module_sample": "exponential greedy_sample mixed_sample mixed_sample_outer_exponential "
    "random_sample random_sample_outer_exponential",
    "module_top_k_per_row": "top_k_per_row_decode top_k_per_row_prefill",
}
FOUND = """\
import torch, {name} as m
print(*sorted(name for name in dir(m) if not name.startswith("_")))
"""
CALL = """\
import torch, further_module_activation as m
x = torch.zeros(1, 32, dtype=torch.float16)
try:
    m.silu_and_mul(x[:, :16], x)
except RuntimeError as error:
    print(str(error).splitlines()[0])
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """Return a directory with the modules and HIP's runtime without a GPU."""
    return link(tmp_path, LIBRARIES)


@pytest.mark.parametrize("file", LIBRARIES, ids=lambda file: str(file.stem))
def test_module_has_aiters_functions(python: Path, file: Path) -> None:
    """Prevents: a module links, but Python cannot import it, or it lacks functions."""
    _, _, module = file.stem.partition("_")
    assert output_of(python, FOUND.format(name=file.stem)).split() == FUNCTIONS[module].split()


@pytest.mark.skipif(
    not any(file.stem == "further_module_activation" for file in LIBRARIES), reason="attention"
)
def test_module_of_a_cpu_build_raises(python: Path) -> None:
    """Prevents: a call of a module that was built without a GPU crashes."""
    assert output_of(python, CALL).endswith(
        "this module was built with --@qola//:torch=cpu_check, to be imported and not to run\n"
    )
