"""Makes a table of what `qola compat --json` says of several AITERs.

Run as ``python -m tools.docs.compat_table NAME=FILE...``, with the reports as files. The trees are
not at hand where documentation is tested, so the table is put into its page by hand.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_ORDER = ("ok", "degraded", "broken")
#: Directions of Composable Kernel whose checks belong to a library, which is built with it.
_DIRECTIONS = {"libmha_fwd": ("fwd", "fwd_splitkv", "batch_prefill"), "libmha_bwd": ("bwd",)}


def table(reports: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table: a row for each library that the AITERs may be built as."""
    rows = ["| AITER | Library | Archs | | Broken |", "| --- | --- | --- | --- | --- |"]
    for name, report in reports.items():
        rows += [f"| {name} | {' | '.join(cells)} |" for cells in _libraries(report["checks"])]
    return "\n".join(rows) + "\n"


def _libraries(checks: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    made = [check for check in checks if check["check"] == "generated"]
    for library in made:
        if any(f["found"].startswith("no Composable Kernel") for f in library["findings"]):
            yield library["of"], "", "not checked: no Composable Kernel", ""
            continue
        names = (library["of"], *_DIRECTIONS.get(library["of"], ()))
        own = [check for check in checks if check["of"] in names]
        worst = max((check["status"] for check in own), key=_ORDER.index)
        broken = ", ".join(f"`{check['check']}`" for check in own if check["status"] == "broken")
        archs = ", ".join(library["facts"].get("archs", ()))
        yield library["of"].replace("CK", "Composable Kernel"), archs, worst, broken
    if not made:
        yield "none", "", "broken", "`tree`"


if __name__ == "__main__":
    named = (word.partition("=") for word in sys.argv[1:])
    print(table({n: json.loads(Path(file).read_text("utf-8")) for n, _, file in named}), end="")
