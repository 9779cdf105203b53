"""The program of split libraries: writes a pack per arch, and the table of the host part."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from qola.common.packs import PackedCode, pack
from qola.split.device_code import BUNDLES, CODE_OBJECTS, DeviceCode, read_device_code
from qola_base.code_object.offload import is_compressed
from qola_base.files import write_if_changed
from qola_base.json_types import reader
from qola_base.rule_main import run_main

_PAGE = 4096
"""HIP's runtime uses uncompressed code in place, in pages."""


@dataclass(frozen=True)
class Row:
    """Section and offset of device code in a library, and its key in a pack."""

    section: str
    offset: int
    key: str


@dataclass(frozen=True)
class ArchRows:
    """The rows of an arch."""

    arch: str
    rows: tuple[Row, ...]


def make_pack(codes: Iterable[DeviceCode], arch: str, bundler: Path) -> tuple[bytes, ArchRows]:
    """Return the pack of an arch, and its rows in the table of the host part."""
    selected = [(code, code.select(arch, bundler)) for code in codes]
    packed = [(code, PackedCode(code.name, arch, "", data)) for code, data in selected if data]
    paged = any(not is_compressed(memoryview(one.code)) for _, one in packed)
    rows = (Row(code.section, code.offset, one.key) for code, one in packed)
    return (
        pack((one for _, one in packed), *([_PAGE] if paged else [])),
        ArchRows(arch, tuple(sorted(rows, key=lambda row: (row.section, row.offset)))),
    )


def table(library: str, archs: Sequence[ArchRows]) -> str:
    """Return the C++ source of the table of `library`.so's host part."""
    # The order of addresses, see runtime/split/split.ld.
    assert BUNDLES < CODE_OBJECTS
    lines = ["// Written by qola/split.", '#include "runtime/split/table.h"', "#include <iterator>"]
    lines += ["", "namespace qola_split {", "namespace {", ""]
    parts = []
    for one in filter(lambda one: one.rows, archs):
        lines.append(f"const DeviceCode codes_{one.arch}[] = {{")
        lines += [
            f'    {{qola_split_{row.section} + {row.offset:#x}, "{row.key}"}},' for row in one.rows
        ]
        lines += ["};", ""]
        parts.append(f'    {{"{one.arch}", codes_{one.arch}, std::size(codes_{one.arch})}},')
    lines += ["const ArchCode archs[] = {", *parts, "};", "", "} // namespace", ""]
    lines += [f'const Table table = {{"{library}", archs, std::size(archs)}};', ""]
    return "\n".join([*lines, "} // namespace qola_split", ""])


def _pack(args: argparse.Namespace) -> None:
    content, rows = make_pack(read_device_code(args.linked), args.arch, args.bundler)
    args.pack.write_bytes(content)
    write_if_changed(args.rows, json.dumps(asdict(rows), indent=1) + "\n")


def _table(args: argparse.Namespace) -> None:
    read = reader(ArchRows)
    archs = [read(json.loads(file.read_text(encoding="utf-8"))) for file in args.rows]
    write_if_changed(args.table, table(args.library, archs))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="qola.split", description=__doc__)
    commands = parser.add_subparsers(required=True)
    packer = commands.add_parser("pack", help="write the pack of an arch")
    packer.set_defaults(work=_pack)
    packer.add_argument("--linked", required=True, type=Path, help="the library with its symbols")
    packer.add_argument("--arch", required=True)
    packer.add_argument("--bundler", required=True, type=Path, help="clang-offload-bundler")
    packer.add_argument("--pack", required=True, type=Path, help="file to write")
    packer.add_argument("--rows", required=True, type=Path, help="JSON to write: see ArchRows")
    writer = commands.add_parser("table", help="write the C++ of the host part's table")
    writer.set_defaults(work=_table)
    writer.add_argument("--library", required=True, help="file's name without .so")
    writer.add_argument("--table", required=True, type=Path, help="file to write")
    writer.add_argument("rows", nargs="+", type=Path, help="JSON of each arch")
    args = parser.parse_args(argv)
    return run_main(lambda: args.work(args))


if __name__ == "__main__":
    sys.exit(main())
