"""The page of a report: its sections and tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any

from qola.report.data import Batch, Kernel, LeftOut, Report
from qola.report.markup import (
    Cell,
    Columns,
    Section,
    bytes_cell,
    cell_of,
    document,
    grouped,
    hdim_cell,
    name_cell,
    note,
    number_cell,
    seconds_cell,
    share_cell,
    spills_cell,
    table_html,
    text_cell,
)


def render(report: Report) -> str:
    """Return the HTML page of a report."""
    title = f"Build of {report.name or ', '.join(library.file for library in report.libraries)}"
    aiter = f"AITER {report.aiter}" if report.aiter else ""
    facts = [", ".join(report.archs), aiter, f"qola {report.qola}"]
    return document(title, facts, _tiles(report), list(_sections(report)), _details(report))


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


def _sections(report: Report) -> Iterator[Section]:
    """Yield the sections that are not empty."""
    if slow := slowest(report):
        yield Section("slowest", f"The slowest {len(slow)}", slowest_table(slow))
    html = libraries_table(report) + parts_table(report)
    yield Section("libraries", "Libraries", html)
    if report.batches:
        yield Section("batches", "Batches", batches_table(report))
    if report.kernels:
        yield Section("kernels", "Kernels", kernels_table(report))
    if report.assembly:
        yield Section("assembly", "Assembly kernels", assembly_table(report))
    if report.left_out is None:
        html = note("Not known: pass the manifest to qola report.")
    else:
        html = left_out_table(report.left_out)
    yield Section("left-out", "Left out: pruned and unreachable", html)
    if report.warnings:
        texts = "\n\n".join(report.warnings)
        yield Section("warnings", "Warnings", f"<pre>{escape(texts)}</pre>\n")


#: Heading and kind of cell by field; other fields are texts under their own names.
_FIELDS: Mapping[str, tuple[str, Callable[[Any], Cell]]] = {
    "agprs": ("# AGPRs", number_cell),
    "bytes": ("# bytes", bytes_cell),
    "code_bytes": ("# code", number_cell),
    "count": ("# kernel instances", number_cell),
    "file": ("library", text_cell),
    "hdim": ("hdim", hdim_cell),
    "instances": ("# instances", number_cell),
    "kernels": ("# kernels", number_cell),
    "key": ("code object", text_cell),
    "lds": ("# LDS", number_cell),
    "name": ("batch", text_cell),
    "scratch": ("# scratch", number_cell),
    "seconds": ("# seconds", seconds_cell),
    "sgpr_spills": ("# SGPR spills", spills_cell),
    "sgprs": ("# SGPRs", number_cell),
    "source": ("from", text_cell),
    "vgpr_spills": ("# VGPR spills", spills_cell),
    "vgprs": ("# VGPRs", number_cell),
    "waves": ("# waves", number_cell),
}


def _columns(*fields: str) -> Columns:
    named = {field: _FIELDS.get(field, (field, text_cell)) for field in fields}
    return {heading: cell_of(field, cell) for field, (heading, cell) in named.items()}


def libraries_table(report: Report) -> str:
    """Return the libraries and how much of them is device code."""
    columns = {
        **_columns("file", "bytes"),
        "# bytes of kernel instances": lambda library: bytes_cell(library.device_bytes),
        "# bytes of assembly kernels": lambda library: bytes_cell(library.assembly_bytes),
        **_columns("sha256"),
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
        "instances."
    )
    return table_html("parts-table", caption, parts, columns)


def batches_table(report: Report) -> str:
    """Return the batches, each compiled by one command."""
    columns = {
        **_columns("name", "direction", "role"),
        "archs": lambda batch: text_cell(", ".join(batch.archs)),
        **_columns("instances", "kernels"),
        "# code objects": lambda batch: bytes_cell(batch.bytes),
        **_columns("seconds", "source"),
    }
    caption = "The compiles: each a batch of kernel instances, or a single one."
    wide = ("batch",)
    return table_html("batches-table", caption, report.batches, columns, wide=wide, filtered=True)


def kernels_table(report: Report) -> str:
    """Return the kernels and their resources."""
    short = short_names(report.kernels)

    def name(kernel: Kernel) -> Cell:
        if kernel.name:
            return name_cell(short[kernel.name], kernel.name, f"batch {kernel.batch}")
        return Cell(f"one of {kernel.batch}", kernel.batch)

    columns = {
        "kernel instance": name,
        **_columns("direction", "role", "hdim", "dtype", "mode", "arch", "waves", "limit"),
        **_columns("vgpr_spills", "sgpr_spills", "scratch", "lds", "vgprs", "agprs", "sgprs"),
        **_columns("code_bytes", "seconds", "source"),
    }
    caption = (
        "A row for each kernel as a GPU launches it; click its name for the full one. Registers, "
        "spills, bytes of scratch and of LDS are from the metadata of the code object; waves are "
        "those that a SIMD can hold, and the limit is the resource that prevents more."
    )
    wide = ("kernel instance",)
    return table_html("kernels-table", caption, report.kernels, columns, wide=wide, filtered=True)


def assembly_table(report: Report) -> str:
    """Return AITER's assembly kernels."""
    columns = {
        **_columns("key", "arch", "bytes", "vgprs", "agprs", "sgprs"),
        "# LDS": lambda kernel: bytes_cell(kernel.lds),
        **_columns("waves", "limit", "library"),
    }
    caption = "AITER's hand-written kernels that the libraries embed."
    wide = ("code object",)
    return table_html("assembly-table", caption, report.assembly, columns, wide=wide, filtered=True)


def slowest_table(batches: Sequence[Batch]) -> str:
    """Return batches with their compile times, the longest first."""
    columns = _columns("name", "direction", "role", "instances", "source", "seconds")
    caption = "The longest compiles; for a result from a cache, the time to fetch it."
    return table_html("slowest-table", caption, batches, columns, wide=("batch",))


def left_out_table(left_out: Sequence[LeftOut]) -> str:
    """Return the number of kernel instances that each rule leaves out, unreachable ones first."""
    rows = sorted(left_out, key=lambda row: not row.rule.startswith("unreachable"))
    columns = _columns("module", "direction", "role", "rule", "count")
    total = sum(row.count for row in left_out)
    caption = f"{grouped(total)} kernel instances of the receipts in use are not in the plan."
    return table_html("left-out-table", caption, rows, columns, wide=("rule",), filtered=True)


#: Fields that have columns of their own in the table of kernels.
_COLUMNS = frozenset({"arch_tag", "dtype", "hdim_q", "hdim_v", "mode"})


def slowest(report: Report, count: int = 20) -> list[Batch]:
    """Return the batches with the longest compiles, the longest first."""
    timed = [batch for batch in report.batches if batch.seconds is not None]
    return sorted(timed, key=lambda batch: (-(batch.seconds or 0), batch.name))[:count]


def short_names(kernels: Iterable[Kernel]) -> dict[str, str]:
    """Return a short name for each kernel instance.

    It has the tile, and the other fields that distinguish it from kernel instances of the same
    direction, role, head dimensions, data type and mode. Flags that are not set are left out.
    """

    def role(kernel: Kernel) -> tuple[str, str]:
        return kernel.direction, kernel.role

    found: dict[str, str] = {}
    for (_, name), rows in groupby(sorted(kernels, key=role), role):
        named = {kernel.name: kernel for kernel in rows if kernel.name}
        texts = {kernel.name: _texts(kernel) for kernel in named.values()}
        columns = {k.name: (k.hdim, k.dtype, k.mode) for k in named.values()}
        kept = _distinguishing(texts, columns)
        found |= {k: " ".join(filter(None, map(w.get, kept))) or name for k, w in texts.items()}
    return found


def _texts(kernel: Kernel) -> dict[str, str]:
    """Return a text for each field, the tile first; "" for a flag that is not set."""
    shape, _, warps = str(kernel.fields.get("tile", "")).partition("_")
    texts = {"tile": shape, "warps": warps}
    for field, value in sorted(kernel.fields.items()):
        if field in _COLUMNS or field == "tile":
            continue
        if value is True:
            texts[field] = field
        elif value in (False, None, "no"):
            texts[field] = ""
        else:
            texts[field] = value if isinstance(value, str) else f"{field}={value}"
    return texts


def _distinguishing(
    texts: Mapping[str, Mapping[str, str]], columns: Mapping[str, tuple[str, ...]]
) -> list[str]:
    """Return fields that distinguish all names, after removing redundant ones greedily."""
    fields = list(dict.fromkeys(field for own in texts.values() for field in own))

    def count(some: Iterable[str]) -> int:
        some = list(some)
        return len({(columns[n], *(own.get(f, "") for f in some)) for n, own in texts.items()})

    kept, most = fields, count(fields)
    for field in reversed(fields[1:]):
        fewer = [other for other in kept if other != field]
        if count(fewer) == most:
            kept = fewer
    return kept
