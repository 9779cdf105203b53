"""Hostile libraries, logs and reports for `qola report` and `qola inspect`."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zstandard

from qola.cli.command_line import main
from qola.report.assemble import make_report
from qola.report.data import SCHEMA
from qola.report.inspection import inspect_library
from qola.report.write import write_report
from qola_base.code_object.reader import unit_of
from qola_base.errors import unseen
from tests.fuzz.fuzzing import HOSTILE, fuzz, mutate_json
from tests.report.toys import COMPILED, LEFT_OUT, LIBRARY, PLAN

UNIT = unit_of("fwd_d192")
TARGET = "amdgcn-amd-amdhsa--gfx950"
KERNEL = {
    **{".name": "k", ".symbol": "k.kd", ".vgpr_count": 100, ".agpr_count": 4, ".sgpr_count": 58},
    **{".private_segment_fixed_size": 0, ".group_segment_fixed_size": 12480},
    ".max_flat_workgroup_size": 256,
}
DYNAMIC = 6
"""Type of a dynamic section."""
NUMBERS = (0, 1, 7, 255, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)
VALUES: tuple[Any, ...] = (None, True, 0, -1, 1.5, 2**64 - 1, [], {}, "x", [[[]]], {"a": 1})


def elf(machine: int, parts: Mapping[str, tuple[int, bytes]], first: int = 1 << 20) -> bytearray:
    """Return an ELF file of sections, given their types and contents."""
    names = b"\0" + b"\0".join(name.encode() for name in (*parts, ".shstrtab")) + b"\0"
    sections = {**parts, ".shstrtab": (3, names)}
    data = bytearray(64)
    table = bytearray(64)
    for name, (kind, content) in sections.items():
        at = names.index(b"\0" + name.encode() + b"\0") + 1
        link = 1 + [*sections].index(".strtab") if kind in (2, DYNAMIC) else 0
        address = first * (1 + [*sections].index(name))
        fields = (address, len(data), len(content), link, 0, 1, 24 if kind == 2 else 0)
        table += struct.pack("<IIQQQQIIQQ", at, kind, 2, *fields)
        data += content
    data[:16] = b"\x7fELF\x02\x01\x01" + bytes(9)
    counts = (64, 0, 0, 64, len(sections) + 1, len(sections))
    struct.pack_into("<HHIQQQIHHHHHH", data, 16, 3, machine, 1, 0, 0, len(data), 0x4F, *counts)
    return data + table


def symbols(*rows: tuple[str, int, int, int]) -> dict[str, tuple[int, bytes]]:
    """Return a symbol table of (name, type, address, size), and its string table."""
    names, table = b"\0", bytes(24)
    for name, kind, address, size in rows:
        table += struct.pack("<IBBHQQ", len(names), kind, 0, 1, address, size)
        names += name.encode("utf-8", "surrogatepass") + b"\0"
    return {".strtab": (3, names), ".symtab": (2, table)}


def damage(rng: random.Random, data: bytearray) -> bytearray:
    """Return a file with a few changed bytes or numbers, or without its end."""
    for _ in range(rng.choice((0, 0, 1, 1, 3))):
        at = rng.randrange(len(data))
        size = rng.choice((1, 2, 4, 8))
        number = rng.choice((*NUMBERS, rng.randrange(2**64))) % 256**size
        data[at : at + size] = number.to_bytes(size, "little")
    return data[: rng.randrange(len(data))] if rng.random() < 0.05 else data


def code_object(rng: random.Random) -> bytearray:
    """Return a code object with a kernel; its metadata is often invalid."""
    metadata: Any = {"amdhsa.target": TARGET, "amdhsa.kernels": [dict(KERNEL)]}
    for _ in range(rng.choice((0, 1, 1, 2))):
        container = rng.choice((metadata, metadata["amdhsa.kernels"][0]))
        container[rng.choice([*container])] = rng.choice((*VALUES, *HOSTILE))
        if type(metadata["amdhsa.kernels"]) is not list or not metadata["amdhsa.kernels"]:
            break
        if type(metadata["amdhsa.kernels"][0]) is not dict:
            break
    metadata = rng.choice(VALUES) if rng.random() < 0.05 else metadata
    content = msgpack.packb(metadata, unicode_errors="surrogatepass")
    note = struct.pack("<III", 7, len(content), 32) + b"AMDGPU\0\0" + content
    parts = {".note": (7, note), ".rodata": (1, bytes(48) + struct.pack("<IQI", 12, 0, 0))}
    rows = (("k.kd", 1, 2 << 20, 64), ("k", 2, 1, 3400), (f"__hip_cuid_{UNIT}", 1, 1, 0))
    return damage(rng, elf(224, {**parts, **symbols(*rows)}))


def compress(rng: random.Random, bundle: bytes) -> bytes:
    """Return a compressed bundle; its header is often invalid."""
    content = zstandard.compress(bundle)
    sizes = [24 + len(content), len(bundle)]
    version, method = rng.choice(((2, 1), (2, 1), (3, 1), (1, 1), (2, 0)))
    if rng.random() < 0.3:
        sizes[rng.randrange(2)] = rng.choice(NUMBERS) % 2**32
    return struct.pack("<4sHHIIQ", b"CCOB", version, method, *sizes, 0) + content


def make_library(rng: random.Random) -> bytes:
    """Return a library with a batch of the plan, or other batches, and an assembly kernel."""
    device = bytes(code_object(rng))
    count = rng.choice((1, 1, 1, 2, 300))
    rows = b"".join(
        struct.pack("<QQQ", 8192, len(device), len(target)) + target
        for target in (b"host-x86_64--", *[b"hip-" + TARGET.encode()] * count)
    )
    bundle = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", count + 1) + rows
    bundle = bundle[:8192].ljust(8192, b"\0") + device
    if rng.random() < 0.5:
        bundle = compress(rng, bundle)
    wrapper = struct.pack("<IIQQ", 0x48495046, 1, 1 << 20, 0)
    version = f"clang version {rng.choice(('19', *HOSTILE))}".encode("utf-8", "surrogatepass")
    parts = {".hip_fatbin": (1, bundle), ".hipFatBinSegment": (1, wrapper)}
    parts |= {".data": (1, bytes(code_object(rng))), ".comment": (1, version)}
    needed, searched = "libamdhip64.so.7", rng.choice(("$ORIGIN:/opt/rocm/lib", *HOSTILE))
    names = f"\0{needed}\0{searched}\0".encode("utf-8", "surrogatepass")
    tags = struct.pack("<qQqQ", 1, 1, 29, 2 + len(needed))
    parts |= {".strtab": (3, names), ".dynamic": (DYNAMIC, tags)}
    return bytes(damage(rng, elf(62, parts)))


def make_log(rng: random.Random) -> str:
    """Return a mutated log of two actions."""
    entry = {
        "commandArgs": ["clang++"],
        "mnemonic": "QolaCompile",
        "metrics": {"totalTime": "2.5s", "queueTime": "1s", "startTime": "2026-01-31T00:00:00Z"},
        "runner": rng.choice(("linux-sandbox", "disk cache hit")),
        "targetLabel": "@@rules_hip~//kernels:kernels",
        "platform": {"properties": [{"name": "a", "value": "b"}]},
        "actualOutputs": [
            {"path": "bin/fwd_d192.pic.o", "digest": {"hash": "00", "sizeBytes": "7"}}
        ],
    }
    text = json.dumps([entry, entry])
    if rng.random() < 0.7:
        text = mutate_json(rng, text, VALUES)
    try:
        entries = json.loads(text)
        return "".join(json.dumps(part, indent=2) for part in entries)
    except (TypeError, ValueError):
        return text


class Page(HTMLParser):
    """Records the tags of a page, to detect injected tags."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Record a tag."""
        self.tags.append(tag)


def test_reports(tmp_path: Path) -> None:
    """Prevents: a library or log causes a traceback, a hang, or injected tags in the page."""
    library, log, other = tmp_path / "ns_libmha_fwd.so", tmp_path / "log.json", tmp_path / "b.json"
    page = tmp_path / "a.html"
    old_report = make_report(PLAN, [LIBRARY], COMPILED, LEFT_OUT).to_json()

    def make(rng: random.Random) -> tuple[bytes, str, str | None, bool]:
        compared = rng.random() < 0.5
        text = (
            mutate_json(rng, old_report, VALUES) if compared and rng.random() < 0.8 else old_report
        )
        return make_library(rng), make_log(rng), text if compared else None, rng.random() < 0.5

    def take(data: tuple[bytes, str, str | None, bool]) -> None:
        content, log_text, old, planned = data
        library.write_bytes(content)
        log.write_text(log_text, encoding="utf-8", errors="surrogatepass")
        other.write_text(old or "", encoding="utf-8", errors="surrogatepass")
        plan = PLAN if planned else None
        write_report(page, [library], plan, log, LEFT_OUT, other if old else None)
        text = page.read_text("utf-8")
        assert not unseen(text.replace("\n", "").replace("\t", ""))
        reader = Page()
        reader.feed(text)
        assert (reader.tags.count("script"), reader.tags.count("b")) == (1, 0)
        data_ = json.loads(page.with_suffix(".json").read_text("utf-8"))
        assert data_["schema"] == SCHEMA

    fuzz(make, take)


def test_inspections(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a foreign library causes a traceback, or control characters in the output."""
    library = tmp_path / "lib.so"

    def take(content: bytes) -> None:
        library.write_bytes(content)
        code = main(["inspect", str(library)])
        printed = capsys.readouterr()
        assert (code, printed.err) == (0, "") or "error: " in printed.err
        assert not unseen((printed.out + printed.err).replace("\n", ""))

    fuzz(make_library, take)


def test_unmodified_library_and_log_are_read(tmp_path: Path) -> None:
    """Prevents: errors in the fuzzer's inputs themselves reject all inputs."""

    class FirstChoice(random.Random):
        def random(self) -> float:
            return 1.0

        def choice(self, seq: Any) -> Any:
            return seq[0]

    library, log = tmp_path / "ns_libmha_fwd.so", tmp_path / "log.json"
    library.write_bytes(make_library(FirstChoice()))
    log.write_text(make_log(FirstChoice()), encoding="utf-8")
    report = write_report(tmp_path / "a.html", [library], PLAN, log)
    (kernel,) = report.kernels
    assert (kernel.name, kernel.arch, kernel.vgprs, kernel.seconds) == (
        *("fwd_d192", "gfx950"),
        *(100, 1.5),
    )
    assert [found.symbol for found in report.assembly] == ["k"]
    inspected = inspect_library(library)
    assert (inspected.hip, inspected.archs) == ("libamdhip64.so.7", ["gfx950"])
    assert inspected.runpath == ("$ORIGIN", "/opt/rocm/lib")
    assert [[*code.kernels] for code in inspected.every] == [["k"], ["k"]]
