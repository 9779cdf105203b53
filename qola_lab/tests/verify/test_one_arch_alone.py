"""Libraries restricted to one arch by a build setting, on devices of both archs."""

from __future__ import annotations

from qola_lab.tests.verify.run_consumer import BUNDLE, RESTRICTED, ROWS, expected, run
from qola_lab.tests.verify.table import GFX942, GFX950, Row

DIRS = (*(library.parent for library in RESTRICTED), BUNDLE / "lib")
DIRECTIONS = {library.stem.rpartition("_")[2] for library in RESTRICTED}


def rows_of_gfx942() -> list[Row]:
    """Return the rows that the restricted libraries serve."""
    return [row for row in ROWS if row.device == GFX942 and row.problem.direction in DIRECTIONS]


def test_another_arch_has_no_kernel() -> None:
    """Prevents: a crash or an unexplained failing launch on an arch that the build left out."""
    rows = rows_of_gfx942()
    result = run(rows, GFX950, library_dirs=DIRS)
    assert {outcome.status for outcome in result.outcomes} == {-2.0}
    assert not [launch for outcome in result.outcomes for launch in outcome.launches]
    # Each library prints the message once, not at every call.
    message = (
        "no kernel for this arch: device 0 is gfx950:sramecc+:xnack-, the library has gfx942\n"
    )
    assert sorted(result.stderr.splitlines(keepends=True)) == sorted(
        f"qola: mha_{direction}: {message}" for direction in DIRECTIONS
    )


def test_the_remaining_arch_is_unchanged() -> None:
    """Prevents: a restriction to one arch that changes which kernels the arch gets."""
    rows = rows_of_gfx942()
    result = run(rows, GFX942, library_dirs=DIRS)
    for row, outcome in zip(rows, result.outcomes, strict=True):
        assert outcome.result == expected(row), row.name
