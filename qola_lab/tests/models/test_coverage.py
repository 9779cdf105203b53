"""`qola init --model`: manifests of well-known models have kernels for all their layers."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from qola.cli import command_line as cli
from qola.plan.model import Plan
from qola.query.planned import plan_of

CONFIGS = Path(__file__).parent / "configs"
ARCHS = ("gfx942", "gfx950")


class Result(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


Init = Callable[..., Result]
Cover = Callable[[str], tuple[Result, Plan]]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache directory for all tests."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def init(tmp_path: Path, aiter_tree: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> Init:
    """Return a function that runs ``qola init --model`` in an empty directory."""

    def call(model: str, *options: str) -> Result:
        config = CONFIGS / f"{model}.json"
        command = ["init", "-q", *options, "--model", str(config), "--aiter-root", str(aiter_tree)]
        command += [f"--arch={arch}" for arch in ARCHS]
        code = cli.main(command, {"QOLA_CACHE_HOME": str(cache)}, directory=tmp_path)
        return Result(code, *capsys.readouterr())

    return call


@pytest.fixture
def cover(
    init: Init,
    tmp_path: Path,
    aiter_tree: Path,
    cache: Path,
    results_by_model: dict[str, tuple[Result, Plan]],
) -> Cover:
    """Return a function that runs the command once for a model, and plans its manifest."""

    def call(model: str) -> tuple[Result, Plan]:
        if model not in results_by_model:
            result = init(model, f"{model}.toml")
            assert (result.code, result.err) == (0, "")
            environ, file = {"QOLA_CACHE_HOME": str(cache)}, tmp_path / f"{model}.toml"
            # The manifest contains the report as comments.
            text = file.read_text("utf-8")
            assert all(f"# {line}".rstrip() in text for line in result.out.splitlines()[:-1])
            results_by_model[model] = result, plan_of(file, aiter_root=aiter_tree, environ=environ)
        return results_by_model[model]

    return call


@pytest.fixture(scope="module")
def results_by_model() -> dict[str, tuple[Result, Plan]]:
    """Return the results of earlier tests, by model."""
    return {}


#: Model, head dimension and features of its kernels, and number of planned kernels.
SMALL = [
    ("gemma-2-9b", "d256", "_logits_nbias_mask_", 20),
    ("deepseek-v3", "d192", "_nlogits_nbias_", 8),
]
OTHER = [
    ("llama-3.1-8b", "d128", "_nlogits_nbias_mask_", 16),
    ("qwen2.5-72b", "d128", "_nlogits_nbias_mask_", 16),
    ("qwen3-30b-a3b", "d128", "_nlogits_nbias_mask_", 16),
    ("qwen3-next-80b-a3b", "d256", "_nlogits_nbias_mask_", 20),
    ("mixtral-8x7b", "d128", "_nlogits_nbias_mask_", 16),
    ("gemma-3-27b", "d128", "_nlogits_nbias_mask_", 16),
    ("mistral-7b", "d128", "_nlogits_nbias_mask_", 16),
    ("phi-3-mini", "d96", "_nlogits_nbias_mask_", 16),
    ("llama-4-scout", "d128", "_nlogits_nbias_mask_", 16),
]


@pytest.mark.parametrize(
    ("model", "hdim", "features", "count"),
    [*SMALL, *(pytest.param(*case, marks=pytest.mark.thorough) for case in OTHER)],
)
def test_the_manifest_of_a_model(
    cover: Cover, model: str, hdim: str, features: str, count: int
) -> None:
    """Prevents: a manifest that lacks a kernel of the report, or has kernels of other models."""
    result, planned = cover(model)
    reported = re.findall(r"^    gfx9\w+  CK: (\w+)$", result.out, re.MULTILINE)
    assert {arch for arch in ARCHS if f"    {arch}  CK: " in result.out} == set(ARCHS)
    main = [name for name in reported if "_combine_" not in name]
    assert all(f"_{hdim}_bf16_group_" in name and features in name for name in main), main
    assert set(reported) <= {kernel.name for kernel in planned.kernels}
    assert planned.archs == ARCHS
    assert len(planned.kernels) == count
    assert f"{count} kernel instances" in result.out


def test_assembly_kernels(cover: Cover) -> None:
    """Prevents: an assembly kernel of the report that the library does not embed."""
    result, planned = cover("deepseek-v3")
    reported = re.findall(r"assembly with use_asm: (\S+)$", result.out, re.MULTILINE)
    assert reported == [
        "fwd_hd192_hd128_bf16_causal_group.co",
        "fwd_hd192_hd128_bf16_group.co",
    ]
    (module,) = planned.modules
    embedded = {Path(code.key).name for code in module.code_objects if code.arch == "gfx950"}
    assert set(reported) <= embedded


def test_missing_kernels_have_a_reason(cover: Cover) -> None:
    """Prevents: MLA decoding that is silently left out, or a module that does not exist."""
    out = cover("deepseek-v3")[0].out
    missing = "missing: head dimension 576x512: the largest of fwd_splitkv is 256x256"
    assert f"    gfx950  {missing}\n" in out
    assert re.search(r"assembly: module_mla_asm, \d+ code objects for gfx950", out)
    assert "2 of 6 uses of attention have no kernel in them" in out


def test_no_manifest_without_a_kernel(init: Init, tmp_path: Path) -> None:
    """Prevents: a manifest for a model with attention sinks, which old dispatches ignore."""
    result = init("gpt-oss-120b")
    assert result.code == 6
    assert "gpt-oss-120b.json prefill on gfx942, gfx950\n" in result.err
    assert "attention sinks: the tree's Composable Kernel has no kernel with them" in result.err
    assert "Triton: aiter/ops/triton/unified_attention.py" in result.err
    assert not [*tmp_path.iterdir()]


def test_no_manifest_without_the_data_type(init: Init, tmp_path: Path) -> None:
    """Prevents: an error that refers to a manifest which the user does not have."""
    config = json.loads((CONFIGS / "llama-3.1-8b.json").read_text("utf-8"))
    (tmp_path / "f32.json").write_text(json.dumps({**config, "torch_dtype": "float32"}), "utf-8")
    result = init(str(tmp_path / "f32"), "-")
    assert result.code == 6
    assert f"error: {tmp_path}/f32.json, attention in fp32\n" in result.err
    assert "dtype: wanted fp32, there is only bf16" in result.err
    assert "model.toml" not in result.err


@pytest.mark.thorough
def test_the_first_line_repeats_the_command(init: Init, tmp_path: Path, aiter_tree: Path) -> None:
    """Prevents: a command in the first line that writes another manifest."""
    assert init("llama-3.1-8b", "qola.toml", "--namespace", "te").code == 0
    first = (tmp_path / "qola.toml").read_text("utf-8").splitlines()[0]
    expected = ["--arch=gfx950", "--namespace=te", f"--aiter-root={aiter_tree}"]
    assert shlex.split(first)[-3:] == expected


def test_files_are_refused_before_planning(init: Init, tmp_path: Path) -> None:
    """Prevents: seconds of planning for a manifest that cannot be written."""
    (tmp_path / "qola.toml").write_text("", "utf-8")
    result = init("llama-3.1-8b")
    assert result.code == 2
    assert "--overwrite" in result.err
    result = init("no-such-model", "-")
    assert result.code == 2
    assert "no-such-model.json" in result.err
