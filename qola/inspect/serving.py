"""Writes a manifest of all modules that AITER's own Python imports."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from qola.manifest.constants import AITER
from qola.manifest.toml import toml_line
from qola.plan.modules import ModuleReport
from qola.version import docs_url

WIDTH = 100
_LIBRARY = "C++ library"
_TUNER = "_tune"
"""End of the name of a module that only AITER's tuner imports."""
_LINKED = ("hipblaslt", "rocblas", "rocsolver")
"""Libraries of ROCm that the pinned ROCm does not have."""


def serving_manifest(
    reports: Iterable[ModuleReport],
    archs: Sequence[str],
    *,
    aiter_id: str,
    file: str,
    schema: str = "",
) -> str:
    """Return a manifest in mode aiter; modules that cannot be planned are comments with the reason.

    Args:
        reports: of all modules of the tree, for these archs.
        aiter_id: commit or version of the tree, "" if unknown.
        file: the manifest's name, for the command in its first lines.
        schema: path of the JSON schema relative to the manifest, for editors; "" for none.
    """
    lines = [f"#:schema {schema}"] if schema else []
    lines += _prose("Modules that AITER's own Python imports, so that it compiles none of them.")
    lines += _prose(f"qola build {file} --wheel 1.0 builds them: {docs_url('guide/serving.md')}")
    lines += ["", "[qola]", *([toml_line("aiter_commit", aiter_id)] if aiter_id else [])]
    lines += ["", "[build]", toml_line("architectures", tuple(archs)), toml_line("mode", AITER)]
    for report in reports:
        if report.kind != _LIBRARY:
            lines += ["", *_module(report)]
    return "\n".join(lines) + "\n"


def _module(report: ModuleReport) -> Iterator[str]:
    """Yield the lines of a module's table."""
    table = ["[[modules]]", toml_line("name", report.name)]
    if why := _why_not(report):
        yield from _prose(why)
        table = [f"#{line}" for line in table]
    yield from table


def _why_not(report: ModuleReport) -> str:
    """Return why a manifest leaves a module out, "" if it does not."""
    if not report.built:
        return report.cause
    if report.name.endswith(_TUNER):
        return "only AITER's tuner imports it"
    if any(library in need for need in report.needs for library in _LINKED):
        return f"needs {'; '.join(report.needs)} on this machine: QOLA_ROCM=/opt/rocm"
    return ""


def _prose(text: str) -> list[str]:
    lines = textwrap.wrap(text, WIDTH - 2, break_on_hyphens=False, break_long_words=False)
    return [f"# {line}" for line in lines]
