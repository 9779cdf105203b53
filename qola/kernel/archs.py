"""What Composable Kernel has for each arch: data types, pipelines, tiles, matrix instructions.

Observed, never written by hand: qola.fmha.observe makes archs.json of the pinned tree.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from qola.errors import Finding
from qola.json_types import WrongValueError, parse_json, reader
from qola.kernel.config import ConfigError, KernelConfig
from qola.kernel.tile import Tile, Triple

FILE = Path(__file__).with_name("archs.json")


@dataclass(frozen=True)
class Offer:
    """What kernels of a family are for a data type of an arch.

    Attributes:
        hdims: head dimensions of Q that they are made for.
        tiles: of those.
        pipelines: () where they have none.
        trload: whether some read by transposing loads.
    """

    family: str
    arch: str | None
    dtype: str
    hdims: tuple[int, ...]
    tiles: tuple[Tile, ...]
    pipelines: tuple[str, ...]
    trload: bool

    @property
    def warps(self) -> set[Triple]:
        """Matrix instructions, by m, n and k."""
        return {warps for tile in self.tiles for warps in tile.warps}


@dataclass(frozen=True)
class Archs:
    """All of it.

    Attributes:
        lds: bytes of LDS that a block may have, by CK's name of the arch; "" of any other.
    """

    offers: tuple[Offer, ...]
    lds: Mapping[str, int]

    def of(self, family: str, arch: str | None, dtype: str = "") -> list[Offer]:
        """Return what a family has for an arch; for a data type where one is given."""
        return [
            offer
            for offer in self.offers
            if (offer.family, offer.arch) == (family, arch) and dtype in ("", offer.dtype)
        ]

    def lds_of(self, arch: str | None) -> int:
        """Return bytes of LDS on an arch, the least of any where none is named."""
        return min(self.lds.values()) if arch is None else self.lds.get(arch, self.lds[""])

    def to_json(self) -> str:
        """Return a text with an offer a line."""
        lines = [
            json.dumps({**vars(offer), "tiles": list(map(str, offer.tiles))}, sort_keys=True)
            for offer in self.offers
        ]
        offers = ",\n  ".join(lines)
        lds = json.dumps(dict(self.lds), sort_keys=True)
        return f'{{\n"lds": {lds},\n"offers": [\n  {offers}\n]\n}}\n'

    @staticmethod
    def from_json(text: str) -> Archs:
        """Return what a text of `to_json` says.

        Raises:
            ConfigError: it is not such a text.
        """
        try:
            data = reader(_Text)(parse_json(text))
            offers = [Offer(**{**vars(one), "tiles": _tiles(one)}) for one in data.offers]
        except WrongValueError as error:
            found = str(error).removeprefix(": ")
            raise ConfigError(Finding("archs", found, "what Archs.to_json writes")) from None
        return Archs(tuple(offers), data.lds)

    @staticmethod
    def observed(configs: Iterable[KernelConfig], lds: Mapping[str, int]) -> Archs:
        """Return what kernels of CK say."""
        groups: dict[tuple[str, str, str], list[KernelConfig]] = {}
        for config in configs:
            groups.setdefault((config.family, config.arch or "", config.dtype), []).append(config)
        return Archs(
            tuple(
                _offer(family, arch, dtype, of)
                for (family, arch, dtype), of in sorted(groups.items())
            ),
            lds,
        )


@dataclass(frozen=True)
class _OfferText:
    """An offer in JSON: its tiles are texts."""

    family: str
    arch: str | None
    dtype: str
    hdims: tuple[int, ...]
    tiles: tuple[str, ...]
    pipelines: tuple[str, ...]
    trload: bool


@dataclass(frozen=True)
class _Text:
    offers: tuple[_OfferText, ...]
    lds: Mapping[str, int]


def _tiles(offer: _OfferText) -> tuple[Tile, ...]:
    tiles = [Tile.parse(text) for text in offer.tiles]
    if None in tiles:
        wrong = offer.tiles[tiles.index(None)]
        raise WrongValueError(f".offers.tiles: {wrong!r:.80}, expected a tile")
    return tuple(filter(None, tiles))


def _offer(family: str, arch: str, dtype: str, of: list[KernelConfig]) -> Offer:
    return Offer(
        family,
        arch or None,
        dtype,
        tuple(sorted({config.hdim_q for config in of})),
        tuple(sorted({config.tile for config in of}, key=lambda tile: (tile.block, str(tile)))),
        tuple(sorted({config.pipeline for config in of if config.pipeline})),
        any(config.trload for config in of),
    )


@cache
def pinned() -> Archs:
    """Return what the CK of the pinned tree has."""
    return Archs.from_json(FILE.read_text(encoding="utf-8"))
