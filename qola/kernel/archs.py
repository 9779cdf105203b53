"""Data types, pipelines, tiles and matrix instructions of Composable Kernel for each arch.

qola_lab.fmha.observe generates archs.json from the pinned tree.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from qola.kernel.config import ConfigError, KernelConfig, Tile, Triple
from qola_base.errors import Finding
from qola_base.json_types import WrongValueError, parse_json, reader

FILE = Path(__file__).with_name("archs.json")


@dataclass(frozen=True)
class Offer:
    """The kernels of a family for one data type on one arch.

    Attributes:
        hdims: values of hdim_q.
        tiles: in CK's notation.
        pipelines: () if the family has no pipelines.
        trload: whether some use transposing loads.
    """

    family: str
    arch: str | None
    dtype: str
    hdims: tuple[int, ...]
    tiles: tuple[str, ...]
    pipelines: tuple[str, ...]
    trload: bool

    @property
    def warps(self) -> set[Triple]:
        """The (m, n, k) of the matrix instructions."""
        return {warps for tile in map(Tile.parse, self.tiles) if tile for warps in tile.warps}


@dataclass(frozen=True)
class Archs:
    """The kernels of all archs."""

    offers: tuple[Offer, ...]

    def select(self, family: str, arch: str | None) -> list[Offer]:
        """Return the offers of a family for an arch."""
        return [offer for offer in self.offers if (offer.family, offer.arch) == (family, arch)]

    def to_json(self) -> str:
        """Return JSON with one offer per line."""
        offers = ",\n  ".join(json.dumps(vars(offer), sort_keys=True) for offer in self.offers)
        return f'{{\n"offers": [\n  {offers}\n]\n}}\n'

    @staticmethod
    def from_json(text: str) -> Archs:
        """Read the text that `to_json` wrote; raise ConfigError if it has another form."""
        try:
            archs: Archs = reader(Archs)(parse_json(text))
            for tile in (tile for offer in archs.offers for tile in offer.tiles):
                if Tile.parse(tile) is None:
                    raise WrongValueError(f".offers.tiles: {tile!r:.80}, expected a tile")
        except WrongValueError as error:
            found = str(error).removeprefix(": ")
            raise ConfigError(Finding("archs", found, "the output of Archs.to_json")) from None
        return archs

    @staticmethod
    def observed(configs: Iterable[KernelConfig]) -> Archs:
        """Collect the kernels of CK by family, arch and data type."""
        groups: dict[tuple[str, str, str], list[KernelConfig]] = {}
        for config in configs:
            groups.setdefault((config.family, config.arch or "", config.dtype), []).append(config)
        return Archs(
            tuple(
                _offer(family, arch, dtype, group)
                for (family, arch, dtype), group in sorted(groups.items())
            )
        )


def _offer(family: str, arch: str, dtype: str, of: list[KernelConfig]) -> Offer:
    tiles = sorted({config.tile for config in of}, key=lambda tile: (tile.block, str(tile)))
    return Offer(
        family,
        arch or None,
        dtype,
        tuple(sorted({config.hdim_q for config in of})),
        tuple(map(str, tiles)),
        tuple(sorted({config.pipeline for config in of if config.pipeline})),
        any(config.trload for config in of),
    )


@cache
def pinned() -> Archs:
    """Return the offers of the pinned tree's CK."""
    return Archs.from_json(FILE.read_text(encoding="utf-8"))
