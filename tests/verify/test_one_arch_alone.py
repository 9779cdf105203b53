"""Libraries that a build setting restricts to one arch, on devices of both."""

from __future__ import annotations

from tests.verify.run_consumer import RESTRICTED, ROWS, expected, run
from tests.verify.table import GFX942, GFX950, Row

DIRS = tuple(library.parent for library in RESTRICTED)


def rows_of_gfx942() -> list[Row]:
    return [row for row in ROWS if row.device == GFX942]


def test_another_arch_has_no_kernel() -> None:
    """Prevents: a launch that fails for want of code, or a crash, where the arch was left out."""
    rows = rows_of_gfx942()
    result = run(rows, GFX950, library_dirs=DIRS)
    assert {outcome.status for outcome in result.outcomes} == {-2.0}
    assert not [launch for outcome in result.outcomes for launch in outcome.launches]
    # Once a library, not once a call.
    said = "no kernel for this arch: device 0 is gfx950:sramecc+:xnack-, the library has gfx942\n"
    assert sorted(result.stderr.splitlines(keepends=True)) == [
        f"qola: mha_bwd: {said}",
        f"qola: mha_fwd: {said}",
    ]


def test_its_own_arch_is_served_as_before() -> None:
    """Prevents: a restriction that changes which kernels the remaining arch gets."""
    rows = rows_of_gfx942()
    result = run(rows, GFX942, library_dirs=DIRS)
    for row, outcome in zip(rows, result.outcomes, strict=True):
        assert outcome.told == expected(row), row.name
