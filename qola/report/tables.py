"""The tables of a report's page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qola.report.compare import Change, Comparison, Total
from qola.report.data import Batch, LeftOut, Report
from qola.report.markup import (
    Cell,
    Table,
    bar_cell,
    bytes_cell,
    grouped,
    hdim_cell,
    name_cell,
    number_cell,
    seconds_cell,
    share_cell,
    spills_cell,
    text_cell,
)
from qola.report.short_names import short_names
from qola.report.sums import groups


def groups_table(report: Report) -> Table:
    """Return kernels in sums and extremes."""
    rows = [
        (
            text_cell(group.direction),
            hdim_cell(group.hdim),
            text_cell(group.role),
            text_cell(group.arch),
            number_cell(group.instances),
            number_cell(group.kernels),
            text_cell(", ".join(f"{count} {source}" for source, count in group.sources.items())),
            seconds_cell(group.seconds),
            bytes_cell(group.code_bytes),
            number_cell(group.vgprs),
            bytes_cell(group.lds),
            spills_cell(group.spilling),
            number_cell(group.waves),
        )
        for group in groups(report)
    ]
    columns = (
        *("direction", "hdim", "role", "arch", "# instances", "# kernels", "from", "# seconds"),
        *("# code", "# most VGPRs", "# most LDS", "# spilling", "# fewest waves"),
    )
    caption = (
        "Head dimensions of Q and V. Seconds are the shares of batches; waves are those that a "
        "SIMD can hold."
    )
    return Table("groups-table", caption, columns, rows)


def libraries_table(report: Report) -> Table:
    """Return the libraries and what of them is device code."""
    rows = [
        (
            Cell(library.file, library.file),
            bytes_cell(library.bytes),
            bytes_cell(library.device_bytes),
            bytes_cell(library.assembly_bytes),
            Cell(library.sha256, library.sha256),
        )
        for library in report.libraries
    ]
    columns = ("library", "# bytes", "# kernel instances", "# assembly kernels", "sha256")
    caption = "Code objects of kernel instances and of assembly kernels are parts of a library."
    return Table("libraries-table", caption, columns, rows, ("sha256",))


def parts_table(report: Report) -> Table:
    """Return what the bytes of each library are for."""
    rows = [
        (
            text_cell(part.what),
            bytes_cell(part.bytes),
            share_cell(part.bytes / (library.bytes or 1)),
            text_cell(library.file if len(report.libraries) > 1 else ""),
        )
        for library in report.libraries
        for part in library.parts
    ]
    columns = ("part", "# bytes", "# share", "library")
    caption = (
        "What the bytes of a library are for, by its sections. Device code is that of kernel "
        "instances. Kernel names are built for messages of CK's log level 1 and above."
    )
    return Table("parts-table", caption, columns, rows)


def batches_table(report: Report) -> Table:
    """Return what was compiled together."""
    rows = [
        (
            Cell(batch.name, batch.name),
            text_cell(batch.direction),
            text_cell(batch.role),
            text_cell(", ".join(batch.archs)),
            number_cell(batch.instances),
            number_cell(batch.kernels),
            bytes_cell(batch.bytes),
            seconds_cell(batch.seconds),
            text_cell(batch.source),
        )
        for batch in report.batches
    ]
    columns = (
        *("batch", "direction", "role", "archs", "# instances", "# kernels", "# code objects"),
        *("# seconds", "from"),
    )
    caption = "What one command compiles: a batch of kernel instances, or one alone."
    return Table("batches-table", caption, columns, rows, ("batch",), filtered=True)


def kernels_table(report: Report) -> Table:
    """Return each kernel and what it takes."""
    short = short_names(report.kernels)
    rows = [
        (
            name_cell(short[kernel.name], kernel.name, f"batch {kernel.batch}")
            if kernel.name
            else Cell(f"one of {kernel.batch}", kernel.batch),
            text_cell(kernel.direction),
            text_cell(kernel.role),
            hdim_cell(kernel.hdim),
            text_cell(kernel.dtype),
            text_cell(kernel.mode),
            text_cell(kernel.arch),
            number_cell(kernel.waves),
            text_cell(kernel.limit),
            spills_cell(kernel.vgpr_spills),
            spills_cell(kernel.sgpr_spills),
            number_cell(kernel.scratch),
            number_cell(kernel.lds),
            number_cell(kernel.vgprs),
            number_cell(kernel.agprs),
            number_cell(kernel.sgprs),
            number_cell(kernel.code_bytes),
            seconds_cell(kernel.seconds),
            text_cell(kernel.source),
        )
        for kernel in report.kernels
    ]
    columns = (
        *("kernel instance", "direction", "role", "hdim", "dtype", "mode", "arch", "# waves"),
        *("limit", "# VGPR spills", "# SGPR spills", "# scratch", "# LDS", "# VGPRs", "# AGPRs"),
        *("# SGPRs", "# code", "# seconds", "from"),
    )
    caption = (
        "A row for each kernel as a GPU launches it; a press on its name shows the whole one. "
        "Registers, spills, bytes of scratch and of LDS are those of the code object's metadata; "
        "waves are those that a SIMD can hold, and the limit is what there would have to be more "
        "of."
    )
    return Table("kernels-table", caption, columns, rows, ("kernel instance",), filtered=True)


def assembly_table(report: Report) -> Table:
    """Return AITER's assembly kernels."""
    rows = [
        (
            Cell(kernel.key, kernel.key),
            text_cell(kernel.arch),
            bytes_cell(kernel.bytes),
            number_cell(kernel.vgprs),
            number_cell(kernel.agprs),
            number_cell(kernel.sgprs),
            number_cell(kernel.lds),
            number_cell(kernel.waves),
            text_cell(kernel.limit),
            text_cell(kernel.library),
        )
        for kernel in report.assembly
    ]
    columns = (
        *("code object", "arch", "# bytes", "# VGPRs", "# AGPRs", "# SGPRs", "# LDS", "# waves"),
        *("limit", "library"),
    )
    caption = "AITER's hand-written kernels, as they stand in the libraries."
    return Table("assembly-table", caption, columns, rows, ("code object",), filtered=True)


def slowest_table(batches: Sequence[Batch]) -> Table:
    """Return batches with how long each took, the longest first."""
    rows = [
        (
            Cell(batch.name, batch.name),
            text_cell(batch.direction),
            text_cell(batch.role),
            number_cell(batch.instances),
            text_cell(batch.source),
            bar_cell(batch.seconds or 0, batches[0].seconds or 1),
        )
        for batch in batches
    ]
    columns = ("batch", "direction", "role", "# instances", "from", "# seconds")
    caption = "The compiles that took longest; of a cache's answer, the time to get it."
    return Table("slowest-table", caption, columns, rows, ("batch",))


def left_out_table(left_out: Sequence[LeftOut]) -> Table:
    """Return how many kernel instances each rule leaves out, first what nothing could call."""
    rows = [
        (
            text_cell(row.module),
            text_cell(row.direction),
            text_cell(row.role),
            text_cell(row.rule),
            number_cell(row.count),
        )
        for row in sorted(left_out, key=lambda row: not row.rule.startswith("unreachable"))
    ]
    total = sum(row.count for row in left_out)
    caption = f"{grouped(total)} kernel instances of the receipts in use are not in the plan."
    columns = ("module", "direction", "role", "rule", "# kernel instances")
    return Table("left-out-table", caption, columns, rows, ("rule",), filtered=True)


def comparison_tables(found: Comparison) -> Iterator[Table]:
    """Yield the sums of two builds, then what changed and what came or went, if anything did."""
    columns = ("what", "# before", "# after", "# difference")
    totals = [(text_cell(total.what), *_both(total)) for total in found.totals]
    yield Table("totals-table", "Sums of both builds.", columns, totals)
    if found.changes:
        changes = [
            (
                Cell(change.name, change.name),
                text_cell(change.arch),
                text_cell(change.what.replace("_", " ")),
                *_both(change),
            )
            for change in found.changes
        ]
        caption = f"What {len(changes)} figures of kernels that both builds have were, and are."
        yield Table("changes-table", caption, ("kernel", "arch", *columns), changes, ("kernel",))
    kernels = [(Cell(name, name), text_cell("added")) for name in found.added]
    kernels += [(Cell(name, name), text_cell("removed")) for name in found.removed]
    if kernels:
        caption = f"{len(found.added)} added, {len(found.removed)} removed."
        yield Table("added-table", caption, ("kernel", "in this build"), kernels, ("kernel",))


def _both(of: Total | Change) -> tuple[Cell, Cell, Cell]:
    known = of.before is not None and of.after is not None
    difference = (of.after or 0) - (of.before or 0) if known else None
    return (
        number_cell(of.before),
        number_cell(of.after),
        number_cell(difference, signed=True),
    )
