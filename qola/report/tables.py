"""The tables of a report's page, as HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qola.report.compare import Change, Comparison, Total
from qola.report.data import Batch, LeftOut, Report
from qola.report.markup import (
    Cell,
    Columns,
    bar_cell,
    bytes_cell,
    grouped,
    hdim_cell,
    name_cell,
    number_cell,
    seconds_cell,
    share_cell,
    spills_cell,
    table_html,
    text_cell,
)
from qola.report.sums import groups, short_names


def groups_table(report: Report) -> str:
    """Return the sums and extremes of groups of kernels."""
    columns: Columns = {
        "direction": lambda group: text_cell(group.direction),
        "hdim": lambda group: hdim_cell(group.hdim),
        "role": lambda group: text_cell(group.role),
        "arch": lambda group: text_cell(group.arch),
        "# instances": lambda group: number_cell(group.instances),
        "# kernels": lambda group: number_cell(group.kernels),
        "from": lambda group: text_cell(", ".join(f"{n} {s}" for s, n in group.sources.items())),
        "# seconds": lambda group: seconds_cell(group.seconds),
        "# code": lambda group: bytes_cell(group.code_bytes),
        "# most VGPRs": lambda group: number_cell(group.vgprs),
        "# most LDS": lambda group: bytes_cell(group.lds),
        "# spilling": lambda group: spills_cell(group.spilling),
        "# fewest waves": lambda group: number_cell(group.waves),
    }
    caption = (
        "Head dimensions of Q and V. Seconds are the shares of batches; waves are those that a "
        "SIMD can hold."
    )
    return table_html("groups-table", caption, groups(report), columns)


def libraries_table(report: Report) -> str:
    """Return the libraries and how much of them is device code."""
    columns: Columns = {
        "library": lambda library: text_cell(library.file),
        "# bytes": lambda library: bytes_cell(library.bytes),
        "# kernel instances": lambda library: bytes_cell(library.device_bytes),
        "# assembly kernels": lambda library: bytes_cell(library.assembly_bytes),
        "sha256": lambda library: text_cell(library.sha256),
    }
    caption = "Code objects of kernel instances and of assembly kernels are parts of a library."
    return table_html("libraries-table", caption, report.libraries, columns, wide=("sha256",))


def parts_table(report: Report) -> str:
    """Return the bytes of each library by purpose."""
    several = len(report.libraries) > 1
    parts = [(part, library) for library in report.libraries for part in library.parts]
    columns: Columns = {
        "part": lambda row: text_cell(row[0].what),
        "# bytes": lambda row: bytes_cell(row[0].bytes),
        "# share": lambda row: share_cell(row[0].bytes / (row[1].bytes or 1)),
        "library": lambda row: text_cell(row[1].file if several else ""),
    }
    caption = (
        "The bytes of a library by purpose, from its sections. Device code is that of kernel "
        "instances. Kernel names are built for messages of CK's log level 1 and above."
    )
    return table_html("parts-table", caption, parts, columns)


def batches_table(report: Report) -> str:
    """Return the batches, each compiled by one command."""
    columns: Columns = {
        "batch": lambda batch: text_cell(batch.name),
        "direction": lambda batch: text_cell(batch.direction),
        "role": lambda batch: text_cell(batch.role),
        "archs": lambda batch: text_cell(", ".join(batch.archs)),
        "# instances": lambda batch: number_cell(batch.instances),
        "# kernels": lambda batch: number_cell(batch.kernels),
        "# code objects": lambda batch: bytes_cell(batch.bytes),
        "# seconds": lambda batch: seconds_cell(batch.seconds),
        "from": lambda batch: text_cell(batch.source),
    }
    caption = "The compiles: each a batch of kernel instances, or a single one."
    return table_html(
        "batches-table", caption, report.batches, columns, wide=("batch",), filtered=True
    )


def kernels_table(report: Report) -> str:
    """Return the kernels and their resources."""
    short = short_names(report.kernels)
    columns: Columns = {
        "kernel instance": lambda kernel: (
            name_cell(short[kernel.name], kernel.name, f"batch {kernel.batch}")
            if kernel.name
            else Cell(f"one of {kernel.batch}", kernel.batch)
        ),
        "direction": lambda kernel: text_cell(kernel.direction),
        "role": lambda kernel: text_cell(kernel.role),
        "hdim": lambda kernel: hdim_cell(kernel.hdim),
        "dtype": lambda kernel: text_cell(kernel.dtype),
        "mode": lambda kernel: text_cell(kernel.mode),
        "arch": lambda kernel: text_cell(kernel.arch),
        "# waves": lambda kernel: number_cell(kernel.waves),
        "limit": lambda kernel: text_cell(kernel.limit),
        "# VGPR spills": lambda kernel: spills_cell(kernel.vgpr_spills),
        "# SGPR spills": lambda kernel: spills_cell(kernel.sgpr_spills),
        "# scratch": lambda kernel: number_cell(kernel.scratch),
        "# LDS": lambda kernel: number_cell(kernel.lds),
        "# VGPRs": lambda kernel: number_cell(kernel.vgprs),
        "# AGPRs": lambda kernel: number_cell(kernel.agprs),
        "# SGPRs": lambda kernel: number_cell(kernel.sgprs),
        "# code": lambda kernel: number_cell(kernel.code_bytes),
        "# seconds": lambda kernel: seconds_cell(kernel.seconds),
        "from": lambda kernel: text_cell(kernel.source),
    }
    caption = (
        "A row for each kernel as a GPU launches it; click its name for the full one. Registers, "
        "spills, bytes of scratch and of LDS are from the metadata of the code object; waves are "
        "those that a SIMD can hold, and the limit is the resource that prevents more."
    )
    return table_html(
        "kernels-table", caption, report.kernels, columns, wide=("kernel instance",), filtered=True
    )


def assembly_table(report: Report) -> str:
    """Return AITER's assembly kernels."""
    columns: Columns = {
        "code object": lambda kernel: text_cell(kernel.key),
        "arch": lambda kernel: text_cell(kernel.arch),
        "# bytes": lambda kernel: bytes_cell(kernel.bytes),
        "# VGPRs": lambda kernel: number_cell(kernel.vgprs),
        "# AGPRs": lambda kernel: number_cell(kernel.agprs),
        "# SGPRs": lambda kernel: number_cell(kernel.sgprs),
        "# LDS": lambda kernel: number_cell(kernel.lds),
        "# waves": lambda kernel: number_cell(kernel.waves),
        "limit": lambda kernel: text_cell(kernel.limit),
        "library": lambda kernel: text_cell(kernel.library),
    }
    caption = "AITER's hand-written kernels that the libraries embed."
    return table_html(
        "assembly-table", caption, report.assembly, columns, wide=("code object",), filtered=True
    )


def slowest_table(batches: Sequence[Batch]) -> str:
    """Return batches with their compile times, the longest first."""
    longest = batches[0].seconds or 1
    columns: Columns = {
        "batch": lambda batch: text_cell(batch.name),
        "direction": lambda batch: text_cell(batch.direction),
        "role": lambda batch: text_cell(batch.role),
        "# instances": lambda batch: number_cell(batch.instances),
        "from": lambda batch: text_cell(batch.source),
        "# seconds": lambda batch: bar_cell(batch.seconds or 0, longest),
    }
    caption = "The longest compiles; for a result from a cache, the time to fetch it."
    return table_html("slowest-table", caption, batches, columns, wide=("batch",))


def left_out_table(left_out: Sequence[LeftOut]) -> str:
    """Return the number of kernel instances that each rule leaves out, unreachable ones first."""
    rows = sorted(left_out, key=lambda row: not row.rule.startswith("unreachable"))
    columns: Columns = {
        "module": lambda row: text_cell(row.module),
        "direction": lambda row: text_cell(row.direction),
        "role": lambda row: text_cell(row.role),
        "rule": lambda row: text_cell(row.rule),
        "# kernel instances": lambda row: number_cell(row.count),
    }
    total = sum(row.count for row in left_out)
    caption = f"{grouped(total)} kernel instances of the receipts in use are not in the plan."
    return table_html("left-out-table", caption, rows, columns, wide=("rule",), filtered=True)


def comparison_tables(comparison: Comparison) -> Iterator[str]:
    """Yield the sums of two builds, then changed, added and removed kernels."""
    numbers: Columns = {
        "# before": lambda row: number_cell(row.before),
        "# after": lambda row: number_cell(row.after),
        "# difference": lambda row: number_cell(_difference(row), signed=True),
    }
    columns: Columns = {
        "figure": lambda row: text_cell(row.what.replace("_", " ")),
        **numbers,
    }
    yield table_html("totals-table", "Sums of both builds.", comparison.totals, columns)
    if comparison.changes:
        kernel: Columns = {
            "kernel": lambda change: text_cell(change.name),
            "arch": lambda change: text_cell(change.arch),
        }
        caption = f"{len(comparison.changes)} figures that changed, of kernels in both builds."
        every = {**kernel, **columns}
        yield table_html("changes-table", caption, comparison.changes, every, wide=("kernel",))
    added, removed = comparison.added, comparison.removed
    kernels = [*((name, "added") for name in added), *((name, "removed") for name in removed)]
    if kernels:
        caption = f"{len(added)} added, {len(removed)} removed."
        names: Columns = {
            "kernel": lambda row: text_cell(row[0]),
            "in this build": lambda row: text_cell(row[1]),
        }
        yield table_html("added-table", caption, kernels, names, wide=("kernel",))


def _difference(row: Total | Change) -> float | None:
    return None if row.before is None or row.after is None else row.after - row.before
