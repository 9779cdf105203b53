"""Reports about the modules of an AITER tree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qola.aiter.attention import ATTENTION, TORCH_ATTENTION
from qola.aiter.tree import CONFIG_FILE, read_tree
from qola.plan.modules import ModuleReport, module_reports


@pytest.fixture(scope="module")
def reports(aiter_tree: Path) -> dict[str, ModuleReport]:
    return {report.name: report for report in module_reports(read_tree(aiter_tree))}


def test_each_module_is_reported(reports: dict[str, ModuleReport], aiter_tree: Path) -> None:
    """Prevents: a module of the tree without a report."""
    entries = json.loads((aiter_tree / CONFIG_FILE).read_text("utf-8"))
    assert list(reports) == list(entries)
    assert len(reports) == 65
    assert {*ATTENTION, *TORCH_ATTENTION, "module_aiter_enum"} < {*reports}
    assert {name: report.why for name, report in reports.items() if not report.built} == {}


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
