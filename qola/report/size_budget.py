"""Compares a library's size with ``[build] max_bytes`` of its manifest."""

from __future__ import annotations

from collections import Counter

from qola.report.data import Report, ReportError
from qola.report.library import DEVICE, HOST, RELOCATIONS, UNWIND
from qola_base.errors import Finding

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
