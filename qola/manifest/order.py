"""``[order]``: which kernels serve a problem that several could."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeGuard

from qola.manifest.field_types import Field, Kind, Table

KINDS = ("assembly", "composable_kernel", "triton")
"""As qola_order.hpp has them, in the order where nobody says another."""

ORDER = Table(
    "order",
    "Which kernels come first where several serve a problem, for programs that ask qola_order.hpp "
    "(docs/guide/triton.md). Kinds that are left out serve nothing.",
    repeated=False,
    fields=tuple(
        Field(
            direction,
            Kind.TEXT_LIST,
            f"kinds of kernels for {direction}, the first one first",
            ", ".join(KINDS),
            allowed=KINDS,
            example='["triton", "assembly", "composable_kernel"]',
        )
        for direction in ("forward", "backward")
    ),
)


def idle(order: Mapping[str, Any], *absent: Table) -> tuple[str, str, str] | None:
    """Return what is found and expected, and a fix, where an order has no two kinds to order."""
    if not order or not absent:
        return None
    headers = " and ".join(table.header for table in absent)
    found, expected = f"[order] without {headers}", "libraries and kernels in Triton to choose from"
    return found, expected, f"add {headers}, or remove [order]"


@dataclass(frozen=True)
class OrderSpec:
    """The ``[order]`` table; () for the usual order."""

    forward: tuple[str, ...] = ()
    backward: tuple[str, ...] = ()

    @staticmethod
    def of(table: Mapping[str, Any]) -> OrderSpec:
        """Return what the table's values, known to be valid, mean."""
        return OrderSpec(**{key: tuple(dict.fromkeys(value)) for key, value in table.items()})

    @staticmethod
    def read(data: object) -> OrderSpec:
        """Return what the canonical form says; what is no kind in it says nothing."""
        table = data if isinstance(data, dict) else {}
        lists = {key: table.get(key) for key in ORDER.by_key}
        known = {key: [*filter(KINDS.__contains__, v)] for key, v in lists.items() if _is_list(v)}
        return OrderSpec.of(known)

    def to_dict(self) -> dict[str, Any]:
        """Return the canonical form, without what is not said."""
        return {key: list(value) for key, value in asdict(self).items() if value}


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)
