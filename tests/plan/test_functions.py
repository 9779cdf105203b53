"""[[functions]] in a manifest: functions of AITER's second JIT, csrc/cpp_itfs."""

from __future__ import annotations

from pathlib import Path

import pytest

from qola.aiter.tree import AiterTree
from qola.plan.model import Plan
from qola.plan.python_modules import python_exports
from qola.repository.build_files import manifest_build_file
from qola_base.errors import ManifestError, PlanError
from tests.support.plans import plan_text

HEAD = '[build]\narchitectures = ["gfx942", "gfx950"]\nmode = "aiter"\n'
SAMPLING = '[[functions]]\nname = "top_p_sampling_from_probs"\n'
NAME = "top_p_sampling_from_probs_8cf4b5128e35da75bd73cf78ae7dab83"
MLA = (
    '[[functions]]\nname = "asm_mla_decode_fwd"\narguments = { gqa_ratio = 16, page_size = 1, '
    'q_dtype = "a", kv_dtype = "a", num_kv_splits = 4, v_head_dim = 512 }\n'
)


def test_each_argument_combination_has_a_library(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: a missing library for an argument value, or one that AITER cannot load."""
    lists = "arguments = { d = [128256, 32000], deterministic = [true, false] }\n"
    plan = plan_text(HEAD + SAMPLING + lists, tree, tmp_path)
    assert len({module.name for module in plan.functions}) == 4
    (module,) = (module for module in plan.functions if module.name == NAME)
    assert module.call == "top_p_sampling_from_probs(d=128256, deterministic=False)"
    assert (module.library, module.symbol) == (f"{NAME}.so", NAME)
    (source,) = module.sources
    assert f"void {NAME}(" in (tmp_path / source.file).read_text("utf-8")
    assert f"{tree.csrc_dir}/cpp_itfs/sampling/sampling.cuh" in module.headers
    assert module.rocm == ("hipcub", "hiprand")
    # Symbols are hidden by default; the version script exports this one.
    assert module.copts[-1] == "-fvisibility=default"
    assert f"global:\n    {NAME};" in python_exports(module.symbol)
    for file in ("utils.py", "sampling/top_p_sampling_from_probs.cpp.jinja"):
        assert f"{tree.csrc_dir}/cpp_itfs/{file}" in {*plan.inputs} & {*plan.aiter_python}
    assert Plan.from_json(plan.to_json()) == plan


def test_build_file_has_function_libraries(tree: AiterTree) -> None:
    """Prevents: a bundle without its functions, or functions compiled with Python's headers."""
    arguments = "arguments = { d = 128256, deterministic = false }\n"
    plan = plan_text(HEAD + SAMPLING + arguments, tree)
    file = manifest_build_file(plan, source="serve.toml", aiter="aiter")
    assert f'function_libraries(\n    name = "functions",\n    libraries = [":{NAME}"],' in (
        file.replace(f'[\n        ":{NAME}",\n    ]', f'[":{NAME}"]')
    )
    assert 'functions = ":functions",\n    modules = [],' in file
    assert "deps = []," in file


@pytest.mark.parametrize(
    ("text", "place", "found", "expected", "fix"),
    [
        (
            '[[functions]]\nname = "pa_raged"',
            "5 [[functions]].name",
            'unknown function "pa_raged"',
            "a function of this AITER: asm_mla_decode_fwd, ",
            'did you mean "pa_ragged"?',
        ),
        (
            SAMPLING + "arguments = { d = 8, deterministc = true, deterministic = true }",
            "6 [[functions]].arguments",
            'top_p_sampling_from_probs has no argument "deterministc"',
            "arguments: d: int, deterministic: bool",
            'did you mean "deterministic"?',
        ),
        (
            SAMPLING + 'arguments = { d = [8, 9], deterministic = "true" }',
            "6 [[functions]].arguments",
            'deterministic = "true"',
            "true or false: ",
            "write deterministic = true",
        ),
        (
            SAMPLING + "arguments = { deterministic = true }",
            "6 [[functions]].arguments",
            "top_p_sampling_from_probs without d",
            "arguments: d: int",
            "qola.aiter_record",
        ),
        (
            SAMPLING + "arguments = { d = [8, 8], deterministic = true }",
            "4 [[functions]]",
            "top_p_sampling_from_probs(d=8, deterministic=True), which line 4 requests already",
            "each library once",
            "remove one of the two",
        ),
        (
            MLA,
            "4 [[functions]]",
            "v_head_dim=512): it imports triton",
            "from its template alone",
            "remove it",
        ),
    ],
    ids=("name", "argument", "type", "missing", "twice", "triton"),
)
def test_invalid_functions_are_refused(
    tree: AiterTree, text: str, place: str, found: str, expected: str, fix: str
) -> None:
    """Prevents: a library compiled for a function or arguments that AITER never requests."""
    with pytest.raises((ManifestError, PlanError)) as caught:
        plan_text(HEAD + text, tree)
    (finding,) = caught.value.findings
    assert finding.place == f"m.toml:{place}"
    assert found in finding.found
    assert expected in finding.expected
    assert fix in finding.fix
