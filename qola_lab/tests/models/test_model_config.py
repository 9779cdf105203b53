"""Model configurations: the attention of each layer, and errors of wrong configurations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qola_lab.models.config import Latent, LayerAttention, Model, ModelError, parse_model

CONFIGS = Path(__file__).parent / "configs"


def model(name: str) -> Model:
    return parse_model((CONFIGS / f"{name}.json").read_bytes(), f"{name}.json")


LAYERS = tuple(range(62))
EXPECTED: dict[str, dict[tuple[int, ...], LayerAttention | None]] = {
    "llama-3.1-8b": {LAYERS[:32]: LayerAttention(32, 8, 128, 128)},
    # The window has no effect without use_sliding_window.
    "qwen2.5-72b": {tuple(range(80)): LayerAttention(64, 8, 128, 128)},
    # head_dim is not hidden_size / num_attention_heads.
    "qwen3-30b-a3b": {LAYERS[:48]: LayerAttention(32, 4, 128, 128)},
    "qwen3-next-80b-a3b": {
        tuple(n for n in range(48) if n % 4 != 3): None,
        LAYERS[3:48:4]: LayerAttention(16, 2, 256, 256),
    },
    "deepseek-v3": {LAYERS[:61]: LayerAttention(128, 128, 192, 128, latent=Latent(576, 512))},
    "mixtral-8x7b": {LAYERS[:32]: LayerAttention(32, 8, 128, 128)},
    "gpt-oss-120b": {
        LAYERS[:36:2]: LayerAttention(64, 8, 64, 64, window=128, has_sink=True),
        LAYERS[1:36:2]: LayerAttention(64, 8, 64, 64, has_sink=True),
    },
    "gemma-2-9b": {
        LAYERS[:42:2]: LayerAttention(16, 8, 256, 256, window=4096, logits_soft_cap=50.0),
        LAYERS[1:42:2]: LayerAttention(16, 8, 256, 256, logits_soft_cap=50.0),
    },
    "gemma-3-27b": {
        tuple(n for n in range(62) if n % 6 != 5): LayerAttention(32, 16, 128, 128, window=1024),
        LAYERS[5:62:6]: LayerAttention(32, 16, 128, 128),
    },
    "mistral-7b": {LAYERS[:32]: LayerAttention(32, 8, 128, 128, window=4096)},
    "phi-3-mini": {LAYERS[:32]: LayerAttention(32, 32, 96, 96, window=2047)},
    "llama-4-scout": {
        tuple(n for n in range(48) if n % 4 != 3): LayerAttention(40, 8, 128, 128, chunk=8192),
        LAYERS[3:48:4]: LayerAttention(40, 8, 128, 128),
    },
}


def test_every_configuration_is_tested() -> None:
    """Prevents: a configuration that no test reads."""
    assert {file.stem for file in CONFIGS.glob("*.json")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_layers(name: str) -> None:
    """Prevents: kernels for another head dimension, window or layer kind than the model's."""
    found = model(name)
    assert {group.layers: group.attention for group in found.groups} == EXPECTED[name]
    assert found.dtype == "bf16"


def test_experts_and_quantization() -> None:
    """Prevents: a report without experts or quantization, which the libraries do not compute."""
    found = model("deepseek-v3")
    assert (found.experts, found.experts_per_token, found.quantization) == (256, 8, "fp8")
    assert model("llama-4-scout").experts == 16
    assert model("llama-3.1-8b").experts == 0


BASE = {
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
}


def findings(values: Any) -> list[tuple[str, str, str, str]]:
    with pytest.raises(ModelError) as raised:
        parse_model(json.dumps(values), "my.json")
    return [(f.place, f.found, f.expected, f.fix) for f in raised.value.findings]


@pytest.mark.parametrize(
    ("changes", "place", "found", "expected"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers", "left out", "a whole number, 1 to 4096"),
        ({"num_hidden_layers": 9999}, "num_hidden_layers", "9999", "1 to 4096"),
        ({"num_attention_heads": "8"}, "num_attention_heads", '"8"', "a whole number above 0"),
        ({"num_attention_heads": True}, "num_attention_heads", "true", "a whole number above 0"),
        ({"num_key_value_heads": 3}, "num_key_value_heads", "3", "a number that divides 8"),
        ({"head_dim": 1024}, "head_dim", "1024", "1 to 512"),
        ({"head_dim": None}, "head_dim", "left out", "or hidden_size"),
        ({"head_dim": None, "hidden_size": 100}, "hidden_size", "100", "a multiple of num_att"),
        ({"torch_dtype": None}, "torch_dtype", "left out", "bfloat16, float16 or float32"),
        ({"torch_dtype": "auto"}, "torch_dtype", '"auto"', "bfloat16, float16 or float32"),
        ({"attn_logit_softcapping": -1}, "attn_logit_softcapping", "-1", "at least 0"),
        ({"layer_types": ["full_attention"]}, "layer_types", "1", "a list of 4 kinds"),
        (
            {"layer_types": ["sliding"] * 4},
            *("layer_types[0] and 3 more", '"sliding"', "sliding_attention"),
        ),
        (
            {"layer_types": ["full_attention"] * 3 + [["sliding"]]},
            *("layer_types[3]", '["sliding"]', "sliding_attention"),
        ),
        ({"head_dim": None, "hidden_size": 8192}, "hidden_size", "8192", "at most 512 for each"),
        ({"num_local_experts": 8}, "num_experts_per_tok", "left out", "a whole number above 0"),
        (
            {"layer_types": ["sliding_attention"] * 4},
            *("sliding_window", "left out", "a whole number above 0"),
        ),
        ({"model_type": "deepseek_v3"}, "kv_lora_rank", "left out", "a whole number above 0"),
        ({"model_type": "deepseek_v3", "index_topk": 2048}, "index_topk", "2048", "sparse"),
        ({"global_head_dim": 512}, "global_head_dim", "512", "another head dimension"),
        ({"linear_attn_config": {"kda": [1]}}, "linear_attn_config", '{"kda": [1]}', "linear"),
        (
            {"model_type": "llama4_text", "no_rope_layers": [1, 0]},
            *("no_rope_layers", "[1, 0]", "a list of 4 numbers, 0 or 1"),
        ),
        (
            {"model_type": "llama4_text", "no_rope_layers": [1, 0, [1], 1]},
            *("no_rope_layers", "[1, 0, [1], 1]", "a list of 4 numbers, 0 or 1"),
        ),
    ],
)
def test_wrong_values(changes: dict[str, Any], place: str, found: str, expected: str) -> None:
    """Prevents: a guess for a missing or wrong value, or an error without the key."""
    first = findings({**BASE, **changes})[0]
    assert first[:2] == (f"my.json {place}", found)
    assert expected in first[2]


@pytest.mark.parametrize(
    ("window", "first", "windows"),
    [(4096, 0, {4096: 4}), (4096, 3, {0: 3, 4096: 1}), (None, 0, {0: 4})],
)
def test_windows_of_qwen(window: int | None, first: int, windows: dict[int, int]) -> None:
    """Prevents: a valid configuration refused because all layers, or none, have a window."""
    window_fields = {
        "use_sliding_window": True,
        "sliding_window": window,
        "max_window_layers": first,
    }
    model = parse_model(json.dumps({**BASE, "model_type": "qwen2", **window_fields}), "my.json")
    found = {group.attention.window: len(group.layers) for group in model.groups if group.attention}
    assert found == windows


def test_listed_layers_of_llama_4() -> None:
    """Prevents: the interval of a configuration that beats its list of layers."""
    fields = {"no_rope_layers": [1, 1, 0, 0], "no_rope_layer_interval": 2, "index_topk": None}
    text = json.dumps({**BASE, "model_type": "llama4_text", "attention_chunk_size": 64, **fields})
    found = {
        g.layers: g.attention.chunk for g in parse_model(text, "my.json").groups if g.attention
    }
    assert found == {(0, 1): 64, (2, 3): 0}


def test_unknown_model_types() -> None:
    """Prevents: kernels for a model type whose attention qola does not know."""
    # A name that is close to a known one is another attention.
    ((place, found, expected, fix),) = findings({**BASE, "model_type": "gemma4_text"})
    assert (place, found, fix) == ("my.json model_type", '"gemma4_text"', "")
    assert "mixtral" in expected
    assert "the type of one with the same attention" in expected


def test_every_error_at_once() -> None:
    """Prevents: errors reported one at a time."""
    places = [finding[0] for finding in findings({"model_type": "llama"})]
    assert places == [
        "my.json torch_dtype",
        "my.json num_hidden_layers",
        "my.json num_attention_heads",
        "my.json head_dim",
    ]


def test_nested_configurations() -> None:
    """Prevents: errors in a nested configuration that name a key of the outer configuration."""
    ((place, *_),) = findings({"text_config": {**BASE, "head_dim": 0}})
    assert place == "my.json text_config.head_dim"
    ((place, found, *_),) = findings({"text_config": [BASE]})
    assert (place, found[:1]) == ("my.json text_config", "[")


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"a": ' * 100 + "1" + "}" * 100])
def test_other_files(text: str) -> None:
    """Prevents: a traceback for a file that is not a configuration."""
    with pytest.raises(ModelError) as raised:
        parse_model(text, "my.json")
    assert raised.value.findings[0].place == "my.json"
