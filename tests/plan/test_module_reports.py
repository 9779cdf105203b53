"""Reports about the modules of small AITER trees, and of the real one."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from qola.aiter.attention import ATTENTION, TORCH_ATTENTION
from qola.aiter.tree import CONFIG_FILE, read_tree
from qola.plan.modules import ModuleReport, module_reports
from tests.support.later_tree import (
    add_modules,
    embed_code_objects,
    write_later_tree,
    write_pybind_tree,
)


def test_modules_for_a_single_arch_are_built(tmp_path: Path) -> None:
    """Prevents: a buildable module reported as not built, or a failure without its reason."""
    root = write_later_tree(tmp_path)
    embed_code_objects(root)
    codegen = "f'{AITER_META_DIR}/hsa/codegen.py -m %s --output_dir {{}}'"
    commands = {
        "module_sink": codegen % "fmha_fwd_bf16",
        "module_none": codegen % "fmha_fwd_fp4",
        "module_fails": "f'{AITER_CSRC_DIR}/gen.py {{}}'",
    }
    sources = ["f'{AITER_CSRC_DIR}/py_itfs_cu/with_sink.cu'"]
    add_modules(root, {n: {"srcs": sources, "blob_gen_cmd": c} for n, c in commands.items()})
    (root / "csrc/gen.py").write_text("import this\nraise ValueError('no such GEMM')\n", "utf-8")
    reports = {report.name: report for report in module_reports(read_tree(root))}
    assert reports["module_sink"].built
    assert reports["module_sink"].needs[-1] == "not for gfx942, for gfx1250"
    assert not reports["module_none"].built
    assert "asm_fmha_fwd_bf16_configs.hpp" in reports["module_none"].why
    assert reports["module_fails"].why == (
        "csrc/gen.py {}: exit code 1; the generator wrote: ValueError: no such GEMM"
    )


def test_modules_that_cannot_be_built(tmp_path: Path) -> None:
    """Prevents: "built" for a module without a PyInit function or without Composable Kernel."""
    reports = {
        report.name: report for report in module_reports(read_tree(write_pybind_tree(tmp_path)))
    }
    assert {name for name, report in reports.items() if report.built} == {
        "module_custom",
        "module_literal",
    }
    assert (
        "PyInit_module_another, while Python calls PyInit_module_other"
        in reports["module_other"].why
    )
    missing = "no Composable Kernel in 3rdparty/composable_kernel: git clone --recurse-submodules"
    assert reports["libmha_fwd"].cause == reports["libmha_bwd"].cause
    assert reports["libmha_fwd"].cause.startswith(missing)


def test_causes_contain_no_module_names(tmp_path: Path) -> None:
    """Prevents: a separate cause per module, so that equal failures are not grouped."""
    root = write_later_tree(tmp_path)
    embed_code_objects(root)
    command = "f'{AITER_META_DIR}/hsa/codegen.py -m fmha_fwd_bf16 --output_dir {{}}'"
    sources = ["f'{AITER_CSRC_DIR}/py_itfs_cu/with_sink.cu'"]
    add_modules(root, {"module_sink": {"srcs": sources, "blob_gen_cmd": command}})
    reports = {report.name: report for report in module_reports(read_tree(root), ("gfx942",))}
    cause = "the module: no code object in fmha_fwd_bf16 for gfx942"
    assert reports["module_sink"].cause == cause


def test_progress_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Prevents: no output for two minutes."""
    caplog.set_level(logging.INFO)
    module_reports(read_tree(write_pybind_tree(tmp_path)))
    assert caplog.messages == [
        "planning each of 5 modules",
        *(f"{count} of 5 modules planned" for count in range(1, 5)),
    ]


@pytest.fixture(scope="module")
def reports(aiter_tree: Path) -> dict[str, ModuleReport]:
    return {report.name: report for report in module_reports(read_tree(aiter_tree))}


@pytest.mark.thorough
def test_each_module_is_reported(reports: dict[str, ModuleReport], aiter_tree: Path) -> None:
    """Prevents: a module of the tree without a report."""
    entries = json.loads((aiter_tree / CONFIG_FILE).read_text("utf-8"))
    assert list(reports) == list(entries)
    assert len(reports) == 65
    assert {*ATTENTION, *TORCH_ATTENTION, "module_aiter_enum"} < {*reports}
    assert {name: report.why for name, report in reports.items() if not report.built} == {}


@pytest.mark.thorough
def test_report_lists_requirements(reports: dict[str, ModuleReport]) -> None:
    """Prevents: a requirement of a module that shows only when the build fails."""
    assert reports["module_gemm_a8w8"] == ModuleReport(
        "module_gemm_a8w8",
        "torch module",
        ("torch", "generators: gen_instances.py", "tuning tables: AITER_CONFIG_GEMM_A8W8_FILE"),
        built=True,
        why="",
    )
    assert reports["module_moe_asm"].needs == (
        "torch",
        "of ROCm: hipcub, rocprim",
        "generators: codegen.py",
    )
    assert reports["module_aiter_enum"] == ModuleReport(
        "module_aiter_enum", "without torch", (), built=True, why=""
    )
    assert reports["module_mha_fwd"].needs[0] == "torch"
    assert reports["libmha_bwd"].kind == "C++ library"
