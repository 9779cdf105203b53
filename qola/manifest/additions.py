"""Directions of Composable Kernel that a manifest adds to a module: which module may have which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

MODULE = "libmha_fwd"
"""The module whose library can have them."""


def wrong_additions(module: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield what was found, what is expected and a fix for each error of ``add_directions``.

    Args:
        module: the valid values of a ``[[modules]]`` table.
    """
    added = tuple(dict.fromkeys(module.get("add_directions", ())))
    name = module.get("name", MODULE)
    if added and name != MODULE:
        yield (
            f"{', '.join(added)} added to {name}",
            f"directions of {MODULE} alone: no function of another module could call them",
            f"move add_directions to the [[modules]] table of {MODULE}",
        )
    if both := [one for one in added if one in module.get("drop_directions", ())]:
        yield (
            f"{', '.join(both)}, which drop_directions leaves out",
            "a direction in one of the two",
            f"take {', '.join(both)} out of add_directions or of drop_directions",
        )
