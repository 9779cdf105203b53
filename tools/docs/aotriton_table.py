"""AOTriton's releases against PyTorch's, the table of docs/guide/triton.md, from aotriton.json."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from typing import Any

DATA = Path(__file__).with_name("aotriton.json")
_WIDTH = 120
_BEGIN, _END = "<!-- aotriton releases -->", "<!-- end -->"


def table(data: Mapping[str, Any]) -> str:
    """Return the table, newest PyTorch first, and where it is from."""
    rows = ["| PyTorch | AOTriton | of ROCm's PyTorch | |", "| --- | --- | --- | --- |"]
    for row in reversed(data["pytorch"]):
        cells = (", ".join(row["upstream"]), ", ".join(row["rocm"]), row.get("note", ""))
        rows.append(f"| {row['version']} | {' | '.join(cells)} |")
    rows += ["", "| AOTriton | Commit | Of |", "| --- | --- | --- |"]
    for name, one in data["releases"].items():
        link = f"[{one['commit'][:12]}](https://github.com/ROCm/aotriton/tree/{one['commit']})"
        rows.append(f"| {name} | {link} | {one['day']} |")
    sources = fill(f"From {'; '.join(data['sources'].values())}.", _WIDTH)
    return "\n".join([*rows, "", sources])


def update(page: str) -> str:
    """Return the page with the table renewed.

    Raises:
        ValueError: the page has no place for it, or several.
    """
    text = f"{_BEGIN}\n{table(json.loads(DATA.read_text(encoding='utf-8')))}\n{_END}"
    pattern = re.escape(_BEGIN) + r"(?s:.*?)" + re.escape(_END)
    page, times = re.subn(pattern, lambda _: text, page)
    if times != 1:
        raise ValueError(f"{_BEGIN} stands {times} times on the page, not once")
    return page
