"""The frame of an HTML page that loads no files and uses no network."""

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
    return _PAGE.format(
        body="\n".join(map(_section_html, sections)),
        css=(_HERE / "page.css").read_text(encoding="utf-8"),
        details=_details_html(details),
        digest=base64.b64encode(hashlib.sha256(js.encode("utf-8")).digest()).decode("ascii"),
        facts=escape(" · ".join(filter(None, facts))),
        js=js,
        nav=_nav(sections),
        tiles=_tiles_html(tiles),
        title=escape(title),
    )


def note(text: str) -> str:
    """Return a paragraph from HTML."""
    return f'<p class="note">{text}</p>\n'


def _section_html(section: Section) -> str:
    head = f'<h2 id="{section.id}">{escape(section.title)}</h2>'
    return f'<section aria-labelledby="{section.id}">{head}\n{section.html}</section>'


def _details_html(details: Iterable[tuple[str, str]]) -> str:
    rows = [f"<dt>{escape(name)}</dt><dd>{value}</dd>" for name, value in details if value]
    return f'<dl class="details">{"".join(rows)}</dl>' if rows else ""


def _nav(sections: Iterable[Section]) -> str:
    items = (
        f'<li><a href="#{section.id}">{escape(section.title)}</a></li>' for section in sections
    )
    return f'<nav aria-label="Parts of this page"><ul>{"".join(items)}</ul></nav>'


def _tiles_html(tiles: Iterable[tuple[str, str]]) -> str:
    cells = (f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in tiles)
    return f'<dl class="tiles">{"".join(cells)}</dl>'
