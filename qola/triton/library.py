"""A library of compiled kernels: the table in its source, and a pack of code objects for each arch.

A pack is one of lazy libraries' (cc/runtime/pack.h); keys are digests of what it has of kernels: a
library never runs code of another build, nor any that somebody changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qola.errors import Finding, ManifestError
from qola.files import write_if_changed
from qola.json_types import WrongValueError, parse_json
from qola.rule_main import run_main
from qola.triton.arguments import form_of
from qola.triton.kernel import Argument

#: Of cc/runtime: a pack, and the trailer of its entries, with QOLA_KERNEL_ABI.
_PACK, _ENTRY, _ABI = b"QOLAPCK1", b"QOLAKRN1", 1
_ALIGNMENT = 16
#: Memory in a GPU that Triton expects to be handed over at a launch; a library hands over null.
_SCRATCH = ("global_scratch_size", "profile_scratch_size")
_TUNING = 'a list of objects, such as [{"kernel": "attention_forward", "HDIM": 64, "BLOCK_M": 128}]'


@dataclass(frozen=True)
class Built:
    """A compiled kernel.

    Attributes:
        kernel: that it is an instance of.
        told: its metadata.
        packed: what a pack has of it: the code, compressed; empty for the code itself.
    """

    kernel: str
    code: bytes
    told: Mapping[str, Any]
    packed: bytes = b""

    @property
    def key(self) -> str:
        """The digest of what a pack has of it, 64 hexadecimal digits; the table has it, too."""
        return hashlib.sha256(self.packed or self.code).hexdigest()


def read_built(kernel: str, code: Path, packed: Path | None = None) -> Built:
    """Read a code object, with the metadata beside it.

    Args:
        packed: the same, compressed by clang-offload-bundler.

    Raises:
        ManifestError: it needs memory that no launch of a library gives it.
    """
    told = json.loads(code.with_suffix(".json").read_text("utf-8"))
    needed = [f"{name} {told[name]}" for name in _SCRATCH if told[name]]
    if needed:
        chosen = " ".join(f"{name}={value}" for name, value in sorted(told["choices"].items()))
        place = f"{told['name']}: {kernel} {told['arch']} {chosen}".rstrip()
        expected = "a kernel that needs no scratch memory: a library hands over none"
        fix = "take these choices out; the code object is there for programs that launch it"
        raise ManifestError(Finding(place, ", ".join(needed), expected, fix))
    return Built(kernel, code.read_bytes(), told, packed.read_bytes() if packed else b"")


def pack(built: Iterable[Built]) -> bytes:
    """Return a pack of kernels, the same bytes in whatever order they come."""
    entries = {bytes.fromhex(one.key): one for one in sorted(built, key=lambda o: o.told["name"])}
    ordered = sorted(entries.items())
    labels = "".join(
        f"{one.told['name']}\t{one.told['arch']}\ttriton {one.told['triton']}\n"
        for _, one in ordered
    ).encode()
    table = struct.pack("<8sII", _PACK, len(ordered), len(labels))
    start = _aligned(len(table) + 48 * len(ordered) + len(labels) + 32)
    body = b""
    for key, one in ordered:
        entry = (one.packed or one.code) + struct.pack("<8sII", _ENTRY, _ABI, 0) + key
        entry += hashlib.sha256(entry).digest()
        table += key + struct.pack("<QQ", start + len(body), len(entry))
        body += entry.ljust(_aligned(len(entry)), b"\0")
    table += labels
    table += hashlib.sha256(table).digest()
    return table.ljust(start, b"\0") + body


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def preferred(built: Sequence[Built], text: str, place: str) -> list[Built]:
    """Return kernels in the order of a tuning table: those of its first row first.

    Args:
        text: JSON, a list of objects: a kernel's name and arch, and choices, whatever of these.
        place: what an error calls it.

    Raises:
        ManifestError: it is no such list, or a row fits no kernel.
    """
    try:
        rows = parse_json(text)
    except WrongValueError as error:
        raise ManifestError(Finding(place, str(error), _TUNING)) from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ManifestError(Finding(place, text[:60], _TUNING))
    of_kernel = {id(one): {"kernel": one.kernel, "arch": one.told["arch"]} for one in built}
    for one in built:
        of_kernel[id(one)] |= dict(_choices(one.told))
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
    """Return the C++ source of a library's table, and of its functions.

    Args:
        built: in the order in which those that fit are preferred.
        library: its file's name, without .so.
    """
    lines = ["// Written by qola/triton/library.py.", "#include <cstring>", "#include <iterator>"]
    lines += [f"#define QOLA_NAMESPACE {namespace}"] if namespace else []
    lines += ['#include "cc/triton/exports.inc"', "", "namespace qola_triton {", "namespace {", ""]
    rows = []
    for number, one in enumerate(built):
        lines += [f"const Choice choices_{number}[] = {{", *_choice_lines(one.told), "};"]
        lines += [f"const Argument arguments_{number}[] = {{", *_arguments(one.told), "};", ""]
        texts = (one.kernel, *(one.told[key] for key in ("name", "arch", "symbol")), one.key)
        threads = one.told["num_warps"] * one.told["warp_size"]
        counts = [
            f"{what}_{number}, std::size({what}_{number})" for what in ("choices", "arguments")
        ]
        fields = [*map(json.dumps, texts), str(threads), str(one.told["shared"]), *counts]
        rows.append(f"    {{{', '.join(fields)}}},")
    lines += ["const Instance instances[] = {", *rows, "};", "", "} // namespace", ""]
    name = json.dumps(library)
    lines += [f"const Table table = {{{name}, instances, std::size(instances)}};", ""]
    return "\n".join([*lines, "} // namespace qola_triton", ""])


def _choices(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    every = {**told["options"], **told["choices"], **told["constants"]}
    return [(name, _plain(value)) for name, value in sorted(every.items())]


def _plain(value: object) -> str:
    """Return a value as the table has it: as text, False and True as numbers."""
    return {"True": "1", "False": "0"}.get(str(value), str(value))


def _choice_lines(told: Mapping[str, Any]) -> Iterator[str]:
    for name, value in _choices(told):
        yield f"    {{{json.dumps(name)}, {json.dumps(value)}}},"


def _arguments(told: Mapping[str, Any]) -> Iterator[str]:
    for one in told["arguments"]:
        try:
            form = form_of(Argument(**one))
        except KeyError:
            expected = "a pointer, or a scalar of fp32, fp64, i1, or i or u with 8 to 64 bits"
            raise ManifestError(
                Finding(f"{told['name']}: {one['name']}", one["type"], expected)
            ) from None
        # Of *fp16, u32, i64, fp32 and bf16 the first letter tells.
        kind = {"*": "p", "u": "u", "i": "i"}.get(one["type"][0], "f")
        size = struct.calcsize(form)
        yield f"    {{{json.dumps(one['name'])}, '{kind}', {size}, {one['divisible']}}},"


def _work(words: Sequence[str]) -> None:
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
    told = parser.parse_args(words)
    packed = told.packed or [None] * len(told.kernel)
    given = zip((one.split("=", 1) for one in told.kernel), packed, strict=True)
    built = [read_built(name, Path(code), less) for (name, code), less in given]
    if told.tuning:
        built = preferred(built, told.tuning.read_text("utf-8"), str(told.tuning))
    if told.table:
        write_if_changed(told.table, table(built, told.namespace, told.library))
    if told.pack:
        write_if_changed(told.pack, pack(built))


if __name__ == "__main__":
    sys.exit(run_main(lambda: _work(sys.argv[1:])))
