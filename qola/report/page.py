"""The page of a report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape

from qola.report import tables
from qola.report.compare import Comparison
from qola.report.data import Report
from qola.report.document import Section, document, note
from qola.report.markup import bytes_cell, grouped, seconds_cell
from qola.report.sums import slowest


def render(report: Report, compared: Comparison | None = None) -> str:
    """Return the page of a report, with a comparison if there is an earlier one."""
    title = f"Build of {report.name or ', '.join(library.file for library in report.libraries)}"
    aiter = f"AITER {report.aiter}" if report.aiter else ""
    facts = [", ".join(report.archs), aiter, f"qola {report.qola}"]
    sections = list(_sections(report, compared))
    return document(title, facts, _tiles(report), sections, _details(report))


def _details(report: Report) -> Iterator[tuple[str, str]]:
    """Yield name and HTML of date, compiler, manifest and command; empty if unknown."""
    yield "Date", escape(report.date.replace("T", " ").replace("Z", " UTC"))
    yield "Compiler", escape(report.compiler)
    if report.manifest:
        text = json.dumps(report.manifest, indent=1, sort_keys=True, ensure_ascii=False)
        summary = f"<summary>{escape(report.name)}, in canonical form</summary>"
        yield "Manifest", f"<details>{summary}<pre>{escape(text)}</pre></details>"
    yield "Command", f"<code>{escape(report.command)}</code>" if report.command else ""


def _tiles(report: Report) -> list[tuple[str, str]]:
    """Return the figures at the top of the page."""
    names = {(kernel.name or kernel.symbol, kernel.library) for kernel in report.kernels}
    spilling = sum(bool(k.vgpr_spills or k.sgpr_spills) for k in report.kernels)
    tiles = [
        ("Kernel instances", grouped(len(names))),
        ("Kernels, each arch counted", grouped(len(report.kernels))),
        ("Assembly kernels", grouped(len(report.assembly))),
        ("Compiles", grouped(len(report.batches))),
    ]
    if report.timed:
        done = [batch for batch in report.batches if batch.source == "compiled"]
        tiles += [
            ("Compiled in this build", f"{len(done)} of {len(report.batches)}"),
            ("Time of these compiles", seconds_cell(sum(b.seconds or 0 for b in done)).text),
        ]
    return [
        *tiles,
        ("Libraries", bytes_cell(sum(library.bytes for library in report.libraries)).text),
        ("Kernels that spill", grouped(spilling)),
    ]


def _sections(report: Report, compared: Comparison | None) -> Iterator[Section]:
    """Yield the sections that are not empty."""
    if compared:
        html = "".join(tables.comparison_tables(compared))
        if not compared.changes:
            html += note("Kernels in both builds have the same figures in both.")
        yield Section("compared", f"Compared with {compared.name or 'the other build'}", html)
    if report.kernels:
        title = "Kernels by direction, head dimension and role"
        yield Section("groups", title, tables.groups_table(report))
    if slow := slowest(report):
        yield Section("slowest", f"The slowest {len(slow)}", tables.slowest_table(slow))
    html = tables.libraries_table(report) + tables.parts_table(report)
    yield Section("libraries", "Libraries", html)
    if report.batches:
        yield Section("batches", "Batches", tables.batches_table(report))
    if report.kernels:
        yield Section("kernels", "Kernels", tables.kernels_table(report))
    if report.assembly:
        yield Section("assembly", "Assembly kernels", tables.assembly_table(report))
    if report.left_out is None:
        html = note("Not known: pass the manifest to qola report.")
    else:
        html = tables.left_out_table(report.left_out)
    yield Section("left-out", "Left out: pruned and unreachable", html)
    if report.warnings:
        texts = "\n\n".join(report.warnings)
        yield Section("warnings", "Warnings", f"<pre>{escape(texts)}</pre>\n")
