"""Libraries with several kernels per source, and libraries with assembly kernels."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from qola.plan.model import Plan
from qola.report.assemble import make_report
from qola.report.data import Report
from qola.report.library import read_library

LLVM = Path(os.environ["QOLA_TEST_LLVM"]).absolute().parent
TREE = Path(os.environ["QOLA_TEST_AITER_TREE"])


def make_report_of(name: str) -> tuple[Plan, Report]:
    libraries = [read_library(Path(path)) for path in os.environ[f"QOLA_TEST_{name}"].split()]
    plan = Plan.from_json(Path(os.environ[f"QOLA_TEST_{name}_PLAN"]).read_text("utf-8"))
    return plan, make_report(plan, libraries)


def test_kernels_of_a_source_have_its_name() -> None:
    """Prevents: kernels of a batch get the name of another instance with equally many kernels."""
    plan, report = make_report_of("SPLITKV")
    fields = {kernel.name: kernel.fields for kernel in plan.kernels}
    combined = [kernel for kernel in report.kernels if kernel.role == "splitkv_combine"]
    pattern = r"TileFmhaFwdSplitKVCombineTraitsILb(\d)ELb(\d)ELb(\d)ELb\dELi(\d)"
    splits: dict[str, set[str]] = {}
    for kernel in combined:
        ((*padding, split),) = re.findall(pattern, kernel.symbol)
        expected = [str(int(bool(fields[kernel.name][f]))) for f in ("spad", "dvpad", "lse")]
        assert padding == expected, kernel.name
        splits.setdefault(kernel.name, set()).add(split)
    assert len(splits) > 1
    assert {len(found) for found in splits.values()} == {5}, "a power of two of splits each"
    assert {batch.kernels for batch in report.batches if batch.role == "splitkv_combine"} == {
        len(combined)
    }


def test_assembly_kernels_match_the_tree() -> None:
    """Prevents: code objects are missing, have a wrong key, or are misread."""
    plan, report = make_report_of("ASSEMBLY")
    planned = {found.key: found for module in plan.modules for found in module.code_objects}
    assert {kernel.key for kernel in report.assembly} == planned.keys()
    for kernel in report.assembly:
        found = planned[kernel.key]
        assert (kernel.arch, kernel.bytes) == (found.arch, found.size)
        command = [str(LLVM / "llvm-readelf"), "--notes", str(TREE / found.file)]
        notes = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for name, number in (
            ("vgpr_count", kernel.vgprs),
            ("sgpr_count", kernel.sgprs),
            ("group_segment_fixed_size", kernel.lds),
        ):
            assert re.findall(rf"\.{name}:\s+(\d+)", notes) == [str(number)], kernel.key
    assert len(planned) > 10
    library_bytes = sum(library.assembly_bytes for library in report.libraries)
    assert library_bytes == sum(found.size for found in planned.values())
