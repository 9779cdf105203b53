"""Chooses the kernels of AITER's modules that a model's layers need."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from qola.manifest.constants import AITER
from qola.manifest.fields import BWD_VARIANTS, FILTERED, FWD_VARIANTS
from qola.manifest.toml import TomlTable
from qola.query.serving import ModelNeeds
from qola_lab.models.config import Model, layers_line, model_lines

_OFF = ("has_bias", "has_alibi", "has_dropout", "has_skip")
"""Features of forward kernels that no server uses with a model whose type qola knows."""


def model_needs(model: Model, user: str) -> ModelNeeds:
    """Return the variants and modules that a model needs.

    Masks, LSE and sequence modes are not filtered: servers pass parts of a sequence without a mask,
    and merge their results by the LSE.

    Args:
        user: "aiter" or a server. Training with AITER may use bias and dropout, a server does not.
    """
    layers = [group.attention for group in model.groups if group.attention]
    hdims = list(dict.fromkeys((layer.hdim_q, layer.hdim_v) for layer in layers))
    hdim = [[*pair] if pair[0] != pair[1] else pair[0] for pair in hdims]
    kept: TomlTable = {"dtype": model.dtype, "hdim": hdim}
    forward = kept if user == AITER else {**kept, **dict.fromkeys(_OFF, False)}
    variants = {FWD_VARIANTS.name: forward, BWD_VARIANTS.name: kept} if hdims else {}
    attention = () if layers else chain.from_iterable(FILTERED.values())
    return ModelNeeds(
        lines=(*model_lines(model), *map(layers_line, model.groups)),
        variants=variants,
        unneeded=dict.fromkeys(attention, "the model has no softmax attention"),
        unneeded_words=dict(_unneeded_words(model)),
    )


def _unneeded_words(model: Model) -> Iterator[tuple[str, str]]:
    """Yield words in names of modules that the model does not need, with the reason."""
    if not model.experts:
        yield "moe", "the model has no experts"
    if not any(group.attention and group.attention.latent for group in model.groups):
        yield "mla", "the model has no MLA"
