"""Which entries of a dispatch no problem can reach.

A dispatch asks the arch, then the dtype, then one head-dim bucket after the other with `else if`:
a bucket behind one that takes all of its problems is never entered. Found from the conditions of
the dispatch as CK writes it.
"""

from __future__ import annotations

from collections.abc import Iterable

from qola.codegen.ck.hazards import Bucket, DispatchRow


def unreachable(rows: Iterable[DispatchRow]) -> dict[str, Bucket]:
    """Return the entries that are never asked, each with the bucket that takes its problems.

    Args:
        rows: those that a dispatch is written of, in its order.

    Returns:
        By the row's key, (hdim_q, hdim_v) of the bucket in front.
    """
    seen: dict[tuple[str, str], dict[Bucket, Bucket | None]] = {}
    found: dict[str, Bucket] = {}
    for row in rows:
        chain = seen.setdefault((row.arch, row.dtype), {})
        if row.bucket not in chain:
            q, v = row.bucket
            chain[row.bucket] = next((b for b in chain if q <= b[0] and v <= b[1]), None)
        front = chain[row.bucket]
        if front is not None:
            found[row.key] = front
    return found
