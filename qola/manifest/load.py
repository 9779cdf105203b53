"""Reads a manifest: checks every field of a TOML document, and collects every finding."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from qola.common.suggestions import nearest, similar_file
from qola.common.version import docs_url
from qola.kernel.config import ConfigError, KernelConfig
from qola.kernel.selection import RequestedKernel
from qola.manifest import fields, toml
from qola.manifest.constants import (
    AITER,
    BATCH,
    BIAS_KINDS,
    CAUSAL_MASKS,
    FMHA_MODES,
    NATIVE,
)
from qola.manifest.fields import Kind, TableSpec, flags
from qola.manifest.types import (
    BwdVariant,
    FunctionSpec,
    FwdVariant,
    Manifest,
    ModuleSpec,
    PrebuiltSpec,
    TritonSpec,
    place_of,
    triton_name,
    unserved,
)
from qola.manifest.values import check_value, either, expectation, namespace_fault, quote
from qola_base.errors import Finding, ManifestError, Severity, visible

__all__ = ["Manifest", "ModuleSpec", "load", "loads"]

_MAX_COMBINATIONS = 4096
"""Maximal combinations of a function's arguments: each is a compile."""

Values = dict[str, Any]
BOTH = (False, True)

_EXPECTED = f"a readable manifest in TOML ({docs_url('reference/manifest.md')})"

_ARCH_KEYS = frozenset({"arch", "archs", "architectures", "gpu_archs"})
"""Synonyms; each table knows at most one."""

_CHOICE_OF = {"dtypes": "dtype", "hdims": "HDIM", "causal": "CAUSAL"}
"""Keys of [[triton]] that stand for a choice."""


def load(path: Path, *, display: str | None = None) -> Manifest:
    """Read a manifest from a file.

    Args:
        display: the name in findings; `path` by default.

    Raises:
        ManifestError: the file cannot be read, is not UTF-8, or as `loads`.
    """
    name = display or path.as_posix()
    try:
        data = path.read_bytes()
    # A name with a null character is a ValueError.
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or str(error)
        raise ManifestError(Finding(name, found, _EXPECTED, similar_file(path))) from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{data[error.start]:02x}, which is not UTF-8"
        finding = Finding(f"{name}:{line}", found, _EXPECTED, "save the file in UTF-8")
        raise ManifestError(finding) from None
    return loads(text, file=name)


def loads(text: str, *, file: str) -> Manifest:
    """Read a manifest from a string; ManifestError with every finding if it is not valid."""
    try:
        document, lines = toml.parse_toml(text)
    except toml.TomlSyntaxError as error:
        raise ManifestError(_syntax_finding(error, file), f"{file} is not TOML") from None
    return build_manifest(document, lines, file, text)


def _syntax_finding(error: toml.TomlSyntaxError, file: str) -> Finding:
    """Show the offending line, with a caret below the column."""
    found = error.reason
    if len(error.source) <= 200:
        before = visible(error.source[: error.column - 1], keep="\t")
        found = f"{found}\n{error.source}\n{' ' * len(before)}^"
    return Finding(f"{file}:{error.line}:{error.column}", found, "TOML (https://toml.io)")


def build_manifest(document: Values, lines: toml.Lines, file: str, text: str = "") -> Manifest:
    """Validate a parsed document; ManifestError with every finding, in the order of the lines."""
    reader = _Reader(file, lines)
    reader.check_top_level(document)
    tables = {table: reader.tables(table, document) for table in fields.TABLES}
    (qola,), (build,), (prebuilt,), (order,) = (
        tables[t] for t in (fields.QOLA, fields.BUILD, fields.PREBUILT, fields.ORDER)
    )
    # Forward variants become torch modules of their own (qola.plan.resolve).
    mode = build.get("mode", "pybind")
    expanded = bool(tables[fields.FWD_VARIANTS]) and mode == "pybind"
    _check_names(reader, qola.get("namespace", ""), build.get("architectures", ()))
    optional = expanded or bool(tables[fields.TRITON] or tables[fields.FUNCTIONS])
    example = (
        'name = "module_mha_fwd"' if mode == AITER else 'name = "libmha_fwd"\nmode = "cpp_itfs"'
    )
    raw = document.get("modules")
    _check_modules(reader, tables[fields.MODULES], raw, optional=optional, example=example)
    if mode == AITER:
        _check_for_aiter(reader, qola, tables)
    _check_functions(reader, tables[fields.FUNCTIONS], for_aiter=mode == AITER)
    _check_triton(reader, tables[fields.TRITON], document.get("triton"))
    _check_order(reader, order, tables)
    for table in fields.FILTERED:
        _check_variants(reader, table, tables, expanded=expanded and table is fields.FWD_VARIANTS)
    kernels = tuple(_read_kernels(reader, tables[fields.KERNELS]))
    _check_further_names(reader, tables, for_aiter=mode == AITER)
    findings = reader.sorted_findings()
    if any(finding.severity == "error" for finding in findings):
        raise ManifestError(findings, f"{file} is not a valid manifest")
    return Manifest(
        file=file,
        namespace=qola.get("namespace", ""),
        aiter_commit=qola.get("aiter_commit"),
        patches_dir=qola.get("patches_dir"),
        rocm_versions=_sorted(qola, "rocm_versions"),
        archs=_sorted(build, "architectures"),
        mode=mode,
        keep_unreachable=build.get("keep_unreachable", False),
        refuse_proven_faults=build.get("refuse_proven_faults", False),
        batch=build.get("batch", BATCH),
        max_bytes=build.get("max_bytes"),
        modules=tuple(_module(n, module) for n, module in enumerate(tables[fields.MODULES])),
        fwd_variants=tuple(_variants(reader, FwdVariant, fields.FWD_VARIANTS, tables)),
        bwd_variants=tuple(_variants(reader, BwdVariant, fields.BWD_VARIANTS, tables)),
        warnings=findings,
        lines=lines,
        kernels=kernels,
        triton=tuple(_triton(n, table) for n, table in enumerate(tables[fields.TRITON])),
        functions=tuple(
            FunctionSpec(**table, index=n) for n, table in enumerate(tables[fields.FUNCTIONS])
        ),
        order={
            key: tuple(dict.fromkeys(order[key])) for key in fields.ORDER.by_key if key in order
        },
        prebuilt=PrebuiltSpec(**prebuilt),
        text=text,
    )


class _Reader:
    """Reads tables by their definitions and collects findings with their lines."""

    def __init__(self, file: str, lines: toml.Lines) -> None:
        self.file = file
        self.lines = lines
        self._findings: list[tuple[int, Finding]] = []

    def report(
        self, path: toml.Path, found: str, expected: str, fix: str = "", level: Severity = "error"
    ) -> None:
        finding = Finding(self.place(path), found, expected, fix, level)
        self._findings.append((self.lines.of(path), finding))

    def warn(self, path: toml.Path, found: str, expected: str, fix: str = "") -> None:
        self.report(path, found, expected, fix, "warning")

    def sorted_findings(self) -> tuple[Finding, ...]:
        return tuple(finding for _, finding in sorted(self._findings, key=lambda item: item[0]))

    def place(self, path: toml.Path) -> str:
        """Return the place of a key or a table, for findings."""
        return place_of(self.file, self.lines, path)

    def check_top_level(self, document: Values) -> None:
        for name, value in document.items():
            if name in fields.BY_NAME:
                continue
            is_table = isinstance(value, dict) or _are_tables(value)
            found = f"unknown table {quote(name)}" if is_table else f"{name} outside of any table"
            owner = next((table.header for table in fields.TABLES if name in table.by_key), None)
            meant = nearest(name, fields.BY_NAME)
            fix = f"did you mean {fields.BY_NAME[meant].header}?" if meant else ""
            fix = f"{name} belongs under {owner}" if owner else fix
            self.report((name,), found, either(t.header for t in fields.TABLES), fix)

    def tables(self, table: TableSpec, document: Values) -> list[Values]:
        """Return the values of each such table: exactly one ({} if absent) unless repeated."""
        raw = document.get(table.name, [] if table.repeated else {})
        if not (_are_tables(raw) if table.repeated else isinstance(raw, dict)):
            found = quote(raw)
            if isinstance(raw, dict) or _are_tables(raw):
                found = f"[{table.name}], one table" if table.repeated else f"[[{table.name}]]"
            self.report((table.name,), found, f"{table.header}", f"write {table.header}")
            return [] if table.repeated else [{}]
        if not table.repeated:
            return [self._values(table, raw, (table.name,))]
        return [self._values(table, item, (table.name, n)) for n, item in enumerate(raw)]

    def check_once(
        self, first: dict[str, toml.Path], name: str, path: toml.Path, expected: str, fix: str
    ) -> None:
        """Record the path of a name in `first`; report a name that is there already."""
        if name in first:
            line = self.lines.of(first[name])
            self.report(path, f"{quote(name)}, which line {line} declares already", expected, fix)
        first.setdefault(name, path)

    def _values(self, table: TableSpec, raw: Values, path: toml.Path) -> Values:
        """Return the valid fields of one table in canonical form, and report the others."""
        values: Values = {}
        for key, item in raw.items():
            field = table.by_key.get(key)
            if field is None:
                self._unknown_key(table, key, (*path, key))
                continue
            value, faults = check_value(field, item)
            for fault in faults:
                self.report((*path, key), fault.found, expectation(field), fault.fix)
            if faults:
                continue
            values[key] = value
            if field.kind is Kind.TEXT_LIST:
                self._check_repetitions(value, (*path, key))
            if field.kind is Kind.HDIM_SET:
                self._check_pair(item, (*path, key))
        for field in table.fields:
            if field.required and field.key not in raw:
                self.report(path, f"no {field.key}", expectation(field), f'{field.key} = "..."')
        return values

    def _unknown_key(self, table: TableSpec, key: str, path: toml.Path) -> None:
        same = [name for name in table.by_key if {name, key} <= _ARCH_KEYS]
        owners = [other.header for other in fields.TABLES if key in other.by_key]
        meant = same[0] if same else nearest(key, table.by_key)
        fix = f"did you mean {meant}?" if meant else ""
        if owners and not same:
            fix = f"{key} belongs under {either(owners)}"
        elif not meant and table is fields.FUNCTIONS:
            fix = f"write arguments.{key}"
        self.report(path, f"unknown key {quote(key)}", either(table.by_key), fix)

    def _check_repetitions(self, value: tuple[str, ...], path: toml.Path) -> None:
        repeated = sorted(text for text, count in Counter(value).items() if count > 1)
        if repeated:
            found = f"{', '.join(map(quote, repeated[:9]))} more than once"
            self.warn(path, found, "each once")

    def _check_pair(self, raw: object, path: toml.Path) -> None:
        """Warn about two descending head dimensions: they may be meant as a [q, v] pair."""
        if isinstance(raw, list) and len(raw) == 2 and all(type(n) is int for n in raw):
            high, low = raw
            if high > low:
                self.warn(
                    path,
                    f"[{high}, {low}], read as head dimensions {high} and {low}",
                    "a [q, v] pair inside a list, or head dimensions in ascending order",
                    f"for the pair write [[{high}, {low}]], otherwise [{low}, {high}]",
                )


def _are_tables(raw: object) -> bool:
    return isinstance(raw, list) and all(isinstance(item, dict) for item in raw)


def _check_names(reader: _Reader, namespace: str, archs: tuple[str, ...]) -> None:
    if fault := namespace_fault(namespace):
        reader.report(
            ("qola", "namespace"),
            f"{quote(namespace)}: {fault}",
            expectation(fields.QOLA.by_key["namespace"]),
            f"for example {quote('my_' + re.sub('_+', '_', namespace).strip('_'))}",
        )
    if NATIVE in archs and len(set(archs)) > 1:
        reader.report(
            ("build", "architectures"),
            f"{quote(NATIVE)} together with other architectures",
            f"only {quote(NATIVE)}, or architectures by name",
        )


def _check_modules(
    reader: _Reader, modules: list[Values], raw: object, *, optional: bool, example: str
) -> None:
    if raw is None and not optional:
        reader.report(
            (),
            "no [[modules]] table",
            "at least one library to build",
            f"add the lines\n[[modules]]\n{example}",
        )
    elif raw == []:
        reader.report(("modules",), "no module", "at least one [[modules]] table")
    first: dict[str, toml.Path] = {}
    for n, module in enumerate(modules):
        name = module.get("name")
        if name is not None:
            fix = f"merge the two [[modules]] tables of {name}"
            reader.check_once(first, name, ("modules", n, "name"), "every module once", fix)
        _check_directions(reader, module, ("modules", n, "add_directions"))


def _check_for_aiter(
    reader: _Reader, qola: Values, tables: Mapping[TableSpec, list[Values]]
) -> None:
    """Report all content of a manifest in mode aiter that AITER's Python would not find."""
    if qola.get("namespace"):
        reader.report(
            ("qola", "namespace"),
            f"namespace {quote(qola['namespace'])} in mode aiter",
            "no namespace: AITER imports modules by its own names",
            "remove namespace",
        )
    for n, module in enumerate(tables[fields.MODULES]):
        if "mode" in module:
            found = f"mode {quote(module['mode'])} of a module in mode aiter"
            expected = "modules without a mode of their own"
            reader.report(("modules", n, "mode"), found, expected, "remove this mode")
        elif module.get("name", "").startswith("lib"):
            reader.report(
                ("modules", n, "name"),
                f"{module['name']} in mode aiter",
                "modules that Python imports: no Python calls this C++ library",
                f'a manifest of its own with mode = "cpp_itfs" for {module["name"]}',
            )
    for table in (fields.TRITON, fields.KERNELS):
        if tables[table]:
            reader.report(
                (table.name, 0),
                f"{table.header} in mode aiter",
                "modules of AITER only",
                f"remove {table.header}, or move it to a manifest in mode cpp_itfs",
            )


def _check_functions(reader: _Reader, tables: list[Values], *, for_aiter: bool) -> None:
    """Report functions that no Python would find, and too many of them."""
    if tables and not for_aiter:
        found = "functions of AITER's second JIT"
        expected = 'mode = "aiter" under [build]: only AITER\'s own Python finds them'
        reader.report(("functions", 0), found, expected, "remove [[functions]], or set that mode")
    for n, table in enumerate(tables):
        lists = [value for _, value in table.get("arguments", ()) if isinstance(value, tuple)]
        if (number := math.prod(map(len, lists))) > _MAX_COMBINATIONS:
            found = f"{number} combinations of arguments"
            fix = "name the values that the server uses, in several [[functions]] tables"
            most = f"{_MAX_COMBINATIONS} at most"
            reader.report(("functions", n, "arguments"), found, most, fix)


def _check_further_names(
    reader: _Reader, tables: Mapping[TableSpec, list[Values]], *, for_aiter: bool
) -> None:
    """Report names that are used twice, or for which the manifest selects no kernels."""
    first: dict[str, toml.Path] = {}
    for n, module in enumerate(tables[fields.MODULES]):
        path = ("modules", n, "names")
        if module.get("names") and not for_aiter:
            expected = 'mode = "aiter" under [build]: no other Python looks for them'
            reader.warn(path, "names of a module", expected, "remove names, or set that mode")
            continue
        for name in module.get("names", ()):
            reader.check_once(first, name, path, "every name once", f"remove {name} here")
            if name in {other.get("name") for other in tables[fields.MODULES]}:
                found = f"{name}, which is a module of this manifest"
                reader.report(path, found, "names of no module", f"remove {name}")
        _check_kernels_of(reader, tables, module, path)


def _check_kernels_of(
    reader: _Reader, tables: Mapping[TableSpec, list[Values]], module: Values, path: toml.Path
) -> None:
    """Report names of a module whose kernels its variants leave out."""
    for table, kind in ((fields.FWD_VARIANTS, FwdVariant), (fields.BWD_VARIANTS, BwdVariant)):
        if module.get("name") not in fields.FILTERED[table] or not tables[table]:
            continue
        variants = list(_variants(reader, kind, table, tables))
        lacking = {
            name: fault for name in module.get("names", ()) if (fault := unserved(name, variants))
        }
        for name, fault in [*lacking.items()][:1]:
            more = f" and {len(lacking) - 1} more names" if len(lacking) > 1 else ""
            line, names = reader.lines.of((table.name, 0)), "names" if more else "name"
            reader.report(
                path,
                f"{name}{more}, and no {table.header} table selects kernels with {fault}",
                "names whose kernels the module has",
                f"add the value to {table.header} in line {line}, or remove the {names}",
            )


def _check_directions(reader: _Reader, module: Values, path: toml.Path) -> None:
    added = tuple(dict.fromkeys(module.get("add_directions", ())))
    name = module.get("name", "libmha_fwd")
    if added and name != "libmha_fwd":
        reader.report(
            path,
            f"{', '.join(added)} added to {name}",
            "directions of libmha_fwd: no function of another module could call them",
            "move add_directions to the [[modules]] table of libmha_fwd",
        )
    if both := [name for name in added if name in module.get("drop_directions", ())]:
        reader.report(
            path,
            f"{', '.join(both)}, which drop_directions leaves out",
            "a direction in one of the two",
            f"take {', '.join(both)} out of add_directions or of drop_directions",
        )


def _check_triton(reader: _Reader, tables: list[Values], raw: object) -> None:
    if raw == []:
        reader.report(("triton",), "no kernel", "at least one [[triton]] table")
    first: dict[str, toml.Path] = {}
    for n, table in enumerate(tables):
        choices = dict(table.get("choices", ()))
        for key, name in _CHOICE_OF.items():
            if key in table and name in choices:
                found, fix = f"{key}, and {name} in choices", f"remove {name} of choices"
                reader.report(("triton", n, key), found, "one of the two", fix)
        for key, needed in (("remote", "commit"), ("commit", "remote"), ("commit", "file")):
            if key in table and needed not in table:
                found, fix = f"{key} without {needed}", f"remove {key}, or add {needed}"
                reader.report(("triton", n, key), found, "remote, commit and file", fix)
        if "deps" in table and "file" not in table:
            expected = "a file that imports them"
            reader.warn(("triton", n, "deps"), "deps without file", expected, "remove deps")
        for kernel in table.get("kernels", ()):
            name = triton_name(table.get("name", ""), kernel)
            expected, fix = "every kernel once under a name", 'name = "other" in one of the tables'
            reader.check_once(first, name, ("triton", n, "kernels"), expected, fix)


def _check_order(reader: _Reader, order: Values, tables: Mapping[TableSpec, list[Values]]) -> None:
    """Warn if there are not two kinds of kernels to order."""
    absent = " and ".join(
        table.header for table in (fields.MODULES, fields.TRITON) if not tables[table]
    )
    if order and absent:
        expected = "libraries and Triton kernels to choose from"
        fix = f"add {absent}, or remove [order]"
        reader.warn(("order",), f"[order] without {absent}", expected, fix)


def _check_variants(
    reader: _Reader, table: TableSpec, tables: Mapping[TableSpec, list[Values]], *, expanded: bool
) -> None:
    modules = fields.FILTERED[table]
    declared = {module.get("name") for module in tables[fields.MODULES]}
    if tables[table] and not declared & {*modules} and not expanded:
        reader.warn(
            (table.name, 0),
            f"{table.header} without the module it filters",
            f"a [[modules]] table with name = {quote(modules[0])}",
        )
    seen: dict[str, int] = {}
    for n, variant in enumerate(tables[table]):
        path = (table.name, n)
        _check_biases(reader, variant, path)
        form = repr((variant.get("receipt"), _dimensions(table, variant)))
        if form in seen:
            reader.warn(
                path,
                f"the same kernels as line {reader.lines.of((table.name, seen[form]))}",
                "variants that differ",
                "remove one of the two tables",
            )
        seen.setdefault(form, n)


def _check_biases(reader: _Reader, variant: Values, path: toml.Path) -> None:
    always = (True,)
    if variant.get("has_bias") == always and variant.get("has_alibi") == always:
        reader.warn(
            (*path, "has_alibi"),
            "has_bias and has_alibi both true: a kernel has one bias, and elementwise bias wins",
            "one of the two",
            "remove has_alibi, or write has_bias = false",
        )
    if variant.get("has_dbias") == always and "bias" not in _bias_kinds(variant):
        reader.warn(
            (*path, "has_dbias"),
            "has_dbias = true with has_bias = false: no such kernel exists",
            "a bias gradient together with an elementwise bias",
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


def _dimensions(table: TableSpec, variant: Values) -> Values:
    """Return the dimensions of a variant by the field names of `FwdVariant` and `BwdVariant`."""
    return {
        "dtype": variant.get("dtype"),
        "bias": _bias_kinds(variant),
        "hdim": variant.get("hdim"),
        "mode": variant.get("mode", FMHA_MODES),
        **{name: variant.get(key, BOTH) for key, name in flags(table).items()},
    }


def _read_kernels(reader: _Reader, tables: list[Values]) -> Iterator[RequestedKernel]:
    """Yield the kernels that tables name; report invalid names and repetitions."""
    seen: dict[KernelConfig, int] = {}
    for n, table in enumerate(tables):
        path = (fields.KERNELS.name, n, "names")
        for name in table.get("names", ()):
            try:
                config = KernelConfig.from_name(name)
            except ConfigError as error:
                for finding in error.findings:
                    where = "" if finding.place == name else f"{finding.place} "
                    found = f"{name}: {where}{finding.found}"
                    reader.report(path, found, finding.expected, finding.fix)
                continue
            if config not in seen:
                seen[config] = n
                yield RequestedKernel(config, reader.place(path))
            elif seen[config] != n:  # repetitions within a table have a warning already
                line = reader.lines.of((fields.KERNELS.name, seen[config], "names"))
                found = f"{name}, which line {line} names already"
                reader.report(path, found, "every kernel once", "remove one of the two")


def _sorted(values: Values, key: str) -> tuple[str, ...]:
    return tuple(sorted(set(values.get(key, ()))))


def _module(index: int, module: Values) -> ModuleSpec:
    own: Values = {key: value for key, value in module.items() if key not in fields.OVERRIDE_KEYS}
    for key in ("drop_srcs", "drop_directions", "add_directions", "names"):
        own[key] = _sorted(module, key)
    return ModuleSpec(
        **own,
        overrides=tuple(sorted((k, v) for k, v in module.items() if k in fields.OVERRIDE_KEYS)),
        index=index,
    )


def _variants(
    reader: _Reader, cls: Any, table: TableSpec, tables: Mapping[TableSpec, list[Values]]
) -> Iterator[Any]:
    for n, variant in enumerate(tables[table]):
        place, receipt = reader.place((table.name, n)), variant.get("receipt")
        yield cls(index=n, place=place, receipt=receipt, **_dimensions(table, variant))


def _triton(index: int, table: Values) -> TritonSpec:
    short = {
        "dtype": table.get("dtypes", ()),
        "HDIM": tuple(map(str, table.get("hdims", ()))),
        "CAUSAL": tuple(str(CAUSAL_MASKS.index(mask)) for mask in table.get("causal", ())),
    }
    choices = {**dict(table.get("choices", ())), **{k: v for k, v in short.items() if v}}
    own = {key: value for key, value in table.items() if key not in _CHOICE_OF}
    own |= {"archs": _sorted(table, "archs"), "choices": tuple(sorted(choices.items()))}
    return TritonSpec(**own, index=index)
