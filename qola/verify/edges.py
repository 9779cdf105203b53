"""Lengths and head dimensions near the edges of tiles."""

from __future__ import annotations

from collections.abc import Mapping

from qola.codegen.types import FieldValue

#: Heads of Q, and of K and V: few, so that problems can be long.
HEADS = ((1, 1), (2, 1), (4, 2), (3, 3), (6, 2), (5, 1))
#: Those of models. Kernels divide the number of a head of Q, and a wrong quotient may be right for
#: the first heads.
MODEL_HEADS = ((8, 8), (16, 8), (24, 8), (64, 8))
#: Of problems, each third one has as many heads as models have.
_MANY_HEADS = 3

Fields = Mapping[str, FieldValue]
"""Of a kernel instance, as a plan has them."""


def has_many_heads(number: int) -> bool:
    """Return whether a kernel's problem of this number has the head counts of models."""
    return number % _MANY_HEADS == _MANY_HEADS - 1


def tile_of(fields: Fields) -> tuple[int, int]:
    """Return rows of Q and columns of K that a kernel takes at once, as its tile's name begins."""
    sizes = str(fields.get("tile", "")).split("_")[0].removeprefix("b").split("x")
    rows, columns = ([int(size) for size in sizes if size.strip("0").isdigit()] + [64, 64])[:2]
    return rows, columns


def lengths(tile: int) -> tuple[int, ...]:
    """Return lengths at and near the edges of tiles, and a few others."""
    at = (
        tile,
        tile + 1,
        2 * tile,
        tile - 1,
        1,
        2 * tile + 7,
        4 * tile,
        tile // 2 + 3,
        3 * tile - 1,
    )
    return tuple(length for length in at if length > 0)


def head_dims(bucket: int) -> tuple[int, ...]:
    """Return head dimensions that go to a bucket, itself first."""
    less = (bucket, bucket - 8, bucket - 16, bucket - 4, bucket - 1, bucket // 2 + 8, bucket // 2)
    return tuple(size for size in less if size > 0)
