"""[build] max_bytes: the size budget of a library."""

from __future__ import annotations

import pytest

from qola.report.assemble import make_report
from qola.report.data import ReportError
from qola.report.size_budget import ENTRY_BYTES, check_size, family_bytes
from tests.report.toys import LIBRARY, PLAN

REPORT = make_report(PLAN, [LIBRARY])


def test_library_beyond_its_budget() -> None:
    """Prevents: an error does not name the kernels whose omission saves most."""
    with pytest.raises(ReportError) as raised:
        check_size(REPORT, LIBRARY.size - 1)
    (finding,) = raised.value.findings
    first, *families = finding.found.splitlines()
    assert finding.place == LIBRARY.file
    assert first == "400,000 bytes; omitting a family of kernels saves"
    assert finding.expected == "at most 399,999 bytes: [build] max_bytes"
    sizes = family_bytes(REPORT)
    largest = max(sizes, key=lambda name: sizes[name])
    assert families[0] == f"{largest}: about {sizes[largest]:,} bytes"


def test_families_share_device_and_host_code() -> None:
    """Prevents: reported savings differ from the code of all kernels, or include entry points."""
    parts = {part.what: part.bytes for part in LIBRARY.parts}
    total = parts["device code"] + parts["host code"] - ENTRY_BYTES
    assert sum(family_bytes(REPORT).values()) == pytest.approx(total, abs=5)


def test_families_count_kernel_instances() -> None:
    """Prevents: host code is counted per launched kernel instead of per instance."""
    sizes = family_bytes(REPORT)
    # Four launched kernels of one instance have 13,600 of 23,800 bytes of device code.
    splitkv = next(size for name, size in sizes.items() if name.startswith("splitkv"))
    assert splitkv == pytest.approx(130_000 * 4 / 7 + (150_000 - ENTRY_BYTES) / 4, abs=5)
