"""Writes the starter manifest: a small one that plans, with all other keys commented out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from qola.common.version import docs_url
from qola.manifest import fields
from qola.manifest.constants import TESTED_ARCHS
from qola.manifest.fields import Field, TableSpec
from qola.manifest.toml import TomlTables, toml_line, toml_prose, toml_value
from qola.manifest.values import expectation
from qola_base.json_types import JsonValue

DEFAULT_NAMESPACE = "mine"
DEFAULT_ARCHS = (TESTED_ARCHS[-1],)


def starter_tables(namespace: str, archs: tuple[str, ...]) -> TomlTables:
    """Return the tables of a starter manifest, without the keys that are comments."""
    return {
        fields.QOLA.name: {"namespace": namespace},
        fields.BUILD.name: {"architectures": archs, "mode": "cpp_itfs"},
        fields.MODULES.name: [{"name": "libmha_fwd", "receipt": "te"}],
        fields.FWD_VARIANTS.name: [
            {
                # The pinned AITER has proven faults in kernels for batch mode (gfx950), and for
                # bf16 in group mode (assembly for gfx942).
                "dtype": "fp16",
                "mode": "group",
                "has_bias": False,
                "has_alibi": False,
                "has_lse": True,
                "has_dropout": False,
                "hdim": 128,
            }
        ],
    }


def starter_manifest(
    namespace: str = DEFAULT_NAMESPACE,
    archs: tuple[str, ...] = DEFAULT_ARCHS,
    *,
    file: str = "qola.toml",
    schema: str = "",
) -> str:
    """Return the text of a starter manifest: the forward kernels of one model, in group mode.

    Args:
        namespace, archs: written without checks.
        file: the manifest's name, for the command in its first lines.
        schema: path of the JSON schema relative to the manifest, for editors; "" for none.
    """
    written = starter_tables(namespace, archs)
    lines = [f"#:schema {schema}"] if schema else []
    lines += toml_prose("A manifest of qola: which attention libraries to build.")
    lines += toml_prose(f"This command shows the kernels that it selects: qola plan {file}")
    lines += toml_prose(
        'A "#" directly before a key omits the key; remove the "#" to set it. '
        f"{docs_url('reference/manifest.md')} describes all keys."
    )
    for table in (fields.QOLA, fields.BUILD, fields.MODULES, fields.FWD_VARIANTS):
        (values,) = (of,) if isinstance(of := written[table.name], Mapping) else of
        lines += ["", *toml_prose(table.doc), table.header, *_fields(table, values)]
        if table is fields.MODULES:
            more = [f.key for f in table.fields if f.key in fields.OVERRIDE_KEYS]
            planned = ", ".join(key for key in more if key not in fields.REFUSED_KEYS)
            refused = ", ".join(key for key in more if key in fields.REFUSED_KEYS)
            lines += ["", *toml_prose(f"keys that change AITER's own entry: {planned}")]
            lines += toml_prose(f"keys of ROCm/QoLA that a plan refuses: {refused}")
    lines += ["", *toml_prose("The backward library."), f"#{fields.MODULES.header}"]
    lines += ['#name = "libmha_bwd"', '#receipt = "te"']
    for table in (
        fields.BWD_VARIANTS,
        fields.KERNELS,
        fields.TRITON,
        fields.ORDER,
        fields.PREBUILT,
    ):
        lines += ["", *toml_prose(table.doc), f"#{table.header}", *_fields(table, {})]
    return "\n".join(lines) + "\n"


def _fields(table: TableSpec, values: Mapping[str, JsonValue]) -> Iterator[str]:
    for field in table.fields:
        if field.key in fields.OVERRIDE_KEYS and table is fields.MODULES:
            continue
        omitted = "" if field.required else f"; left out: {field.omitted}"
        yield ""
        yield from toml_prose(field.doc)
        yield from toml_prose(f"{_value(field)}{omitted}", indent="  ")
        if field.key in values:
            yield toml_line(field.key, values[field.key])
        else:
            # On one line: a "#" omits only its own line.
            example = field.allowed[0] if field.example is None else field.example
            yield f"#{field.key} = {toml_value(example)}"


def _value(field: Field) -> str:
    """Return which values a field accepts."""
    if field is fields.TRITON.by_key["archs"]:
        return f"{field.kind.phrase}, archs by LLVM name"
    return expectation(field, short=True)
