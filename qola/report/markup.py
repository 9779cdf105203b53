"""Renders a page that loads no files, with tables of numbers, bytes, seconds and names."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from qola_base.errors import visible


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        value: the key for sorting; "" if it is unknown.
        html: replaces the text if it is not empty.
    """

    text: str
    value: float | str = ""
    html: str = ""


#: Functions from the item of a row to a cell, by heading; headings of numbers start with ``# ``.
Columns = Mapping[str, Callable[[Any], Cell]]


def table_html(
    id: str,
    caption: str,
    items: Sequence[Any],
    columns: Columns,
    *,
    wide: tuple[str, ...] = (),
    filtered: bool = False,
) -> str:
    """Return a table with a row for each item. Columns without any text are left out.

    On narrow screens a row is a card: page.css takes the names of its values from the style.

    Args:
        wide: the columns with long names.
        filtered: whether a search field is above the table.
    """
    rows = [[cell(item) for cell in columns.values()] for item in items]
    kept = [n for n in range(len(columns)) if not rows or any(row[n].text for row in rows)]
    headings = [[*columns][number] for number in kept]
    names = [heading.removeprefix("# ") for heading in headings]
    classes = [
        "number" if heading.startswith("# ") else "name" if heading in wide else ""
        for heading in headings
    ]
    tags = [f' class="{name}"' if name else "" for name in classes]
    head = "".join(
        f'<th scope="col"{tag}><button type="button">{escape(name)}</button></th>'
        for name, tag in zip(names, tags, strict=True)
    )
    body = "\n".join(f"<tr>{_row([row[n] for n in kept], tags)}</tr>" for row in rows)
    labels = ";".join(f"--c{number}:'{name}'" for number, name in enumerate(names))
    html = f'<div class="wide"><table id="{id}" style="{escape(labels)}">'
    html += f"<caption>{escape(caption)}</caption>"
    html += f"<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>\n"
    if not filtered:
        return html
    count = len(rows)
    field = f'<input type="search" data-table="{id}" autocomplete="off">'
    button = '<button type="button" hidden>Show all</button>'
    label = f"<label>Rows with these words: {field}</label>"
    return f'<p class="filter">{label} <output>{count} of {count}</output> {button}</p>\n{html}'


def _row(row: Sequence[Cell], tags: Sequence[str]) -> str:
    cells = []
    for number, (cell, tag) in enumerate(zip(row, tags, strict=True)):
        value = str(cell.value)
        data = "" if value == cell.text else f' data-value="{escape(value)}"'
        html = cell.html or escape(cell.text)
        cells.append(
            f'<th scope="row"{tag}{data}>{html}</th>'
            if number == 0
            else f"<td{tag}{data}>{html}</td>"
        )
    return "".join(cells)


def cell_of(field: str, cell: Callable[[Any], Cell]) -> Callable[[Any], Cell]:
    """Return the function that shows an attribute of a row's item as a cell."""
    get = attrgetter(field)
    return lambda item: cell(get(item))


def text_cell(text: str) -> Cell:
    """Return a text, which is also its sorting key."""
    return Cell(text, text)


def hdim_cell(hdim: str) -> Cell:
    """Return head dimensions: 128 if those of Q and V are equal, otherwise 192x128."""
    q, _, v = hdim.partition("x")
    return Cell(q if q == v else hdim, hdim)


def name_cell(short: str, name: str, more: str = "") -> Cell:
    """Return a short name that unfolds to the full name and more about it."""
    full = "".join(f"<span>{escape(text)}</span>" for text in (name, more) if text)
    html = f"<details><summary>{escape(short)}</summary>{full}</details>"
    return Cell(short, short, html)


def folded_cell(texts: Sequence[str], *, warning: bool = False) -> Cell:
    """Return the first text, which unfolds to the others, each once and on its own line."""
    first, *others = dict.fromkeys(texts) or [""]
    head = f'<span class="warning">{escape(first)}</span>' if warning else escape(first)
    if not others:
        return Cell(first, first, head)
    more = f"{grouped(len(others))} more"
    lines = "".join(f"<span>{escape(text)}</span>" for text in others)
    html = f"{head}<details><summary>{more}</summary>{lines}</details>"
    return Cell(f"{first} {more}", first, html)


def number_cell(number: float | None) -> Cell:
    """Return a cell with a number, empty for None."""
    if number is None:
        return Cell("")
    return Cell(grouped(number), number)


def grouped(number: float) -> str:
    """Return a number with narrow blanks between thousands."""
    text = f"{number:,.1f}" if isinstance(number, float) else f"{number:,}"
    return text.replace(",", "\u202f").replace("-", "\u2212")


def spills_cell(count: int) -> Cell:
    """Return a cell with a number, highlighted unless it is 0."""
    return warning_cell(grouped(count), count) if count else Cell("0", 0)


def warning_cell(text: str, value: float | str = "") -> Cell:
    """Return a highlighted text."""
    html = f'<span class="warning">{escape(text)}</span>'
    return Cell(text, text if value == "" else value, html)


def seconds_cell(seconds: float | None) -> Cell:
    """Return a time, an empty cell for None."""
    if seconds is None:
        return Cell("")
    return Cell(f"{grouped(round(seconds, 1))} s", round(seconds, 3))


def share_cell(share: float) -> Cell:
    """Return a share in percent."""
    return Cell(f"{100 * share:.1f} %", round(share, 4))


def bytes_cell(count: int) -> Cell:
    """Return bytes in powers of ten: 850 B, 1.4 MB."""
    size, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return Cell(f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}", count)


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
<header>
<h1>{title}</h1>
<p>{facts}</p>
{details}
{nav}
</header>
<main>
{tiles}
{body}
</main>
<script>{js}</script>
</body>
</html>
"""


class Section(NamedTuple):
    """A section of the page.

    Attributes:
        id: anchor for links.
        html: content below the title.
    """

    id: str
    title: str
    html: str


def document(
    title: str,
    facts: Iterable[str],
    tiles: Iterable[tuple[str, str]],
    sections: Sequence[Section],
    details: Iterable[tuple[str, str]] = (),
) -> str:
    """Return a page.

    Args:
        facts: texts below the title; empty ones are left out.
        tiles: names and texts of the figures at the top.
        details: names and HTML below the facts; those without HTML are left out.
    """
    js = (_HERE / "page.js").read_text(encoding="utf-8")
    rows = [f"<dt>{escape(name)}</dt><dd>{html}</dd>" for name, html in details if html]
    links = (f'<li><a href="#{part.id}">{escape(part.title)}</a></li>' for part in sections)
    cells = (f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in tiles)
    body = (
        f'<section aria-labelledby="{part.id}"><h2 id="{part.id}">{escape(part.title)}</h2>\n'
        f"{part.html}</section>"
        for part in sections
    )
    page = _PAGE.format(
        body="\n".join(body),
        css=(_HERE / "page.css").read_text(encoding="utf-8"),
        details=f'<dl class="details">{"".join(rows)}</dl>' if rows else "",
        digest=base64.b64encode(hashlib.sha256(js.encode("utf-8")).digest()).decode("ascii"),
        facts=escape(" · ".join(filter(None, facts))),
        js=js,
        nav=f'<nav aria-label="Parts of this page"><ul>{"".join(links)}</ul></nav>',
        tiles=f'<dl class="tiles">{"".join(cells)}</dl>',
        title=escape(title),
    )
    # Escaped text of files and logs may still have control characters.
    return visible(page, keep="\n\t")


def note(text: str) -> str:
    """Return a paragraph from HTML."""
    return f'<p class="note">{text}</p>\n'
