"""Writes a manifest of the modules that AITER's own Python imports, all or those of a server."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qola.json_types import reader
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


_BACKWARD = "_bwd"
"""Part of the name of a module of backward kernels."""

_SERVERS = Path(__file__).with_name("servers.json")
SERVERS = ("sglang", "vllm")
"""The servers of servers.json."""


@dataclass(frozen=True)
class Server:
    """A server whose source was read for its calls of AITER.

    Attributes:
        repository: its owner and name.
        files: the files that were read, each with the commit.
        functions: the functions and values of AITER that they use, without kernels in Triton.
    """

    repository: str
    files: Mapping[str, str]
    functions: tuple[str, ...]


def read_server(name: str) -> Server:
    """Return a server of `SERVERS`."""
    found: Server = reader(Server)(json.loads(_SERVERS.read_text(encoding="utf-8"))[name])
    return found


@dataclass(frozen=True)
class Calls:
    """The calls of a server into one AITER: functions by module."""

    server: Server
    modules: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Entry:
    """A module of a manifest in mode aiter.

    Attributes:
        why: why it is a comment, "" for a table.
        is_missed: it is a comment, and AITER compiles it when it is called.
    """

    report: ModuleReport
    why: str
    is_missed: bool


def entries_of(reports: Iterable[ModuleReport], calls: Calls | None = None) -> list[Entry]:
    """Return the modules that AITER's Python or a server calls.

    Args:
        calls: take only the modules that a server calls; None for all modules.
    """
    entries = []
    for report in reports:
        if report.kind == _LIBRARY or (calls and report.name not in calls.modules):
            continue
        why, is_uncalled = _why_not(report), report.name.endswith(_TUNER)
        if calls and _BACKWARD in report.name:
            why, is_uncalled = why or "backward kernels, which a server does not call", True
        entries.append(Entry(report, why, bool(why) and not is_uncalled))
    return entries


def serving_manifest(
    entries: Iterable[Entry],
    archs: Sequence[str],
    *,
    aiter_id: str,
    file: str,
    names: Mapping[str, Sequence[str]],
    calls: Calls | None = None,
    schema: str = "",
) -> str:
    """Return a manifest in mode aiter; modules that cannot be planned are comments with the reason.

    Args:
        entries: see `entries_of`, of all modules of the tree, for these archs.
        aiter_id: commit or version of the tree, "" if unknown.
        names: the names of variants, by module.
        calls: of the server whose modules the entries are; None for all modules.
        file: the manifest's name, for the command in its first lines.
        schema: path of the JSON schema relative to the manifest, for editors; "" for none.
    """
    lines = [f"#:schema {schema}"] if schema else []
    lines += _prose("Modules that AITER's own Python imports, so that it compiles none of them.")
    if calls:
        read = ", ".join(f"{path} ({commit[:12]})" for path, commit in calls.server.files.items())
        lines += _prose(f"Those that {calls.server.repository} calls, in {read}.")
        known = {function for functions in calls.modules.values() for function in functions}
        if absent := [name for name in calls.server.functions if name not in known]:
            lines += _prose(f"It uses no module of this AITER by: {', '.join(absent)}.")
    lines += _prose(f"qola build {file} --wheel 1.0 builds them: {docs_url('guide/serving.md')}")
    lines += ["", "[qola]", *([toml_line("aiter_commit", aiter_id)] if aiter_id else [])]
    lines += ["", "[build]", toml_line("architectures", tuple(archs)), toml_line("mode", AITER)]
    for entry in entries:
        used = calls.modules[entry.report.name] if calls else ()
        lines += ["", *_module(entry, names.get(entry.report.name, ()), used)]
    return "\n".join(lines) + "\n"


def _module(entry: Entry, names: Sequence[str], used: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a module's table: comments if it is left out."""
    if used:
        yield from _prose(f"for {', '.join(used)}")
    table = ["[[modules]]", toml_line("name", entry.report.name)]
    table += toml_line("names", tuple(names)).splitlines() if names else []
    if entry.why:
        yield from _prose(entry.why)
        table = [f"#{line}" for line in table]
    yield from table


def _why_not(report: ModuleReport) -> str:
    """Return why a manifest leaves a module out, "" if it does not."""
    if not report.built:
        return report.cause
    if report.name.endswith(_TUNER):
        return "only AITER's tuner imports it"
    linked = [library for library in _LINKED if any(library in need for need in report.needs)]
    if linked:
        return f"needs {', '.join(linked)} of a ROCm on this machine: QOLA_ROCM=/opt/rocm"
    return ""


def _prose(text: str) -> list[str]:
    lines = textwrap.wrap(text, WIDTH - 2, break_on_hyphens=False, break_long_words=False)
    return [f"# {line}" for line in lines]
