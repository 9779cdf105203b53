"""Hostile configurations of models, records, and texts of AITER trees, written into manifests."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qola.aiter.tree import CONFIG_FILE, read_tree
from qola.cli.command_line import main
from qola.codegen.cpp_itfs.render import _rendered
from qola.codegen.cpp_itfs.run import Result
from qola.common.starlark import string
from qola.manifest.load import loads
from qola.manifest.toml import TomlText, parse_toml
from qola.plan.modules import ModuleReport
from qola.query.serving import Entry, entries_of, serving_manifest, serving_tables
from qola_base.errors import QolaError, unseen
from qola_lab.models.config import LayerGroup, Model, ModelError, parse_model
from qola_lab.models.coverage import Coverage, ServedPhase, _manifest, _variant, phases_of
from qola_lab.models.report import manifest_text, report_lines
from qola_lab.models.serving import model_needs
from runtime.record.aiter_record import Record, manifest
from tests.fuzz.fuzzing import HOSTILE, fuzz, mutate, mutate_json
from tests.support.folders import write

INJECTION = 'fp8\n[prebuilt]\nurls = ["https://example.org"]\npublic_key = "x"\n#'
TEXTS = (*HOSTILE, INJECTION, INJECTION.replace("\n", "\r"), '"""\n[prebuilt]\n', "'\n[build]\n")
BASE: dict[str, Any] = {
    "model_type": "gemma2",
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "sliding_window": 4096,
    "quantization_config": {"quant_method": "fp8"},
}
LATENT = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
CONFIGS = (
    BASE,
    {
        **BASE,
        **LATENT,
        "model_type": "deepseek_v3",
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
    },
    {**BASE, "model_type": "gpt_oss", "layer_types": ["full_attention", "sliding_attention"] * 3},
    {"text_config": {**BASE, "model_type": "llama4_text", "attention_chunk_size": 8192}},
)
VALUES: tuple[Any, ...] = (None, True, 0, -1, 1.5, 2**64, 1e308, [], {}, ["x"] * 5000, INJECTION)
ARCHS = ("gfx942", "gfx950")
TREE = {
    CONFIG_FILE: '{"libmha_fwd": {"srcs": ["{AITER_CSRC_DIR}/cpp_itfs/mha_fwd.cu"]}}',
    "csrc/include/mha_fwd.h": "int a;\n",
    "csrc/cpp_itfs/mha_fwd.cu": "",
}
CALL = {
    **{"event": "function", "name": "pa_1", "module": "pa", "folder": "pa_1", "args": {"a": 1}},
    "call": {"name": "pa", "arguments": {"head_size": 128, "dtype": "bf16"}},
}
RECORD: tuple[dict[str, Any], ...] = (
    {"event": "aiter", "version": "0.1.7", "archs": ["gfx942"], "python": "3.12", "torch": "2.9"},
    {"event": "module", "name": "module_norm"},
    {"event": "variant", "name": "mha_fwd_bf16", "module": "module_mha_fwd"},
    {"event": "build", "name": "module_norm"},
    CALL,
    {**CALL, "name": "mla", "call": None},
    {"event": "error", "module": "aiter.jit.core", "text": "none"},
)


def make_config(rng: random.Random) -> tuple[str, list[str]]:
    """Return a configuration, and texts of an AITER tree and a file name."""
    config = mutate_json(rng, json.dumps(rng.choice(CONFIGS)), VALUES)
    return config, [rng.choice(TEXTS) for _ in range(5)]


def check_manifest(text: TomlText) -> None:
    """Check that a manifest has its values only, and nothing that a terminal interprets."""
    assert text.is_exact(), text.text
    assert not unseen(text.text.replace("\n", ""))
    loads(text.text, file="m.toml")


def found_kernels(model: Model, tree: list[str]) -> Iterator[ServedPhase]:
    """Yield each phase of a model as one without kernels, for the reasons that a tree gives."""
    for group in model.groups:
        for phase in phases_of(group.attention, model.dtype) if group.attention else ():
            yield ServedPhase(group, phase, "gfx950", (), (), tree[0], (tree[1],))
            yield ServedPhase(group, phase, "gfx950", (), (tree[2],))


def test_models() -> None:
    """Prevents: a config.json adds tables to a manifest, or escape sequences to a terminal."""

    def take(data: tuple[str, list[str]]) -> None:
        config, tree = data
        model = parse_model(config.encode("utf-8", "surrogatepass"), tree[0][:100])
        tables = _manifest("mine", ARCHS, ("fwd",), [_variant(model.dtype, hdim=64)])
        served = tuple(found_kernels(model, tree))
        coverage = Coverage(model, tree[3], tables, served, 1)
        assert len("".join(report_lines(coverage))) < 200_000
        check_manifest(TomlText(manifest_text(coverage, f"qola init --model {tree[4]}"), tables))
        reports = (
            ModuleReport("module_norm", tree[1], (tree[2],), True, ""),
            ModuleReport("module_mha_fwd", "torch module", (), True, ""),
            ModuleReport("module_moe", "torch module", (), False, tree[3]),
        )
        needs = model_needs(model, "vllm")
        entries = [*entries_of(reports, None, needs), Entry(reports[0], "", False, tree[4])][1:]
        own: dict[str, Any] = {"aiter_id": "0.1.7", "needs": needs, "names": {}}
        text = serving_manifest(entries, ARCHS, file="m.toml", **own)
        check_manifest(TomlText(text, serving_tables(entries, ARCHS, **own)))

    fuzz(make_config, take)


def make_record(rng: random.Random) -> bytes:
    """Return a record with mutated lines."""
    lines = (mutate_json(rng, json.dumps(line), VALUES) for line in rng.choices(RECORD, k=5))
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def test_records() -> None:
    """Prevents: a record adds tables to a manifest, or makes one that is not TOML."""

    def take(data: bytes) -> None:
        text = manifest(Record(data))
        text.encode("utf-8")
        assert not unseen(text.replace("\n", ""))
        document, _ = parse_toml(text)
        assert {*document} <= {"qola", "build", "modules", "functions"}
        assert {*document["build"]} <= {"architectures", "mode"}
        for function in document.get("functions", ()):
            assert {*function} <= {"name", "arguments"}

    # Keys and numbers that `parse_toml` refuses for their length are errors of `qola`, with a line.
    fuzz(make_record, take, (QolaError, ValueError))


def make_result(rng: random.Random) -> Result:
    """Return what AITER's Python makes of a template."""
    name, *flags = (mutate(rng, text, TEXTS) for text in ("pa_1", "-O3", "-DX='a b'"))
    return Result("", name if rng.random() < 0.7 else "pa_1", "int a;", tuple(flags), ("/a", "b"))


def test_results_of_templates(tmp_path: Path) -> None:
    """Prevents: a template's name leads out of a directory, or adds to a linker script."""
    tree = read_tree(write(tmp_path / "tree", TREE))

    def take(result: Result) -> None:
        found = _rendered(tree, result)
        assert found.error or (found.name.isidentifier() and found.name.isascii())
        assert "\n" not in string(" ".join(found.flags))

    fuzz(make_result, take)


@pytest.mark.parametrize("layers", [["x"] * 4096, [f"x{n}" for n in range(4096)]])
def test_errors_are_bounded(layers: list[str]) -> None:
    """Prevents: 858 kB of errors for 4,096 wrong values."""
    values = {**BASE, "num_hidden_layers": 4096, "layer_types": layers}
    with pytest.raises(ModelError) as raised:
        parse_model(json.dumps(values), "my.json")
    assert len(str(raised.value)) < 5000
    assert str(raised.value).count("error: ") <= 10


def test_endless_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: all memory is used for a file that only claims its size, or a read that waits."""
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(1 << 40)
    for place in (tmp_path / "config.json", Path("/dev/zero")):
        options = ["--for", "vllm", "--model", str(place)]
        assert main(["init", "m.toml", *options], {}, directory=tmp_path) == 2
        assert f"error: {place}" in capsys.readouterr().err
    assert not (tmp_path / "m.toml").exists()


def test_groups_of_the_fuzzer() -> None:
    """Prevents: errors in the fuzzer's inputs themselves reject all inputs."""
    for config in CONFIGS:
        model = parse_model(json.dumps(config), "a.json")
        assert sum(len(group.layers) for group in model.groups) == 6
        assert all(isinstance(group, LayerGroup) for group in model.groups)
    record = Record("\n".join(map(json.dumps, RECORD)).encode())
    assert (record.unread, len(record.functions)) == (0, 2)
