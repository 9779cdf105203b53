"""Describes a model and the attention of its layers, in lines for people."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from qola_lab.models.config import LayerAttention, LayerGroup, Model


def model_lines(model: Model) -> Iterator[str]:
    """Yield lines about a model's type, weights and experts."""
    count = sum(len(group.layers) for group in model.groups)
    yield f"{model.file}: {model.model_type}, {count} layers, {model.dtype}"
    if model.quantization:
        yield f"  weights are quantized ({model.quantization}); attention computes in {model.dtype}"
    if model.experts:
        each = f"{model.experts} experts, {model.experts_per_token} for each token"
        yield f"  MoE with {each}: not attention; AITER's modules for Python have it"


def layers_line(group: LayerGroup) -> str:
    """Return a line about layers and their attention."""
    number = len(group.layers)
    shown = _ranges(group.layers)
    attention = group.attention
    text = "linear attention" if attention is None else _describe(attention)
    return f"layer{'s' if number > 1 else ''} {shown} ({number}): {text}"


def _describe(attention: LayerAttention) -> str:
    heads = f"{attention.nhead_q} heads, {attention.nhead_k} of K and V"
    hdims = dict.fromkeys((attention.hdim_q, attention.hdim_v))
    words = [heads, f"head dimension {'x'.join(map(str, hdims))}", "causal"]
    if attention.window:
        words.append(f"window of {attention.window} keys")
    if attention.chunk:
        words.append(f"in chunks of {attention.chunk}, each passed as a sequence")
    if attention.logits_soft_cap:
        words.append(f"soft cap {attention.logits_soft_cap:g}")
    if attention.has_sink:
        words.append("sinks")
    if attention.latent:
        latent = attention.latent
        words.append(f"MLA, compressed to {latent.hdim_q}x{latent.hdim_v}")
    return ", ".join(words)


def _ranges(layers: tuple[int, ...]) -> str:
    """Format indices: 0-31, or 0, 2, ... 40 for a regular distance."""
    steps = {after - before for before, after in pairwise(layers)}
    if len(layers) == 1:
        return str(layers[0])
    if steps == {1}:
        return f"{layers[0]}-{layers[-1]}"
    few = ", ".join(map(str, layers[:8]))
    return few if len(layers) <= 8 else f"{few}, ... {layers[-1]}"
