"""Tables of a page as HTML, and how numbers, bytes and seconds are shown in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        value: what sorting compares; "" for what is not known.
        html: instead of the text, where it is more than that.
    """

    text: str
    value: float | str = ""
    html: str = ""


@dataclass(frozen=True)
class Table:
    """A table of the page.

    Attributes:
        columns: names; of those with ``#`` in front, cells are numbers.
        wide: columns whose cells are long names.
        filtered: whether a field above it finds rows.
    """

    id: str
    caption: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]
    wide: tuple[str, ...] = ()
    filtered: bool = False


def to_html(table: Table) -> str:
    """Return a table, perhaps with a field that finds rows; columns without any text are left out.

    On narrow screens a row is a card: page.css takes the names of its values from the style.
    """
    table = _without_empty_columns(table)
    numbers = [column.startswith("# ") for column in table.columns]
    names = [column.removeprefix("# ") for column in table.columns]
    classes = [
        "number" if number else "name" if name in table.wide else ""
        for number, name in zip(numbers, names, strict=True)
    ]
    tags = [f' class="{name}"' if name else "" for name in classes]
    head = "".join(
        f'<th scope="col"{tag}><button type="button">{escape(name)}</button></th>'
        for name, tag in zip(names, tags, strict=True)
    )
    body = "\n".join(f"<tr>{_row(row, tags)}</tr>" for row in table.rows)
    labels = ";".join(f"--c{number}:'{name}'" for number, name in enumerate(names))
    found = f'<div class="wide"><table id="{table.id}" style="{escape(labels)}">'
    found += f"<caption>{escape(table.caption)}</caption>"
    found += f"<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>\n"
    if not table.filtered:
        return found
    count = len(table.rows)
    field = f'<input type="search" data-table="{table.id}" autocomplete="off">'
    button = '<button type="button" hidden>Show all</button>'
    label = f"<label>Rows with these words: {field}</label>"
    return f'<p class="filter">{label} <output>{count} of {count}</output> {button}</p>\n{found}'


def _without_empty_columns(table: Table) -> Table:
    kept = [
        number
        for number in range(len(table.columns))
        if not table.rows or any(row[number].text for row in table.rows)
    ]
    return replace(
        table,
        columns=tuple(table.columns[number] for number in kept),
        rows=[[row[number] for number in kept] for row in table.rows],
    )


def _row(row: Sequence[Cell], tags: Sequence[str]) -> str:
    cells = []
    for number, (cell, tag) in enumerate(zip(row, tags, strict=True)):
        value = str(cell.value)
        told = "" if value == cell.text else f' data-value="{escape(value)}"'
        html = cell.html or escape(cell.text)
        cells.append(
            f'<th scope="row"{tag}{told}>{html}</th>'
            if number == 0
            else f"<td{tag}{told}>{html}</td>"
        )
    return "".join(cells)


def text_cell(text: str) -> Cell:
    """Return a text, by which it is sorted too."""
    return Cell(text, text)


def hdim_cell(hdim: str) -> Cell:
    """Return head dimensions: 128 for those of Q and V alike, 192x128."""
    q, _, v = hdim.partition("x")
    return Cell(q if q == v else hdim, hdim)


def name_cell(short: str, name: str, more: str = "") -> Cell:
    """Return a short name that unfolds to the whole one and more about it."""
    whole = "".join(f"<span>{escape(text)}</span>" for text in (name, more) if text)
    html = f"<details><summary>{escape(short)}</summary>{whole}</details>"
    return Cell(short, short, html)


def number_cell(number: float | None, *, signed: bool = False) -> Cell:
    """Return a number, nothing for None."""
    if number is None:
        return Cell("")
    plus = "+" if signed and number > 0 else ""
    return Cell(plus + grouped(number), number)


def grouped(number: float) -> str:
    """Return a number with narrow blanks between thousands."""
    text = f"{number:,.1f}" if isinstance(number, float) else f"{number:,}"
    return text.replace(",", "\u202f").replace("-", "\u2212")


def spills_cell(count: int) -> Cell:
    """Return a number that stands out where it is not 0."""
    return warning_cell(grouped(count), count) if count else Cell("0", 0)


def warning_cell(text: str, value: float | str = "") -> Cell:
    """Return a text that stands out."""
    return Cell(
        text, value if value != "" else text, f'<span class="warning">{escape(text)}</span>'
    )


def seconds_cell(seconds: float | None) -> Cell:
    """Return a time, nothing for None."""
    if seconds is None:
        return Cell("")
    return Cell(f"{grouped(round(seconds, 1))} s", round(seconds, 3))


def bar_cell(seconds: float, longest: float) -> Cell:
    """Return a time with a bar as long as its share of the longest."""
    return _with_bar(seconds_cell(seconds), seconds / longest if longest else 0)


def share_cell(share: float) -> Cell:
    """Return a share in percent with a bar."""
    return _with_bar(Cell(f"{100 * share:.1f} %", round(share, 4)), share)


def _with_bar(cell: Cell, share: float) -> Cell:
    bar = f'<span class="bar" style="width:{round(100 * share, 1)}%"></span>'
    return Cell(cell.text, cell.value, f"{escape(cell.text)}{bar}")


def bytes_cell(count: int) -> Cell:
    """Return bytes in powers of ten: 850 B, 1.4 MB."""
    size, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return Cell(f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}", count)
