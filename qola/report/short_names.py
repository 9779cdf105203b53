"""Abbreviates names of kernel instances to the fields that tell them apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

from qola.report.data import Kernel

#: What other columns of the table show.
_COLUMNS = frozenset({"arch", "dtype", "hdim_q", "hdim_v", "mode"})

_Words = Mapping[str, str]


def short_names(kernels: Iterable[Kernel]) -> dict[str, str]:
    """Return a short name for each kernel instance.

    It has the tile, and as many other fields as distinguish it from the kernel instances of the
    same direction, role, head dimensions, data type and mode. A flag that is not set has no word.
    """

    def role(kernel: Kernel) -> tuple[str, str]:
        return kernel.direction, kernel.role

    found: dict[str, str] = {}
    for (_, name), rows in groupby(sorted(kernels, key=role), role):
        named = {kernel.name: kernel for kernel in rows if kernel.name}
        words = {kernel.name: _words(kernel) for kernel in named.values()}
        columns = {k.name: (k.hdim, k.dtype, k.mode) for k in named.values()}
        kept = _distinguishing(words, columns)
        found |= {of: " ".join(filter(None, map(w.get, kept))) or name for of, w in words.items()}
    return found


def _words(kernel: Kernel) -> dict[str, str]:
    """Return a word for each field, the tile's first; "" for a flag that is not set."""
    shape, _, warps = str(kernel.fields.get("tile", "")).partition("_")
    words = {"tile": shape, "warps": warps}
    for field, value in sorted(kernel.fields.items()):
        if field in _COLUMNS or field == "tile":
            continue
        if value is True:
            words[field] = field
        elif value in (False, None, "no"):
            words[field] = ""
        else:
            words[field] = value if isinstance(value, str) else f"{field}={value}"
    return words


def _distinguishing(
    words: Mapping[str, _Words], columns: Mapping[str, tuple[str, ...]]
) -> list[str]:
    """Return the fewest fields found by leaving out one after the other, the tile last."""
    fields = list(dict.fromkeys(field for own in words.values() for field in own))

    def count(some: Iterable[str]) -> int:
        some = list(some)
        return len({(columns[n], *(own.get(f, "") for f in some)) for n, own in words.items()})

    kept, most = fields, count(fields)
    for field in reversed(fields[1:]):
        fewer = [other for other in kept if other != field]
        if count(fewer) == most:
            kept = fewer
    return kept
