"""Numbers in a report of built libraries: LLVM's programs report equal numbers per kernel."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from qola.bundle.pack_files import kernels_of_pack
from qola.plan.model import Plan
from qola.report.assemble import make_report
from qola.report.data import Kernel
from qola.report.library import Library, read_library
from tests.library.offload import code_objects

LLVM = Path(os.environ["QOLA_TEST_LLVM"]).absolute().parent
PLAN = Plan.from_json(Path(os.environ["QOLA_TEST_PLAN"]).read_text("utf-8"))
LIBRARIES = [read_library(Path(p)) for p in os.environ["QOLA_TEST_LIBRARIES"].split()]
KERNELS = make_report(PLAN, LIBRARIES).kernels
#: Names in the report, and their names in the metadata.
NUMBERS = {
    "vgprs": ".vgpr_count",
    "agprs": ".agpr_count",
    "sgprs": ".sgpr_count",
    "vgpr_spills": ".vgpr_spill_count",
    "sgpr_spills": ".sgpr_spill_count",
    "scratch": ".private_segment_fixed_size",
    "lds": ".group_segment_fixed_size",
    "workgroup": ".max_flat_workgroup_size",
}


def run_llvm(program: str, *arguments: str | Path) -> str:
    run = subprocess.run([LLVM / program, *arguments], capture_output=True, text=True, check=True)
    return run.stdout


def metadata(code_object: Path) -> dict[str, Any]:
    """Return the metadata of a code object, from the YAML between --- and ... of llvm-readelf."""
    notes = run_llvm("llvm-readelf", "--notes", code_object)
    (text,) = re.findall(r"^\s*---\n(.*?)^\.\.\.$", notes, re.MULTILINE | re.DOTALL)
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def llvm_numbers(directory: Path) -> dict[tuple[str, str], tuple[dict[str, int], int]]:
    """Return LLVM's numbers and code size of each kernel, by symbol and arch."""
    numbers_by_kernel = {}
    for path in os.environ["QOLA_TEST_LIBRARIES"].split():
        for number, data in enumerate(code for _, code in code_objects(Path(path).read_bytes())):
            file = directory / f"{number}.co"
            file.write_bytes(data)
            notes = metadata(file)
            table = run_llvm("llvm-readelf", "--dyn-syms", "--wide", file)
            functions = re.findall(r"(\d+) FUNC .* (\S+)$", table, re.MULTILINE)
            sizes = {name: int(size) for size, name in functions}
            arch = notes["amdhsa.target"].rpartition("-")[2]
            for kernel in notes["amdhsa.kernels"]:
                numbers = {name: kernel[key] for name, key in NUMBERS.items()}
                numbers_by_kernel[kernel[".name"], arch] = numbers, sizes[kernel[".name"]]
    return numbers_by_kernel


def test_numbers_match_llvm(tmp_path: Path) -> None:
    """Prevents: registers, spills, scratch or LDS of another kernel, arch or field."""
    expected = llvm_numbers(tmp_path)
    found = {
        (k.symbol, k.arch): ({name: getattr(k, name) for name in NUMBERS}, k.code_bytes)
        for k in KERNELS
    }
    assert found == expected
    assert len(found) == len(PLAN.kernels) == 34


def test_registers_of_descriptors_match_llvm(tmp_path: Path) -> None:
    """Prevents: an occupancy is computed from registers that the GPU does not allocate."""
    expected: dict[tuple[int, str], int] = {}
    for path in os.environ["QOLA_TEST_LIBRARIES"].split():
        for _, data in code_objects(Path(path).read_bytes()):
            (tmp_path / "it.co").write_bytes(data)
            text = run_llvm("llvm-objdump", "-D", "-j", ".rodata", tmp_path / "it.co")
            pattern = r"^\.amdhsa_kernel (\S+)$.*?\.amdhsa_next_free_vgpr (\d+)$"
            for symbol, number in re.findall(pattern, text, re.MULTILINE | re.DOTALL):
                expected[len(data), symbol] = int(number)
    found = {
        (code.size, kernel.symbol): kernel.descriptor.vgprs
        for library in LIBRARIES
        for code in library.device_code
        for kernel in code.kernels.values()
    }
    assert found == expected
    assert len(found) == 34


def test_kernels_have_the_names_of_their_instances() -> None:
    """Prevents: numbers of a kernel instance are reported for another instance of its batch.

    A pack contains each kernel instance, compiled separately, by its name.
    """
    by_instance: dict[tuple[str, str], list[Kernel]] = {}
    for kernel in KERNELS:
        by_instance.setdefault((kernel.name, kernel.arch), []).append(kernel)
    compared = 0
    for label, data in kernels_of_pack(Path(os.environ["QOLA_TEST_PACK"]), "the pack"):
        name, arch = label.split()
        symbols = [
            symbol.encode() for symbol in (k.symbol for k in by_instance.get((name, arch), ()))
        ]
        if symbols:
            compared += 1
            assert all(symbol in data for symbol in symbols), name
    assert compared >= 8
    assert len({kernel.batch for kernel in KERNELS}) < len(KERNELS) / 3, "all alone"


def test_bytes_add_up() -> None:
    """Prevents: only a part of a library's device code is read."""
    for library, path in zip(LIBRARIES, os.environ["QOLA_TEST_LIBRARIES"].split(), strict=True):
        data = Path(path).read_bytes()
        sizes = [code.size for code in library.device_code]
        assert sorted(sizes) == sorted(len(code) for _, code in code_objects(data))
        assert library.size == len(data)


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.file)
def test_report_has_all_planned_kernels(library: Library) -> None:
    """Prevents: a report omits kernel instances of a library."""
    (module,) = (module for module in PLAN.modules if module.library == library.file)
    names = {k.name for k in KERNELS if k.library == library.file}
    assert names == {kernel.name for kernel in PLAN.kernels_of(module)}


def test_output_group_equals_the_command() -> None:
    """Prevents: Bazel's report differs from `qola report`."""
    report = make_report(PLAN, LIBRARIES)
    (data,) = (p for p in os.environ["QOLA_TEST_REPORT"].split() if p.endswith(".json"))
    bazel_report = json.loads(Path(data).read_text("utf-8"))
    assert sorted(bazel_report["kernels"], key=str) == sorted(
        json.loads(report.to_json())["kernels"], key=str
    )
    (page,) = (p for p in os.environ["QOLA_TEST_REPORT"].split() if p.endswith(".html"))
    assert "<title>Build of ci</title>" in Path(page).read_text("utf-8")
