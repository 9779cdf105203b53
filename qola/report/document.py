"""A page's frame: one text of HTML that needs nothing else, neither files nor a network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

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
    """A part of a page.

    Attributes:
        id: what links lead to.
        html: what is below the title.
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
        facts: what stands below the title; empty ones are left out.
        tiles: figures that are seen first: what each is, and its text.
        details: names and values as HTML, for below the facts; those without a value are left out.
    """
    js = (_HERE / "page.js").read_text(encoding="utf-8")
    return _PAGE.format(
        body="\n".join(map(_section, sections)),
        css=(_HERE / "page.css").read_text(encoding="utf-8"),
        details=_details(details),
        digest=base64.b64encode(hashlib.sha256(js.encode("utf-8")).digest()).decode("ascii"),
        facts=escape(" · ".join(filter(None, facts))),
        js=js,
        nav=_nav(sections),
        tiles=_tiles(tiles),
        title=escape(title),
    )


def note(text: str) -> str:
    """Return a paragraph beside tables; the text is HTML."""
    return f'<p class="note">{text}</p>\n'


def _section(of: Section) -> str:
    head = f'<h2 id="{of.id}">{escape(of.title)}</h2>'
    return f'<section aria-labelledby="{of.id}">{head}\n{of.html}</section>'


def _details(details: Iterable[tuple[str, str]]) -> str:
    rows = [f"<dt>{escape(name)}</dt><dd>{value}</dd>" for name, value in details if value]
    return f'<dl class="details">{"".join(rows)}</dl>' if rows else ""


def _nav(sections: Iterable[Section]) -> str:
    items = (f'<li><a href="#{of.id}">{escape(of.title)}</a></li>' for of in sections)
    return f'<nav aria-label="Parts of this page"><ul>{"".join(items)}</ul></nav>'


def _tiles(tiles: Iterable[tuple[str, str]]) -> str:
    cells = (f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in tiles)
    return f'<dl class="tiles">{"".join(cells)}</dl>'
