"""The page of a report: one text of HTML that needs nothing else, neither files nor a network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

from qola.report import tables
from qola.report.compare import Comparison
from qola.report.data import Report
from qola.report.markup import bytes_cell, grouped, seconds_cell, to_html
from qola.report.sums import slowest

_HERE = Path(__file__).parent

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" \
content="default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'">
<title>{title}</title>
<style>
{css}</style>
</head>
<body>
{body}
<script>{js}</script>
</body>
</html>
"""


def render(report: Report, compared: Comparison | None = None) -> str:
    """Return the page of a report, perhaps compared with an earlier one."""
    js = (_HERE / "page.js").read_text(encoding="utf-8")
    sections = list(_sections(report, compared))
    body = [_header(report), _nav(sections), _tiles(report)]
    body += [
        f'<section aria-labelledby="{name}"><h2 id="{name}">{escape(title)}</h2>\n{html}</section>'
        for name, title, html in sections
    ]
    return _PAGE.format(
        body="\n".join(["<header>", *body[:2], "</header>", "<main>", *body[2:], "</main>"]),
        css=(_HERE / "page.css").read_text(encoding="utf-8"),
        digest=base64.b64encode(hashlib.sha256(js.encode("utf-8")).digest()).decode("ascii"),
        js=js,
        title=escape(_title(report)),
    )


def _title(report: Report) -> str:
    return f"Build of {report.name or ', '.join(library.file for library in report.libraries)}"


def _header(report: Report) -> str:
    aiter = f"AITER {report.aiter}" if report.aiter else ""
    facts = [", ".join(report.archs), aiter, f"qola {report.qola}"]
    return f"<h1>{escape(_title(report))}</h1>\n<p>{escape(' · '.join(filter(None, facts)))}</p>"


def _nav(sections: Iterable[tuple[str, str, str]]) -> str:
    items = (f'<li><a href="#{name}">{escape(title)}</a></li>' for name, title, _ in sections)
    return f'<nav aria-label="Parts of this page"><ul>{"".join(items)}</ul></nav>'


def _tiles(report: Report) -> str:
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
    tiles += [
        ("Libraries", bytes_cell(sum(library.bytes for library in report.libraries)).text),
        ("Kernels that spill", grouped(spilling)),
    ]
    cells = (f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>" for name, text in tiles)
    return f'<dl class="tiles">{"".join(cells)}</dl>'


def _sections(report: Report, compared: Comparison | None) -> Iterator[tuple[str, str, str]]:
    """Yield id, title and content of each part that has something to say."""
    if compared:
        told = "".join(map(to_html, tables.comparison_tables(compared)))
        if not compared.changes:
            told += _note("Kernels that both builds have take the same in both.")
        yield "compared", f"Compared with {compared.name or 'the other build'}", told
    if report.kernels:
        title = "Kernels by direction, head dimension and role"
        yield "groups", title, to_html(tables.groups_table(report))
    if slow := slowest(report):
        yield "slowest", f"The slowest {len(slow)}", to_html(tables.slowest_table(slow))
    yield "libraries", "Libraries", to_html(tables.libraries_table(report))
    if report.batches:
        yield "batches", "Batches", to_html(tables.batches_table(report))
    if report.kernels:
        yield "kernels", "Kernels", to_html(tables.kernels_table(report))
    if report.assembly:
        yield "assembly", "Assembly kernels", to_html(tables.assembly_table(report))
    if report.left_out is None:
        told = _note("Not known: qola report finds it out where it is given the manifest.")
    else:
        told = to_html(tables.left_out_table(report.left_out))
    yield "left-out", "Left out: pruned and unreachable", told
    if report.warnings:
        texts = "\n\n".join(report.warnings)
        yield "warnings", "Warnings", f"<pre>{escape(texts)}</pre>\n"


def _note(text: str) -> str:
    return f'<p class="note">{text}</p>\n'
