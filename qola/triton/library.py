"""Writes the parts of a library: a C++ table of its kernels, and a pack of code objects per arch.

Packs have the format of lazy libraries (runtime/lazy/pack.h). The key of a kernel is the digest of
its code, so a library never runs code of another build or changed code.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from qola.common.packs import PackedCode, pack
from qola.triton.kernel import Argument, LaunchRecord
from qola_base.errors import Finding, ManifestError
from qola_base.files import write_if_changed
from qola_base.json_types import WrongValueError, parse_json
from qola_base.rule_main import run_main

_TUNING = 'a list of objects, such as [{"kernel": "attention_forward", "HDIM": 64, "BLOCK_M": 128}]'


@dataclass(frozen=True)
class Built:
    """A compiled kernel instance, with the content of its JSON file.

    Attributes:
        packed: the compressed code object for packs, empty if packs contain `code`.
    """

    kernel: str
    code: bytes
    metadata: LaunchRecord
    packed: bytes = b""

    @property
    def in_pack(self) -> PackedCode:
        """The kernel's entry in a pack; the table contains its key, too."""
        meta, compiler = self.metadata, f"triton {self.metadata['triton']}"
        return PackedCode(meta["name"], meta["arch"], compiler, self.packed or self.code)


def read_built(kernel: str, code: Path, packed: Path | None = None) -> Built:
    """Read a code object and its .json; raise ManifestError if it needs scratch memory."""
    metadata: LaunchRecord = json.loads(code.with_suffix(".json").read_text("utf-8"))
    # GPU memory that a launch must pass to some kernels; a library passes null pointers.
    scratch = {
        "global_scratch_size": metadata["global_scratch_size"],
        "profile_scratch_size": metadata["profile_scratch_size"],
    }
    needed = [f"{name} {size}" for name, size in scratch.items() if size]
    if needed:
        chosen = " ".join(f"{name}={value}" for name, value in sorted(metadata["choices"].items()))
        place = f"{metadata['name']}: {kernel} {metadata['arch']} {chosen}".rstrip()
        expected = "a kernel without scratch memory: a library does not allocate any"
        fix = "remove these choices; programs can still launch the code object themselves"
        raise ManifestError(Finding(place, ", ".join(needed), expected, fix))
    return Built(kernel, code.read_bytes(), metadata, packed.read_bytes() if packed else b"")


def pack_built(built: Iterable[Built]) -> bytes:
    """Return a pack of kernels. Its bytes do not depend on the order of `built`."""
    return pack(one.in_pack for one in built)


def preferred(built: Sequence[Built], text: str, place: str) -> list[Built]:
    """Sort kernels by the first row of a tuning table that fits them.

    Raises ManifestError if `text` is not a JSON list of objects with any of a kernel's name, arch
    and choices, or if a row fits no kernel.
    """
    try:
        rows = parse_json(text)
    except WrongValueError as error:
        raise ManifestError(Finding(place, str(error), _TUNING)) from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ManifestError(Finding(place, text[:60], _TUNING))
    of_kernel = {id(one): {"kernel": one.kernel, "arch": one.metadata["arch"]} for one in built}
    for one in built:
        of_kernel[id(one)] |= dict(_choices(one.metadata))
    wanted = [{name: _plain(value) for name, value in row.items()} for row in rows]
    ranks = {
        key: [row.items() <= values.items() for row in wanted] for key, values in of_kernel.items()
    }
    idle = [number for number in range(len(wanted)) if not any(r[number] for r in ranks.values())]
    if idle:
        found = ", ".join(json.dumps(rows[number]) for number in idle)
        raise ManifestError(Finding(place, found, "rows that fit one of the library's kernels"))
    return sorted(built, key=lambda one: [*ranks[id(one)], True].index(True))


def table(built: Sequence[Built], namespace: str, library: str) -> str:
    """Return the C++ source of the table of `library`.so, with kernels in order of preference."""
    lines = ["// Written by qola/triton/library.py.", "#include <cstring>", "#include <iterator>"]
    lines += [f"#define QOLA_NAMESPACE {namespace}"] if namespace else []
    lines += [
        '#include "runtime/triton/exports.inc"',
        "",
        "namespace qola_triton {",
        "namespace {",
        "",
    ]
    rows = []
    for number, one in enumerate(built):
        pairs = [f"    {{{json.dumps(n)}, {json.dumps(v)}}}," for n, v in _choices(one.metadata)]
        lines += [f"const Choice choices_{number}[] = {{", *pairs, "};"]
        lines += [f"const Argument arguments_{number}[] = {{", *_arguments(one.metadata), "};", ""]
        names = (one.metadata[key] for key in ("name", "arch", "symbol"))
        texts = (one.kernel, *names, one.in_pack.key)
        threads = one.metadata["num_warps"] * one.metadata["warp_size"]
        counts = [
            f"{what}_{number}, std::size({what}_{number})" for what in ("choices", "arguments")
        ]
        fields = [*map(json.dumps, texts), str(threads), str(one.metadata["shared"]), *counts]
        rows.append(f"    {{{', '.join(fields)}}},")
    lines += ["const Instance instances[] = {", *rows, "};", "", "} // namespace", ""]
    name = json.dumps(library)
    lines += [f"const Table table = {{{name}, instances, std::size(instances)}};", ""]
    return "\n".join([*lines, "} // namespace qola_triton", ""])


def _choices(metadata: LaunchRecord) -> list[tuple[str, str]]:
    every = {**metadata["options"], **metadata["choices"], **metadata["constants"]}
    return [(name, _plain(value)) for name, value in sorted(every.items())]


def _plain(value: object) -> str:
    """Return a value as text for the table, False and True as 0 and 1."""
    return {"True": "1", "False": "0"}.get(str(value), str(value))


def _arguments(metadata: LaunchRecord) -> Iterator[str]:
    for one in metadata["arguments"]:
        try:
            letter = Argument(**one).format
        except KeyError:
            expected = "a pointer, or a scalar of fp32, fp64, i1, or i or u with 8 to 64 bits"
            raise ManifestError(
                Finding(f"{metadata['name']}: {one['name']}", one["type"], expected)
            ) from None
        # The first letter distinguishes *fp16, u32, i64, and fp32 or bf16.
        kind = {"*": "p", "u": "u", "i": "i"}.get(one["type"][0], "f")
        size = struct.calcsize(letter)
        yield f"    {{{json.dumps(one['name'])}, '{kind}', {size}, {one['divisible']}}},"


def _write(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="qola.triton.library", description=__doc__, fromfile_prefix_chars="@"
    )
    parser.add_argument("--namespace", default="")
    parser.add_argument("--library", help="file's name without .so")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--tuning", type=Path, help="JSON, see `preferred`")
    parser.add_argument("--pack", type=Path)
    parser.add_argument("--kernel", action="append", default=[], metavar="KERNEL=CODE")
    parser.add_argument(
        "--packed", action="append", default=[], type=Path, help="of each kernel, compressed"
    )
    args = parser.parse_args(arguments)
    packed = args.packed or [None] * len(args.kernel)
    given = zip((one.split("=", 1) for one in args.kernel), packed, strict=True)
    built = [read_built(name, Path(code), less) for (name, code), less in given]
    if args.tuning:
        built = preferred(built, args.tuning.read_text("utf-8"), str(args.tuning))
    if args.table:
        write_if_changed(args.table, table(built, args.namespace, args.library))
    if args.pack:
        write_if_changed(args.pack, pack_built(built))


if __name__ == "__main__":
    sys.exit(run_main(lambda: _write(sys.argv[1:])))
