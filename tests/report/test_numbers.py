"""What a report says of real libraries: LLVM's own programs say the same, and of whom."""

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
#: The report's names for metadata's.
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


def said(program: str, *arguments: str | Path) -> str:
    run = subprocess.run([LLVM / program, *arguments], capture_output=True, text=True, check=True)
    return run.stdout


def metadata(code_object: Path) -> dict[str, Any]:
    """The metadata as llvm-readelf writes it: YAML, between --- and ..."""
    notes = said("llvm-readelf", "--notes", code_object)
    (text,) = re.findall(r"^\s*---\n(.*?)^\.\.\.$", notes, re.MULTILINE | re.DOTALL)
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def told(directory: Path) -> dict[tuple[str, str], tuple[dict[str, int], int]]:
    """What LLVM says of each kernel of the libraries by symbol and arch: numbers, code bytes."""
    found = {}
    for path in os.environ["QOLA_TEST_LIBRARIES"].split():
        for number, data in enumerate(code for _, code in code_objects(Path(path).read_bytes())):
            file = directory / f"{number}.co"
            file.write_bytes(data)
            words = metadata(file)
            table = said("llvm-readelf", "--dyn-syms", "--wide", file)
            functions = re.findall(r"(\d+) FUNC .* (\S+)$", table, re.MULTILINE)
            sizes = {name: int(size) for size, name in functions}
            arch = words["amdhsa.target"].rpartition("-")[2]
            for kernel in words["amdhsa.kernels"]:
                numbers = {name: kernel[of] for name, of in NUMBERS.items()}
                found[kernel[".name"], arch] = numbers, sizes[kernel[".name"]]
    return found


def test_they_are_llvms(tmp_path: Path) -> None:
    """Prevents: registers, spills, scratch or LDS of another kernel, arch or field."""
    expected = told(tmp_path)
    found = {
        (k.symbol, k.arch): ({name: getattr(k, name) for name in NUMBERS}, k.code_bytes)
        for k in KERNELS
    }
    assert found == expected
    assert len(found) == len(PLAN.kernels) == 34


def test_the_descriptors_registers_are_llvms(tmp_path: Path) -> None:
    """Prevents: an occupancy of registers that the GPU does not give out."""
    asked: dict[tuple[int, str], int] = {}
    for path in os.environ["QOLA_TEST_LIBRARIES"].split():
        for _, data in code_objects(Path(path).read_bytes()):
            (tmp_path / "it.co").write_bytes(data)
            text = said("llvm-objdump", "-D", "-j", ".rodata", tmp_path / "it.co")
            shown = r"^\.amdhsa_kernel (\S+)$.*?\.amdhsa_next_free_vgpr (\d+)$"
            for symbol, number in re.findall(shown, text, re.MULTILINE | re.DOTALL):
                asked[len(data), symbol] = int(number)
    found = {
        (code.size, kernel.symbol): kernel.descriptor.vgprs
        for library in LIBRARIES
        for code in library.device_code
        for kernel in code.kernels.values()
    }
    assert found == asked
    assert len(found) == 34


def test_each_kernel_has_its_name() -> None:
    """Prevents: what one kernel instance takes, said of another of its batch.

    A pack has each kernel instance compiled alone, under its name.
    """
    of: dict[tuple[str, str], list[Kernel]] = {}
    for kernel in KERNELS:
        of.setdefault((kernel.name, kernel.arch), []).append(kernel)
    alone = 0
    for label, data in kernels_of_pack(Path(os.environ["QOLA_TEST_PACK"]), "the pack"):
        name, arch = label.split()
        symbols = [symbol.encode() for symbol in (k.symbol for k in of.get((name, arch), ()))]
        if symbols:
            alone += 1
            assert all(symbol in data for symbol in symbols), name
    assert alone >= 8
    assert len({kernel.batch for kernel in KERNELS}) < len(KERNELS) / 3, "all alone"


def test_bytes_add_up() -> None:
    """Prevents: a library whose device code was read in part."""
    for library, path in zip(LIBRARIES, os.environ["QOLA_TEST_LIBRARIES"].split(), strict=True):
        data = Path(path).read_bytes()
        sizes = [code.size for code in library.device_code]
        assert sorted(sizes) == sorted(len(code) for _, code in code_objects(data))
        assert library.size == len(data)


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.file)
def test_all_that_is_planned_is_there(library: Library) -> None:
    """Prevents: kernel instances of a library that a report leaves out."""
    (module,) = (module for module in PLAN.modules if module.library == library.file)
    names = {k.name for k in KERNELS if k.library == library.file}
    assert names == {kernel.name for kernel in PLAN.kernels_of(module)}


def test_the_output_group_is_the_commands() -> None:
    """Prevents: a page of Bazel's that says something else than `qola report`."""
    report = make_report(PLAN, LIBRARIES)
    (data,) = (p for p in os.environ["QOLA_TEST_REPORT"].split() if p.endswith(".json"))
    made = json.loads(Path(data).read_text("utf-8"))
    assert sorted(made["kernels"], key=str) == sorted(
        json.loads(report.to_json())["kernels"], key=str
    )
    (page,) = (p for p in os.environ["QOLA_TEST_REPORT"].split() if p.endswith(".html"))
    assert "<title>Build of ci</title>" in Path(page).read_text("utf-8")
