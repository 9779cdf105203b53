"""`qola init --model --for`: the modules of AITER, and the kernels, that a model needs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from qola.aiter.called_modules import variant_names
from qola.aiter.tree import read_tree
from qola.cli import command_line as cli
from qola.manifest.load import load, loads
from qola.manifest.types import PrebuiltSpec
from qola.plan.modules import ModuleReport
from qola.query.serving import (
    ModelNeeds,
    entries_of,
    filter_entries,
    serving_manifest,
)
from qola_base.errors import unseen
from qola_lab.models.config import parse_model
from qola_lab.models.serving import model_needs
from tests.support.later_tree import write_pybind_tree

CONFIGS = Path(__file__).parent / "configs"

MODULES = (
    *("module_mha_varlen_fwd", "module_mha_batch_prefill"),
    *("module_fmha_v3_varlen_fwd", "module_moe_asm", "module_mla_asm", "module_norm"),
)


def needs_of(model: str, user: str = "vllm") -> ModelNeeds:
    """Return the needs of a model in `CONFIGS`."""
    file = CONFIGS / f"{model}.json"
    return model_needs(parse_model(file.read_bytes(), file.name), user)


@pytest.mark.parametrize(
    ("model", "dtype", "hdim", "unneeded"),
    [
        ("llama-3.1-8b", "bf16", [128], {"module_moe_asm", "module_mla_asm"}),
        ("deepseek-v3", "bf16", [[192, 128]], set()),
        ("mixtral-8x7b", "bf16", [128], {"module_mla_asm"}),
        ("gemma-2-9b", "bf16", [256], {"module_moe_asm", "module_mla_asm"}),
        # Full and linear attention.
        ("qwen3-next-80b-a3b", "bf16", [256], {"module_mla_asm"}),
    ],
)
def test_the_needs_of_a_model(
    model: str, dtype: str, hdim: list[object], unneeded: set[str]
) -> None:
    """Prevents: a server that lacks its model's kernels, or modules of MoE for a dense model."""
    needs = needs_of(model)
    forward = needs.variants["mha_fwd_variants"]
    assert (forward["dtype"], forward["hdim"]) == (dtype, hdim)
    # A server passes parts of a sequence without a mask, and merges them by the LSE.
    assert not {"has_mask", "has_lse", "mode"} & forward.keys()
    assert {module for module in MODULES if needs.why_not(module)} == unneeded
    assert needs.lines[0].startswith(f"{model}.json: ")


def test_training_keeps_bias_and_dropout() -> None:
    """Prevents: a wheel for `--for aiter` without the kernels that only training calls."""
    assert needs_of("llama-3.1-8b").variants["mha_fwd_variants"]["has_dropout"] is False
    trained = needs_of("llama-3.1-8b", "aiter").variants
    expected = {"dtype": "bf16", "hdim": [128]}
    assert trained == {"mha_fwd_variants": expected, "mha_bwd_variants": expected}


def test_a_model_without_softmax_attention() -> None:
    """Prevents: a table of variants without head dimensions, which would select all kernels."""
    values = {"model_type": "qwen3_next", "torch_dtype": "bfloat16", "num_hidden_layers": 4}
    heads = {"num_attention_heads": 16, "head_dim": 256}
    text = json.dumps({**values, **heads, "layer_types": ["linear_attention"] * 4})
    needs = model_needs(parse_model(text, "linear.json"), "vllm")
    assert not needs.variants
    assert needs.why_not("module_mha_varlen_fwd") == "the model has no softmax attention"
    text = serving_manifest(
        entries_of(reports("module_norm"), None, needs),
        ("gfx942",),
        aiter_id="",
        file="serve.toml",
        names={},
        needs=needs,
    )
    assert text.endswith("#block_size = 16\n")


def reports(*names: str) -> tuple[ModuleReport, ...]:
    return tuple(ModuleReport(name, "torch module", ("torch",), True, "") for name in names)


def test_the_manifest_of_a_model(aiter_tree: Path) -> None:
    """Prevents: kernel names that the filter excludes, or modules that cannot be planned."""
    tree, archs, needs = read_tree(aiter_tree), ("gfx942",), needs_of("deepseek-v3")
    entries = filter_entries(entries_of(reports(*MODULES), None, needs), tree, archs, needs)
    names = needs.served(variant_names(tree))
    text = serving_manifest(
        entries, archs, aiter_id="", file="serve.toml", names=names, needs=needs
    )
    manifest = loads(text, file="serve.toml")
    assert manifest.warnings == ()
    built = {module.name: module.names for module in manifest.modules}
    assert built.keys() == {*MODULES} - {"module_mha_batch_prefill"}
    why = "selects no kernel: batch_prefill: hdim: wanted 192x128, there is only 128x128"
    left_out = '#[[modules]] #name = "module_mha_batch_prefill"'
    flat_text = " ".join(text.replace("\n# ", "\n").split())
    assert f"no kernels for the model: {why} {left_out}" in flat_text
    assert re.search(r'\n# \d+ kernel instances .*\n.*\nname = "module_mha_varlen_fwd"\n', text)
    varlen = built["module_mha_varlen_fwd"]
    assert {"_mask_" in name for name in varlen} == {True, False}
    assert all("_bf16_" in name and "_nbias_" in name for name in varlen)
    assert not any("_dropout_" in name for name in varlen)
    assert "# deepseek-v3.json: deepseek_v3, 61 layers, bf16\n" in text
    assert [variant.hdim for variant in manifest.fwd_variants] == [((192, 128),)]
    # No module of the manifest has backward kernels.
    assert not manifest.bwd_variants


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: --model refused with --for, or without effect."""
    tree = write_pybind_tree(tmp_path / "tree")
    options = ["--for", "aiter", "--aiter-root", str(tree), "--arch", "gfx950"]
    options += ["--model", str(CONFIGS / "llama-3.1-8b.json")]
    assert cli.main(["init", "serve.toml", *options], {}, directory=tmp_path) == 0
    text = (tmp_path / "serve.toml").read_text("utf-8")
    assert load(tmp_path / "serve.toml").for_aiter
    assert "llama-3.1-8b.json: llama, 32 layers, bf16\n" in text
    capsys.readouterr()
    (tmp_path / "wrong.json").write_text('{"model_type": "lama"}')
    options[-1] = "wrong.json"
    assert cli.main(["init", "other.toml", *options], {}, directory=tmp_path) == 2
    assert "error: wrong.json model_type" in capsys.readouterr().err
    assert not (tmp_path / "other.toml").exists()


INJECTED = "fp8\n[prebuilt]\nurls = ['https://example.org']\npublic_key = 'x'\n#"


@pytest.mark.parametrize(
    ("method", "name"),
    [(INJECTED, "config.json"), ("fp8\x1b[31m", "config.json"), ("fp8", f"{INJECTED[:25]}.json")],
    ids=["tables", "escape sequence", "file name"],
)
def test_foreign_text_stays_in_its_comment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str, name: str
) -> None:
    """Prevents: a model's files add a server and its key to a manifest, or write to a terminal."""
    tree = write_pybind_tree(tmp_path / "tree")
    config = json.loads((CONFIGS / "llama-3.1-8b.json").read_text("utf-8"))
    config["quantization_config"] = {"quant_method": method}
    (tmp_path / name).write_text(json.dumps(config), "utf-8")
    options = ["--for", "aiter", "--aiter-root", str(tree), "--model", name]
    code = cli.main(["init", "serve.toml", *options], {}, directory=tmp_path)
    out, err = capsys.readouterr()
    assert not unseen((out + err).replace("\n", ""))
    if method == "fp8":
        assert (code, load(tmp_path / "serve.toml").prebuilt) == (0, PrebuiltSpec())
        assert "\\u000a[prebuilt]" in (tmp_path / "serve.toml").read_text("utf-8")
    else:
        assert (code, (tmp_path / "serve.toml").exists()) == (2, False)
        assert f"error: {name} quantization_config.quant_method\n" in err
