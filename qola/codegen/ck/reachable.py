"""Which entries of a dispatch are unreachable.

A dispatch asks the arch, then the dtype, then one head-dim bucket after the other with `else if`:
a bucket behind one that takes all of its problems is never entered. That it does so is checked
on the dispatch itself; nothing is called unreachable in one of another form.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from qola.codegen.ck.hazards import Bucket, DispatchRow
from qola.codegen.ck.link import without_comments

#: The head of a bucket: whether `else` stands before it, and its condition.
_HEAD = re.compile(r"(\belse\s+)?\bif\s*\(([^{};]*\bt\.hdim_q\s*<=[^{};]*)\)\s*\{")


def unreachable(rows: Sequence[DispatchRow]) -> dict[str, Bucket]:
    """Return the unreachable rows of a dispatch whose buckets are a chain.

    Args:
        rows: those that it is written of, in its order.

    Returns:
        By the row's key, (hdim_q, hdim_v) of the bucket in front that takes its problems.
    """
    chains: dict[tuple[str, str], dict[Bucket, Bucket | None]] = {}
    found: dict[str, Bucket] = {}
    for row in rows:
        chain = chains.setdefault((row.arch, row.dtype), {})
        if row.bucket not in chain:
            q, v = row.bucket
            chain[row.bucket] = next((b for b in chain if q <= b[0] and v <= b[1]), None)
        front = chain[row.bucket]
        if front is not None:
            found[row.key] = front
    return found


def is_chain(dispatch: str, rows: Sequence[DispatchRow]) -> bool:
    """Whether a dispatch asks the buckets of its rows by size alone, the next by `else if`.

    Args:
        dispatch: its text.
        rows: those that it is written of, in its order.
    """
    buckets: dict[tuple[str, str], dict[Bucket, None]] = {}
    for row in rows:
        buckets.setdefault((row.arch, row.dtype), {})[row.bucket] = None
    expected = [
        (number > 0, f"t.hdim_q<={q}&&t.hdim_v<={v}")
        for chain in buckets.values()
        for number, (q, v) in enumerate(chain)
    ]
    heads = _HEAD.findall(without_comments(dispatch))
    return expected == [(bool(other), re.sub(r"\s", "", asked)) for other, asked in heads]
