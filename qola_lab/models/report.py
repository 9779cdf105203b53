"""Writes which kernel serves each layer of a model, and which layers have none."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import PurePosixPath

from qola.manifest.toml import toml_comment, toml_document
from qola_lab.models.config import layers_line, model_lines
from qola_lab.models.coverage import PAGE_BLOCK_SIZE, Coverage, ServedPhase

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
    yield from model_lines(model)
    if coverage.aiter:
        yield f"  kernels of AITER {coverage.aiter}"
    group = phase = None
    for served in coverage.served:
        if served.group is not group:
            group, phase = served.group, None
            yield ""
            yield layers_line(group)
        if served.phase.name != phase:
            phase = served.phase.name
            yield f"  {phase}: {_PHASES[phase]}"
        yield from _served(served)
    for linear in (one for one in model.groups if one.attention is None):
        yield ""
        yield layers_line(linear)
        yield "  missing: linear attention is not softmax attention; no module of a manifest has it"
    yield ""
    missing = sum(bool(one.missing) for one in coverage.served)
    uses = f"{missing} of {len(coverage.served)} uses of attention have no kernel in them"
    yield f"{coverage.kernels} kernel instances; {uses if missing else 'nothing is missing'}"


def _served(served: ServedPhase) -> Iterator[str]:
    if served.missing:
        text = f"    {served.arch}  missing: {served.missing}"
        yield from textwrap.wrap(text, _WIDTH, subsequent_indent=" " * 12, break_long_words=False)
        yield from (f"            {text}" for text in served.alternatives)
        return
    for name in served.assembly:
        path = PurePosixPath(name)
        parent = path.parent.name
        device = f" on {parent}" if parent.startswith("MI") else ""
        yield f"    {served.arch}  assembly with use_asm: {path.name}{device}"
    for entry in served.kernels:
        yield f"    {served.arch}  CK: {entry.name}"


def manifest_text(coverage: Coverage, command: str) -> str:
    """Return the manifest with the report as comments."""
    lines = [f"Written by: {command}", "", *report_lines(coverage)]
    return "\n".join([*map(toml_comment, lines), "", toml_document(coverage.tables)])
