"""Readers of ELF, MessagePack and logs: against established packages, and on broken files."""

from __future__ import annotations

import shutil
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from qola.cli.command_line import main
from qola.report.__main__ import main as report_program
from qola.report.data import ReportError
from qola.report.execution_log import Compile, parse_spawns, summarize_log
from qola.report.library import read_library
from qola.report.write import libraries_in, read_date, read_log, read_plan
from qola_base.code_object.elf import Elf
from tests.report.toys import LIBRARY, PLAN
from tests.support.log_entries import entry, file, spawns, text_of


def c_library() -> Path:
    """Return the path of this process's C library."""
    lines = Path("/proc/self/maps").read_text("ascii").splitlines()
    return next(Path(line.split()[-1]) for line in lines if "/libc.so" in line)


def test_symbols_match_pyelftools() -> None:
    """Prevents: symbols of another table, or an address with a wrong section offset."""
    data = c_library().read_bytes()
    elf, expected = Elf(data), ELFFile(BytesIO(data))
    table: Any = expected.get_section_by_name(".dynsym")
    symbols = [(s.name, s["st_value"], s["st_size"]) for s in table.iter_symbols()]
    assert [(s.name, s.address, s.size) for s in elf.symbols(".dynsym")] == symbols
    relocations: Any = expected.get_section_by_name(".rela.dyn")
    assert elf.addends() == {r["r_offset"]: r["r_addend"] for r in relocations.iter_relocations()}
    assert list(elf.symbols(".nowhere")) == []


def test_library_without_kernels() -> None:
    """Prevents: a lazy library, or a library of only assembly kernels, counts as broken."""
    found = read_library(c_library())
    assert (found.units, found.assembly) == ({}, ())
    assert found.size == c_library().stat().st_size


def test_parts_of_a_library() -> None:
    """Prevents: bytes of a library are in no part, in two parts, or in a wrong part."""
    found = read_library(c_library())
    parts = {part.what: part.bytes for part in found.parts}
    assert sum(parts.values()) == found.size
    sizes: dict[str, int] = {}
    for section in ELFFile(BytesIO(c_library().read_bytes())).iter_sections():
        if section["sh_type"] != "SHT_NOBITS":
            sizes[section.name] = section["sh_size"]
    host = (".text", ".plt", ".plt.got", ".plt.sec", "__libc_freeres_fn", ".init", ".fini")
    assert parts["host code"] == sum(sizes.get(name, 0) for name in host)
    unwind = (".eh_frame", ".eh_frame_hdr", ".gcc_except_table")
    assert parts["unwind tables"] == sum(sizes.get(name, 0) for name in unwind)
    assert parts["symbol table and names"] > sizes[".dynsym"] + sizes[".dynstr"]
    assert parts["headers and padding"] >= 64


def test_program_that_checks_a_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a library of exactly the budget fails, or one without families gets a traceback."""
    plan, library, output = (tmp_path / name for name in ("plan.json", LIBRARY.file, "out"))
    plan.write_text(PLAN.to_json(), "utf-8")
    shutil.copy(c_library(), library)
    size = library.stat().st_size
    arguments = ["--plan", str(plan), "--output", str(output), str(library), "--max-bytes"]
    assert report_program([*arguments, str(size - 1)]) == 1
    assert f"{size:,} bytes; omitting" in capsys.readouterr().err
    assert not output.exists()
    assert report_program([*arguments, str(size)]) == 0
    assert output.read_bytes() == b""


def test_date_of_a_bundle(tmp_path: Path) -> None:
    """Prevents: a report lacks its date, or an invalid manifest.json causes a traceback."""
    assert read_date(tmp_path) == ""
    path = tmp_path / "manifest.json"
    for text, date in (
        ('{"generated_at": "2026-01-31T01:02:03.456789+00:00"}', "2026-01-31T01:02:03Z"),
        ('{"generated_at": null}', ""),
        ("{}", ""),
    ):
        path.write_text(text, "utf-8")
        assert read_date(tmp_path) == date
    for text in (
        '{"generated_at": "yesterday"}',
        '{"generated_at": 1}',
        "[]",
        "[" * 100_000,
        "\xff",
    ):
        path.write_text(text, "latin-1")
        with pytest.raises(ReportError) as raised:
            read_date(tmp_path)
        assert raised.value.findings[0].place == str(path)
        fix = "" if text == "\xff" else f"qola build -m MANIFEST -o {tmp_path} writes it"
        assert raised.value.findings[0].fix == fix


def test_libraries_of_a_bundle(tmp_path: Path) -> None:
    """Prevents: qola does not search lib/ of a bundle."""
    (tmp_path / "lib/cmake").mkdir(parents=True)
    with pytest.raises(ReportError, match="a directory without libraries"):
        libraries_in(tmp_path)
    for name in ("b.so", "a.so", "libqola.a"):
        (tmp_path / "lib" / name).write_bytes(b"")
    assert [path.name for path in libraries_in(tmp_path)] == ["a.so", "b.so"]
    assert [path.name for path in libraries_in(tmp_path / "lib")] == ["a.so", "b.so"]
    assert libraries_in(tmp_path / "no.so") == [tmp_path / "no.so"]


def log_entry(name: str, total_time: str, **changes: Any) -> dict[str, Any]:
    """Return a log entry of a compile."""
    output = file(f"bazel-out/cfg/bin/external/rules_hip~/kernels/{name}.pic.o", "o")
    fields = {"mnemonic": "QolaCompile", "metrics": {"totalTime": total_time}}
    return entry(f"@@k//fwd:{name}", [file(f"{name}.cpp", "c")], [output], **fields | changes)


def test_entries_of_a_log() -> None:
    """Prevents: a log is read as a single document, or waiting time counts as compile time."""
    properties = {"properties": [{"name": "OSFamily", "value": "linux"}]}
    metrics = {"totalTime": "20.5s", "queueTime": "0.5s"}
    first, second = spawns(
        log_entry("a", "1s", platform=properties, metrics=metrics),
        log_entry("b", "0s", runner="disk cache hit", platform=None),
    )
    assert (first.label, first.runner, second.runner) == ("@@k//fwd:a", "local", "disk cache hit")
    assert (first.properties, second.properties) == ({"OSFamily": "linux"}, {})
    assert (first.inputs, first.name) == ({"a.cpp": "c"}, "a")
    assert (first.seconds, second.seconds) == (20.0, 0.0)
    with pytest.raises(ValueError, match="'1200' is not a duration"):
        spawns(log_entry("a", "1200"))
    lines = text_of(log_entry("a", "1s"), log_entry("b", "1s"))[:-100].splitlines(keepends=True)
    with pytest.raises(ValueError, match="ends within an entry"):
        list(parse_spawns(lines))


def test_compiles_of_a_log() -> None:
    """Prevents: a link counts as a compile, or a failed action hides the successful action."""
    found = spawns(
        log_entry("a", "2.5s", runner="linux-sandbox"),
        log_entry("a", "1s", runner="remote"),
        log_entry("b", "0.25s", runner="disk cache hit"),
        log_entry("c", "1.125s", runner="remote cache hit"),
        log_entry("d", "60s", runner="remote"),
        log_entry("e", "5s", exitCode=1),
        log_entry("f", "5s", mnemonic="CppLink"),
    )
    assert summarize_log(found).compiles == {
        "a": Compile(2.5, "compiled"),
        "b": Compile(0.25, "disk cache"),
        "c": Compile(1.125, "remote cache"),
        "d": Compile(60.0, "compiled"),
    }


def test_start_time_of_a_log() -> None:
    """Prevents: a report lacks its date, or shows the date of a later action."""
    times = ["2026-01-31T23:59:59.5Z", "2026-01-31T09:00:00.123456789Z", "2026-02-01T00:00:00Z"]
    entries = [log_entry("a", "1s", metrics={"startTime": time}) for time in times]
    found = spawns(*entries, log_entry("b", "1s"))
    assert summarize_log(found).start == "2026-01-31T09:00:00Z"
    assert summarize_log(()).start == ""
    with pytest.raises(ValueError, match="'tomorrow' is not a UTC time"):
        spawns(log_entry("a", "1s", metrics={"startTime": "tomorrow"}))


def test_missing_and_invalid_files_are_errors(tmp_path: Path) -> None:
    """Prevents: a missing or invalid file causes a traceback."""
    path = tmp_path / "it"
    for read in (read_log, read_plan, read_library):
        with pytest.raises(ReportError, match="No such file"):
            read(path)
    path.write_text("{\n", "utf-8")
    with pytest.raises(ReportError, match="--execution_log_json_file"):
        read_log(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ReportError, match="not UTF-8"):
        read_plan(path)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--output", "it.htm", "x.so"], "fix       --output it.html"),
        (["--output", "it.html", "x.so"], "error: {}/x.so\n  found     No such file"),
        (["--output", "it.html", "."], "a directory without libraries"),
        (["--output", "it.html", "x.so", "--compare", "y.json"], "y.json"),
    ],
)
def test_errors_of_the_command(
    arguments: list[str], found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a partly written page, or an error that does not name the file."""
    assert main(["report", *arguments], {}, directory=tmp_path) == 1
    assert found.format(tmp_path) in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
