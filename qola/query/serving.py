"""Writes a manifest of the modules that AITER's own Python imports, all or those of a server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qola.aiter.tree import AiterTree
from qola.common.version import docs_url
from qola.manifest.constants import AITER
from qola.manifest.fields import BWD_VARIANTS, FILTERED, FWD_VARIANTS
from qola.manifest.load import loads
from qola.manifest.toml import (
    TomlTable,
    TomlTables,
    toml_comment,
    toml_document,
    toml_line,
    toml_prose,
)
from qola.manifest.types import unserved
from qola.plan.modules import ModuleReport, filtered_kernels
from qola_base.json_types import reader

_LIBRARY = "C++ library"
_TUNER = "_tune"
"""End of the name of a module that only AITER's tuner imports."""
_LINKED = ("hipblaslt", "rocblas", "rocsolver")
"""Libraries of ROCm that the pinned ROCm does not have."""


_BACKWARD = "_bwd"
"""Part of the name of a module of backward kernels."""

_FUNCTIONS = (
    "Functions of AITER's second JIT, csrc/cpp_itfs, depend on the shapes of a model: python -m "
    "qola.aiter_record writes those of a running server. For example:"
)
_FUNCTION_EXAMPLE = """\
#[[functions]]
#name = "pa_ragged"
#[functions.arguments]
#gqa_ratio = 8
#head_size = 128
#npar_loops = [1, 2]
#dtype = "__hip_bfloat16"
#kv_dtype = "__hip_bfloat16"
#fp8_kv_dtype = "auto"
#out_dtype = "__hip_bfloat16"
#block_size = 16"""

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
class ModelNeeds:
    """The kernels and modules that a model needs.

    Attributes:
        lines: about the model.
        variants: a table by the name of its array of tables, which filters attention modules.
        unneeded: reasons to leave modules out, by name.
        unneeded_words: reasons to leave modules out, by a word of their names.
    """

    lines: tuple[str, ...]
    variants: Mapping[str, TomlTable]
    unneeded: Mapping[str, str]
    unneeded_words: Mapping[str, str]

    def why_not(self, module: str) -> str:
        """Return why the model does not need a module, "" if it may."""
        words = [why for word, why in self.unneeded_words.items() if word in module.split("_")]
        return self.unneeded.get(module) or next(iter(words), "")

    def filters(self, module: str) -> list[str]:
        """Return the arrays of tables that filter a module."""
        tables = [table.name for table, modules in FILTERED.items() if module in modules]
        return [name for name in tables if name in self.variants]

    def text_of(self, names: Iterable[str]) -> str:
        """Return arrays of tables as TOML."""
        return toml_document({name: [self.variants[name]] for name in names})

    def served(self, names: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        """Return the names of modules whose kernels the variants select."""
        manifest = loads(
            f'{self.text_of(self.variants)}\n[[modules]]\nname = "libmha_fwd"\n', file="model.toml"
        )
        tables = ((FWD_VARIANTS, manifest.fwd_variants), (BWD_VARIANTS, manifest.bwd_variants))
        found = {module: tuple(own) for module, own in names.items()}
        for table, variants in tables:
            for module in FILTERED[table] if variants else ():
                own = (name for name in names.get(module, ()) if not unserved(name, variants))
                found[module] = tuple(own)
        return found


@dataclass(frozen=True)
class Entry:
    """A module of a manifest in mode aiter.

    Attributes:
        why: why it is a comment, "" for a table.
        is_missed: it is a comment, and AITER compiles it when it is called.
        note: a comment on a table.
    """

    report: ModuleReport
    why: str
    is_missed: bool
    note: str = ""


def entries_of(
    reports: Iterable[ModuleReport], calls: Calls | None = None, needs: ModelNeeds | None = None
) -> list[Entry]:
    """Return the modules that AITER's Python or a server calls.

    Args:
        calls: take only the modules that a server calls; None for all modules.
        needs: leave out the modules that a model does not need; None for all models.
    """
    entries = []
    for report in reports:
        if report.kind == _LIBRARY or (calls and report.name not in calls.modules):
            continue
        why, is_uncalled = _why_not(report), report.name.endswith(_TUNER)
        if calls and _BACKWARD in report.name:
            why, is_uncalled = why or "backward kernels, which a server does not call", True
        if needs and (unneeded := needs.why_not(report.name)):
            why, is_uncalled = why or unneeded, True
        entries.append(Entry(report, why, bool(why) and not is_uncalled))
    return entries


def filter_entries(
    entries: Iterable[Entry], tree: AiterTree, archs: Sequence[str], needs: ModelNeeds
) -> list[Entry]:
    """Plan each module that a model's variants filter; leave out modules without such kernels."""
    return [_filter(entry, tree, archs, needs) for entry in entries]


def _filter(entry: Entry, tree: AiterTree, archs: Sequence[str], needs: ModelNeeds) -> Entry:
    if entry.why or not needs.filters(entry.report.name):
        return entry
    own = needs.text_of(needs.filters(entry.report.name))
    number, why = filtered_kernels(tree, entry.report.name, archs, own)
    if why:
        return replace(entry, why=f"no kernels for the model: {why}")
    return replace(entry, note=f"{number} kernel instances for the model's layers")


def serving_tables(
    entries: Sequence[Entry],
    archs: Sequence[str],
    *,
    aiter_id: str,
    names: Mapping[str, Sequence[str]],
    needs: ModelNeeds | None = None,
) -> TomlTables:
    """Return the tables of `serving_manifest`, whose arguments these are."""
    built = [entry.report.name for entry in entries if not entry.why]
    modules: list[TomlTable] = [
        {"name": name, **({"names": names[name]} if names.get(name) else {})} for name in built
    ]
    # A table without its module has no effect.
    used = {name for module in built for name in (needs.filters(module) if needs else ())}
    variants = {name: [table] for name, table in needs.variants.items()} if needs else {}
    return {
        "qola": {"aiter_commit": aiter_id} if aiter_id else {},
        "build": {"architectures": archs, "mode": AITER},
        **({"modules": modules} if modules else {}),
        **{name: tables for name, tables in variants.items() if name in used},
    }


def serving_manifest(
    entries: Sequence[Entry],
    archs: Sequence[str],
    *,
    aiter_id: str,
    file: str,
    names: Mapping[str, Sequence[str]],
    calls: Calls | None = None,
    needs: ModelNeeds | None = None,
    schema: str = "",
) -> str:
    """Return a manifest in mode aiter; modules that cannot be planned are comments with the reason.

    Args:
        entries: see `entries_of`, of all modules of the tree, for these archs.
        aiter_id: commit or version of the tree, "" if unknown.
        names: the names of variants, by module.
        calls: of the server whose modules the entries are; None for all modules.
        needs: of the model that the manifest is for; None for all models.
        file: the manifest's name, for the command in its first lines.
        schema: path of the JSON schema relative to the manifest, for editors; "" for none.
    """
    lines = [f"#:schema {schema}"] if schema else []
    lines += toml_prose(
        "Modules that AITER's own Python imports, so that it compiles none of them."
    )
    if calls:
        read = ", ".join(f"{path} ({commit[:12]})" for path, commit in calls.server.files.items())
        lines += toml_prose(f"Those that {calls.server.repository} calls, in {read}.")
        known = {function for functions in calls.modules.values() for function in functions}
        if absent := [name for name in calls.server.functions if name not in known]:
            lines += toml_prose(f"It uses no module of this AITER by: {', '.join(absent)}.")
    lines += toml_prose(
        f"qola build {file} --wheel 1.0 builds them: {docs_url('guide/serving.md')}"
    )
    if needs:
        lines += ["#", *map(toml_comment, needs.lines)]
    tables = serving_tables(entries, archs, aiter_id=aiter_id, names=names, needs=needs)
    lines += ["", *toml_document({name: tables[name] for name in ("qola", "build")}).splitlines()]
    for entry in entries:
        callers = calls.modules[entry.report.name] if calls else ()
        lines += ["", *_module(entry, names.get(entry.report.name, ()), callers)]
    lines += ["", *toml_prose(_FUNCTIONS), *_FUNCTION_EXAMPLE.splitlines()]
    if needs and (used := [name for name in needs.variants if name in tables]):
        lines += ["", needs.text_of(used).rstrip()]
    return "\n".join(lines) + "\n"


def _module(entry: Entry, names: Sequence[str], used: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a module's table: comments if it is left out."""
    if used:
        yield from toml_prose(f"for {', '.join(used)}")
    table = ["[[modules]]", toml_line("name", entry.report.name)]
    table += toml_line("names", tuple(names)).splitlines() if names else []
    if entry.why or entry.note:
        yield from toml_prose(entry.why or entry.note)
    if entry.why:
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
