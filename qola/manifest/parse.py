"""From a TOML document to a `Manifest`: every field checked, every finding collected."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from qola.errors import Finding, ManifestError, Severity
from qola.manifest.additions import wrong_additions
from qola.manifest.field_types import Kind, Table
from qola.manifest.fields import (
    BUILD,
    BWD_VARIANTS,
    BY_NAME,
    FWD_VARIANTS,
    MODULES,
    OVERRIDE_KEYS,
    PREBUILT,
    QOLA,
    TABLES,
    flags,
)
from qola.manifest.kernels import KERNELS, KernelSpec, read_kernels
from qola.manifest.order import ORDER, OrderSpec, idle
from qola.manifest.toml_lines import Lines, Path
from qola.manifest.triton import TRITON, read_triton, triton_name, wrong_in
from qola.manifest.types import BwdVariant, FwdVariant, Manifest, ModuleSpec, PrebuiltSpec, place_of
from qola.manifest.values import check, either, expectation, namespace_problem, nearest, shown
from qola.manifest.words import BATCH, BIAS_KINDS, FMHA_MODES, MAX_ITEMS, NATIVE

Values = dict[str, Any]
BOTH = (False, True)
MAX_ERRORS = 100
_ARCHS = frozenset({"arch", "archs", "architectures", "gpu_archs"})
"""Words for the same, of which each table knows at most one."""
"""Where reading stops: who has made so many errors has made one many times."""

FILTERED = {
    FWD_VARIANTS: (
        "libmha_fwd",
        "module_mha_fwd",
        "module_mha_varlen_fwd",
        "module_mha_batch_prefill",
    ),
    BWD_VARIANTS: ("libmha_bwd", "module_mha_bwd", "module_mha_varlen_bwd"),
}
"""The modules each variant table filters."""


def build_manifest(document: Mapping[str, Any], lines: Lines, file: str) -> Manifest:
    """Validate a parsed document as a whole; findings call it `file`.

    Raises:
        ManifestError: with every error and warning there is, in the order of the lines.
    """
    reader = _Reader(file, lines)
    reader.check_top_level(document)
    tables = {table: reader.tables(table, document) for table in TABLES}
    _check_qola(reader, tables[QOLA][0])
    _check_build(reader, tables[BUILD][0])
    # Forward variants become torch modules of their own (qola.plan.torch_variants).
    expanded = bool(tables[FWD_VARIANTS]) and tables[BUILD][0].get("mode") != "cpp_itfs"
    needless = expanded or bool(tables[TRITON])
    _check_modules(reader, tables[MODULES], document.get("modules"), needless=needless)
    _check_triton(reader, tables[TRITON], document.get("triton"))
    if wrong := idle(tables[ORDER][0], *(one for one in (MODULES, TRITON) if not tables[one])):
        reader.report((ORDER.name,), *wrong, "warning")
    _check_variants(reader, tables, expanded=expanded)
    kernels = _read_kernels(reader, tables)
    findings = reader.sorted_findings()
    if any(finding.severity == "error" for finding in findings):
        raise ManifestError(findings, f"{file} is not a valid manifest")
    return replace(_assemble(tables, findings, lines, file), kernels=kernels)


class _Reader:
    """Reads tables by their definitions and collects findings with their lines."""

    def __init__(self, file: str, lines: Lines) -> None:
        self.file = file
        self.lines = lines
        self._findings: list[tuple[int, Finding]] = []
        self._errors = 0

    def report(
        self, path: Path, found: str, expected: str, fix: str = "", severity: Severity = "error"
    ) -> None:
        place = place_of(self.file, self.lines, path)
        finding = Finding(place, found, expected, fix, severity)
        self._findings.append((self.lines.of(path), finding))
        self._errors += severity == "error"
        if self._errors == MAX_ERRORS:
            title = f"{self.file} is not a valid manifest; reading stopped here"
            raise ManifestError(self.sorted_findings(), title)

    def sorted_findings(self) -> tuple[Finding, ...]:
        return tuple(finding for _, finding in sorted(self._findings, key=lambda item: item[0]))

    def check_top_level(self, document: Mapping[str, Any]) -> None:
        for name, value in document.items():
            if name in BY_NAME:
                continue
            is_table = isinstance(value, dict) or _are_tables(value)
            found = f"unknown table {shown(name)}" if is_table else f"{name} outside of any table"
            owner = next((table for table in TABLES if name in table.by_key), None)
            meant = nearest(name, BY_NAME)
            fix = ""
            if owner:
                fix = f"{name} belongs under {owner.header}"
            elif meant:
                fix = f"did you mean {BY_NAME[meant].header}?"
            self.report((name,), found, either(t.header for t in TABLES), fix)

    def tables(self, table: Table, document: Mapping[str, Any]) -> list[Values]:
        """Return the values of each such table: exactly one ({} if absent) unless repeated."""
        raw = document.get(table.name, [] if table.repeated else {})
        if not (_are_tables(raw) if table.repeated else isinstance(raw, dict)):
            found = shown(raw)
            if isinstance(raw, dict) or _are_tables(raw):
                found = f"[{table.name}], one table" if table.repeated else f"[[{table.name}]]"
            self.report((table.name,), found, f"{table.header}", f"write {table.header}")
            return [] if table.repeated else [{}]
        if len(raw) > MAX_ITEMS:
            self.report((table.name,), f"{len(raw)} tables", f"{MAX_ITEMS} at most")
            return []
        if not table.repeated:
            return [self.values(table, raw, (table.name,))]
        return [self.values(table, item, (table.name, n)) for n, item in enumerate(raw)]

    def values(self, table: Table, raw: Mapping[str, Any], path: Path) -> Values:
        """Return the valid fields of one table in canonical form, and report the others."""
        values: Values = {}
        for key, item in raw.items():
            field = table.by_key.get(key)
            if field is None:
                self._unknown_key(table, key, (*path, key))
                continue
            value, problems = check(field, item)
            for problem in problems:
                self.report((*path, key), problem.found, expectation(field), problem.fix)
            if not problems:
                values[key] = value
            if field.kind is Kind.TEXT_LIST and not problems:
                self._repetitions(value, (*path, key))
            if field.kind is Kind.HDIM_SET and not problems:
                self._doubtful_pair(item, (*path, key))
        for field in table.fields:
            if field.required and field.key not in raw:
                self.report(path, f"no {field.key}", expectation(field), f'{field.key} = "..."')
        return values

    def _unknown_key(self, table: Table, key: str, path: Path) -> None:
        # This table's word for it, a key of another table, a misspelt key of this one, then of any.
        same = [name for name in table.by_key if {name, key} <= _ARCHS]
        meant = same[0] if same else nearest(key, table.by_key)
        if not same and any(key in other.by_key for other in TABLES):
            meant = key
        elif not meant:
            meant = nearest(key, {name for other in TABLES for name in other.by_key})
        owners = [other.header for other in TABLES if meant in other.by_key]
        if not meant:
            fix = ""
        elif meant in table.by_key:
            fix = f"did you mean {meant}?"
        else:
            fix = f"{meant} belongs under {either(owners)}"
        self.report(path, f"unknown key {shown(key)}", either(table.by_key), fix)

    def _repetitions(self, value: tuple[str, ...], path: Path) -> None:
        repeated = sorted(text for text, count in Counter(value).items() if count > 1)
        if repeated:
            found = f"{', '.join(map(shown, repeated[:9]))} more than once"
            self.report(path, found, "each once", severity="warning")

    def _doubtful_pair(self, raw: object, path: Path) -> None:
        """Warn where two head dimensions look like a [q, v] pair: nobody lists sizes downwards."""
        if isinstance(raw, list) and len(raw) == 2 and all(type(n) is int for n in raw):
            high, low = raw
            if high > low:
                self.report(
                    path,
                    f"[{high}, {low}], read as head dimensions {high} and {low}",
                    "a [q, v] pair inside a list, or head dimensions in ascending order",
                    f"for the pair write [[{high}, {low}]], otherwise [{low}, {high}]",
                    "warning",
                )


def _are_tables(raw: object) -> bool:
    return isinstance(raw, list) and all(isinstance(item, dict) for item in raw)


def _check_qola(reader: _Reader, qola: Values) -> None:
    name = qola.get("namespace", "")
    problem = namespace_problem(name)
    if problem:
        reader.report(
            ("qola", "namespace"),
            f"{shown(name)}: {problem}",
            expectation(QOLA.by_key["namespace"]),
            f"for example {shown('my_' + re.sub('_+', '_', name).strip('_'))}",
        )


def _check_build(reader: _Reader, build: Values) -> None:
    archs = build.get("architectures", ())
    if NATIVE in archs and len(set(archs)) > 1:
        reader.report(
            ("build", "architectures"),
            f"{shown(NATIVE)} beside others",
            f"{shown(NATIVE)} alone, or architectures by name",
        )


def _check_once(
    reader: _Reader,
    first: dict[str, tuple[str, int, str]],
    name: str,
    place: tuple[str, int, str],
    expected: str,
    fix: str,
) -> None:
    """Report a name that has a place in `first` already, else give it this one."""
    if name in first:
        line = reader.lines.of(first[name])
        found = f"{shown(name)}, which line {line} declares already"
        reader.report(place, found, expected, fix)
    first.setdefault(name, place)


def _check_modules(reader: _Reader, modules: list[Values], raw: object, *, needless: bool) -> None:
    if raw is None and not needless:
        reader.report(
            (),
            "no [[modules]] table",
            "at least one library to build",
            'add the lines\n[[modules]]\nname = "libmha_fwd"\nmode = "cpp_itfs"',
        )
    elif raw == []:
        reader.report(("modules",), "no module", "at least one [[modules]] table")
    first: dict[str, tuple[str, int, str]] = {}
    for n, module in enumerate(modules):
        name = module.get("name")
        if name is not None:
            fix = f"merge the two [[modules]] tables of {name}"
            _check_once(reader, first, name, ("modules", n, "name"), "every module once", fix)
        for found, expected, fix in wrong_additions(module):
            reader.report(("modules", n, "add_directions"), found, expected, fix)


def _check_triton(reader: _Reader, tables: list[Values], raw: object) -> None:
    if raw == []:
        reader.report((TRITON.name,), "no kernel", "at least one [[triton]] table")
    for n, key, found, expected, fix, severity in wrong_in(tables):
        reader.report((TRITON.name, n, key), found, expected, fix, severity)
    first: dict[str, tuple[str, int, str]] = {}
    expected, fix = "every kernel once under a name", 'name = "other" in one of the tables'
    for n, table in enumerate(tables):
        for kernel in table.get("kernels", ()):
            name = triton_name(table.get("name", ""), kernel)
            _check_once(reader, first, name, (TRITON.name, n, "kernels"), expected, fix)


def _check_variants(
    reader: _Reader, tables: Mapping[Table, list[Values]], *, expanded: bool
) -> None:
    named = {module.get("name") for module in tables[MODULES]}
    for table, modules in FILTERED.items():
        if tables[table] and not named & {*modules} and not (expanded and table is FWD_VARIANTS):
            reader.report(
                (table.name, 0),
                f"{table.header} without the module it filters",
                f"a [[modules]] table with name = {shown(modules[0])}",
                severity="warning",
            )
        seen: dict[str, int] = {}
        for n, variant in enumerate(tables[table]):
            path = (table.name, n)
            for key, found, expected, fix in _variant_warnings(variant):
                reader.report((*path, key), found, expected, fix, "warning")
            form = repr((variant.get("receipt"), _variant_values(table, variant)))
            if form in seen:
                reader.report(
                    path,
                    f"the same kernels as line {reader.lines.of((table.name, seen[form]))}",
                    "variants that differ",
                    "remove one of the two tables",
                    "warning",
                )
            seen.setdefault(form, n)


def _read_kernels(reader: _Reader, tables: Mapping[Table, list[Values]]) -> tuple[KernelSpec, ...]:
    def path(number: int) -> Path:
        return KERNELS.name, number, "names"

    def report(number: int, found: str, expected: str, fix: str) -> None:
        reader.report(path(number), found, expected, fix)

    return tuple(read_kernels(tables[KERNELS], lambda n: reader.lines.of(path(n)), report))


def _variant_warnings(variant: Values) -> Iterator[tuple[str, str, str, str]]:
    """Yield key, found, expected and fix of each doubtful combination in one variant."""
    always = (True,)
    if variant.get("has_bias") == always and variant.get("has_alibi") == always:
        yield (
            "has_alibi",
            "has_bias and has_alibi both true: a kernel has one bias, and elementwise bias wins",
            "one of the two",
            "remove has_alibi, or write has_bias = false",
        )
    if variant.get("has_dbias") == always and "bias" not in _bias_kinds(variant):
        yield (
            "has_dbias",
            "has_dbias = true where has_bias is false: no such kernel exists",
            "a bias gradient beside an elementwise bias",
            "write has_bias = true, or has_dbias = false",
        )


def _bias_kinds(variant: Values) -> tuple[str, ...]:
    """Map the pairs (has_bias, has_alibi) to CK's bias kinds: bias wins, duplicates vanish."""
    kinds = {
        "bias" if bias else "alibi" if alibi else "no"
        for bias in variant.get("has_bias", BOTH)
        for alibi in variant.get("has_alibi", BOTH)
    }
    return tuple(kind for kind in BIAS_KINDS if kind in kinds)


def _variant_values(table: Table, variant: Values) -> Values:
    """Return the dimensions of one variant under the names `FwdVariant` and `BwdVariant` use."""
    booleans = {name: variant.get(key, BOTH) for key, name in flags(table).items()}
    return {
        "dtype": variant.get("dtype"),
        "bias": _bias_kinds(variant),
        "hdim": variant.get("hdim"),
        "mode": variant.get("mode", FMHA_MODES),
        **booleans,
    }


def _assemble(
    tables: Mapping[Table, list[Values]], warnings: tuple[Finding, ...], lines: Lines, file: str
) -> Manifest:
    """Build the manifest from values known to be valid."""
    qola, build, prebuilt = tables[QOLA][0], tables[BUILD][0], tables[PREBUILT][0]

    def variants(table: Table, cls: Any) -> tuple[Any, ...]:
        return tuple(
            cls(
                index=n,
                line=lines.of((table.name, n)),
                receipt=variant.get("receipt"),
                **_variant_values(table, variant),
            )
            for n, variant in enumerate(tables[table])
        )

    fwd: tuple[FwdVariant, ...] = variants(FWD_VARIANTS, FwdVariant)
    bwd: tuple[BwdVariant, ...] = variants(BWD_VARIANTS, BwdVariant)
    return Manifest(
        file=file,
        namespace=qola.get("namespace", ""),
        aiter_commit=qola.get("aiter_commit"),
        patches_dir=qola.get("patches_dir"),
        rocm_versions=tuple(sorted(set(qola.get("rocm_versions", ())))),
        architectures=tuple(sorted(set(build.get("architectures", ())))),
        mode=build.get("mode", "pybind"),
        keep_unreachable=build.get("keep_unreachable", False),
        batch=build.get("batch", BATCH),
        modules=tuple(_module(n, m, lines) for n, m in enumerate(tables[MODULES])),
        fwd_variants=fwd,
        bwd_variants=bwd,
        warnings=warnings,
        lines=lines,
        triton=tuple(
            read_triton(n, t, lines.of((TRITON.name, n))) for n, t in enumerate(tables[TRITON])
        ),
        order=OrderSpec.of(tables[ORDER][0]),
        prebuilt=PrebuiltSpec(tuple(prebuilt.get("urls", ())), prebuilt.get("public_key", "")),
    )


def _module(index: int, module: Values, lines: Lines) -> ModuleSpec:
    return ModuleSpec(
        name=module["name"],
        mode=module.get("mode"),
        receipt=module.get("receipt"),
        group=module.get("group"),
        drop_srcs=tuple(sorted(set(module.get("drop_srcs", ())))),
        drop_directions=tuple(sorted(set(module.get("drop_directions", ())))),
        add_directions=tuple(sorted(set(module.get("add_directions", ())))),
        hsa_subdirs=module.get("hsa_subdirs"),
        overrides=tuple(sorted((k, v) for k, v in module.items() if k in OVERRIDE_KEYS)),
        index=index,
        line=lines.of(("modules", index)),
    )
