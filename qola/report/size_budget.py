"""The program that compares a library's size with ``[build] max_bytes`` of its manifest."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from qola.report.assemble import make_report
from qola.report.data import Report, ReportError
from qola.report.library import DEVICE, HOST, RELOCATIONS, UNWIND, read_library
from qola.report.write import read_plan
from qola_base.errors import Finding
from qola_base.rule_main import run_main

#: Families that the error names.
_NAMED = 5
#: Host code of entry points, C functions and dispatch in bytes, which no omitted family saves.
ENTRY_BYTES = 60_000


def check_size(report: Report, most: int) -> None:
    """Check that the one library of a report has at most `most` bytes.

    Raises:
        ReportError: it has more. The error names the families that save most if they are omitted.
    """
    (library,) = report.libraries
    if library.bytes <= most:
        return
    saved = sorted(family_bytes(report).items(), key=lambda item: (-item[1], item[0]))
    lines = [f"{name}: about {size:,} bytes" for name, size in saved[:_NAMED]]
    raise ReportError(
        Finding(
            library.file,
            "\n".join([f"{library.bytes:,} bytes; omitting a family of kernels saves", *lines]),
            f"at most {most:,} bytes: [build] max_bytes",
            "remove a family from the manifest's variants, or raise max_bytes",
        ),
        "a library is larger than its budget",
    )


def family_bytes(report: Report) -> dict[str, int]:
    """Return about how many bytes the library of a report loses without each family of kernels.

    Device code is compressed in batches: a family has the share of it that it has of uncompressed
    code. Host code counts by the number of kernel instances, of which some launch several kernels.
    """
    (library,) = report.libraries
    parts = {part.what: part.bytes for part in library.parts}
    host = sum(parts.get(name, 0) for name in (HOST, UNWIND, RELOCATIONS))
    host = max(0, host - ENTRY_BYTES)
    code: Counter[str] = Counter()
    instances: dict[str, set[str]] = {}
    for kernel in report.kernels:
        sizes = f"head dimension {kernel.hdim}" if kernel.hdim else ""
        name = " ".join(filter(None, (kernel.role, kernel.dtype, sizes, kernel.mode)))
        code[name] += kernel.code_bytes
        instances.setdefault(name, set()).add(kernel.name or kernel.symbol)
    count = Counter({name: len(members) for name, members in instances.items()})
    return {
        name: round(
            parts.get(DEVICE, 0) * code[name] / code.total() + host * count[name] / count.total()
        )
        for name in code
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Check a library, and write an empty file."""
    parser = argparse.ArgumentParser(prog="qola.report.size_budget", description=__doc__)
    parser.add_argument("--plan", required=True, type=Path, help="plan.json")
    parser.add_argument("--max-bytes", required=True, type=int, metavar="N", help="the budget")
    parser.add_argument("--output", required=True, type=Path, help="the file to write")
    parser.add_argument("library", type=Path, help="a library of the plan")
    args = parser.parse_args(argv)
    return run_main(lambda: _check(args))


def _check(args: argparse.Namespace) -> None:
    # The report, which takes seconds, is for the error only.
    if args.library.stat().st_size > args.max_bytes:
        check_size(make_report(read_plan(args.plan), [read_library(args.library)]), args.max_bytes)
    args.output.write_bytes(b"")


if __name__ == "__main__":
    sys.exit(main())
