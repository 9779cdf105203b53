"""The assembly path of AITER's later trees: C++ tables, and the code objects to embed.

``hsa/<arch>/<module>/**/*.csv`` has a row for each kernel: which .co file serves which problems.
qola only interprets the columns by which variants select: dtype, hdim_q, hdim_v, mask and mode.

From late 2025 on AITER's entry sources select and load by themselves. They include a table that
`hsa/codegen.py` writes (`asm_<module>_configs.hpp`), and look code objects up in a map that the
build names: qola's is over the embedded ones (runtime/api/qola_embedded_hsa.h). So a row that is
left out of the table is never selected, whoever calls, and each row that is left has its code
object.
"""

from __future__ import annotations

import csv
import io
import posixpath
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from qola.aiter.attention import attention_of
from qola.aiter.includes import closure, include_dirs, includes
from qola.aiter.preprocess import without_comments
from qola.aiter.tree import AiterTree, GeneratorCall, ModuleConfig
from qola.codegen.asm.domain import Variant, serves_any
from qola.codegen.asm.script import run_script
from qola.codegen.asm.set import AsmSet, code_object, compare_files
from qola.codegen.types import GeneratedSource, Selection
from qola.common.folder import Folder
from qola_base.errors import CodegenError, Finding
from qola_base.files import lossy_text, write_if_changed

#: Head dims that AITER's backward pads to (get_padded_hdim in csrc/cpp_itfs/mha_bwd.cu).
_BWD_PADDED = (64, 128, 192)
#: Tables of kernels that run before and after the main one of a backward.
_HELPERS = ("_odo", "_dq_convert", "_dq_shuffle")
#: A whole number, also as pandas writes a column with gaps; or a gap.
_NUMBER = re.compile(r"(-?\d+)(?:\.0*)?|")
_BLOCK_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_LINE_COMMENT = re.compile(r"\s*(?:(?<!:)//|#|(?<=\s);)")


@dataclass(frozen=True)
class ConfigRow:
    """One row of a table: a kernel and the problems it is for.

    Attributes:
        table: name of its table without suffix, as in AITER's C++.
        fields: texts by column.
        files: tree-relative paths of its .co file; several if the library picks one by the
            device's compute units (MI300, MI308).
        place: its file and line, for messages.
    """

    arch: str
    table: str
    fields: Mapping[str, str]
    files: tuple[str, ...]
    place: str = ""

    @property
    def is_helper(self) -> bool:
        """Whether its kernel is a helper of the main kernel of a backward."""
        return self.table.endswith(_HELPERS)

    def number(self, column: str) -> int | None:
        """Return a whole number, None if the table lacks the column.

        A gap is 0, as in `hsa/codegen.py`.

        Raises:
            CodegenError: it is not a whole number.
        """
        if column not in self.fields:
            return None
        text = self.fields[column].strip()
        if match := _NUMBER.fullmatch(text):
            return int(match[1] or 0)
        expected = "a whole number, or nothing, which is 0"
        fix = "use an AITER tree whose tables have numbers in this column"
        raise CodegenError(Finding(self.place, f"{column} = {text}", expected, fix))


@dataclass(frozen=True)
class ConfigTable:
    """One CSV file of the tree."""

    arch: str
    file: str
    columns: tuple[str, ...]
    rows: tuple[ConfigRow, ...]

    def text(self, rows: Sequence[ConfigRow]) -> str:
        """Return the table with only these rows, as CSV."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([[row.fields[name] for name in self.columns] for row in rows])
        return out.getvalue()


_FIX = "use an AITER tree whose tables hsa/codegen.py reads"


def read_tables(tree: AiterTree, module: str) -> tuple[ConfigTable, ...]:
    """Read the tables of one module for all archs, sorted by file.

    Raises:
        CodegenError: the module has no table, or a file is not such a table.
    """
    found = sorted((tree.root / tree.hsa_dir).glob(f"*/{module}/**/*.csv"))
    if not found:
        raise CodegenError(
            Finding(
                f"{tree.hsa_dir}/codegen.py -m {module}",
                f"no table {tree.hsa_dir}/<arch>/{module}/**/*.csv",
                "a table for at least one arch",
                "use an AITER tree that has the folder, or leave the source that includes "
                f"asm_{module}_configs.hpp out (drop_srcs)",
            )
        )
    return tuple(_read_table(tree, path.relative_to(tree.root).as_posix()) for path in found)


def _read_table(tree: AiterTree, file: str) -> ConfigTable:
    try:
        lines = [*_without_comments((tree.root / file).read_text(encoding="utf-8-sig"))]
        reader = csv.reader(f"{line}\n" for _, line in lines)
        columns = next(reader, [])
        rows = [(lines[reader.line_num - 1][0], row) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        found = f"{type(error).__name__}: {error}"
        raise CodegenError(Finding(file, found, "a CSV table in UTF-8", _FIX)) from None
    widths = {len(row) for _, row in rows}
    if not {"knl_name", "co_name"} <= set(columns) or widths - {len(columns)}:
        found = f"columns {', '.join(columns) or 'none'}, rows of {sorted(widths)} fields"
        expected = "a CSV table with the columns knl_name and co_name, and all fields in each row"
        raise CodegenError(Finding(file, found, expected, _FIX))
    arch = file.removeprefix(f"{tree.hsa_dir}/").partition("/")[0]
    name, folder = PurePosixPath(file).stem, posixpath.dirname(file)
    read = []
    for number, row in rows:
        fields = dict(zip(columns, row, strict=True))
        files = _co_files(tree, folder, fields["co_name"].strip())
        read.append(ConfigRow(arch, name, fields, files, f"{file}:{number}"))
    return ConfigTable(arch, file, tuple(columns), tuple(read))


def _without_comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each line that is not blank, without comments."""
    number = 0
    # A block comment leaves a mark for every line break in it.
    for marked in _BLOCK_COMMENT.sub(lambda m: "\0" * m[0].count("\n"), text).splitlines():
        number += 1 + marked.count("\0")
        line = marked.replace("\0", "")
        if line.strip() and not line.lstrip().startswith(("//", "#", ";")):
            comment = _LINE_COMMENT.search(line) if '"' not in line else None
            yield number, line[: comment.start()] if comment else line


def _co_files(tree: AiterTree, folder: str, name: str) -> tuple[str, ...]:
    """Return the files that a library may load for a row, relative to the tree.

    The file is in the table's folder. If it is missing there and subfolders have code objects, the
    library picks a subfolder by the device, so that each of them must have the file.
    """
    file = posixpath.normpath(f"{folder}/{name}")
    if (tree.root / file).is_file():
        return (file,)
    parts = sorted(path.name for path in (tree.root / folder).iterdir() if any(path.glob("*.co")))
    return tuple(posixpath.normpath(f"{folder}/{part}/{name}") for part in parts) or (file,)


def row_fits(variant: Variant, row: ConfigRow, module: str, direction: str) -> bool:
    """Whether a row serves a problem of the variant.

    A missing column matches everything. For helper kernels of a backward only the mode and one of
    the head dims count: some serve every dtype and mask.
    """
    if not serves_any(variant, module) or _mode(row, module) not in variant.mode:
        return False
    hdims = [padded(direction, *hdim) for hdim in variant.hdim or ()]
    q, v = row.number("hdim_q"), row.number("hdim_v")
    if row.is_helper:
        return variant.hdim is None or any(q == a or v == b for a, b in hdims)
    mask = row.number("mask")
    return (
        (variant.dtype is None or row.fields.get("dtype", "").strip() in variant.dtype)
        and (mask is None or (mask != 0) in variant.mask)
        and (variant.hdim is None or any(q in (None, a) and v in (None, b) for a, b in hdims))
    )


def padded(direction: str, hdim_q: int, hdim_v: int) -> tuple[int, int]:
    """Return the head dims of the rows that serve a problem."""
    if direction == "bwd" and hdim_q == hdim_v:
        top = next((top for top in _BWD_PADDED if hdim_q <= top), hdim_q)
        return top, top
    return hdim_q, hdim_v


def _mode(row: ConfigRow, module: str) -> str:
    """Return batch or group; a table without this column is for one of them."""
    mode = row.number("mode")
    if mode is None:
        return "group" if module.endswith("_varlen") else "batch"
    return "group" if mode else "batch"


SCRIPT = "codegen.py"
"""Name of the script, below the tree's directory of code objects."""

#: Prefix of the architecture names of complete tables. It sorts before every arch.
_COMPLETE = "0_"


def header_name(module: str) -> str:
    """Return the name of the header with a module's tables."""
    return f"asm_{module}_configs.hpp"


def config_header(
    tree: AiterTree, module: str, tables: Sequence[ConfigTable], kept: Collection[ConfigRow]
) -> bytes:
    """Return the C++ table of some rows; `tables` are all of the module, which the C++ names.

    The script infers types and columns from the rows, and fails on a table without rows. So it also
    gets every complete table, for architectures that are not generated: the C++ is that of AITER's
    own build without the lines of the other rows.
    """
    script = f"{tree.hsa_dir}/{SCRIPT}"
    place = f"{script} -m {module}"
    chosen = {id(row) for row in kept}
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        shutil.copyfile(tree.root / script, root / SCRIPT)
        for table in tables:
            below = table.file.removeprefix(f"{tree.hsa_dir}/{table.arch}/")
            rows = [row for row in table.rows if id(row) in chosen]
            write_if_changed(root / f"{_COMPLETE}{table.arch}" / below, table.text(table.rows))
            write_if_changed(root / table.arch / below, table.text(rows))
        archs = sorted({row.arch for row in kept})
        files = run_script(root / SCRIPT, ["-m", module, "--output_dir", "{}"], place, archs)
    header = header_name(module)
    if list(files) != [header]:
        fix = "use an AITER tree that this qola serves"
        raise CodegenError(Finding(place, ", ".join(files), f"{header} and no other file", fix))
    return files[header]


#: Definitions of functions that other sources can call: C functions by AITER's macro, and C++.
_DEFINED = (
    re.compile(r"^AITER_CTYPES_DEFINE_ENTRYPOINT\w*\(\s*(\w+)", re.MULTILINE),
    re.compile(
        r"^(?!static\b|return\b|using\b)[\w:&*<>]+[\w:&*<> \t]*[ \t\n](\w+)\([^;{}]*\)\s*\{",
        re.MULTILINE,
    ),
)


def unreached(
    tree: AiterTree,
    config: ModuleConfig,
    drop_srcs: Collection[str],
    archs_of: Mapping[str, Sequence[str]],
) -> Iterator[Finding]:
    """Warn of tables whose kernels a library's entry point cannot launch.

    AITER moves launches between its sources: the function that launches a table's kernels may be
    compiled into a library that never calls it. Then the library returns "no kernel" for their
    problems, although it was built without an error. `archs_of` has the architectures with kernels,
    by module of `hsa/codegen.py`.
    """
    texts = {
        src: without_comments(tree.text(src))
        for src in config.srcs
        if (tree.root / src).is_file() and src.rpartition("/")[2] not in drop_srcs
    }
    entry = f"mha_{attention_of(config.name).direction}"
    entries = [src for src, text in texts.items() if re.search(rf"^float\s+{entry}\(", text, re.M)]
    words = {word for src in entries for word in re.findall(r"\w+", texts[src])}
    for module, archs in sorted(archs_of.items()):
        header = header_name(module)
        users = [src for src, text in texts.items() if header in dict(includes(text))]
        defined = {
            name
            for src in users
            for pattern in _DEFINED
            for name in pattern.findall(texts[src])
            if not name.startswith("AITER_")
        }
        if not archs or not entries or not users or {*users} & {*entries} or words & defined:
            continue
        yield Finding(
            ", ".join(users),
            f"{', '.join(sorted(defined)) or 'no function'}, which {entry} in "
            f"{', '.join(entries)} does not call: the kernels of {module} for {', '.join(archs)} "
            "are never launched, and their problems are answered with -1",
            f"an entry point that launches the embedded kernels, or hsa_subdirs without {module}",
            "use an AITER whose entry point calls it (a fork or a patch may), or remove these "
            "architectures",
            "warning",
        )


_CONFIG_HEADER = re.compile(r"asm_(\w+)_configs\.hpp")


def config_modules(
    tree: AiterTree, config: ModuleConfig, drop_srcs: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the modules of `hsa/codegen.py` whose tables a library's sources include, sorted.

    Includes count under every ``#if``. () for a library of AITER's earlier trees, which have other
    generators of the assembly path.
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


def named_modules(tree: AiterTree, calls: Iterable[GeneratorCall]) -> tuple[str, ...]:
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
    modules: Collection[str],
    named: Collection[str],
) -> AsmSet:
    """Generate the tables of a library, and list the code objects that it embeds.

    Tables of modules that the selection does not embed are empty.

    Args:
        out_dir: gets ``include/``.
        modules: from `config_modules`.
        named: modules whose table is written although no source includes it.

    Raises:
        CodegenError: the script fails, or a module has no tables.
    """
    direction = attention_of(config.name).direction
    embedded = (selection.embedded or modules) if selection.asm else ()
    rows: dict[str, list[ConfigRow]] = {}
    headers: list[GeneratedSource] = []
    inputs = {f"{tree.hsa_dir}/{SCRIPT}"}
    findings: list[Finding] = []
    for module in sorted({*modules, *named}):
        tables = read_tables(tree, module)
        inputs.update(table.file for table in tables)
        on = module in modules and module in embedded
        here = [table for table in tables if on and table.arch in archs]
        wanted = [
            row
            for table in here
            for row in table.rows
            if not selection.variants
            or any(row_fits(v, row, module, direction) for v in selection.variants)
        ]
        rows[module] = [row for row in wanted if not _missing(tree, row)]
        name = header_name(module)
        file = f"include/{name}"
        digest = out_dir.write(file, config_header(tree, module, tables, rows[module]))
        headers.append(GeneratedSource(name, file, digest, direction, "table"))
        findings += _integrity(tree, module, here, wanted)
    reached = {module: sorted({row.arch for row in kept}) for module, kept in rows.items()}
    arch_of = {file: row.arch for kept in rows.values() for row in kept for file in row.files}
    return AsmSet(
        archs=tuple(sorted(set().union(*reached.values()))),
        tables=tuple(headers),
        code_objects=tuple(code_object(tree, file, arch_of[file]) for file in sorted(arch_of)),
        served=_served(rows, direction, archs, selection.variants),
        findings=(*findings, *unreached(tree, config, selection.drop_srcs, reached)),
        inputs=tuple(sorted(inputs)),
    )


def _includes(path: Path) -> list[str]:
    return [name for name, _ in includes(lossy_text(path))]


def _missing(tree: AiterTree, row: ConfigRow) -> list[str]:
    return [file for file in row.files if not (tree.root / file).is_file()]


def _integrity(
    tree: AiterTree, module: str, tables: Sequence[ConfigTable], wanted: Sequence[ConfigRow]
) -> Iterator[Finding]:
    """Warn of rows without a file, and of files without a row, for each architecture."""
    for arch in sorted({table.arch for table in tables}):
        own = [table for table in tables if table.arch == arch]
        yield from compare_files(
            tree,
            f"{tree.hsa_dir}/{arch}/{module}",
            [table.file for table in own],
            {file for table in own for row in table.rows for file in row.files},
            {file for row in wanted if row.arch == arch for file in _missing(tree, row)},
            ": the rows are dropped, and no assembly kernel serves their problems",
        )


def _served(
    rows: Mapping[str, Sequence[ConfigRow]],
    direction: str,
    archs: Sequence[str],
    variants: Sequence[Variant],
) -> dict[int, frozenset[tuple[int, int]]]:
    """Return the head dims of each variant for which every architecture has a row."""
    found: dict[int, frozenset[tuple[int, int]]] = {}
    for variant in variants:
        own = {
            (row.arch, row.number("hdim_q"), row.number("hdim_v"))
            for module, kept in rows.items()
            for row in kept
            if not row.is_helper and row_fits(variant, row, module, direction)
        }
        if {arch for arch, _, _ in own} == set(archs):
            found[variant.index] = frozenset(
                hdim
                for hdim in variant.hdim or ()
                if all((arch, *padded(direction, *hdim)) in own for arch in archs)
            )
    return found
