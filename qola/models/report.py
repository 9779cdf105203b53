"""Writes which kernel serves each layer of a model, and which layers have none."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import PurePosixPath

from qola.models.config import LayerAttention, LayerGroup, Model
from qola.models.coverage import Coverage, ServedPhase
from qola.models.problems import PAGE_BLOCK_SIZE

_WIDTH = 98
_PHASES = {
    "prefill": "K and V of the same step, sequences of any lengths (mode group)",
    "context": "K and V of earlier steps, expanded; returns the LSE, by which parts are merged",
    "paged": f"decoding, and prefill in chunks, over pages of a multiple of {PAGE_BLOCK_SIZE} rows",
    "latent": "decoding over MLA's compressed cache",
}


def report_lines(coverage: Coverage) -> Iterator[str]:
    """Yield the lines of a report."""
    model = coverage.model
    yield from _model(model)
    if coverage.aiter:
        yield f"  kernels of AITER {coverage.aiter}"
    group = phase = None
    for served in coverage.served:
        if served.group is not group:
            group, phase = served.group, None
            yield ""
            yield _layers(group)
        if served.phase.name != phase:
            phase = served.phase.name
            yield f"  {phase}: {_PHASES[phase]}"
        yield from _served(served)
    for linear in (one for one in model.groups if one.attention is None):
        yield ""
        yield _layers(linear)
        yield "  missing: linear attention is not softmax attention; no module of a manifest has it"
    yield ""
    missing = sum(bool(one.missing) for one in coverage.served)
    uses = f"{missing} of {len(coverage.served)} uses of attention have no kernel in them"
    yield f"{coverage.kernels} kernel instances; {uses if missing else 'nothing is missing'}"


def _model(model: Model) -> Iterator[str]:
    count = sum(len(group.layers) for group in model.groups)
    yield f"{model.file}: {model.model_type}, {count} layers, {model.dtype}"
    if model.quantization:
        yield f"  weights are quantized ({model.quantization}); attention computes in {model.dtype}"
    if model.experts:
        each = f"{model.experts} experts, {model.experts_per_token} for each token"
        yield f"  MoE with {each}: not attention; AITER's modules for Python have it"


def _layers(group: LayerGroup) -> str:
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


def _served(served: ServedPhase) -> Iterator[str]:
    if served.missing:
        yield from _wrapped(f"    {served.arch}  missing: {served.missing}")
        yield from (f"            {text}" for text in served.alternatives)
        return
    for name in served.assembly:
        path = PurePosixPath(name)
        parent = path.parent.name
        device = f" on {parent}" if parent.startswith("MI") else ""
        yield f"    {served.arch}  assembly with use_asm: {path.name}{device}"
    for entry in served.kernels:
        yield f"    {served.arch}  CK: {entry.name}"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, subsequent_indent=" " * 12, break_long_words=False, drop_whitespace=True
    )


def manifest_text(coverage: Coverage, command: str) -> str:
    """Return the manifest with the report as comments."""
    lines = [f"# Written by: {command}", "#"]
    lines += [f"# {line}".rstrip() for line in report_lines(coverage)]
    return "\n".join(lines) + "\n\n" + coverage.text
