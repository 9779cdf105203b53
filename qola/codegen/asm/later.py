"""The assembly path of AITER's later trees: C++ tables, and the code objects to embed.

From late 2025 on AITER's entry sources select and load by themselves. They include a table that
`hsa/codegen.py` writes (`asm_<module>_configs.hpp`), and look code objects up in a map that the
build names: qola's is over the embedded ones (cc/api/qola_embedded_hsa.h). So a row that is left
out of the table is never selected, whoever calls, and each row that is left has its code object.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from qola.aiter.attention import attention_of
from qola.aiter.includes import closure, include_dirs, includes
from qola.aiter.tree import AiterTree, GeneratorCall, ModuleConfig
from qola.codegen.asm.config_headers import SCRIPT, config_header, header_name
from qola.codegen.asm.config_tables import ConfigRow, ConfigTable, padded, read_tables, row_fits
from qola.codegen.asm.domain import Variant
from qola.codegen.asm.reach import unreached
from qola.codegen.asm.set import AsmSet, listed, not_embedded
from qola.codegen.types import CodeObject, GeneratedSource, Selection
from qola.errors import Finding
from qola.files import lossy_text, sha256_of
from qola.folder import Folder

_CONFIG_HEADER = re.compile(r"asm_(\w+)_configs\.hpp")


def config_modules(
    tree: AiterTree, config: ModuleConfig, drop_srcs: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the modules of `hsa/codegen.py` whose tables a library's sources include, sorted.

    An include counts whatever ``#if`` it stands under. () for a library of AITER's earlier trees,
    whose assembly path is written by generators of its own.
    """
    if not (tree.root / tree.hsa_dir / SCRIPT).is_file():
        return ()
    names: set[str] = set()
    dirs = include_dirs(tree, config)
    for src in config.srcs:
        path = tree.root / src
        if not path.is_file() or path.name in drop_srcs:
            continue
        direct = _includes(path)
        headers = closure(tree.root, [posixpath.dirname(src), *dirs], direct)
        names.update(direct, *(_includes(tree.root / header) for header in headers))
    found = (_CONFIG_HEADER.fullmatch(posixpath.basename(name)) for name in names)
    return tuple(sorted(match[1] for match in found if match))


def asked_modules(tree: AiterTree, calls: Iterable[GeneratorCall]) -> tuple[str, ...]:
    """Return the modules that calls of `hsa/codegen.py` name."""
    script = f"{tree.hsa_dir}/{SCRIPT}"
    named = (call.option("-m", "--module") for call in calls if call.script == script)
    return tuple(sorted({name for name in named if name}))


def generate_later_asm(
    tree: AiterTree,
    config: ModuleConfig,
    selection: Selection,
    archs: Sequence[str],
    out_dir: Folder,
    *,
    asked: Collection[str] = (),
) -> AsmSet:
    """Generate the tables of a library, and say what it embeds.

    Tables of modules that the selection does not embed are written, and empty.

    Args:
        tree: the AITER tree; it is not written to.
        config: ``libmha_fwd`` or ``libmha_bwd``.
        selection: its variants are those of the library's direction; without any, every row of the
            architectures is kept.
        out_dir: gets ``include/``.
        asked: modules whose table is written although no source includes it.

    Raises:
        CodegenError: the script fails, or a module has no tables.
    """
    modules = config_modules(tree, config, selection.drop_srcs)
    embedded = (selection.embedded or modules) if selection.asm else ()
    made = [
        _made(
            tree, config, selection, module, archs, out_dir, on=module in {*modules} & {*embedded}
        )
        for module in sorted({*modules, *asked})
    ]
    every = [row for one in made for row in one.rows]
    reached = {one.module: sorted({row.arch for row in one.rows}) for one in made}
    return AsmSet(
        archs=tuple(sorted({row.arch for row in every})),
        tables=tuple(one.header for one in made),
        code_objects=_code_objects(tree, every),
        served=_served(made, attention_of(config.name).direction, archs, selection.variants),
        findings=(
            *(finding for one in made for finding in one.findings),
            *unreached(tree, config, selection.drop_srcs, reached),
        ),
        inputs=tuple(
            sorted({f"{tree.hsa_dir}/{SCRIPT}", *(file for one in made for file in one.files)})
        ),
    )


@dataclass(frozen=True)
class _Made:
    """What came of one module of `hsa/codegen.py`: its header, the rows in it, the tables read."""

    module: str
    header: GeneratedSource
    rows: tuple[ConfigRow, ...]
    files: tuple[str, ...]
    findings: tuple[Finding, ...]


def _made(
    tree: AiterTree,
    config: ModuleConfig,
    selection: Selection,
    module: str,
    archs: Sequence[str],
    out_dir: Folder,
    *,
    on: bool,
) -> _Made:
    """Write the header of one module; without a row where its kernels are not wanted."""
    direction = attention_of(config.name).direction
    tables = read_tables(tree, module)
    here = [table for table in tables if on and table.arch in archs]
    wanted = [
        row
        for table in here
        for row in table.rows
        if _keepers(row, module, direction, selection.variants)
    ]
    kept = tuple(row for row in wanted if not _missing(tree, row))
    file = f"include/{header_name(module)}"
    digest = out_dir.write(file, config_header(tree, module, tables, kept))
    return _Made(
        module,
        GeneratedSource(header_name(module), file, digest, direction, "table"),
        kept,
        tuple(table.file for table in tables),
        tuple(_integrity(tree, module, here, wanted)),
    )


def _includes(path: Path) -> list[str]:
    return [name for name, _ in includes(lossy_text(path))]


def _keepers(row: ConfigRow, module: str, direction: str, variants: Sequence[Variant]) -> list[int]:
    """Return the variants that want a row; [-1] where there are none at all."""
    if not variants:
        return [-1]
    return [v.index for v in variants if row_fits(v, row, module, direction)]


def _missing(tree: AiterTree, row: ConfigRow) -> list[str]:
    return [file for file in row.files if not (tree.root / file).is_file()]


def _integrity(
    tree: AiterTree, module: str, tables: Sequence[ConfigTable], wanted: Sequence[ConfigRow]
) -> list[Finding]:
    """Compare tables with the files beside them, in both directions, for each architecture."""
    findings = []
    for arch in sorted({table.arch for table in tables}):
        folder = f"{tree.hsa_dir}/{arch}/{module}"
        own = [table for table in tables if table.arch == arch]
        place = ", ".join(table.file for table in own) if len(own) < 3 else f"tables in {folder}"
        if lost := {f for row in wanted if row.arch == arch for f in _missing(tree, row)}:
            findings.append(
                Finding(
                    place=place,
                    found=f"rows for {listed(lost, folder)}, of which there is no file: the rows "
                    "are dropped, and no assembly kernel serves their problems",
                    expected="a .co file for each row",
                    severity="warning",
                )
            )
        named = {file for table in own for row in table.rows for file in row.files}
        present = {
            path.relative_to(tree.root).as_posix() for path in (tree.root / folder).rglob("*.co")
        }
        if present - named:
            findings.append(not_embedded(present - named, folder, place))
    return findings


def _code_objects(tree: AiterTree, rows: Iterable[ConfigRow]) -> tuple[CodeObject, ...]:
    arch_of = {file: row.arch for row in rows for file in row.files}
    above = posixpath.dirname(tree.hsa_dir)
    return tuple(
        CodeObject(
            key=file.removeprefix(f"{above}/") if above else file,
            file=file,
            arch=arch_of[file],
            sha256=sha256_of(tree.root / file),
            size=(tree.root / file).stat().st_size,
        )
        for file in sorted(arch_of)
    )


def _served(
    made: Iterable[_Made],
    direction: str,
    archs: Sequence[str],
    variants: Sequence[Variant],
) -> dict[int, frozenset[tuple[int, int]]]:
    """Return the head dims of each variant that every architecture has a row for."""
    found: dict[int, frozenset[tuple[int, int]]] = {}
    for variant in variants:
        own = {
            (row.arch, row.number("hdim_q"), row.number("hdim_v"))
            for one in made
            for row in one.rows
            if not row.is_helper and row_fits(variant, row, one.module, direction)
        }
        if {arch for arch, _, _ in own} != set(archs):
            continue
        found[variant.index] = frozenset(
            hdim
            for hdim in variant.hdim or ()
            if all((arch, *padded(direction, *hdim)) in own for arch in archs)
        )
    return found
